"""storage/watch_feed.py: limit of pending bytes per watch, and chunks of replays."""

import asyncio
from collections.abc import Sequence

from fairlead.storage.contract import Event, Key
from fairlead.storage.watch_feed import CHUNK_BYTES, MAX_PENDING_BYTES, WatchFeed, take_chunk

KEY = ("k",)
BIG = bytes(MAX_PENDING_BYTES // 4)


class FakeHistory:
    """A history of events that records the replays."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.replays: list[tuple[int, int]] = []

    async def replay(self, prefix: Key, since: int, upto: int) -> tuple[Sequence[Event], int]:
        self.replays.append((since, upto))
        await asyncio.sleep(0)
        return [event for event in self.events if since < event.revision <= upto], upto

    def publish(self, feed: WatchFeed, value: bytes) -> None:
        event = Event(KEY, value, feed.revision + 1)
        self.events.append(event)
        feed.publish(event.revision, [event])


async def test_a_current_watch_needs_no_replay() -> None:
    history = FakeHistory()
    feed = WatchFeed(100, 100, history.replay)
    watch = feed.subscribe((), 100)
    for _ in range(20):
        pending = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0)
        history.publish(feed, BIG)
        assert list(await pending) == history.events[-1:]
    assert history.replays == []


async def test_a_watch_that_falls_behind_replays_dropped_events() -> None:
    history = FakeHistory()
    feed = WatchFeed(100, 100, history.replay)
    watch = feed.subscribe((), 100)
    pending = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0)
    history.publish(feed, b"first")
    assert [event.revision for event in await pending] == [101]
    for _ in range(10):
        history.publish(feed, BIG)
    assert [event.revision for event in await anext(watch)] == list(range(102, 112))
    assert history.replays == [(101, 111)]
    history.publish(feed, b"live again")
    assert [event.revision for event in await anext(watch)] == [112]
    assert history.replays == [(101, 111)]


async def test_events_dropped_during_a_replay_are_replayed_after_it() -> None:
    history = FakeHistory()
    feed = WatchFeed(100, 100, history.replay)
    history.publish(feed, b"past")
    watch = feed.subscribe((), 100)
    pending = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0)
    for _ in range(10):
        history.publish(feed, BIG)
    revisions = [event.revision for event in await pending]
    while len(revisions) < 11:
        revisions += [event.revision for event in await anext(watch)]
    assert revisions == list(range(101, 112))
    assert history.replays == [(100, 101), (101, 111)]


async def test_a_cancelled_watch_is_removed() -> None:
    history = FakeHistory()
    feed = WatchFeed(100, 100, history.replay)
    watch = feed.subscribe((), 100)
    pending = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0)
    assert len(feed._subscriptions) == 1
    pending.cancel()
    await asyncio.wait([pending])
    assert len(feed._subscriptions) == 0


def test_a_chunk_ends_between_two_commits() -> None:
    half = bytes(CHUNK_BYTES // 2)
    events = [Event(KEY, half, revision) for revision in (1, 2, 2, 2, 2, 3, 4)]
    assert take_chunk(events, 9) == (events[:5], 2)
    assert take_chunk(events[5:], 9) == (events[5:], 9)
    assert take_chunk([], 9) == ([], 9)
