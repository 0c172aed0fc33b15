"""Views of a store with small objects in it, and short ways to write and read them, for the tests of the view."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fairlead.storage.contract import Key, Record, Write
from fairlead.storage.memory import MemoryStore
from fairlead.storage.view.fan_out import Watcher
from fairlead.storage.view.view import Entry, View


def finish(record: Record) -> Entry:
    return Entry(record.key, record.revision, record.value, {}, {})


def place_key(place: str) -> Key:
    namespace, _, name = place.partition("/")
    return ("g", "things", namespace, name)


async def put(store: MemoryStore, place: str, value: bytes | None = b"{}") -> int:
    """Writes, or with None deletes, whatever is there now."""
    found = await store.read(place_key(place))
    return await store.commit([Write(place_key(place), value, found.revision if found else 0)])


@asynccontextmanager
async def started(store: MemoryStore) -> AsyncIterator[View]:
    view = View(store, finish)
    await view.start()
    try:
        yield view
    finally:
        await view.stop()


def shown(view: View, namespace: str = "", after: tuple[str, str] | None = None, at: int | None = None) -> list[str]:
    return ["/".join(entry.key[2:]) for entry in view.page(("g", "things"), namespace, after=after, at=at)[0]]


def heard(watcher: Watcher[Entry]) -> list[tuple[str, bytes | None, bytes | None]]:
    return [("/".join(each.key[2:]), _body(each.previous), _body(each.current)) for each in watcher.drain()]


def _body(entry: Entry | None) -> bytes | None:
    return entry.body if entry is not None else None
