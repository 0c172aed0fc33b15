"""How much history to keep, and the background task that forgets the rest. Started by the composition root.

Time and revisions are both lower bounds: a watcher that was away for less than `seconds`, or for fewer than `revisions`
commits, finds its place again. The store knows no time, so the task samples its revision now and then and remembers
when each was current. A restart forgets the samples, which only makes the first compaction come later.

Of several servers that share a store, the one that leads compacts, and all of them heed it.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable

import structlog

from fairlead.storage.contract import Store, Unavailable

log = structlog.get_logger(__name__)


async def _pause(seconds: float) -> float:
    """Sleeps, and says when it woke up, on the monotonic clock."""
    await asyncio.sleep(seconds)
    return time.monotonic()


class Samples:
    """Which revision was current when."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()

    def add(self, moment: float, revision: int) -> None:
        self._samples.append((moment, revision))

    def current_at(self, moment: float) -> int:
        """The newest revision known to have been current by then, 0 if none is. Forgets the samples before it."""
        while len(self._samples) > 1 and self._samples[1][0] <= moment:
            self._samples.popleft()
        first, revision = self._samples[0]
        return revision if first <= moment else 0


async def keep_history(
    store: Store,
    *,
    seconds: float,
    revisions: int,
    every: float,
    on_compacted: Callable[[int], None] | None = None,
    pause: Callable[[float], Awaitable[float]] = _pause,
) -> None:
    """Compacts for ever, so that at least the last `seconds` and at least the last `revisions` stay readable.

    `on_compacted` hears of each revision compacted to. `pause` is given by tests, which turn the clock themselves.
    """
    samples = Samples()
    revision = 0
    while True:
        now = await pause(every)
        # Learnt before the pause, dated after it: so it was current by then for sure, however slowly the store answers.
        samples.add(now, revision)
        before = min(samples.current_at(now - seconds), revision - revisions)
        try:
            if before > await store.oldest():
                await store.compact(before)
                if on_compacted is not None:
                    on_compacted(before)
            revision = await store.revision()
        except Unavailable as error:
            log.warning("history could not be compacted; trying again later", reason=str(error), seconds=every)


async def heed_compaction(
    store: Store,
    *,
    every: float,
    on_compacted: Callable[[int], None],
    pause: Callable[[float], Awaitable[float]] = _pause,
) -> None:
    """Tells for ever what other servers have compacted."""
    while True:
        await pause(every)
        try:
            on_compacted(await store.oldest())
        except Unavailable as error:
            log.info("how much history there is could not be learnt; trying again later", reason=str(error))
