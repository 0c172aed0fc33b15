"""The connection of a worker to the process that coordinates all of them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog

from fairlead.app.workers.context import WorkerContext
from fairlead.server.workers.client import CoordinatorClient
from fairlead.settings import StartError

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
    guard = asyncio.create_task(_stop_when_closed(coordinator, stop))
    try:
        yield coordinator
    finally:
        guard.cancel()
        await coordinator.close()


async def _stop_when_closed(coordinator: CoordinatorClient, stop: asyncio.Event) -> None:
    await coordinator.wait_closed()
    log.error("lost the connection to the process that coordinates the workers; this worker stops")
    stop.set()
