"""storage/contract.py: watches of every store are ordered, unique and complete, and never split a commit."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from fairlead.storage.contract import FIRST_REVISION, Compacted, Event, Key, Store, Write

A, B = ("things", "a"), ("things", "b")
Watch = AsyncIterator[Sequence[Event]]


async def read_events(watch: Watch, count: int) -> list[Event]:
    """Returns at least the next `count` events."""
    events: list[Event] = []
    async with asyncio.timeout(30):
        while len(events) < count:
            batch = await anext(watch)
            assert batch, "a batch is never empty"
            events += batch
    return events


async def read_batches_until(watch: Watch, revision: int) -> list[Sequence[Event]]:
    """Returns the batches up to the one that reaches the revision."""
    batches: list[Sequence[Event]] = []
    async with asyncio.timeout(30):
        while not batches or batches[-1][-1].revision < revision:
            batches.append(await anext(watch))
    return batches


async def test_a_watch_replays_events_after_its_revision(store: Store) -> None:
    first = await store.commit([Write(A, b"1", 0)])
    second = await store.commit([Write(A, b"2", first), Write(B, b"b", 0)])
    third = await store.commit([Write(A, None, second)])
    all_events = [Event(A, b"1", first), Event(A, b"2", second), Event(B, b"b", second), Event(A, None, third)]
    assert await read_events(store.watch((), FIRST_REVISION), 4) == all_events
    assert await read_events(store.watch((), first), 3) == all_events[1:]
    assert await read_events(store.watch((), second), 1) == all_events[3:]


async def test_a_watch_continues_live_after_the_replay(store: Store) -> None:
    first = await store.commit([Write(A, b"1", 0)])
    watch = store.watch((), FIRST_REVISION)
    assert await read_events(watch, 1) == [Event(A, b"1", first)]
    pending = asyncio.create_task(read_events(watch, 2))
    await asyncio.sleep(0)
    second = await store.commit([Write(A, b"2", first), Write(B, b"b", 0)])
    assert await pending == [Event(A, b"2", second), Event(B, b"b", second)]


async def test_events_are_delivered_before_the_commit_returns(store: Store) -> None:
    watch = store.watch((), FIRST_REVISION)
    events_task = asyncio.create_task(read_events(watch, 1))
    await asyncio.sleep(0.01)
    revision = await store.commit([Write(A, b"1", 0)])
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert events_task.done()
    assert events_task.result() == [Event(A, b"1", revision)]


@pytest.mark.parametrize("live", [False, True])
async def test_a_watch_gets_events_of_its_prefix_only(store: Store, live: bool) -> None:
    keys: list[Key] = [("a",), ("a", "b"), ("ab",), ("a\x00",), ("a\x00", "b"), ("b", "a"), ("a", "last")]
    watch = store.watch(("a",), FIRST_REVISION)
    pending_events = asyncio.create_task(read_events(watch, 3))
    if live:
        await asyncio.sleep(0.01)
    for key in keys:
        await store.commit([Write(key, b"x", 0)])
    assert [event.key for event in await pending_events] == [("a",), ("a", "b"), ("a", "last")]


async def test_a_watch_from_a_future_revision_waits_for_it(store: Store) -> None:
    watch = store.watch((), FIRST_REVISION + 2)
    pending_events = asyncio.create_task(read_events(watch, 1))
    await asyncio.sleep(0.01)
    for number in range(3):
        last = await store.commit([Write(("k", str(number)), b"x", 0)])
    assert await pending_events == [Event(("k", "2"), b"x", last)]


async def test_a_watch_from_a_compacted_revision_is_rejected(store: Store) -> None:
    first = await store.commit([Write(A, b"1", 0)])
    second = await store.commit([Write(A, b"2", first)])
    third = await store.commit([Write(A, b"3", second)])
    await store.compact(second)
    with pytest.raises(Compacted) as caught:
        await anext(store.watch((), first))
    assert (caught.value.requested, caught.value.oldest) == (first, second)
    with pytest.raises(Compacted):
        await anext(store.watch((), 0))
    assert await read_events(store.watch((), second), 1) == [Event(A, b"3", third)]


async def test_a_deletion_after_the_compacted_revision_is_still_delivered(store: Store) -> None:
    created = await store.commit([Write(A, b"1", 0)])
    deleted = await store.commit([Write(A, None, created)])
    await store.compact(created)
    assert await read_events(store.watch((), created), 1) == [Event(A, None, deleted)]


async def test_a_current_watch_is_not_affected_by_compaction(store: Store) -> None:
    revision = await store.commit([Write(A, b"0", 0)])
    watch = store.watch((), FIRST_REVISION)
    events = await read_events(watch, 1)
    for number in range(1, 20):
        revision = await store.commit([Write(A, b"%d" % number, revision)])
        await store.compact(revision)
        events += await read_events(watch, 1)
    assert [event.value for event in events] == [b"%d" % number for number in range(20)]


async def test_an_idle_watch_does_not_expire_because_of_other_keys(store: Store) -> None:
    watch = store.watch(("quiet",), FIRST_REVISION)
    pending_events = asyncio.create_task(read_events(watch, 1))
    await asyncio.sleep(0.01)
    revision = 0
    for _ in range(20):
        revision = await store.commit([Write(A, b"busy", revision)])
    await store.compact(revision)
    last = await store.commit([Write(("quiet",), b"x", 0)])
    assert await pending_events == [Event(("quiet",), b"x", last)]


async def test_a_watch_far_behind_misses_nothing(store: Store) -> None:
    """More than the store queues in memory for one watch."""
    revision = await store.commit([Write(A, b"first", 0)])
    watch = store.watch((), FIRST_REVISION)
    await read_events(watch, 1)
    big = random.Random(1).randbytes(1024 * 1024)
    for _ in range(20):
        revision = await store.commit([Write(A, big, revision)])
    last = await store.commit([Write(B, b"last", 0)])
    events = [event for batch in await read_batches_until(watch, last) for event in batch]
    assert [event.revision for event in events] == list(range(revision - 19, last + 1))
    assert all(event.value == big for event in events[:-1])


async def test_a_watch_far_behind_raises_compacted_when_overtaken(store: Store) -> None:
    revision = await store.commit([Write(A, b"first", 0)])
    watch = store.watch((), FIRST_REVISION)
    await read_events(watch, 1)
    for _ in range(20):
        revision = await store.commit([Write(A, bytes(1024 * 1024), revision)])
    await store.compact(revision)
    with pytest.raises(Compacted):
        await anext(watch)


async def test_closing_the_store_ends_its_watches(
    open_store_in: Callable[[Path], Awaitable[Store]], tmp_path: Path
) -> None:
    store = await open_store_in(tmp_path)
    events: list[Event] = []

    async def read_all() -> None:
        async for batch in store.watch((), FIRST_REVISION):
            events.extend(batch)

    listeners = [asyncio.create_task(read_all()) for _ in range(3)]
    await asyncio.sleep(0.01)
    await store.commit([Write(A, b"x", 0)])
    await store.close()
    async with asyncio.timeout(40):
        await asyncio.gather(*listeners)
    assert len(events) == 3
    assert [batch async for batch in store.watch((), FIRST_REVISION)] == []


WRITERS, COMMITS, KEYS = 12, 40, 5


async def write(store: Store, writer: int, log: list[Event]) -> None:
    """Creates, updates and deletes its own keys, one to three per commit, and logs acknowledged events."""
    rng = random.Random(writer)
    held: dict[Key, int] = {}
    for number in range(COMMITS):
        chosen: list[Key] = [
            ("w", str(writer % 3), f"{writer}-{n}") for n in rng.sample(range(KEYS), rng.randint(1, 3))
        ]
        changes = []
        for key in chosen:
            value = None if key in held and rng.random() < 0.3 else b"%d" % number
            changes.append(Write(key, value, held.get(key, 0)))
        revision = await store.commit(changes)
        for change in changes:
            log.append(Event(change.key, change.value, revision))
            if change.value is None:
                del held[change.key]
            else:
                held[change.key] = revision


async def test_watches_from_any_revision_see_the_same_history_under_concurrent_writes(store: Store) -> None:
    log: list[Event] = []
    started: list[tuple[Key, int, Watch]] = []
    tasks: list[asyncio.Task[list[Sequence[Event]]]] = []
    last: Key = ("w", "last")

    def start(prefix: Key, since: int) -> None:
        watch = store.watch(prefix, since)
        started.append((prefix, since, watch))
        tasks.append(asyncio.create_task(read_batches_until_key(watch, last if not prefix[1:] else (*prefix, "last"))))

    writers = [asyncio.create_task(write(store, number, log)) for number in range(WRITERS)]
    start((), FIRST_REVISION)
    while not all(writer.done() for writer in writers):
        revision = await store.revision()
        since = random.Random(revision).randint(FIRST_REVISION, revision)
        if len(started) < 60:
            start(((), ("w",), ("w", "1"))[len(started) % 3], since)
        await asyncio.sleep(0.001)
    await asyncio.gather(*writers)
    ends = [Write((*prefix, "last"), b"end", 0) for prefix in (("w", "1"), ("w",))]
    revision = await store.commit(ends)
    log += [Event(end.key, end.value, revision) for end in ends]
    for (prefix, since, _), task in zip(started, tasks, strict=True):
        batches = await task
        check_batches(
            batches, [event for event in log if event.revision > since and event.key[: len(prefix)] == prefix]
        )


async def read_batches_until_key(watch: Watch, key: Key) -> list[Sequence[Event]]:
    batches: list[Sequence[Event]] = []
    async with asyncio.timeout(30):
        async for batch in watch:
            batches.append(batch)
            if any(event.key == key for event in batch):
                break
    return batches


def check_batches(batches: list[Sequence[Event]], expected: list[Event]) -> None:
    """Checks that the events are ordered, unique and complete, and that no commit is split over two batches."""
    events = [event for batch in batches for event in batch]
    assert events == sorted(expected, key=lambda event: event.revision)
    for earlier, later in pairwise(batches):
        assert earlier[-1].revision < later[0].revision
