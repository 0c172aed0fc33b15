"""server.audit.log_file: audit log files are private, rotated by size, and removed after their retention."""

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
FIRST_ROTATED = "audit-20260102T030405.000006Z.log"


class StoppedClock:
    """A clock that does not advance."""

    def now(self) -> datetime:
        return NOW

    def monotonic(self) -> float:
        return 0.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "logs"
    path.mkdir()
    return path


def open_rotating_file(path: Path, size: int = 1_000, **retention: int) -> RotatingFile:
    retention = {"count": 0, "days": 0, **retention}
    return RotatingFile(
        LogRetention(path, retention["count"], retention["days"], bool(retention.get("compress"))), size, StoppedClock()
    )


def append(sink: RotatingFile, *lines: bytes) -> None:
    for line in lines:
        sink.prepare_write(len(line))
        assert sink.write(memoryview(line)) == len(line)
        sink.end_write()


def wait_for_cleanup() -> None:
    """Waits for the cleanup threads."""
    for thread in threading.enumerate():
        if thread.name == "fairlead-tidy":
            thread.join()


def read_all_files(folder: Path) -> bytes:
    """The content of all files, from the oldest to the newest."""
    paths = sorted(list_logs(folder))
    return b"".join(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes() for path in paths)


def list_logs(folder: Path) -> list[Path]:
    """All files except the hidden lock file."""
    return [path for path in folder.iterdir() if not path.name.startswith(".")]


def list_names(folder: Path) -> list[str]:
    return sorted(path.name for path in list_logs(folder))


def test_lines_are_appended_to_an_existing_file(folder: Path) -> None:
    (folder / "audit.log").write_bytes(b"old\n")
    sink = open_rotating_file(folder / "audit.log")
    append(sink, b"new\n", b"newer\n")
    sink.close()
    assert (folder / "audit.log").read_bytes() == b"old\nnew\nnewer\n"


def test_an_incomplete_last_line_is_terminated(folder: Path) -> None:
    (folder / "audit.log").write_bytes(b'{"half')
    sink = open_rotating_file(folder / "audit.log")
    append(sink, b"new\n")
    sink.close()
    assert (folder / "audit.log").read_bytes() == b'{"half\nnew\n'


def test_only_the_owner_can_read_the_files(folder: Path) -> None:
    umask = os.umask(0)
    try:
        sink = open_rotating_file(folder / "audit.log", size=5, compress=True)
        append(sink, b"1234\n", b"5678\n")
        sink.close()
        wait_for_cleanup()
    finally:
        os.umask(umask)
    assert list_names(folder) == [f"{FIRST_ROTATED}.gz", "audit.log"]
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


def test_a_file_is_rotated_before_it_exceeds_its_size(folder: Path) -> None:
    sink = open_rotating_file(folder / "audit.log", size=10)
    append(sink, b"1234\n", b"5678\n", b"next\n")
    sink.close()
    wait_for_cleanup()
    assert (folder / FIRST_ROTATED).read_bytes() == b"1234\n5678\n"
    assert (folder / "audit.log").read_bytes() == b"next\n"


def test_a_line_larger_than_the_limit_is_still_written(folder: Path) -> None:
    sink = open_rotating_file(folder / "audit.log", size=3)
    append(sink, b"much longer\n")
    sink.close()
    assert list_names(folder) == ["audit.log"]


def test_the_size_of_an_existing_file_counts(folder: Path) -> None:
    (folder / "audit.log").write_bytes(b"x" * 9 + b"\n")
    sink = open_rotating_file(folder / "audit.log", size=10)
    append(sink, b"new\n")
    sink.close()
    wait_for_cleanup()
    assert list_names(folder) == [FIRST_ROTATED, "audit.log"]


def test_rotated_files_do_not_overwrite_each_other(folder: Path) -> None:
    sink = open_rotating_file(folder / "audit.log", size=5)
    append(sink, b"1111\n", b"2222\n", b"3333\n", b"4444\n")
    sink.close()
    wait_for_cleanup()
    contents = {path.read_bytes() for path in list_logs(folder)}
    assert contents == {b"1111\n", b"2222\n", b"3333\n", b"4444\n"}


def test_rotated_files_can_be_compressed(folder: Path) -> None:
    sink = open_rotating_file(folder / "audit.log", size=5, compress=True)
    append(sink, b"1111\n", b"2222\n")
    sink.close()
    wait_for_cleanup()
    assert list_names(folder) == [f"{FIRST_ROTATED}.gz", "audit.log"]
    assert gzip.decompress((folder / f"{FIRST_ROTATED}.gz").read_bytes()) == b"1111\n"


def test_the_oldest_files_over_the_count_are_removed(folder: Path) -> None:
    sink = open_rotating_file(folder / "audit.log", size=5, count=2)
    append(sink, b"1111\n", b"2222\n", b"3333\n", b"4444\n", b"5555\n")
    sink.close()
    wait_for_cleanup()
    assert {path.read_bytes() for path in list_logs(folder)} == {b"3333\n", b"4444\n", b"5555\n"}


def test_files_over_the_age_limit_are_removed(folder: Path) -> None:
    retention = LogRetention(folder / "audit.log", 0, 7, compress=False)
    newer, older = retention.rotated_path(NOW - timedelta(days=6)), retention.rotated_path(NOW - timedelta(days=8))
    for path in (newer, older, older.with_name(older.name + ".gz")):
        path.write_bytes(b"")
    retention.clean_up(NOW)
    assert list_names(folder) == [newer.name]


def test_other_files_in_the_folder_are_not_touched(folder: Path) -> None:
    others = [
        "audit-notes.log",
        "audit-20260102.log",
        "audit.log.1",
        f"x{FIRST_ROTATED}",
        "other-20200102T030405.000006Z.log",
    ]
    for name in others:
        (folder / name).write_bytes(b"other")
    LogRetention(folder / "audit.log", 1, 1, compress=True).clean_up(NOW + timedelta(days=1_000))
    assert list_names(folder) == sorted(others)


def test_interrupted_compression_is_repeated(folder: Path) -> None:
    (folder / FIRST_ROTATED).write_bytes(b"1111\n")
    (folder / f"{FIRST_ROTATED}.gz.part").write_bytes(b"half")
    LogRetention(folder / "audit.log", 5, 0, compress=True).clean_up(NOW)
    assert list_names(folder) == [f"{FIRST_ROTATED}.gz"]
    assert gzip.decompress((folder / f"{FIRST_ROTATED}.gz").read_bytes()) == b"1111\n"


def test_failed_compression_leaves_the_file_unchanged(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_disk_full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfileobj", raise_disk_full)
    (folder / FIRST_ROTATED).write_bytes(b"1111\n")
    with structlog.testing.capture_logs() as lines:
        LogRetention(folder / "audit.log", 5, 0, compress=True).clean_up(NOW)
    assert list_names(folder) == [FIRST_ROTATED]
    assert "No space left on device" in lines[0]["reason"]


def test_a_file_that_was_moved_or_deleted_is_created_again(folder: Path) -> None:
    sink = open_rotating_file(folder / "audit.log")
    append(sink, b"one\n")
    (folder / "audit.log").rename(folder / "moved")
    append(sink, b"two\n")
    (folder / "audit.log").unlink()
    append(sink, b"three\n")
    sink.close()
    assert (folder / "moved").read_bytes() == b"one\n"
    assert (folder / "audit.log").read_bytes() == b"three\n"


def test_a_missing_folder_is_an_error_until_it_exists_again(folder: Path) -> None:
    sink = open_rotating_file(folder / "audit.log")
    (folder / "audit.log").unlink()
    wait_for_cleanup()
    shutil.rmtree(folder)
    with pytest.raises(FileNotFoundError):
        sink.prepare_write(4)
    folder.mkdir()
    append(sink, b"one\n")
    sink.close()
    assert (folder / "audit.log").read_bytes() == b"one\n"


class StaleFile:
    """A file that is moved away, after which its descriptor fails."""

    def __init__(self, inner: RotatingFile, moved: Path) -> None:
        self.inner, self.moved = inner, moved
        self.prepare_write, self.end_write, self.close = inner.prepare_write, inner.end_write, inner.close

    def write(self, data: memoryview) -> int:
        if not self.moved.exists():
            self.moved.with_name("audit.log").rename(self.moved)
            raise OSError(116, "Stale file handle")
        return self.inner.write(data)


async def test_a_stale_descriptor_is_replaced(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_writer, "RETRY_SECONDS", 0.01)
    with structlog.testing.capture_logs():
        writer = log_writer.AuditLogWriter(
            StaleFile(open_rotating_file(folder / "audit.log"), folder / "moved"), max_events=1
        )
        writer.add(b"one\n")
        assert await writer.wait_for_space(30)
        await writer.close()
    assert (folder / "audit.log").read_bytes() == b"one\n"
    assert (folder / "moved").read_bytes() == b""


def test_a_device_is_never_rotated() -> None:
    sink = open_rotating_file(Path("/dev/null"), size=5)
    append(sink, b"1234\n", b"5678\n", b"next\n")
    sink.close()
    assert not Path("/dev/null").is_file()


@pytest.mark.parametrize("name", ["missing/audit.log", ".", "file/audit.log"])
def test_a_path_that_is_not_writable_is_rejected_at_startup(folder: Path, name: str) -> None:
    (folder / "file").write_bytes(b"")
    with pytest.raises(FileProblem, match=r"make sure that its folder exists .* or set audit_path"):
        open_rotating_file(folder / name)


def test_the_log_can_be_written_to_a_pipe() -> None:
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    with os.fdopen(write_end, "wb") as writer, os.fdopen(read_end, "rb") as reader:
        sink = StreamSink(writer.fileno())
        sink.prepare_write(4)
        assert sink.write(memoryview(b"one\n")) == 4
        assert reader.readline() == b"one\n"
        while written := sink.write(memoryview(b"x" * 65_536)):  # a full pipe is not an error
            assert written > 0


def test_the_log_is_written_to_a_file_or_to_stdout(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def build_retention(path: Path) -> LogRetention:
        return LogRetention(path, 1, 1, compress=False)

    sink = open_sink(str(folder / "audit.log"), build_retention, 100, StoppedClock())
    sink.close()
    wait_for_cleanup()
    assert list_names(folder) == ["audit.log"]
    with (folder / "output").open("wb") as output:
        monkeypatch.setattr("sys.stdout", output)
        open_sink("-", build_retention, 100, StoppedClock()).write(memoryview(b"one\n"))
    assert (folder / "output").read_bytes() == b"one\n"


def test_rotated_files_stay_in_order_after_the_clock_was_set_back(folder: Path) -> None:
    retention = LogRetention(folder / "audit.log", 0, 0, compress=False)
    future = retention.rotated_path(NOW + timedelta(hours=1))
    future.write_bytes(b"")
    assert retention.next_path(NOW).name > future.name
    assert retention.next_path(NOW + timedelta(hours=2)) == retention.rotated_path(NOW + timedelta(hours=2))


async def test_no_line_is_lost_over_many_rotations(folder: Path) -> None:
    writer = log_writer.AuditLogWriter(open_rotating_file(folder / "audit.log", size=200, compress=True))
    lines = [b"line %d\n" % number for number in range(300)]
    for number, line in enumerate(lines):
        writer.add(line)
        if number % 50 == 0:
            await writer.wait_for_space(0)
    await writer.close()
    wait_for_cleanup()
    assert read_all_files(folder).splitlines(keepends=True) == lines
