"""The owner process: it has opened the store of a server with several workers, if only one process can.

With PostgreSQL and etcd, the workers open the store themselves.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

from fairlead.app.workers.child_process import Message
from fairlead.settings import Settings, StartError
from fairlead.storage.contract import StoreUnavailable
from fairlead.storage.open import open_store
from fairlead.storage.socket import SharedRevision, serve_store


async def run_owner(
    settings: Settings,
    store_socket: Path | None,
    revision: SharedRevision,
    stop: asyncio.Event,
    send: Callable[[Message], None],
) -> None:
    """Serves the store until `stop` is set. `store_socket` is None if the workers open it themselves."""
    if store_socket is None:
        send({"ready": {}})
        await stop.wait()
        return
    try:
        store = await open_store(settings.store_url)
    except (StoreUnavailable, ValueError) as error:
        raise StartError(str(error)) from None
    try:
        async with serve_store(store, store_socket, revision):
            send({"ready": {}})
            await stop.wait()
    finally:
        await store.close()
