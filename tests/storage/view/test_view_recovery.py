"""storage/view/view.py: recovery from a store that is unavailable, was compacted, or has unreadable records."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from fairlead.storage.contract import FIRST_REVISION, Compacted, Event, Key, Page, Record, StoreUnavailable
from fairlead.storage.memory import MemoryStore
from fairlead.storage.view import view as module
from fairlead.storage.view.fan_out import Watcher
from fairlead.storage.view.view import Entry, View
from tests.harness.virtual_time import on_virtual_time
from tests.storage.view.views import build_entry, drain_changes, key_for, list_paths, put, running_view


class UnreliableStore(MemoryStore):
    """A store whose watch can be broken, and that runs callbacks before each page of a scan."""

    def __init__(self) -> None:
        super().__init__()
        self.unavailable = asyncio.Event()
        self.before_scan: list[Callable[[], Awaitable[object]]] = []

    async def scan(self, prefix: Key, *, after: Key | None = None, limit: int = 0, at: int | None = None) -> Page:
        if self.before_scan:
            await self.before_scan.pop(0)()
        return await super().scan(prefix, after=after, limit=limit, at=at)

    async def watch(self, prefix: Key, since: int) -> AsyncIterator[Sequence[Event]]:
        if self.unavailable.is_set():
            raise StoreUnavailable("unavailable")
        outage = asyncio.ensure_future(self.unavailable.wait())
        batches = super().watch(prefix, since)
        try:
            while True:
                batch = asyncio.ensure_future(anext(batches))
                await asyncio.wait((batch, outage), return_when=asyncio.FIRST_COMPLETED)
                if outage.done():
                    batch.cancel()
                    raise StoreUnavailable("unavailable")
                try:
                    yield await batch
                except StopAsyncIteration:
                    return
        finally:
            outage.cancel()


@on_virtual_time
async def test_a_view_catches_up_after_an_outage_of_the_store() -> None:
    store = UnreliableStore()
    async with running_view(store) as view:
        watcher = view.watch("g", "things", "", view.revision, 10)
        await view.wait_for(await put(store, "/a"))
        store.unavailable.set()
        await asyncio.sleep(60)
        await put(store, "/b")
        await asyncio.sleep(60)
        assert list_paths(view) == ["/a"]
        store.unavailable.clear()
        await view.wait_for(await put(store, "/a", None))
        assert list_paths(view) == ["/b"]
        assert drain_changes(watcher) == [("/a", None, b"{}"), ("/b", None, b"{}"), ("/a", b"{}", None)]


async def fall_behind(store: UnreliableStore, view: View) -> None:
    """Disconnects the view from the store, which is written to and compacted meanwhile."""
    await view.wait_current()
    store.unavailable.set()
    await asyncio.sleep(60)
    for path, value in (("/new", b"{}"), ("/old", None), ("/kept", b"2")):
        await put(store, path, value)
    await store.compact(await store.revision())
    store.unavailable.clear()


@asynccontextmanager
async def running_unreliable_view() -> AsyncIterator[tuple[UnreliableStore, View]]:
    store = UnreliableStore()
    for path in ("/old", "/kept"):
        await put(store, path, b"1")
    async with running_view(store) as view:
        yield store, view


@on_virtual_time
async def test_a_view_overtaken_by_compaction_reloads_and_overflows_its_watchers() -> None:
    async with running_unreliable_view() as (store, view):
        watcher = view.watch("g", "things", "", view.revision, 10)
        await fall_behind(store, view)
        await view.wait_for(await put(store, "/newer"))
        assert list_paths(view) == ["/kept", "/new", "/newer"]
        assert watcher.overflowed, "a watcher that missed events must be notified"
        with pytest.raises(Compacted):
            view.watch("g", "things", "", FIRST_REVISION, 10)


@on_virtual_time
async def test_waiters_for_a_revision_are_woken_after_a_reload() -> None:
    async with running_unreliable_view() as (store, view):
        await fall_behind(store, view)
        await view.wait_for(await store.revision())
        assert list_paths(view) == ["/kept", "/new"]


@on_virtual_time
async def test_no_object_disappears_during_a_reload(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOAD_PAGE", 1)
    async with running_unreliable_view() as (store, view):
        seen: list[bool] = []

        async def check() -> None:
            seen.append(view.get(key_for("/kept")) is not None and "/kept" in list_paths(view))

        await fall_behind(store, view)
        store.before_scan = [check, check]
        await view.wait_for(await put(store, "/newer"))
        assert seen == [True, True]


@on_virtual_time
async def test_a_watch_started_during_a_reload_misses_nothing_unnoticed() -> None:
    async with running_unreliable_view() as (store, view):
        started: list[tuple[list[str], Watcher[Entry]]] = []

        async def watch() -> None:
            started.append((list_paths(view), view.watch("g", "things", "", view.revision, 10)))

        await fall_behind(store, view)
        store.before_scan = [watch]
        await view.wait_for(await put(store, "/newer"))
        ((known, watcher),) = started
        for transition in watcher.drain():
            name = f"/{transition.key[3]}"
            known = [each for each in known if each != name] + ([name] if transition.current else [])
        assert watcher.overflowed or sorted(known) == list_paths(view)


@pytest.mark.parametrize("failure", ["unavailable", "compacted"])
@on_virtual_time
async def test_a_view_survives_failures_during_a_reload(failure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOAD_PAGE", 1)
    async with running_unreliable_view() as (store, view):

        async def fail() -> None:
            if failure == "unavailable":
                raise StoreUnavailable("still unavailable")
            await put(store, "/old", None if await store.read(key_for("/old")) else b"{}")
            await store.compact(await store.revision())

        await fall_behind(store, view)
        store.before_scan = [fail]
        async with asyncio.timeout(60):
            await view.wait_for(await put(store, "/newer"))
        assert "/newer" in list_paths(view)


@on_virtual_time
async def test_a_compaction_between_two_pages_does_not_prevent_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LOAD_PAGE", 1)
    store = UnreliableStore()
    await put(store, "/x")
    await put(store, "/y")

    async def compact() -> None:
        await store.compact(await store.revision())

    store.before_scan = [compact]
    async with running_view(store) as view:
        assert list_paths(view) == ["/x", "/y"]


@on_virtual_time
async def test_waiters_fail_when_following_the_store_fails_permanently() -> None:
    """An unreadable record is a bug or a damaged file. Otherwise every write would wait forever."""

    def build_entry_or_fail(record: Record) -> Entry:
        if record.value == b"unreadable":
            raise ValueError("this is no object")
        return build_entry(record)

    store = MemoryStore()
    view = View(store, build_entry_or_fail)
    await view.start()
    with pytest.raises(Exception, match=r".") as caught:
        async with asyncio.timeout(60):
            await view.wait_for(await put(store, "/x", b"unreadable"))
    await view.stop()
    assert not isinstance(caught.value, TimeoutError)
