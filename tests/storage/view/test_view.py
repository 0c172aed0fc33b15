"""storage/view/view.py: current and old snapshots, history, and watchers."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.storage.contract import FIRST_REVISION, Compacted, Record, Write
from fairlead.storage.memory import MemoryStore
from fairlead.storage.view import view as module
from fairlead.storage.view.entry import Entry, SelectorFields
from fairlead.storage.view.view import View
from tests.harness.properties import examples
from tests.harness.virtual_time import VirtualTimeLoop, on_virtual_time
from tests.storage.view.views import drain_changes, key_for, list_paths, put, running_view


@on_virtual_time
async def test_objects_are_listed_in_key_order_by_namespace_and_after_a_key() -> None:
    store = MemoryStore()
    for path in ("b/x", "a/y", "a-b/z", "a/x", "/free"):
        await put(store, path)
    async with running_view(store) as view:
        assert list_paths(view) == ["/free", "a/x", "a/y", "a-b/z", "b/x"]
        assert list_paths(view, "a") == ["a/x", "a/y"]
        assert list_paths(view, "a", after=("a", "x")) == ["a/y"]
        assert list_paths(view, "a", after=("", "")) == ["a/x", "a/y"]
        assert list_paths(view, after=("a", "x")) == ["a/y", "a-b/z", "b/x"]
        assert list_paths(view, "nowhere") == []
        assert [view.count("g", "things", each) for each in ("", "a", "a-b", "nowhere")] == [5, 2, 1, 0]
        assert view.count("g", "others") == 0


@on_virtual_time
async def test_a_started_view_shows_all_earlier_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOAD_PAGE", 2)
    store = MemoryStore()
    for name in "abcde":
        await put(store, f"/{name}")
    await store.compact(await store.revision())
    await put(store, "/c", None)
    await put(store, "/f")
    async with running_view(store) as view:
        assert list_paths(view) == ["/a", "/b", "/d", "/e", "/f"]
        assert view.revision == await store.revision()


@on_virtual_time
async def test_get_returns_the_newest_entry_or_none() -> None:
    store = MemoryStore()
    async with running_view(store) as view:
        await view.wait_for(await put(store, "a/x", b"1"))
        await view.wait_for(revision := await put(store, "a/x", b"2"))
        entry = view.get(key_for("a/x"))
        assert entry is not None
        assert (entry.body, entry.revision) == (b"2", revision)
        assert view.get(key_for("a/y")) is None
        assert view.get(("g", "others", "a", "x")) is None


@on_virtual_time
async def test_a_watcher_gets_the_objects_before_and_after_each_change() -> None:
    store = MemoryStore()
    async with running_view(store) as view:
        watcher = view.watch("g", "things", "a", view.revision, 10)
        for path, value in (("a/x", b"1"), ("b/x", b"1"), ("a/x", b"2"), ("a/x", None), ("a/x", b"3")):
            await put(store, path, value)
        await view.wait_current()
        assert drain_changes(watcher) == [
            ("a/x", None, b"1"),
            ("a/x", b"1", b"2"),
            ("a/x", b"2", None),
            ("a/x", None, b"3"),
        ]


@on_virtual_time
async def test_a_commit_of_several_keys_becomes_visible_at_once() -> None:
    store = MemoryStore()
    async with running_view(store) as view:
        watcher = view.watch("g", "things", "", view.revision, 10)
        commit = asyncio.create_task(store.commit([Write(key_for(f"/{name}"), b"{}", 0) for name in "abc"]))
        await watcher.wait_ready()
        assert (len(watcher.drain()), list_paths(view)) == (3, ["/a", "/b", "/c"])
        await commit


@on_virtual_time
async def test_a_watch_can_be_resumed_after_a_restart() -> None:
    store = MemoryStore()
    async with running_view(store) as view:
        await view.wait_for(await put(store, "/x", b"1"))
        since = view.revision
        await put(store, "/x", b"2")
        await put(store, "/x", None)
        await view.wait_current()
        before = drain_changes(view.watch("g", "things", "", since, 10))
    async with running_view(store) as view:
        assert (
            drain_changes(view.watch("g", "things", "", since, 10))
            == before
            == [("/x", b"1", b"2"), ("/x", b"2", None)]
        )
        assert list_paths(view, at=since) == ["/x"]


@on_virtual_time
async def test_after_a_restart_the_history_starts_at_the_compacted_revision() -> None:
    store = MemoryStore()
    first = await put(store, "/x", b"1")
    second = await put(store, "/x", b"2")
    await put(store, "/x", b"3")
    await store.compact(second)
    async with running_view(store) as view:
        assert drain_changes(view.watch("g", "things", "", second, 10)) == [("/x", b"2", b"3")]
        with pytest.raises(Compacted):
            view.watch("g", "things", "", first, 10)
        with pytest.raises(Compacted):
            list_paths(view, at=first)


@on_virtual_time
async def test_discarded_revisions_are_rejected_and_the_rest_is_complete() -> None:
    store = MemoryStore()
    async with running_view(store) as view:
        revisions = [await put(store, "/x", str(number).encode()) for number in range(4)]
        await view.wait_current()
        view.discard_before(revisions[2])
        view.discard_before(revisions[0])
        with pytest.raises(Compacted):
            view.watch("g", "things", "", revisions[1], 10)
        assert [entry.body for entry in view.page(("g", "things"), "", at=revisions[2])[0]] == [b"2"]
        assert drain_changes(view.watch("g", "things", "", revisions[2], 10)) == [("/x", b"2", b"3")]
        view.discard_before(revisions[3] + 1_000)
        assert view.oldest == view.revision
        view.watch("g", "things", "", view.revision, 10)


@on_virtual_time
async def test_is_current_compares_with_the_revision_of_the_store() -> None:
    class StoreAhead(MemoryStore):
        by = 0

        def local_revision(self) -> int:
            return super().local_revision() + self.by

    store = StoreAhead()
    async with running_view(store) as view:
        await put(store, "a/x")
        assert view.is_current()
        store.by = 1
        assert not view.is_current()


@on_virtual_time
async def test_a_view_of_a_shared_store_is_never_known_to_be_current() -> None:
    class Shared(MemoryStore):
        def local_revision(self) -> None:  # type: ignore[override]  # as in PostgreSQL and etcd
            return None

    async with running_view(Shared()) as view:
        assert not view.is_current()


@on_virtual_time
async def test_wait_current_waits_for_commits_of_others() -> None:
    store = MemoryStore()
    async with running_view(store) as view:
        await put(store, "/x")
        await view.wait_current()
        assert list_paths(view) == ["/x"]


@on_virtual_time
async def test_each_waiter_is_woken_at_its_own_revision() -> None:
    store = MemoryStore()
    async with running_view(store) as view:
        waiting = [asyncio.create_task(view.wait_for(view.revision + ahead)) for ahead in (2, 1, 3)]
        for expected in ([False, False, False], [False, True, False], [True, True, False], [True, True, True]):
            await asyncio.sleep(1)
            assert [task.done() for task in waiting] == expected
            await put(store, "/x")


@on_virtual_time
async def test_waiters_that_timed_out_are_removed() -> None:
    """Clients may wait for a revision that never comes; each commit would check all of them."""
    store = MemoryStore()
    async with running_view(store) as view:
        for _ in range(10):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(view.wait_for(10**18), 1)
        await view.wait_for(await put(store, "/x"))
        assert view._waiters._waiters == []


@on_virtual_time
async def test_a_stopping_server_ends_watches_but_not_reads() -> None:
    store = MemoryStore()
    async with running_view(store) as view:
        watcher = view.watch("g", "things", "", view.revision, 10)
        await view.wait_for(await put(store, "/x"))
        view.end_watches()
        assert watcher.ended
        assert len(watcher.drain()) == 1
        assert view.watch("g", "things", "", view.revision, 10).ended
        await view.wait_for(await put(store, "/y"))
        assert list_paths(view) == ["/x", "/y"]


STEPS = st.lists(st.tuples(st.sampled_from(["a/x", "a/y", "b/x", "/x"]), st.booleans()), min_size=1, max_size=25)


@settings(max_examples=examples(60), deadline=None)
@given(steps=STEPS, restart=st.booleans(), discarded=st.integers(0, 25))
def test_every_kept_snapshot_shows_the_state_at_its_revision(
    steps: list[tuple[str, bool]], restart: bool, discarded: int
) -> None:
    async def check() -> None:
        store = MemoryStore()
        past: dict[int, list[str]] = {FIRST_REVISION: []}
        async with running_view(store) as view:
            for path, deleted in steps:
                now = set(past[await store.revision()])
                if deleted and path not in now:
                    continue
                revision = await put(store, path, None if deleted else b"{}")
                past[revision] = sorted(now - {path} if deleted else now | {path}, key=lambda each: each.split("/"))
            await view.wait_current()
            await check_past(view, past, FIRST_REVISION + discarded)
        if restart:
            async with running_view(store) as view:
                await check_past(view, past, FIRST_REVISION + discarded)

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(check())


async def check_past(view: View, past: dict[int, list[str]], oldest: int) -> None:
    view.discard_before(oldest)
    for revision, expected in past.items():
        if revision < view.oldest:
            continue
        assert list_paths(view, at=revision) == expected
        replayed = set(expected)
        for transition in view.watch("g", "things", "", revision, 1).drain():
            path = "/".join(transition.key[2:])
            assert (transition.previous is not None) == (path in replayed)
            replayed = replayed | {path} if transition.current else replayed - {path}
        assert replayed == set(list_paths(view))


@on_virtual_time
async def test_history_over_the_size_limit_is_discarded_from_its_oldest_end() -> None:
    store = MemoryStore()
    async with running_view(store, max_history_bytes=40_000) as view:
        for number in range(100):
            await view.wait_for(await put(store, "/x", b"%01000d" % number))
        assert FIRST_REVISION < view.oldest < view.revision - 5
        with pytest.raises(Compacted):
            view.watch("g", "things", "", view.oldest - 1, 10)
        assert len(view.watch("g", "things", "", view.oldest, 1).drain()) == view.revision - view.oldest
        assert list_paths(view, at=view.oldest) == ["/x"]
        view.discard_before(view.revision)
        assert view._history_bytes == 0


@on_virtual_time
async def test_selector_fields_are_read_ahead_in_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WARM_BATCH_SIZE", 2)
    bodies: list[bytes] = []

    def read_fields(body: bytes) -> SelectorFields:
        bodies.append(body)
        return {"of": body.decode()}, {}

    def build_entry(record: Record) -> Entry:
        return Entry(record.key, record.revision, record.value, None, None, read_fields=read_fields)

    store = MemoryStore()
    for number in range(5):
        await put(store, f"/{number}", b"%d" % number)
    view = View(store, build_entry)
    await view.start()
    warming = asyncio.create_task(view.warm_selector_fields())
    await asyncio.sleep(0)
    assert len(bodies) == 2
    await warming
    assert [entry.labels["of"] for entry in view.entries("g", "things")] == list("01234")
    assert len(bodies) == 5, "each entry once"
    await view.stop()
