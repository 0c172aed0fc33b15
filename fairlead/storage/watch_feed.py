"""Watches: replay history, then deliver live events. Shared by all stores.

A store owns one `WatchFeed`. It reports each commit (`publish`) and each compaction, in order and on the event loop,
and provides a `replay` function that reads old events. `subscribe` implements the store's `watch`.

A watch subscribes to live events before it replays, so that nothing is missed in between. The queue of a slow watch
is bounded: above MAX_PENDING_BYTES its live events are dropped, and it reads them from the store instead, from the
last event that it delivered.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence

from fairlead.core.waiting import Signal
from fairlead.storage.contract import Compacted, Event, Key

MAX_PENDING_BYTES = 16 * 1024 * 1024
CHUNK_BYTES = 1024 * 1024
EVENT_OVERHEAD_BYTES = 256
"""Approximate overhead per event, so that small events count as well."""

Replay = Callable[[Key, int, int], Awaitable[tuple[Sequence[Event], int]]]
"""(prefix, since, upto) -> events with since < revision <= upto, in whole commits, and the revision they reach.

A replay may stop early to keep its chunks small, but always advances beyond `since`; see `take_chunk`.
"""


def take_chunk(events: Iterable[Event], upto: int) -> tuple[Sequence[Event], int]:
    """Whole commits from the start of `events`, about CHUNK_BYTES of them, and the revision they reach."""
    piece: list[Event] = []
    weight = 0
    for event in events:
        if weight > CHUNK_BYTES and event.revision != piece[-1].revision:
            return piece, piece[-1].revision
        piece.append(event)
        weight += _weight(event)
    return piece, upto


def _weight(event: Event) -> int:
    return EVENT_OVERHEAD_BYTES + len(event.value or b"")


class Subscription:
    """The queue of live events of one watch. `signal` wakes the watch when there are any."""

    __slots__ = ("_depth", "_first", "_pending", "_prefix", "_since", "_weight", "dropped_after", "signal")

    def __init__(self, prefix: Key, since: int) -> None:
        self._prefix = prefix
        self._depth = len(prefix)
        self._since = since
        self.signal = Signal()
        self.reset()

    def reset(self) -> None:
        """Clear the queue; live events are collected from now on."""
        self._pending: list[Event] = []
        self._weight = 0
        self._first = 0
        self.dropped_after: int | None = None

    def enqueue(self, revision: int, events: Sequence[Event]) -> None:
        """Add the events of one commit that match this watch."""
        if self.dropped_after is not None or revision <= self._since:
            return
        wanted = [event for event in events if event.key[: self._depth] == self._prefix] if self._depth else events
        if not wanted:
            return
        if not self._pending:
            self._first = revision
        self._pending.extend(wanted)
        self._weight += sum([_weight(event) for event in wanted])
        if self._weight > MAX_PENDING_BYTES:
            self._pending = []
            self.dropped_after = self._first - 1
        self.signal.wake()

    def drain(self) -> Sequence[Event]:
        drained, self._pending, self._weight = self._pending, [], 0
        return drained


class WatchFeed:
    """The current and the oldest revision of a store, and the subscriptions to its events."""

    def __init__(self, revision: int, oldest: int, replay: Replay) -> None:
        self.revision = revision
        self.oldest = oldest
        self._replay = replay
        self._closed = asyncio.Event()
        self._subscriptions: set[Subscription] = set()

    def publish(self, revision: int, events: Sequence[Event]) -> None:
        """Deliver one acknowledged commit. Call it before the commit returns, so that watches are never behind its
        caller."""
        self.revision = revision
        for tail in self._subscriptions:
            tail.enqueue(revision, events)

    def set_oldest(self, oldest: int) -> None:
        self.oldest = max(self.oldest, oldest)

    def close(self) -> None:
        """End every watch after its queued events."""
        self._closed.set()
        for tail in self._subscriptions:
            tail.signal.wake()

    async def subscribe(self, prefix: Key, since: int) -> AsyncIterator[Sequence[Event]]:
        """See `Store.watch`."""
        tail = Subscription(prefix, since)
        self._subscriptions.add(tail)
        reached = since
        try:
            while not self._closed.is_set():
                tail.reset()
                # No await since the reset: live events start right after this revision.
                live_after = self.revision
                while reached < live_after and not self._closed.is_set():
                    events, reached = await self._replay_chunk(prefix, reached, live_after)
                    if events:
                        yield events
                while tail.dropped_after is None:
                    if events := tail.drain():
                        yield events
                    elif self._closed.is_set():
                        return
                    else:
                        await tail.signal.wait()
                reached = tail.dropped_after
        finally:
            self._subscriptions.discard(tail)

    async def _replay_chunk(self, prefix: Key, since: int, upto: int) -> tuple[Sequence[Event], int]:
        piece = await self._replay(prefix, since, upto)
        # Checked afterwards: a compaction during the replay may have removed events.
        if since < self.oldest:
            raise Compacted(since, self.oldest)
        return piece


class SingleWriterStore:
    """The base class of stores that only this process writes to: their feed knows the current revision."""

    def __init__(self, feed: WatchFeed) -> None:
        self._feed = feed

    def watch(self, prefix: Key, since: int) -> AsyncIterator[Sequence[Event]]:
        return self._feed.subscribe(prefix, since)

    async def revision(self) -> int:
        return self._feed.revision

    def local_revision(self) -> int:
        return self._feed.revision

    async def oldest(self) -> int:
        return self._feed.oldest
