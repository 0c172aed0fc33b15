"""Sessions that end while podman is still starting their process. A shell stands for podman."""

import asyncio
import os

import pytest

from fairlead.runner.engines.sessions import MARK, list_pids, new_mark, read_mark, start_session


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
