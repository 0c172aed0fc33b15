"""The bound on what waits for one watcher, which the contract cannot see, and the pieces that replays are cut into."""

import asyncio
from collections.abc import Sequence

from fairlead.storage.contract import Event, Key
from fairlead.storage.watch_feed import CHUNK_BYTES, MAX_PENDING_BYTES, WatchFeed, take_chunk

KEY = ("k",)
BIG = bytes(MAX_PENDING_BYTES // 4)


class Past:
    """A store's history, and what was asked of it."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.asked: list[tuple[int, int]] = []

    async def replay(self, prefix: Key, since: int, upto: int) -> tuple[Sequence[Event], int]:
        self.asked.append((since, upto))
        await asyncio.sleep(0)
        return [event for event in self.events if since < event.revision <= upto], upto

    def publish(self, feed: WatchFeed, value: bytes) -> None:
        event = Event(KEY, value, feed.revision + 1)
        self.events.append(event)
        feed.publish(event.revision, [event])


async def test_a_watcher_that_keeps_up_never_asks_for_the_past() -> None:
    past = Past()
    feed = WatchFeed(100, 100, past.replay)
    watch = feed.subscribe((), 100)
    for _ in range(20):
        waiting = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0)
        past.publish(feed, BIG)
        assert list(await waiting) == past.events[-1:]
    assert past.asked == []


async def test_a_watcher_that_falls_behind_reads_back_what_was_dropped() -> None:
    past = Past()
    feed = WatchFeed(100, 100, past.replay)
    watch = feed.subscribe((), 100)
    waiting = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0)
    past.publish(feed, b"first")
    assert [event.revision for event in await waiting] == [101]
    for _ in range(10):
        past.publish(feed, BIG)
    assert [event.revision for event in await anext(watch)] == list(range(102, 112))
    assert past.asked == [(101, 111)]
    past.publish(feed, b"live again")
    assert [event.revision for event in await anext(watch)] == [112]
    assert past.asked == [(101, 111)]


async def test_what_is_dropped_during_a_replay_is_read_back_after_it() -> None:
    past = Past()
    feed = WatchFeed(100, 100, past.replay)
    past.publish(feed, b"past")
    watch = feed.subscribe((), 100)
    waiting = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0)
    for _ in range(10):
        past.publish(feed, BIG)
    revisions = [event.revision for event in await waiting]
    while len(revisions) < 11:
        revisions += [event.revision for event in await anext(watch)]
    assert revisions == list(range(101, 112))
    assert past.asked == [(100, 101), (101, 111)]


async def test_a_watch_that_was_left_is_forgotten() -> None:
    past = Past()
    feed = WatchFeed(100, 100, past.replay)
    watch = feed.subscribe((), 100)
    waiting = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0)
    assert len(feed._subscriptions) == 1
    waiting.cancel()
    await asyncio.wait([waiting])
    assert len(feed._subscriptions) == 0


def test_a_piece_ends_between_two_commits() -> None:
    half = bytes(CHUNK_BYTES // 2)
    events = [Event(KEY, half, revision) for revision in (1, 2, 2, 2, 2, 3, 4)]
    assert take_chunk(events, 9) == (events[:5], 2)
    assert take_chunk(events[5:], 9) == (events[5:], 9)
    assert take_chunk([], 9) == ([], 9)
