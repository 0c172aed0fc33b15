"""A SocketStore together with its owner, which serves an SQLite file."""

from contextlib import AsyncExitStack
from pathlib import Path

from fairlead.storage.contract import Store
from fairlead.storage.open import open_store
from fairlead.storage.socket import SharedRevision, SocketStore, serve_store
from fairlead.storage.wrapper import StoreWrapper


def build_shared_revision() -> SharedRevision:
    """Shared by the tasks of this process only."""
    return SharedRevision(memoryview(bytearray(SharedRevision.SIZE)))


class OwnedSocketStore(StoreWrapper):
    """A store of a worker. Closing it also ends its owner, in the same process."""

    def __init__(self, store: SocketStore, owner: AsyncExitStack) -> None:
        super().__init__(store)
        self._owner = owner

    async def close(self) -> None:
        await self.inner.close()
        await self._owner.aclose()


async def open_socket_store(folder: Path) -> Store:
    async with AsyncExitStack() as stack:
        store = await open_store(f"sqlite:{folder}/store.db")
        stack.push_async_callback(store.close)
        shared = build_shared_revision()
        await stack.enter_async_context(serve_store(store, folder / "store.socket", shared))
        worker = await SocketStore.connect(folder / "store.socket", shared)
        return OwnedSocketStore(worker, stack.pop_all())
