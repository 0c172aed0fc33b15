"""What a worker process is given by its supervisor, and its connection to the process that coordinates all of them."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import structlog

from fairlead.core.waiting import background_task
from fairlead.server.workers.client import CoordinatorClient
from fairlead.settings import StartError
from fairlead.storage.socket import SharedRevision


@dataclass(frozen=True, slots=True)
class WorkerSockets:
    """The sockets of the owner process. `store` is None if the workers open the store themselves."""

    coordinator: Path
    store: Path | None


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """The place of a worker among the workers of one server. `index` counts from 1 to `count`."""

    index: int
    count: int
    identity: str
    """Its identity in the leader election. A worker that replaces another one has the same, and so takes over its lease
    at once: the supervisor starts it only when the other has ended."""
    port: int
    listener: socket.socket
    """Its listening socket, which is bound to the port."""
    sockets: WorkerSockets
    revision: SharedRevision
    """The newest revision of that store."""
    is_first: bool = False
    """Whether no other worker of this server has been started before it."""


log = structlog.get_logger(__name__)


@asynccontextmanager
async def connect_coordinator(
    worker: WorkerContext | None, stop: asyncio.Event
) -> AsyncIterator[CoordinatorClient | None]:
    """The connection; None if this process is the whole server.

    Sets `stop` if the connection is lost: such a worker rejects streams and logins, and has to be replaced.
    """
    if worker is None:
        yield None
        return
    try:
        coordinator = await CoordinatorClient.connect(worker.sockets.coordinator, worker.index, worker.count)
    except OSError as error:
        raise StartError(f"cannot connect to the process that coordinates the workers: {error}") from None
    try:
        async with background_task(_stop_when_closed(coordinator, stop)):
            yield coordinator
    finally:
        await coordinator.close()


async def _stop_when_closed(coordinator: CoordinatorClient, stop: asyncio.Event) -> None:
    await coordinator.wait_closed()
    log.error("lost the connection to the process that coordinates the workers; this worker stops")
    stop.set()
