"""Sessions that end while podman is still starting their process. A shell stands for podman."""

import asyncio
import os
import resource
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.runner.engines import sessions
from fairlead.runner.engines.devcontainer.isolation.holder import PYTHON
from fairlead.runner.engines.sessions import MARK, end_trees, list_pids, new_mark, read_mark, start_session


def find(mark: str) -> list[int]:
    return [pid for pid in list_pids() if read_mark(pid) == mark]


def starting_slowly(mark: str) -> list[str]:
    """Starts a process with the mark after a while, and does not end it when it is killed itself."""
    return ["/bin/sh", "-c", f"sleep 0.5; env {MARK}={mark} sleep 1000 & wait"]


async def test_a_process_that_starts_after_the_kill_is_killed_too() -> None:
    mark = new_mark("uid-of-sessions")
    session = await start_session(starting_slowly(mark), mark, {"PATH": os.defpath})
    assert find(mark) == []
    await session.kill()
    assert session.podman.returncode is not None
    assert find(mark) == []


async def test_a_caller_that_is_cancelled_while_a_session_starts_leaves_no_process() -> None:
    mark = new_mark("uid-of-sessions")
    starting = asyncio.create_task(start_session(starting_slowly(mark), mark, {"PATH": os.defpath}))
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert find(mark) == []


async def test_a_process_inherits_the_given_descriptors() -> None:
    for size in (None, (80, 24)):
        descriptor = os.memfd_create("given", 0)
        os.write(descriptor, b"exit 7")
        os.lseek(descriptor, 0, os.SEEK_SET)
        mark, environment = new_mark("uid-of-sessions"), {"PATH": os.defpath}
        command = ["/bin/sh", f"/proc/self/fd/{descriptor}"]
        session = await start_session(command, mark, environment, size, (descriptor,))
        os.close(descriptor)
        assert await session.wait() == 7
        await session.kill()


SET_UP_LATE = """
import os, termios, time, tty
print("started", flush=True)
time.sleep(0.3)
tty.setraw(0, termios.TCSANOW)
print(os.read(0, 100).hex(), flush=True)
"""
"""As podman sets up the terminal that it has, a moment after its start."""


async def test_what_arrives_before_podman_has_set_up_its_terminal_is_passed_on_as_it_is() -> None:
    mark = new_mark("uid-of-sessions")
    session = await start_session(
        [PYTHON, "-c", SET_UP_LATE], mark, {"PATH": os.defpath}, size=(80, 24), is_passed_on=True
    )
    try:
        assert (await session.stdout.read(100)).split() == [b"started"]
        await session.stdin.write(b"\x03a\r")
        await session.stdin.close()
        assert (await session.stdout.read(100)).split() == [b"03610d04"]
    finally:
        await session.kill()


DECLARE = """
import ctypes, struct, sys
library = ctypes.CDLL(None, use_errno=True)
library.mmap.restype = ctypes.c_void_p
size = 1 << 36
start = library.mmap(None, ctypes.c_size_t(size), 1, 0x4022, -1, ctypes.c_long(0))
fields = [0, 0, 0, *open("/proc/self/stat").read().rpartition(")")[2].split()]
code, end_code, stack = map(int, fields[26:29])
data, end_data, heap, arguments, end_arguments = map(int, fields[45:50])
places = (code, end_code, data, end_data, heap, heap, stack, arguments, end_arguments, start, start + size)
declared = struct.pack("=12QII", *places, 0, 0, 0xFFFFFFFF)
print(library.prctl(35, 14, declared, len(declared), 0), flush=True)
sys.stdin.read()
"""
"""PR_SET_MM_MAP, which needs no privilege: 64 GiB of zeros become the environment."""


def test_an_environment_without_end_is_not_read_to_its_end() -> None:
    with subprocess.Popen([PYTHON, "-c", DECLARE], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == b"0\n"
        limits = resource.getrlimit(resource.RLIMIT_AS)
        try:
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), limits[1]))
            assert read_mark(process.pid) == ""
        finally:
            resource.setrlimit(resource.RLIMIT_AS, limits)
            process.stdin.close()


def test_an_environment_of_very_many_variables_is_read_quickly() -> None:
    """All processes of the machine are looked at, and each of them could have such an environment."""
    environment = {f"{number:x}": "" for number in range(60_000)}
    with subprocess.Popen(["/bin/sleep", "1000"], env=environment) as process:
        try:
            began = time.thread_time()
            for _ in range(50):
                assert read_mark(process.pid) == ""
            assert time.thread_time() - began < 0.1
        finally:
            process.kill()


async def test_the_runner_goes_on_while_processes_are_looked_for() -> None:
    def find_slowly() -> list[int]:
        time.sleep(0.5)
        return []

    ending = asyncio.create_task(end_trees(find_slowly))
    turns = 0
    while not ending.done():
        await asyncio.sleep(0.01)
        turns += 1
    assert turns > 5


@pytest.fixture
def child() -> "Iterator[subprocess.Popen[bytes]]":
    with subprocess.Popen(["/bin/sleep", "1000"]) as process:
        yield process
        process.kill()


async def test_a_process_that_does_not_end_is_not_waited_for_without_end(
    child: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one that a workspace has frozen. Here, it is one whose parent does not notice its end."""
    monkeypatch.setattr(sessions, "KILL_SECONDS", 0.2)
    await asyncio.wait_for(end_trees(lambda: [child.pid]), 10)
    assert child.wait() == -9
