"""An owner of a store and its workers, all in one process, and commits for them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fairlead.storage.contract import Event, Key, Write
from fairlead.storage.socket import SharedRevision, SocketStore, serve_store
from fairlead.storage.socket.server import OwnedStore
from fairlead.storage.sqlite import SqliteStore
from tests.harness.socket_store import build_shared_revision

A, B, C = ("things", "a"), ("things", "b"), ("things", "c")
MIB = 1024 * 1024


@dataclass
class Owner:
    store: OwnedStore
    path: Path
    shared: SharedRevision
    workers: list[SocketStore] = field(default_factory=list)

    async def connect(self) -> SocketStore:
        self.workers.append(await SocketStore.connect(self.path, self.shared))
        return self.workers[-1]


@asynccontextmanager
async def serve(store: OwnedStore, folder: Path) -> AsyncIterator[Owner]:
    owner = Owner(store, folder / "store.socket", build_shared_revision())
    async with serve_store(store, owner.path, owner.shared):
        yield owner
        for worker in owner.workers:
            await worker.close()


@asynccontextmanager
async def run_owner(folder: Path) -> AsyncIterator[Owner]:
    """An owner of an SQLite file."""
    store = await SqliteStore.open(folder / "store.db")
    try:
        async with serve(store, folder) as owner:
            yield owner
    finally:
        await store.close()


def stop_reading(worker: SocketStore) -> None:
    """From now on, the worker is as good as suspended."""
    transport = worker._link.connection._transport
    assert transport is not None
    transport.pause_reading()


def continue_reading(worker: SocketStore) -> None:
    transport = worker._link.connection._transport
    assert transport is not None
    transport.resume_reading()


async def rewrite(store: SocketStore, key: Key, values: list[bytes], revision: int = 0) -> list[Event]:
    """Writes the values to the key, one after the other, and returns the events."""
    events = []
    for value in values:
        revision = await store.commit([Write(key, value, revision)])
        events.append(Event(key, value, revision))
    return events
