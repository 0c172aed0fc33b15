"""The logs of tasks: bounded, replayed by offset, and followed to the end."""

import asyncio
from pathlib import Path

import pytest

from fairlead.runner import task_log
from fairlead.runner.task_log import TaskLog, TaskLogs


async def read_all(log: TaskLog, offset: int = 0) -> bytes:
    return b"".join([chunk.data async for chunk in log.follow(offset)])


async def test_a_log_is_read_from_any_offset(tmp_path: Path) -> None:
    log = TaskLog(tmp_path / "l", limit=1000, segment=10)
    content = b"".join(b"%d\n" % number for number in range(100))
    for start in range(0, len(content), 7):
        log.append(content[start : start + 7])
    log.close()
    for offset in (0, 1, 9, 10, 11, 200, len(content) - 1, len(content), len(content) + 5):
        assert await read_all(log, offset) == content[offset:]


async def test_a_reader_that_reconnects_misses_nothing_of_fifty_megabytes(tmp_path: Path) -> None:
    log = TaskLog(tmp_path / "l")
    line = b"x" * 99 + b"\n"
    block = line * 10_000
    for _ in range(50):
        log.append(block)
    log.close()
    received, offset = 0, 0
    while offset < log.end:
        async for chunk in log.follow(offset):
            assert chunk.offset == offset
            assert len(chunk.data) == len(block[: len(chunk.data)])
            received += len(chunk.data)
            offset += len(chunk.data)
            if received % 7 == 0:
                break  # the connection is lost
    assert received == log.end == 50_000_000


async def test_a_log_that_is_too_long_loses_its_beginning_and_says_so(tmp_path: Path) -> None:
    log = TaskLog(tmp_path / "l", limit=100, segment=20)
    for number in range(100):
        log.append(b"%09d\n" % number)
    assert log.end == 1000
    assert 80 <= log.end - log.start <= 120
    assert sum(path.stat().st_size for path in (tmp_path / "l").iterdir()) == log.end - log.start
    first = log.read(0)
    assert (first.offset, first.data[:10]) == (log.start, b"%09d\n" % (log.start // 10))


async def test_a_reader_follows_until_the_task_ends(tmp_path: Path) -> None:
    log = TaskLog(tmp_path / "l")
    reading = asyncio.create_task(read_all(log))
    for part in (b"one\n", b"two\n"):
        log.append(part)
        await asyncio.sleep(1)
    assert not reading.done()
    log.close()
    assert await reading == b"one\ntwo\n"


async def test_the_next_process_goes_on_with_a_log(tmp_path: Path) -> None:
    first = TaskLogs(tmp_path)
    first.open("u", "t").append(b"before\n")
    second = TaskLogs(tmp_path)
    assert await read_all(second.get("u", "t")) == b"before\n"
    second.open("u", "t").append(b"after\n")
    second.get("u", "t").close()
    assert await read_all(second.get("u", "t"), 3) == b"ore\nafter\n"


async def test_only_the_logs_of_known_tasks_are_kept(tmp_path: Path) -> None:
    logs = TaskLogs(tmp_path)
    for task in ("a", "b", "c"):
        logs.open("u", task).append(b"x")
    logs.prune("u", ("b",))
    assert [path.name for path in (tmp_path / "u").iterdir()] == ["b"]
    logs.remove("u")
    assert not (tmp_path / "u").exists()


async def test_a_full_disk_loses_lines_and_not_the_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = TaskLog(tmp_path / "l")
    log.append(b"one\n")

    def refuse(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(task_log, "open", refuse, raising=False)
    log.append(b"two\n")
    monkeypatch.undo()
    log.append(b"three\n")
    log.close()
    assert await read_all(log) == b"one\nthree\n"
