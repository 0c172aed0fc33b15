"""Watches: replay what has been, then follow what comes. The one implementation that every store shares.

A store owns one Feed, tells it of each commit (`publish`) and each compaction, in order and in the loop's thread, and
hands it a `replay` function that reads old events back. `follow` is the store's `watch`.

A watcher is registered for live events before it replays, so that nothing falls between the two. What waits for a slow
watcher is bounded: past PENDING_BYTES the live events are dropped and the watcher reads them back from the store
instead, from the last one it was given. It pays with time, the server does not pay with memory.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence

from fairlead.storage.contract import Compacted, Event, Key

PENDING_BYTES = 16 * 1024 * 1024
PIECE_BYTES = 1024 * 1024
EVENT_BYTES = 256
"""What an event costs beside its value, roughly: small events count as well."""

Replay = Callable[[Key, int, int], Awaitable[tuple[Sequence[Event], int]]]
"""(prefix, since, upto) -> some events with since < revision <= upto, whole commits, and the revision reached by them.

A replay may stop early, to keep its pieces small, but it always gets further than `since`; see `cut_piece`.
"""


def cut_piece(events: Iterable[Event], upto: int) -> tuple[Sequence[Event], int]:
    """Whole commits from the beginning of `events` until they weigh PIECE_BYTES, and the revision reached by them."""
    piece: list[Event] = []
    weight = 0
    for event in events:
        if weight > PIECE_BYTES and event.revision != piece[-1].revision:
            return piece, piece[-1].revision
        piece.append(event)
        weight += _weight(event)
    return piece, upto


def _weight(event: Event) -> int:
    return EVENT_BYTES + len(event.value or b"")


class Tail:
    """The live end of one watch: what has been published and not been taken yet."""

    __slots__ = ("_depth", "_first", "_pending", "_prefix", "_since", "_wake", "_weight", "dropped_after")

    def __init__(self, prefix: Key, since: int) -> None:
        self._prefix = prefix
        self._depth = len(prefix)
        self._since = since
        self._wake = asyncio.Event()
        self.restart()

    def restart(self) -> None:
        """Empty, from now on."""
        self._pending: list[Event] = []
        self._weight = 0
        self._first = 0
        self.dropped_after: int | None = None

    def offer(self, revision: int, events: Sequence[Event]) -> None:
        """Takes in the events of one commit that concern this watch."""
        if self.dropped_after is not None or revision <= self._since:
            return
        wanted = [event for event in events if event.key[: self._depth] == self._prefix] if self._depth else events
        if not wanted:
            return
        if not self._pending:
            self._first = revision
        self._pending.extend(wanted)
        self._weight += sum([_weight(event) for event in wanted])
        if self._weight > PENDING_BYTES:
            self._pending = []
            self.dropped_after = self._first - 1
        self._wake.set()

    def take(self) -> Sequence[Event]:
        taken, self._pending, self._weight = self._pending, [], 0
        return taken

    def wake(self) -> None:
        self._wake.set()

    async def wait(self) -> None:
        await self._wake.wait()
        self._wake.clear()


class Feed:
    """Where a store stands (`revision`, `oldest`), and everybody who follows it."""

    def __init__(self, revision: int, oldest: int, replay: Replay) -> None:
        self.revision = revision
        self.oldest = oldest
        self._replay = replay
        self._closed = asyncio.Event()
        self._tails: set[Tail] = set()

    def publish(self, revision: int, events: Sequence[Event]) -> None:
        """One acknowledged commit. Before its caller hears of it, so that a watcher is never behind what is known."""
        self.revision = revision
        for tail in self._tails:
            tail.offer(revision, events)

    def compacted(self, oldest: int) -> None:
        self.oldest = max(self.oldest, oldest)

    def close(self) -> None:
        """Every watch ends after the events that already wait for it."""
        self._closed.set()
        for tail in self._tails:
            tail.wake()

    async def follow(self, prefix: Key, since: int) -> AsyncIterator[Sequence[Event]]:
        """See `Store.watch`."""
        tail = Tail(prefix, since)
        self._tails.add(tail)
        reached = since
        try:
            while not self._closed.is_set():
                tail.restart()
                # Nothing is awaited between restart() and here: live events begin right after this revision.
                live_after = self.revision
                while reached < live_after and not self._closed.is_set():
                    events, reached = await self._piece(prefix, reached, live_after)
                    if events:
                        yield events
                while tail.dropped_after is None:
                    if events := tail.take():
                        yield events
                    elif self._closed.is_set():
                        return
                    else:
                        await tail.wait()
                reached = tail.dropped_after
        finally:
            self._tails.discard(tail)

    async def _piece(self, prefix: Key, since: int, upto: int) -> tuple[Sequence[Event], int]:
        piece = await self._replay(prefix, since, upto)
        # Asked afterwards: a compaction during the replay may have taken events from under it.
        if since < self.oldest:
            raise Compacted(since, self.oldest)
        return piece
