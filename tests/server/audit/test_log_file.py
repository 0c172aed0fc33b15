"""The file: for its owner alone, rotated by size, and kept as long as was asked for."""

import gzip
import os
import shutil
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import structlog

from fairlead.core.files import FileProblem
from fairlead.server.audit import log_writer
from fairlead.server.audit.log_file import LogRetention, RotatingFile, StreamSink, open_sink

NOW = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
FIRST = "audit-20260102T030405.000006Z.log"


class Standing:
    """A clock that stands still."""

    def now(self) -> datetime:
        return NOW

    def monotonic(self) -> float:
        return 0.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "logs"
    made.mkdir()
    return made


def sink_of(path: Path, size: int = 1_000, **kept: int) -> RotatingFile:
    kept = {"count": 0, "days": 0, **kept}
    return RotatingFile(LogRetention(path, kept["count"], kept["days"], bool(kept.get("compress"))), size, Standing())


def append(sink: RotatingFile, *lines: bytes) -> None:
    for line in lines:
        sink.prepare_write(len(line))
        assert sink.write(memoryview(line)) == len(line)


def tidied() -> None:
    """Waits for the threads that look after old files."""
    for thread in threading.enumerate():
        if thread.name == "fairlead-tidy":
            thread.join()


def everything_in(folder: Path) -> bytes:
    """From the oldest file to the newest."""
    paths = sorted(folder.iterdir())
    return b"".join(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes() for path in paths)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_lines_are_appended_to_what_is_there(folder: Path) -> None:
    (folder / "audit.log").write_bytes(b"old\n")
    sink = sink_of(folder / "audit.log")
    append(sink, b"new\n", b"newer\n")
    sink.close()
    assert (folder / "audit.log").read_bytes() == b"old\nnew\nnewer\n"


def test_a_line_that_broke_off_when_the_server_was_killed_is_closed(folder: Path) -> None:
    (folder / "audit.log").write_bytes(b'{"half')
    sink = sink_of(folder / "audit.log")
    append(sink, b"new\n")
    sink.close()
    assert (folder / "audit.log").read_bytes() == b'{"half\nnew\n'


def test_nobody_else_can_read_any_of_the_files(folder: Path) -> None:
    before = os.umask(0)
    try:
        sink = sink_of(folder / "audit.log", size=5, compress=True)
        append(sink, b"1234\n", b"5678\n")
        sink.close()
        tidied()
    finally:
        os.umask(before)
    assert names(folder) == [f"{FIRST}.gz", "audit.log"]
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


def test_a_file_that_would_grow_too_large_is_begun_anew(folder: Path) -> None:
    sink = sink_of(folder / "audit.log", size=10)
    append(sink, b"1234\n", b"5678\n", b"next\n")
    sink.close()
    tidied()
    assert (folder / FIRST).read_bytes() == b"1234\n5678\n"
    assert (folder / "audit.log").read_bytes() == b"next\n"


def test_one_line_that_is_larger_than_the_limit_is_written_all_the_same(folder: Path) -> None:
    sink = sink_of(folder / "audit.log", size=3)
    append(sink, b"much longer\n")
    sink.close()
    assert names(folder) == ["audit.log"]


def test_a_size_from_before_the_start_counts(folder: Path) -> None:
    (folder / "audit.log").write_bytes(b"x" * 9 + b"\n")
    sink = sink_of(folder / "audit.log", size=10)
    append(sink, b"new\n")
    sink.close()
    tidied()
    assert names(folder) == [FIRST, "audit.log"]


def test_no_old_file_is_overwritten_by_another(folder: Path) -> None:
    sink = sink_of(folder / "audit.log", size=5)
    append(sink, b"1111\n", b"2222\n", b"3333\n", b"4444\n")
    sink.close()
    tidied()
    contents = {path.read_bytes() for path in folder.iterdir()}
    assert contents == {b"1111\n", b"2222\n", b"3333\n", b"4444\n"}


def test_old_files_can_be_compressed(folder: Path) -> None:
    sink = sink_of(folder / "audit.log", size=5, compress=True)
    append(sink, b"1111\n", b"2222\n")
    sink.close()
    tidied()
    assert names(folder) == [f"{FIRST}.gz", "audit.log"]
    assert gzip.decompress((folder / f"{FIRST}.gz").read_bytes()) == b"1111\n"


def test_only_so_many_old_files_are_kept_and_the_oldest_go_first(folder: Path) -> None:
    sink = sink_of(folder / "audit.log", size=5, count=2)
    append(sink, b"1111\n", b"2222\n", b"3333\n", b"4444\n", b"5555\n")
    sink.close()
    tidied()
    assert {path.read_bytes() for path in folder.iterdir()} == {b"3333\n", b"4444\n", b"5555\n"}


def test_old_files_go_when_they_are_too_old(folder: Path) -> None:
    backups = LogRetention(folder / "audit.log", 0, 7, compress=False)
    young, old = backups.rotated_path(NOW - timedelta(days=6)), backups.rotated_path(NOW - timedelta(days=8))
    for path in (young, old, old.with_name(old.name + ".gz")):
        path.write_bytes(b"")
    backups.clean_up(NOW)
    assert names(folder) == [young.name]


def test_what_else_lies_in_the_folder_is_left_alone(folder: Path) -> None:
    others = ["audit-notes.log", "audit-20260102.log", "audit.log.1", f"x{FIRST}", "other-20200102T030405.000006Z.log"]
    for name in others:
        (folder / name).write_bytes(b"mine")
    LogRetention(folder / "audit.log", 1, 1, compress=True).clean_up(NOW + timedelta(days=1_000))
    assert names(folder) == sorted(others)


def test_compression_that_was_interrupted_is_done_again(folder: Path) -> None:
    (folder / FIRST).write_bytes(b"1111\n")
    (folder / f"{FIRST}.gz.part").write_bytes(b"half")
    LogRetention(folder / "audit.log", 5, 0, compress=True).clean_up(NOW)
    assert names(folder) == [f"{FIRST}.gz"]
    assert gzip.decompress((folder / f"{FIRST}.gz").read_bytes()) == b"1111\n"


def test_compression_that_fails_leaves_the_file_as_it_was(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfileobj", full)
    (folder / FIRST).write_bytes(b"1111\n")
    with structlog.testing.capture_logs() as lines:
        LogRetention(folder / "audit.log", 5, 0, compress=True).clean_up(NOW)
    assert names(folder) == [FIRST]
    assert "No space left on device" in lines[0]["reason"]


def test_a_file_that_was_moved_away_is_followed_by_a_new_one(folder: Path) -> None:
    sink = sink_of(folder / "audit.log")
    append(sink, b"one\n")
    (folder / "audit.log").rename(folder / "taken")
    append(sink, b"two\n")
    (folder / "audit.log").unlink()
    append(sink, b"three\n")
    sink.close()
    assert (folder / "taken").read_bytes() == b"one\n"
    assert (folder / "audit.log").read_bytes() == b"three\n"


def test_a_folder_that_has_gone_is_an_error_until_it_is_back(folder: Path) -> None:
    sink = sink_of(folder / "audit.log")
    (folder / "audit.log").unlink()
    tidied()
    folder.rmdir()
    with pytest.raises(FileNotFoundError):
        sink.prepare_write(4)
    folder.mkdir()
    append(sink, b"one\n")
    sink.close()
    assert (folder / "audit.log").read_bytes() == b"one\n"


class Stale:
    """A file that is taken away, and whose descriptor is good for nothing from then on."""

    def __init__(self, inner: RotatingFile, taken: Path) -> None:
        self.inner, self.taken = inner, taken
        self.prepare_write, self.close = inner.prepare_write, inner.close

    def write(self, data: memoryview) -> int:
        if not self.taken.exists():
            self.taken.with_name("audit.log").rename(self.taken)
            raise OSError(116, "Stale file handle")
        return self.inner.write(data)


async def test_a_descriptor_that_went_bad_is_replaced(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_writer, "RETRY_SECONDS", 0.01)
    with structlog.testing.capture_logs():
        log = log_writer.AuditLogWriter(Stale(sink_of(folder / "audit.log"), folder / "taken"), max_events=1)
        log.add(b"one\n")
        assert await log.wait_for_space(30)
        await log.close()
    assert (folder / "audit.log").read_bytes() == b"one\n"
    assert (folder / "taken").read_bytes() == b""


def test_a_device_is_never_rotated() -> None:
    sink = sink_of(Path("/dev/null"), size=5)
    append(sink, b"1234\n", b"5678\n", b"next\n")
    sink.close()
    assert not Path("/dev/null").is_file()


@pytest.mark.parametrize("name", ["missing/audit.log", ".", "file/audit.log"])
def test_a_path_that_cannot_be_written_is_told_at_the_start(folder: Path, name: str) -> None:
    (folder / "file").write_bytes(b"")
    with pytest.raises(FileProblem, match=r"make sure that its folder exists .* or set audit_path"):
        sink_of(folder / name)


def test_the_log_can_go_to_a_pipe() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with os.fdopen(writing, "wb") as end, os.fdopen(reading, "rb") as other:
        sink = StreamSink(end.fileno())
        sink.prepare_write(4)
        assert sink.write(memoryview(b"one\n")) == 4
        assert other.readline() == b"one\n"
        while written := sink.write(memoryview(b"x" * 65_536)):  # until nobody reads on, which is no error
            assert written > 0


def test_a_setting_says_where_the_log_goes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def backups(path: Path) -> LogRetention:
        return LogRetention(path, 1, 1, compress=False)

    sink = open_sink(str(folder / "audit.log"), backups, 100, Standing())
    sink.close()
    tidied()
    assert names(folder) == ["audit.log"]
    with (folder / "output").open("wb") as output:
        monkeypatch.setattr("sys.stdout", output)
        open_sink("-", backups, 100, Standing()).write(memoryview(b"one\n"))
    assert (folder / "output").read_bytes() == b"one\n"


def test_a_clock_that_was_set_back_makes_no_old_file_of_a_new_one(folder: Path) -> None:
    backups = LogRetention(folder / "audit.log", 0, 0, compress=False)
    later = backups.rotated_path(NOW + timedelta(hours=1))
    later.write_bytes(b"")
    assert backups.next_path(NOW).name > later.name
    assert backups.next_path(NOW + timedelta(hours=2)) == backups.rotated_path(NOW + timedelta(hours=2))


async def test_a_trail_of_a_small_file_loses_nothing_on_the_way_through_many(folder: Path) -> None:
    log = log_writer.AuditLogWriter(sink_of(folder / "audit.log", size=200, compress=True))
    lines = [b"line %d\n" % number for number in range(300)]
    for number, line in enumerate(lines):
        log.add(line)
        if number % 50 == 0:
            await log.wait_for_space(0)
    await log.close()
    tidied()
    assert everything_in(folder).splitlines(keepends=True) == lines
