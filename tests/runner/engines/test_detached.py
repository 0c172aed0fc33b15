"""A command that outlives the runner."""

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from fairlead.core.clock import SystemClock
from fairlead.runner.engines.devcontainer import detached
from fairlead.runner.engines.devcontainer.creation import CliLog, Progress
from fairlead.runner.engines.devcontainer.detached import DetachedCommand
from fairlead.runner.engines.devcontainer.isolation.holder import Holder, find_holder, save_holder
from fairlead.runner.engines.devcontainer.leader import MAX_LOG_BYTES, MAX_OUT_BYTES
from fairlead.runner.engines.measurement import read_boot_id, read_start_ticks
from fairlead.runner.task_log import TaskLog
from fairlead.runner.tasks import RunningTask
from tests.harness.eventually import eventually


async def test_a_command_that_prints_without_end_does_not_fill_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detached, "FREED_BYTES", 1 << 20)
    command, lines = DetachedCommand(tmp_path), 0

    def count(line: bytes) -> None:
        nonlocal lines
        lines += 1
        assert line == b"x" * 1023 + b"\n"

    script = f"i=0; while [ $i -lt 40 ]; do yes {'x' * 1023} | head -n 256; i=$((i+1)); sleep 0.01; done >&2"
    command.start("task", ["/bin/sh", "-c", script], {"PATH": "/usr/bin:/bin"})
    assert await command.follow(count) == 0
    log = (tmp_path / "log").stat()
    assert (lines, log.st_size) == (40 * 256, 40 * 256 * 1024)
    assert log.st_blocks * 512 < 3 << 20


@pytest.mark.timeout(120)
async def test_a_command_that_prints_while_no_runner_reads_waits_and_nothing_is_lost(tmp_path: Path) -> None:
    command, log, count = DetachedCommand(tmp_path), tmp_path / "log", 0
    script = f"yes {'x' * 1023} | head -n 102400 >&2; exit 3"
    command.start("task", ["/bin/sh", "-c", script], {"PATH": "/usr/bin:/bin"})
    await eventually(lambda: log.exists() and log.stat().st_blocks * 512 >= MAX_LOG_BYTES, 60)
    await asyncio.sleep(1)
    assert MAX_LOG_BYTES <= log.stat().st_blocks * 512 < MAX_LOG_BYTES + (2 << 20)
    assert command.find_leader() is not None and command.read_exit_code() is None

    def count_line(line: bytes) -> None:
        nonlocal count
        count += 1

    assert await command.follow(count_line) == 3
    assert count == 102400
    assert log.stat().st_blocks * 512 < MAX_LOG_BYTES


async def test_of_a_result_without_end_the_begin_is_kept(tmp_path: Path) -> None:
    command = DetachedCommand(tmp_path)
    command.start("task", ["/bin/sh", "-c", "yes | head -c 40000000"], {"PATH": "/usr/bin:/bin"})
    assert await command.follow(lambda line: None) == 0
    assert (tmp_path / "out").stat().st_size == MAX_OUT_BYTES


async def test_a_process_that_keeps_the_output_open_does_not_hold_up_the_end(tmp_path: Path) -> None:
    command, lines = DetachedCommand(tmp_path), list[bytes]()
    script = "sleep 20 & while :; do echo more >&2; done & echo one; echo two >&2; exit 4"
    command.start("task", ["/bin/sh", "-c", script], {"PATH": "/usr/bin:/bin"})
    async with asyncio.timeout(15):
        assert await command.follow(lines.append) == 4
    assert b"two\n" in lines and command.read_output() == b"one\n"


async def test_the_log_goes_on_where_an_earlier_runner_stopped_reading(tmp_path: Path) -> None:
    command, lines = DetachedCommand(tmp_path), list[bytes]()
    command.start("task", ["/bin/sh", "-c", "echo one >&2; echo two >&2"], {"PATH": "/usr/bin:/bin"})
    assert await command.follow(lines.append) == 0
    (tmp_path / "offset").write_text("4")
    assert await DetachedCommand(tmp_path).follow(lines.append) == 0
    assert lines == [b"one\n", b"two\n", b"two\n"]


async def test_the_log_is_passed_on_again_if_a_crash_has_emptied_the_file_with_the_position(tmp_path: Path) -> None:
    command, lines = DetachedCommand(tmp_path), list[bytes]()
    command.start("task", ["/bin/sh", "-c", "echo one >&2"], {"PATH": "/usr/bin:/bin"})
    assert await command.follow(lines.append) == 0
    (tmp_path / "offset").write_bytes(b"")
    assert await DetachedCommand(tmp_path).follow(lines.append) == 0
    assert lines == [b"one\n", b"one\n"]


async def test_the_position_is_replaced_as_a_whole(tmp_path: Path) -> None:
    """A runner that is killed while it writes the position leaves the one before."""
    command, lines = DetachedCommand(tmp_path), list[bytes]()
    command.start("task", ["/bin/sh", "-c", "echo one >&2"], {"PATH": "/usr/bin:/bin"})
    (tmp_path / "offset").write_text("0")
    with (tmp_path / "offset").open() as former:
        assert await command.follow(lines.append) == 0
        assert (former.read(), (tmp_path / "offset").read_text()) == ("0", "4")


async def test_a_command_is_killed_also_before_it_has_written_its_pid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detached, "LEADER", ("/bin/sh", "-c", 'sleep 3600; "$@"'))
    command = DetachedCommand(tmp_path)
    command.start("task", ["/bin/true"], {"PATH": "/usr/bin:/bin"})
    assert command.find_leader() is not None
    await command.kill()
    assert command.find_leader() is None


async def test_the_command_writes_its_pid_for_a_runner_that_was_killed_before_it_could(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detached, "write_file", lambda *_: None)
    command = DetachedCommand(tmp_path)
    command.start("task", ["/bin/sleep", "3600"], {"PATH": "/usr/bin:/bin"})
    leader = await eventually(command.find_leader) or 0
    assert (tmp_path / "pid").read_text() == f"{leader} {read_start_ticks(leader)} {read_boot_id()}\n"
    await command.kill()


async def test_a_command_that_was_killed_before_this_runner_started_has_no_exit_code(tmp_path: Path) -> None:
    command, lines = DetachedCommand(tmp_path), list[bytes]()
    (tmp_path / "pid").write_text("4194305\n")  # more than the largest pid
    (tmp_path / "log").write_text("one\n")
    assert await command.follow(lines.append) is None
    assert lines == [b"one\n"]


async def test_a_command_that_prints_faster_than_it_is_read_does_not_hold_up_other_tasks(tmp_path: Path) -> None:
    """Each line that is read lets the command print another one."""
    others = 0

    async def run_others() -> None:
        nonlocal others
        while True:
            others += 1
            await asyncio.sleep(0)

    line, read = b"x" * 65535 + b"\n", 0
    (tmp_path / "log").write_bytes(line)

    def print_more(_: bytes) -> None:
        nonlocal read
        read += 1
        if read > 100:
            return
        with (tmp_path / "log").open("ab") as log:
            log.write(line)

    (tmp_path / "exit").write_text("0\n")
    task = asyncio.create_task(run_others())
    try:
        assert await DetachedCommand(tmp_path).follow(print_more) == 0
    finally:
        task.cancel()
    assert (read, others > 1) == (101, True)


async def test_a_line_without_end_is_passed_on_in_parts(tmp_path: Path) -> None:
    sizes: list[int] = []
    (tmp_path / "log").touch()
    os.truncate(tmp_path / "log", (5 << 20) + 7)
    with (tmp_path / "log").open("ab") as log:
        log.write(b"\n")
    (tmp_path / "exit").write_text("0\n")
    assert await DetachedCommand(tmp_path).follow(lambda line: sizes.append(len(line))) == 0
    assert sizes == [detached.MAX_LINE_BYTES] * 5 + [8]


def test_output_without_end_is_read_up_to_a_limit(tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    os.truncate(tmp_path / "out", 1 << 43)
    assert len(DetachedCommand(tmp_path).read_output()) == MAX_OUT_BYTES


@dataclass(slots=True)
class LongestTurn:
    seconds: float = 0


@asynccontextmanager
async def measure_turns() -> AsyncIterator[LongestTurn]:
    """The longest CPU time that other tasks of the event loop took, one after the other, without a turn for this one:
    it does not depend on what else the machine does."""
    longest = LongestTurn()

    async def tick() -> None:
        while True:
            before = time.thread_time()
            await asyncio.sleep(0.001)
            longest.seconds = max(longest.seconds, time.thread_time() - before)

    ticking = asyncio.create_task(tick())
    await asyncio.sleep(0.01)
    try:
        yield longest
        await asyncio.sleep(0.01)
    finally:
        ticking.cancel()


def describe_output(text: str) -> str:
    """As the CLI logs what a command prints."""
    return json.dumps({"type": "raw", "level": 3, "text": text})


PRINTED = {
    "lines without text": [describe_output("\n" * 100_000)] * 3,
    "single bytes": [describe_output("x")] * 5_000,
    "lines that the CLI has not written": ["1"] * 5_000,
    "one long line": [describe_output("x" * 500_000)] * 5,
    "a repeated secret": [describe_output("a" * 500_000)] * 2,
}


@pytest.mark.parametrize("printed", PRINTED)
async def test_whatever_a_command_prints_leaves_the_event_loop_to_others(tmp_path: Path, printed: str) -> None:
    """A member can have a lifecycle command print anything, and some choose the secrets that are masked there."""
    secrets = [*("a" * length for length in (*range(4, 40), 60_000)), "a" * 60_000 + "b"]
    task = RunningTask("task", TaskLog(tmp_path / "task"), SystemClock(), lambda step: None)
    task.mask(secrets)
    progress, log = Progress(), CliLog(task, secrets)
    command = DetachedCommand(tmp_path / "command")
    command.folder.mkdir()
    (command.folder / "log").write_text("\n".join(PRINTED[printed]) + "\n")
    (command.folder / "exit").write_text("0")
    async with measure_turns() as longest:
        assert await command.follow(lambda line: log.write(progress.read_line(line))) == 0
    assert longest.seconds < 0.15


def test_a_process_that_got_the_pid_of_a_leader_is_none_whatever_command_line_it_has(tmp_path: Path) -> None:
    command = DetachedCommand(tmp_path)
    with subprocess.Popen(["/bin/sh", "-c", "sleep 1000; true", str(tmp_path)], start_new_session=True) as process:
        start_ticks = read_start_ticks(process.pid)
        others = [f"{start_ticks + 1} {read_boot_id()}", f"{start_ticks} earlier", f"0 {read_boot_id()}", "", "x y"]
        for each in others:
            (tmp_path / "pid").write_text(f"{process.pid} {each}\n")
            assert command.find_leader() is None
        (tmp_path / "pid").write_text(f"{process.pid} {start_ticks} {read_boot_id()}\n")
        assert command.find_leader() == process.pid
        os.killpg(process.pid, signal.SIGKILL)
    assert command.find_leader() is None


def test_a_holder_of_an_earlier_boot_is_not_found(tmp_path: Path) -> None:
    path = tmp_path / "holder.json"
    save_holder(path, Holder(os.getpid(), read_start_ticks(os.getpid()), ()))
    assert find_holder(path) is not None
    saved = json.loads(path.read_bytes())
    path.write_text(json.dumps({**saved, "boot_id": "earlier"}))
    assert find_holder(path) is None
