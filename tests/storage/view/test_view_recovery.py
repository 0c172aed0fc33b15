"""How the view gets over a store that is away, that has moved on and forgotten, or that holds what cannot be read."""

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
from tests.storage.view.views import finish, heard, place_key, put, shown, started


class Shaky(MemoryStore):
    """A store whose watch breaks off when told, and which lets a test step in before each page of a scan."""

    def __init__(self) -> None:
        super().__init__()
        self.away = asyncio.Event()
        self.before_scan: list[Callable[[], Awaitable[object]]] = []

    async def scan(self, prefix: Key, *, after: Key | None = None, limit: int = 0, at: int | None = None) -> Page:
        if self.before_scan:
            await self.before_scan.pop(0)()
        return await super().scan(prefix, after=after, limit=limit, at=at)

    async def watch(self, prefix: Key, since: int) -> AsyncIterator[Sequence[Event]]:
        if self.away.is_set():
            raise StoreUnavailable("away")
        breaking = asyncio.ensure_future(self.away.wait())
        batches = super().watch(prefix, since)
        try:
            while True:
                batch = asyncio.ensure_future(anext(batches))
                await asyncio.wait((batch, breaking), return_when=asyncio.FIRST_COMPLETED)
                if breaking.done():
                    batch.cancel()
                    raise StoreUnavailable("away")
                try:
                    yield await batch
                except StopAsyncIteration:
                    return
        finally:
            breaking.cancel()


@on_virtual_time
async def test_a_store_that_is_away_for_a_while_costs_time_and_nothing_else() -> None:
    store = Shaky()
    async with started(store) as view:
        watcher = view.watch("g", "things", "", view.revision, 10)
        await view.wait_for(await put(store, "/a"))
        store.away.set()
        await asyncio.sleep(60)
        await put(store, "/b")
        await asyncio.sleep(60)
        assert shown(view) == ["/a"]
        store.away.clear()
        await view.wait_for(await put(store, "/a", None))
        assert shown(view) == ["/b"]
        assert heard(watcher) == [("/a", None, b"{}"), ("/b", None, b"{}"), ("/a", b"{}", None)]


async def fall_behind(store: Shaky, view: View) -> None:
    """The view loses the store, which moves on and forgets where the view stood."""
    await view.wait_current()
    store.away.set()
    await asyncio.sleep(60)
    for place, value in (("/new", b"{}"), ("/old", None), ("/kept", b"2")):
        await put(store, place, value)
    await store.compact(await store.revision())
    store.away.clear()


@asynccontextmanager
async def settled() -> AsyncIterator[tuple[Shaky, View]]:
    store = Shaky()
    for place in ("/old", "/kept"):
        await put(store, place, b"1")
    async with started(store) as view:
        yield store, view


@on_virtual_time
async def test_a_view_that_fell_behind_compaction_starts_over_and_tells_its_watchers() -> None:
    async with settled() as (store, view):
        watcher = view.watch("g", "things", "", view.revision, 10)
        await fall_behind(store, view)
        await view.wait_for(await put(store, "/newer"))
        assert shown(view) == ["/kept", "/new", "/newer"]
        assert watcher.overflowed, "a watcher that was not given the gap must know"
        with pytest.raises(Compacted):
            view.watch("g", "things", "", FIRST_REVISION, 10)


@on_virtual_time
async def test_those_who_wait_for_a_revision_are_woken_when_starting_over_brings_it() -> None:
    async with settled() as (store, view):
        await fall_behind(store, view)
        await view.wait_for(await store.revision())
        assert shown(view) == ["/kept", "/new"]


@on_virtual_time
async def test_while_the_view_starts_over_nothing_seems_to_be_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOAD_PAGE", 1)
    async with settled() as (store, view):
        seen: list[bool] = []

        async def look() -> None:
            seen.append(view.get(place_key("/kept")) is not None and "/kept" in shown(view))

        await fall_behind(store, view)
        store.before_scan = [look, look]
        await view.wait_for(await put(store, "/newer"))
        assert seen == [True, True]


@on_virtual_time
async def test_a_watch_begun_while_the_view_starts_over_misses_nothing_unnoticed() -> None:
    async with settled() as (store, view):
        begun: list[tuple[list[str], Watcher[Entry]]] = []

        async def watch() -> None:
            begun.append((shown(view), view.watch("g", "things", "", view.revision, 10)))

        await fall_behind(store, view)
        store.before_scan = [watch]
        await view.wait_for(await put(store, "/newer"))
        ((known, watcher),) = begun
        for transition in watcher.drain():
            name = f"/{transition.key[3]}"
            known = [each for each in known if each != name] + ([name] if transition.current else [])
        assert watcher.overflowed or sorted(known) == shown(view)


@pytest.mark.parametrize("fault", ["unavailable", "compacted"])
@on_virtual_time
async def test_a_view_gets_over_trouble_while_it_starts_over(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOAD_PAGE", 1)
    async with settled() as (store, view):

        async def make_trouble() -> None:
            if fault == "unavailable":
                raise StoreUnavailable("still away")
            await put(store, "/old", None if await store.read(place_key("/old")) else b"{}")
            await store.compact(await store.revision())

        await fall_behind(store, view)
        store.before_scan = [make_trouble]
        async with asyncio.timeout(60):
            await view.wait_for(await put(store, "/newer"))
        assert "/newer" in shown(view)


@on_virtual_time
async def test_a_compaction_between_two_pages_does_not_keep_a_view_from_starting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LOAD_PAGE", 1)
    store = Shaky()
    await put(store, "/x")
    await put(store, "/y")

    async def compact() -> None:
        await store.compact(await store.revision())

    store.before_scan = [compact]
    async with started(store) as view:
        assert shown(view) == ["/x", "/y"]


@on_virtual_time
async def test_when_following_fails_for_good_those_who_wait_are_told_and_not_left_waiting() -> None:
    """A record that cannot be read is a fault of ours, or of the file. Every write would hang without a word."""

    def stumble(record: Record) -> Entry:
        if record.value == b"unreadable":
            raise ValueError("this is no object")
        return finish(record)

    store = MemoryStore()
    view = View(store, stumble)
    await view.start()
    with pytest.raises(Exception, match=r".") as caught:
        async with asyncio.timeout(60):
            await view.wait_for(await put(store, "/x", b"unreadable"))
    await view.stop()
    assert not isinstance(caught.value, TimeoutError)
