"""storage/compaction.py: how much history is kept, on a clock controlled by the test."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest

from fairlead.storage.compaction import follow_compaction, run_compaction
from fairlead.storage.contract import FIRST_REVISION, StoreUnavailable, Write
from fairlead.storage.memory import MemoryStore

INTERVAL = 10.0


class StopRun(Exception):
    """Ends the background task."""


class ScriptedClock:
    """Virtual time: each sleep runs the script of the test and returns at once."""

    def __init__(self, pauses: int, script: Callable[[float], Awaitable[None]]) -> None:
        self._left = pauses
        self._script = script
        self.now = 0.0

    async def sleep(self, seconds: float) -> float:
        if not self._left:
            raise StopRun
        self._left -= 1
        self.now += seconds
        await self._script(self.now)
        return self.now


class Writer:
    """Commits this many revisions in each sleep and records the revision at each time."""

    def __init__(self, store: MemoryStore, commits: int) -> None:
        self.store = store
        self.commits = commits
        self.current: dict[float, int] = {0.0: FIRST_REVISION}
        self._last = 0

    async def __call__(self, now: float) -> None:
        for _ in range(self.commits):
            self._last = await self.store.commit([Write(("k",), b"x", self._last)])
        self.current[now] = await self.store.revision()


async def run_script(
    store: MemoryStore, clock: ScriptedClock, seconds: float, revisions: int, compacted: list[int]
) -> None:
    with contextlib.suppress(StopRun):
        await run_compaction(
            store,
            min_seconds=seconds,
            min_revisions=revisions,
            interval_seconds=INTERVAL,
            on_compacted=compacted.append,
            sleep=clock.sleep,
        )


async def test_history_is_kept_for_at_least_the_given_time_and_not_much_longer() -> None:
    store, compacted = MemoryStore(), list[int]()
    writer = Writer(store, commits=7)
    clock = ScriptedClock(100, writer)
    await run_script(store, clock, seconds=60, revisions=1, compacted=compacted)
    oldest = await store.oldest()
    assert oldest <= writer.current[clock.now - 60]
    assert oldest >= writer.current[clock.now - 60 - 3 * INTERVAL]
    assert compacted[-1] == oldest
    assert compacted == sorted(set(compacted))


async def test_the_minimum_time_is_kept_at_every_moment() -> None:
    store, compacted = MemoryStore(), list[int]()
    writer = Writer(store, commits=3)

    async def check(now: float) -> None:
        await writer(now)
        if now > 60:
            assert await store.oldest() <= writer.current[now - 60]

    await run_script(store, ScriptedClock(50, check), seconds=60, revisions=1, compacted=compacted)
    assert compacted


async def test_at_least_the_given_number_of_revisions_is_kept() -> None:
    store, compacted = MemoryStore(), list[int]()
    clock = ScriptedClock(60, Writer(store, commits=2))
    await run_script(store, clock, seconds=20, revisions=100, compacted=compacted)
    revisions = await store.revision() - await store.oldest()
    assert 100 <= revisions <= 100 + 2 * 3


async def test_a_store_without_writes_is_not_compacted() -> None:
    store, compacted = MemoryStore(), list[int]()
    await run_script(store, ScriptedClock(50, Writer(store, commits=0)), seconds=20, revisions=0, compacted=compacted)
    assert compacted == []
    assert await store.oldest() == FIRST_REVISION


async def test_nothing_is_compacted_before_the_minimum_time_has_passed() -> None:
    store, compacted = MemoryStore(), list[int]()
    await run_script(
        store, ScriptedClock(6, Writer(store, commits=1_000)), seconds=60, revisions=10, compacted=compacted
    )
    assert compacted == []


@pytest.mark.parametrize("method", ["compact", "oldest", "revision"])
async def test_a_store_that_was_unavailable_is_compacted_afterwards(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, compacted = MemoryStore(), list[int]()
    writer = Writer(store, commits=5)
    original = getattr(store, method)

    async def fail(*arguments: int) -> int:
        raise StoreUnavailable("disk full")

    async def script(now: float) -> None:
        monkeypatch.setattr(store, method, original)
        await writer(now)
        if 100 <= now < 300:
            monkeypatch.setattr(store, method, fail)

    clock = ScriptedClock(50, script)
    await run_script(store, clock, seconds=30, revisions=1, compacted=compacted)
    assert await store.oldest() >= writer.current[clock.now - 30 - 3 * INTERVAL]
    assert compacted[-1] == await store.oldest()


async def test_compaction_ends_when_cancelled() -> None:
    store = MemoryStore()
    task = asyncio.create_task(run_compaction(store, min_seconds=1, min_revisions=1, interval_seconds=3600))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_compactions_by_another_server_are_followed_and_outages_survived(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, compacted = MemoryStore(), list[int]()

    async def compact_more(now: float) -> None:
        revision = await store.commit([Write(("", "things", "", str(now)), b"", 0)])
        await store.compact(revision)

    async def oldest() -> int:
        if clock.now == 2 * INTERVAL:
            raise StoreUnavailable("the network is down")
        return await MemoryStore.oldest(store)

    monkeypatch.setattr(store, "oldest", oldest)
    clock = ScriptedClock(3, compact_more)
    with pytest.raises(StopRun):
        await follow_compaction(store, interval_seconds=INTERVAL, on_compacted=compacted.append, sleep=clock.sleep)
    assert compacted == [FIRST_REVISION + 1, FIRST_REVISION + 3]
