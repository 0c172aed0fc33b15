"""How much history stays, on a clock that the test turns."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest

from fairlead.storage.compaction import follow_compaction, run_compaction
from fairlead.storage.contract import FIRST_REVISION, StoreUnavailable, Write
from fairlead.storage.memory import MemoryStore

EVERY = 10.0


class Ended(Exception):
    """The test has seen enough."""


class Days:
    """Virtual time: each pause lets the test's own script act, and is over at once."""

    def __init__(self, pauses: int, each: Callable[[float], Awaitable[None]]) -> None:
        self._left = pauses
        self._each = each
        self.now = 0.0

    async def pause(self, seconds: float) -> float:
        if not self._left:
            raise Ended
        self._left -= 1
        self.now += seconds
        await self._each(self.now)
        return self.now


class Writer:
    """Commits a given number of revisions in each pause and notes which one was current when."""

    def __init__(self, store: MemoryStore, commits: int) -> None:
        self.store = store
        self.commits = commits
        self.current: dict[float, int] = {0.0: FIRST_REVISION}
        self._last = 0

    async def __call__(self, now: float) -> None:
        for _ in range(self.commits):
            self._last = await self.store.commit([Write(("k",), b"x", self._last)])
        self.current[now] = await self.store.revision()


async def run(store: MemoryStore, days: Days, seconds: float, revisions: int, heard: list[int]) -> None:
    with contextlib.suppress(Ended):
        await run_compaction(
            store,
            min_seconds=seconds,
            min_revisions=revisions,
            interval_seconds=EVERY,
            on_compacted=heard.append,
            sleep=days.pause,
        )


async def test_at_least_the_given_time_is_kept_and_not_much_more() -> None:
    store, heard = MemoryStore(), list[int]()
    writer = Writer(store, commits=7)
    days = Days(100, writer)
    await run(store, days, seconds=60, revisions=1, heard=heard)
    oldest = await store.oldest()
    assert oldest <= writer.current[days.now - 60]
    assert oldest >= writer.current[days.now - 60 - 3 * EVERY]
    assert heard[-1] == oldest
    assert heard == sorted(set(heard))


async def test_time_is_kept_at_every_moment() -> None:
    store, heard = MemoryStore(), list[int]()
    writer = Writer(store, commits=3)

    async def judge(now: float) -> None:
        await writer(now)
        if now > 60:
            assert await store.oldest() <= writer.current[now - 60]

    await run(store, Days(50, judge), seconds=60, revisions=1, heard=heard)
    assert heard


async def test_at_least_the_given_number_of_revisions_is_kept() -> None:
    store, heard = MemoryStore(), list[int]()
    days = Days(60, Writer(store, commits=2))
    await run(store, days, seconds=20, revisions=100, heard=heard)
    kept = await store.revision() - await store.oldest()
    assert 100 <= kept <= 100 + 2 * 3


async def test_a_quiet_store_is_left_alone() -> None:
    store, heard = MemoryStore(), list[int]()
    await run(store, Days(50, Writer(store, commits=0)), seconds=20, revisions=0, heard=heard)
    assert heard == []
    assert await store.oldest() == FIRST_REVISION


async def test_nothing_is_forgotten_before_the_time_has_passed_once() -> None:
    store, heard = MemoryStore(), list[int]()
    await run(store, Days(6, Writer(store, commits=1_000)), seconds=60, revisions=10, heard=heard)
    assert heard == []


@pytest.mark.parametrize("method", ["compact", "oldest", "revision"])
async def test_a_store_that_is_away_for_a_while_is_compacted_afterwards(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, heard = MemoryStore(), list[int]()
    writer = Writer(store, commits=5)
    healthy = getattr(store, method)

    async def away(*arguments: int) -> int:
        raise StoreUnavailable("disk full")

    async def script(now: float) -> None:
        monkeypatch.setattr(store, method, healthy)
        await writer(now)
        if 100 <= now < 300:
            monkeypatch.setattr(store, method, away)

    days = Days(50, script)
    await run(store, days, seconds=30, revisions=1, heard=heard)
    assert await store.oldest() >= writer.current[days.now - 30 - 3 * EVERY]
    assert heard[-1] == await store.oldest()


async def test_it_ends_when_it_is_cancelled() -> None:
    store = MemoryStore()
    task = asyncio.create_task(run_compaction(store, min_seconds=1, min_revisions=1, interval_seconds=3600))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_what_another_server_has_compacted_is_heeded_and_trouble_is_waited_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, heard = MemoryStore(), list[int]()

    async def compact_more(now: float) -> None:
        revision = await store.commit([Write(("", "things", "", str(now)), b"", 0)])
        await store.compact(revision)

    async def oldest() -> int:
        if days.now == 2 * EVERY:
            raise StoreUnavailable("the network is down")
        return await MemoryStore.oldest(store)

    monkeypatch.setattr(store, "oldest", oldest)
    days = Days(3, compact_more)
    with pytest.raises(Ended):
        await follow_compaction(store, interval_seconds=EVERY, on_compacted=heard.append, sleep=days.pause)
    assert heard == [FIRST_REVISION + 1, FIRST_REVISION + 3]
