"""What the processes do that the supervisor starts: the owner, and the workers.

The owner coordinates the workers, and has opened the store, if only one process can. With PostgreSQL and etcd, the
workers open the store themselves. A worker is an ordinary server, like a replica, that shares its port with the others.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from fairlead.app import StartedServer, run
from fairlead.app.flow_control import shared_limits
from fairlead.app.workers.child_process import Message
from fairlead.app.workers.context import WorkerContext, WorkerSockets
from fairlead.core.clock import SystemClock
from fairlead.server.workers.coordinator import serve_coordinator
from fairlead.settings import Settings, StartError
from fairlead.storage.contract import StoreUnavailable
from fairlead.storage.open import open_store
from fairlead.storage.socket import SharedRevision, serve_store


async def run_owner(
    settings: Settings,
    sockets: WorkerSockets,
    revision: SharedRevision,
    stop: asyncio.Event,
    send: Callable[[Message], None],
) -> None:
    """Serves the workers until `stop` is set."""
    async with AsyncExitStack() as stack:
        try:
            coordinator = serve_coordinator(sockets.coordinator, shared_limits(settings), SystemClock())
            await stack.enter_async_context(coordinator)
            await stack.enter_async_context(_serve_store(settings, sockets.store, revision))
        except OSError as error:
            problem = f"{settings.data}: cannot create a socket for the workers ({error.strerror})"
            raise StartError(f"{problem}; use a data folder on another file system, or --workers 1") from None
        send({"ready": {}})
        await stop.wait()


@asynccontextmanager
async def _serve_store(settings: Settings, path: Path | None, revision: SharedRevision) -> AsyncIterator[None]:
    """Opens and serves the store. `path` is None if the workers open it themselves."""
    if path is None:
        yield
        return
    try:
        store = await open_store(settings.store_url)
    except (StoreUnavailable, ValueError) as error:
        raise StartError(str(error)) from None
    try:
        async with serve_store(store, path, revision):
            yield
    finally:
        await store.close()


async def run_worker(
    settings: Settings, worker: WorkerContext, stop: asyncio.Event, send: Callable[[Message], None]
) -> None:
    def ready(started: StartedServer) -> None:
        server = {
            "url": started.url,
            "ca_file": str(started.ca_file) if started.ca_file else None,
            "new_key": started.new_key,
            "is_key_replaced": started.is_key_replaced,
            "is_key_rejected": started.is_key_rejected,
        }
        send({"ready": server})

    await run(settings, stop, ready, worker)
