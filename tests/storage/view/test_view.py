"""The picture in memory: what it shows, what it remembers, and who hears of it."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.storage.contract import FIRST_REVISION, Compacted, Record, Write
from fairlead.storage.memory import MemoryStore
from fairlead.storage.view import view as module
from fairlead.storage.view.entry import Entry, SelectorFields
from fairlead.storage.view.view import View
from tests.harness.virtual_time import VirtualTimeLoop, on_virtual_time
from tests.storage.view.views import heard, place_key, put, shown, started


@on_virtual_time
async def test_objects_are_shown_in_key_order_by_namespace_and_past_a_place() -> None:
    store = MemoryStore()
    for place in ("b/x", "a/y", "a-b/z", "a/x", "/free"):
        await put(store, place)
    async with started(store) as view:
        assert shown(view) == ["/free", "a/x", "a/y", "a-b/z", "b/x"]
        assert shown(view, "a") == ["a/x", "a/y"]
        assert shown(view, "a", after=("a", "x")) == ["a/y"]
        assert shown(view, "a", after=("", "")) == ["a/x", "a/y"]
        assert shown(view, after=("a", "x")) == ["a/y", "a-b/z", "b/x"]
        assert shown(view, "nowhere") == []
        assert [view.count("g", "things", each) for each in ("", "a", "a-b", "nowhere")] == [5, 2, 1, 0]
        assert view.count("g", "others") == 0


@on_virtual_time
async def test_a_view_that_has_started_shows_all_that_was_acknowledged_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOAD_PAGE", 2)
    store = MemoryStore()
    for name in "abcde":
        await put(store, f"/{name}")
    await store.compact(await store.revision())
    await put(store, "/c", None)
    await put(store, "/f")
    async with started(store) as view:
        assert shown(view) == ["/a", "/b", "/d", "/e", "/f"]
        assert view.revision == await store.revision()


@on_virtual_time
async def test_get_answers_the_newest_entry_or_nothing() -> None:
    store = MemoryStore()
    async with started(store) as view:
        await view.wait_for(await put(store, "a/x", b"1"))
        await view.wait_for(revision := await put(store, "a/x", b"2"))
        entry = view.get(place_key("a/x"))
        assert entry is not None
        assert (entry.body, entry.revision) == (b"2", revision)
        assert view.get(place_key("a/y")) is None
        assert view.get(("g", "others", "a", "x")) is None


@on_virtual_time
async def test_a_watcher_hears_what_was_there_before_and_after_each_step() -> None:
    store = MemoryStore()
    async with started(store) as view:
        watcher = view.watch("g", "things", "a", view.revision, 10)
        for place, value in (("a/x", b"1"), ("b/x", b"1"), ("a/x", b"2"), ("a/x", None), ("a/x", b"3")):
            await put(store, place, value)
        await view.wait_current()
        assert heard(watcher) == [("a/x", None, b"1"), ("a/x", b"1", b"2"), ("a/x", b"2", None), ("a/x", None, b"3")]


@on_virtual_time
async def test_a_commit_of_several_keys_comes_into_view_at_once() -> None:
    store = MemoryStore()
    async with started(store) as view:
        watcher = view.watch("g", "things", "", view.revision, 10)
        commit = asyncio.create_task(store.commit([Write(place_key(f"/{name}"), b"{}", 0) for name in "abc"]))
        await watcher.wait_ready()
        assert (len(watcher.drain()), shown(view)) == (3, ["/a", "/b", "/c"])
        await commit


@on_virtual_time
async def test_a_watch_can_resume_across_a_restart_as_if_nothing_had_been() -> None:
    store = MemoryStore()
    async with started(store) as view:
        await view.wait_for(await put(store, "/x", b"1"))
        since = view.revision
        await put(store, "/x", b"2")
        await put(store, "/x", None)
        await view.wait_current()
        before = heard(view.watch("g", "things", "", since, 10))
    async with started(store) as view:
        assert heard(view.watch("g", "things", "", since, 10)) == before == [("/x", b"1", b"2"), ("/x", b"2", None)]
        assert shown(view, at=since) == ["/x"]


@on_virtual_time
async def test_after_a_restart_the_history_begins_where_the_store_was_compacted_to() -> None:
    store = MemoryStore()
    first = await put(store, "/x", b"1")
    second = await put(store, "/x", b"2")
    await put(store, "/x", b"3")
    await store.compact(second)
    async with started(store) as view:
        assert heard(view.watch("g", "things", "", second, 10)) == [("/x", b"2", b"3")]
        with pytest.raises(Compacted):
            view.watch("g", "things", "", first, 10)
        with pytest.raises(Compacted):
            shown(view, at=first)


@on_virtual_time
async def test_what_is_forgotten_is_refused_and_what_is_left_is_whole() -> None:
    store = MemoryStore()
    async with started(store) as view:
        revisions = [await put(store, "/x", str(number).encode()) for number in range(4)]
        await view.wait_current()
        view.discard_before(revisions[2])
        view.discard_before(revisions[0])
        with pytest.raises(Compacted):
            view.watch("g", "things", "", revisions[1], 10)
        assert [entry.body for entry in view.page(("g", "things"), "", at=revisions[2])[0]] == [b"2"]
        assert heard(view.watch("g", "things", "", revisions[2], 10)) == [("/x", b"2", b"3")]
        view.discard_before(revisions[3] + 1_000)
        assert view.oldest == view.revision
        view.watch("g", "things", "", view.revision, 10)


@on_virtual_time
async def test_a_view_knows_whether_it_shows_all_that_was_acknowledged() -> None:
    class Ahead(MemoryStore):
        by = 0

        def local_revision(self) -> int:
            return super().local_revision() + self.by

    store = Ahead()
    async with started(store) as view:
        await put(store, "a/x")
        assert view.is_current()
        store.by = 1
        assert not view.is_current()


@on_virtual_time
async def test_a_view_of_a_store_that_others_write_to_never_knows_without_asking() -> None:
    class Shared(MemoryStore):
        def local_revision(self) -> None:  # type: ignore[override]  # as PostgreSQL and etcd have it
            return None

    async with started(Shared()) as view:
        assert not view.is_current()


@on_virtual_time
async def test_fresh_waits_for_what_somebody_else_has_committed() -> None:
    store = MemoryStore()
    async with started(store) as view:
        await put(store, "/x")
        await view.wait_current()
        assert shown(view) == ["/x"]


@on_virtual_time
async def test_everybody_who_waits_is_woken_when_their_own_revision_is_there_and_not_before() -> None:
    store = MemoryStore()
    async with started(store) as view:
        waiting = [asyncio.create_task(view.wait_for(view.revision + ahead)) for ahead in (2, 1, 3)]
        for expected in ([False, False, False], [False, True, False], [True, True, False], [True, True, True]):
            await asyncio.sleep(1)
            assert [task.done() for task in waiting] == expected
            await put(store, "/x")


@on_virtual_time
async def test_those_who_gave_up_waiting_are_not_kept_for_ever() -> None:
    """Anyone may ask for a version that never comes; each commit would look at all of them again."""
    store = MemoryStore()
    async with started(store) as view:
        for _ in range(10):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(view.wait_for(10**18), 1)
        await view.wait_for(await put(store, "/x"))
        assert view._waiters._waiters == []


@on_virtual_time
async def test_a_stopping_server_ends_watches_but_not_reads() -> None:
    store = MemoryStore()
    async with started(store) as view:
        watcher = view.watch("g", "things", "", view.revision, 10)
        await view.wait_for(await put(store, "/x"))
        view.end_watches()
        assert watcher.ended
        assert len(watcher.drain()) == 1
        assert view.watch("g", "things", "", view.revision, 10).ended
        await view.wait_for(await put(store, "/y"))
        assert shown(view) == ["/x", "/y"]


STEPS = st.lists(st.tuples(st.sampled_from(["a/x", "a/y", "b/x", "/x"]), st.booleans()), min_size=1, max_size=25)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS, restart=st.booleans(), forgotten=st.integers(0, 25))
def test_every_remembered_snapshot_is_what_stood_there_then(
    steps: list[tuple[str, bool]], restart: bool, forgotten: int
) -> None:
    async def check() -> None:
        store = MemoryStore()
        past: dict[int, list[str]] = {FIRST_REVISION: []}
        async with started(store) as view:
            for place, gone in steps:
                now = set(past[await store.revision()])
                if gone and place not in now:
                    continue
                revision = await put(store, place, None if gone else b"{}")
                past[revision] = sorted(now - {place} if gone else now | {place}, key=lambda each: each.split("/"))
            await view.wait_current()
            await check_past(view, past, FIRST_REVISION + forgotten)
        if restart:
            async with started(store) as view:
                await check_past(view, past, FIRST_REVISION + forgotten)

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(check())


async def check_past(view: View, past: dict[int, list[str]], oldest: int) -> None:
    view.discard_before(oldest)
    for revision, expected in past.items():
        if revision < view.oldest:
            continue
        assert shown(view, at=revision) == expected
        replayed = set(expected)
        for transition in view.watch("g", "things", "", revision, 1).drain():
            place = "/".join(transition.key[2:])
            assert (transition.previous is not None) == (place in replayed)
            replayed = replayed | {place} if transition.current else replayed - {place}
        assert replayed == set(shown(view))


@on_virtual_time
async def test_history_that_weighs_too_much_is_forgotten_from_its_oldest_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_HISTORY_BYTES", 40_000)
    store = MemoryStore()
    async with started(store) as view:
        for number in range(100):
            await view.wait_for(await put(store, "/x", b"%01000d" % number))
        assert FIRST_REVISION < view.oldest < view.revision - 5
        with pytest.raises(Compacted):
            view.watch("g", "things", "", view.oldest - 1, 10)
        assert len(view.watch("g", "things", "", view.oldest, 1).drain()) == view.revision - view.oldest
        assert shown(view, at=view.oldest) == ["/x"]
        view.discard_before(view.revision)
        assert view._history_bytes == 0


@on_virtual_time
async def test_what_nobody_has_asked_for_yet_is_read_in_small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WARM_BATCH_SIZE", 2)
    looks: list[bytes] = []

    def look(body: bytes) -> SelectorFields:
        looks.append(body)
        return {"of": body.decode()}, {}

    def finish(record: Record) -> Entry:
        return Entry(record.key, record.revision, record.value, None, None, read_fields=look)

    store = MemoryStore()
    for number in range(5):
        await put(store, f"/{number}", b"%d" % number)
    view = View(store, finish)
    await view.start()
    looking = asyncio.create_task(view.warm_selector_fields())
    await asyncio.sleep(0)
    assert len(looks) == 2
    await looking
    assert [entry.labels["of"] for entry in view.entries("g", "things")] == list("01234")
    assert len(looks) == 5, "each once"
    await view.stop()
