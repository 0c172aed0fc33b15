"""server.audit.log_file: several processes write to one audit log, and no line is lost, torn or repeated."""

import asyncio
import gzip
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import structlog

from fairlead.core.clock import SystemClock
from fairlead.server.audit import log_file, log_writer
from fairlead.server.audit.log import DiskBudget
from fairlead.server.audit.log_file import LogRetention, RotatingFile, StreamSink
from fairlead.server.audit.log_writer import AuditLogWriter
from tests.harness.eventually import eventually

LINE = re.compile(rb"writer (\d+) line (\d+) (x*)\n")
MAX_BYTES = 4_000
WRITER_COUNT = 4


def open_log(folder: Path, *, compress: bool = True, max_disk_bytes: int = 0) -> RotatingFile:
    retention = LogRetention(folder / "audit.log", 0, 0, compress)
    budget = DiskBudget({"authenticated": retention}, max_disk_bytes)
    return RotatingFile(retention, MAX_BYTES, SystemClock(), budget.clean_up)


async def write_output(lock: Path, writer: int, count: int) -> None:
    """The program of a writer to the standard output."""
    await write_pipe(StreamSink(sys.stdout.fileno(), lock), writer, count)


async def write_named_pipe(path: Path, writer: int, count: int) -> None:
    """The program of a writer to a named pipe."""
    await write_pipe(RotatingFile(LogRetention(path, 0, 0, compress=False), MAX_BYTES, SystemClock()), writer, count)


async def write_pipe(sink: StreamSink | RotatingFile, writer: int, count: int) -> None:
    log = AuditLogWriter(sink)
    for number in range(count):
        log.add(b"writer %d line %d %s\n" % (writer, number, b"x" * (number * 37 % 200)))
        if number % 4_000 == 0:
            await asyncio.sleep(2 * log_writer.BATCH_DELAY_SECONDS)
    await log.close()


async def write_lines(folder: Path, writer: int, count: int) -> None:
    """The program of one writer. Prints how many lines were written whenever a batch has reached the file."""
    log = AuditLogWriter(open_log(folder), max_events=20)
    for number in range(count):
        log.add(b"writer %d line %d %s\n" % (writer, number, b"x" * (number * 37 % 200)))
        if log.is_full:
            await log.wait_for_space(60)
            print(number + 1, flush=True)
    await log.close()
    for thread in threading.enumerate():
        if thread.name == "fairlead-tidy":
            thread.join()


@contextmanager
def run_writer(folder: Path, writer: int, count: int) -> "Iterator[subprocess.Popen[bytes]]":
    command = [sys.executable, "-m", __spec__.name, "file", str(folder), str(writer), str(count)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def read_lines(folder: Path) -> list[bytes]:
    """The lines of all files, from the oldest to the newest."""
    lines: list[bytes] = []
    for path in sorted(folder.glob("audit*")):
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        lines += content.splitlines(keepends=True)
    return lines


def numbers_of(lines: list[bytes], writer: int) -> list[int]:
    """The numbers of a writer's lines, in the order of the files. Fails for a torn line."""
    matches = [LINE.fullmatch(line) for line in lines]
    assert all(match and len(match[3]) == int(match[2]) * 37 % 200 for match in matches)
    return [int(match[2]) for match in matches if match and int(match[1]) == writer]


def test_no_line_is_lost_or_torn_while_processes_rotate_and_compress_one_log(tmp_path: Path) -> None:
    count = 600
    with ExitStack() as stack:
        processes = [stack.enter_context(run_writer(tmp_path, writer, count)) for writer in range(WRITER_COUNT)]
        for process in processes:
            process.communicate(timeout=120)
            assert process.returncode == 0
    lines = read_lines(tmp_path)
    for writer in range(WRITER_COUNT):
        assert numbers_of(lines, writer) == list(range(count))
    rotated = [path for path in tmp_path.glob("audit-*") if path.suffix == ".gz"]
    assert len(rotated) > 20 and not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize("is_named", [False, True])
def test_lines_of_several_processes_in_one_pipe_are_not_mixed(tmp_path: Path, is_named: bool) -> None:
    """Their batches are larger than what the kernel writes to a pipe at once."""
    count, path = 12_000, tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    output = os.open(path, os.O_WRONLY)
    os.set_blocking(reader, True)
    program = "named" if is_named else "output"
    place = str(path if is_named else tmp_path / "lock")
    command = [sys.executable, "-m", __spec__.name, program, place]
    with ExitStack() as stack:
        for writer in range(WRITER_COUNT):
            process = subprocess.Popen([*command, str(writer), str(count)], stdout=output)
            stack.callback(process.wait, 60)
            stack.callback(process.kill)
        os.close(output)
        with os.fdopen(reader, "rb") as pipe:
            lines = list(pipe)
    for writer in range(WRITER_COUNT):
        assert numbers_of(lines, writer) == list(range(count))


def test_no_written_line_is_lost_when_a_writer_is_killed(tmp_path: Path) -> None:
    with ExitStack() as stack:
        survivor = stack.enter_context(run_writer(tmp_path, 0, 600))
        victims = [stack.enter_context(run_writer(tmp_path, writer, 1_000_000)) for writer in range(1, WRITER_COUNT)]
        written = {}
        for writer, process in enumerate(victims, start=1):
            assert process.stdout is not None
            for _ in range(5 * writer):
                written[writer] = int(process.stdout.readline())
            process.send_signal(signal.SIGKILL)
        survivor.communicate(timeout=120)
        assert survivor.returncode == 0
    asyncio.run(write_lines(tmp_path, 9, 10))  # compresses what the killed processes have left
    lines = read_lines(tmp_path)
    assert numbers_of([line for line in lines if LINE.fullmatch(line)], 0) == list(range(600))
    for writer, count in written.items():
        numbers = numbers_of([line for line in lines if LINE.fullmatch(line)], writer)
        assert numbers == list(range(len(numbers))) and len(numbers) >= count
    torn = [line for line in lines if not LINE.fullmatch(line)]
    assert len(torn) < WRITER_COUNT and not list(tmp_path.glob("*.part"))


def test_a_line_that_a_killed_process_left_incomplete_is_terminated_by_the_next_writer(tmp_path: Path) -> None:
    first, second = open_log(tmp_path), open_log(tmp_path)
    second.prepare_write(4)
    second.write(memoryview(b"one\n"))
    second.end_write()
    first.prepare_write(10)
    first.write(memoryview(b"half"))
    first.close()  # as the kernel does for a killed process
    second.prepare_write(4)
    second.write(memoryview(b"two\n"))
    second.close()
    assert (tmp_path / "audit.log").read_bytes() == b"one\nhalf\ntwo\n"


async def test_a_process_that_cannot_get_the_lock_reports_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_file, "LOCK_TIMEOUT_SECONDS", 0.01)
    monkeypatch.setattr(log_writer, "RETRY_SECONDS", 0.01)
    other, writer = open_log(tmp_path), AuditLogWriter(open_log(tmp_path), max_events=1)
    other.prepare_write(8)
    other.write(memoryview(b"half "))  # its disk fails within a line, so it keeps the lock
    with structlog.testing.capture_logs():
        writer.add(b"next\n")
        await eventually(lambda: writer.failure == "another process keeps the audit log locked")
        other.write(memoryview(b"one\n"))
        other.end_write()
        assert await writer.wait_for_space(30) and not writer.failure
        await writer.close()
    other.close()
    assert (tmp_path / "audit.log").read_bytes() == b"half one\nnext\n"


def test_each_process_sees_the_size_that_others_have_written(tmp_path: Path) -> None:
    first, second = open_log(tmp_path, compress=False), open_log(tmp_path, compress=False)
    line = b"x" * (MAX_BYTES // 2) + b"\n"
    for sink in (first, second, first):
        sink.prepare_write(len(line))
        sink.write(memoryview(line))
        sink.end_write()
    first.close()
    second.close()
    assert {path.stat().st_size for path in tmp_path.glob("audit*")} == {len(line)}


def test_concurrent_cleanups_remove_no_more_than_necessary(tmp_path: Path) -> None:
    """Each process has its own budget over the same files."""
    retention = LogRetention(tmp_path / "audit.log", 0, 0, compress=False)
    for second in range(20):
        retention.rotated_path(SystemClock().now().replace(year=2020, second=second)).write_bytes(b"x" * 1_000)
    budgets = [DiskBudget({"authenticated": LogRetention(retention.path, 0, 0, True)}, 10_000) for _ in range(4)]
    pids = []
    for budget in budgets:
        pid = os.fork()
        if not pid:
            budget.clean_up(SystemClock().now())
            os._exit(0)
        pids.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * 4
    assert len(list(tmp_path.glob("audit-*.gz"))) == 20  # compressed, they fit


if __name__ == "__main__":
    name, place, writer, count = sys.argv[1:]
    programs = {"file": write_lines, "output": write_output, "named": write_named_pipe}
    asyncio.run(programs[name](Path(place), int(writer), int(count)))
