"""Helpers for the tests of the view: small objects, and functions to write and read them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fairlead.storage.contract import Key, Record, Write
from fairlead.storage.memory import MemoryStore
from fairlead.storage.view.fan_out import Watcher
from fairlead.storage.view.view import MAX_HISTORY_BYTES, Entry, View


def build_entry(record: Record) -> Entry:
    return Entry(record.key, record.revision, record.value, {}, {})


def key_for(path: str) -> Key:
    namespace, _, name = path.partition("/")
    return ("g", "things", namespace, name)


async def put(store: MemoryStore, path: str, value: bytes | None = b"{}") -> int:
    """Writes an object, or deletes it if the value is None, regardless of its revision."""
    found = await store.read(key_for(path))
    return await store.commit([Write(key_for(path), value, found.revision if found else 0)])


@asynccontextmanager
async def running_view(store: MemoryStore, max_history_bytes: int = MAX_HISTORY_BYTES) -> AsyncIterator[View]:
    view = View(store, build_entry, max_history_bytes)
    await view.start()
    try:
        yield view
    finally:
        await view.stop()


def list_paths(
    view: View, namespace: str = "", after: tuple[str, str] | None = None, at: int | None = None
) -> list[str]:
    return ["/".join(entry.key[2:]) for entry in view.page(("g", "things"), namespace, after=after, at=at)[0]]


def drain_changes(watcher: Watcher[Entry]) -> list[tuple[str, bytes | None, bytes | None]]:
    return [("/".join(each.key[2:]), _body(each.previous), _body(each.current)) for each in watcher.drain()]


def _body(entry: Entry | None) -> bytes | None:
    return entry.body if entry is not None else None
