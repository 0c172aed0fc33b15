"""Sessions that end while podman is still starting their process. A shell stands for podman."""

import asyncio
import os
from pathlib import Path

import pytest

from fairlead.runner.engines.sessions import MARK, list_pids, new_mark, read_mark, start_session, start_terminal_session


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


async def test_podman_runs_in_the_given_folder(tmp_path: Path) -> None:
    command, environment = ["/bin/sh", "-c", ">oom"], {"PATH": os.defpath}
    for name in ("plain", "terminal"):
        folder, mark = tmp_path / name, new_mark("uid-of-sessions")
        folder.mkdir()
        if name == "plain":
            session = await start_session(command, mark, environment, folder)
        else:
            session = await start_terminal_session(command, mark, environment, 80, 24, folder)
        assert await session.podman.wait() == 0
        await session.kill()
        assert (folder / "oom").exists()
