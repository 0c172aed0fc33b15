"""A runner under attack by its server, and whether it still works."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fairlead.links.requests import OpenRequest
from tests.harness.eventually import TIMEOUT_SECONDS, eventually
from tests.security.hostile_server import (
    UID,
    HostileLink,
    HostileServer,
    Victim,
    build_workspace,
    hostile_server,
    victim_of,
)

MEMORY_BYTES = 200 << 20
"""How much more memory the runner may use during an attack."""


@asynccontextmanager
async def attacked(
    folder: Path, *workspaces: object, engine: str = "", flags: tuple[str, ...] = ()
) -> AsyncIterator[tuple[HostileServer, Victim, HostileLink]]:
    """A hostile server, its runner and the link between them. Afterwards the runner is still alive."""
    async with hostile_server(folder) as server:
        server.set_workspaces(*(workspaces or (build_workspace(),)))
        async with victim_of(server, folder / "runner", engine, flags) as victim:
            link = await server.next_link()
            yield server, victim, link
            assert victim.is_alive(), victim.process.read_log()[-4000:]
            victim.check_folder()


async def wait_for(check: Callable[[], bool]) -> None:
    assert await eventually(check, TIMEOUT_SECONDS)


class Streams:
    """Numbers for the streams of the server."""

    def __init__(self) -> None:
        self._last = 0

    def next(self) -> int:
        self._last += 2
        return self._last


async def wait_served(link: HostileLink, streams: Streams, uid: str = UID) -> None:
    """The runner has taken the workspace, and responds about it."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            code, _ = await link.converse(OpenRequest("status", uid=uid), streams.next())
            if code == 0:
                return
            await asyncio.sleep(0.1)


async def wait_for_task(link: HostileLink, streams: Streams, uid: str = UID) -> dict[str, Any]:
    """The last task of a workspace, when it has ended."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            code, output = await link.converse(OpenRequest("tasks", uid=uid), streams.next())
            tasks = json.loads(output)["tasks"] if code == 0 else []
            if tasks and tasks[0]["status"] != "Running":
                found: dict[str, Any] = tasks[0]
                return found
            await asyncio.sleep(0.1)
