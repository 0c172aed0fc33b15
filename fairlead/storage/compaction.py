"""The background task that compacts history.

Time and number of revisions are both lower bounds: a watch that was disconnected for less than `min_seconds`, or for
fewer than `min_revisions` commits, can resume. Stores do not record times, so the task samples the current revision
at intervals. A restart loses the samples, which only delays the next compaction.

If several replicas share a store, the leader compacts, and all replicas follow its progress.
"""

from collections import deque
from collections.abc import Awaitable, Callable

import structlog

from fairlead.core.waiting import sleep_monotonic
from fairlead.storage.contract import Store, StoreUnavailable

log = structlog.get_logger(__name__)


class RevisionTimeline:
    """Samples of the current revision over time."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()

    def add(self, moment: float, revision: int) -> None:
        self._samples.append((moment, revision))

    def revision_at(self, moment: float) -> int:
        """The newest revision known to have been reached by then, 0 if unknown. Discards older samples."""
        while len(self._samples) > 1 and self._samples[1][0] <= moment:
            self._samples.popleft()
        first, revision = self._samples[0]
        return revision if first <= moment else 0


async def run_compaction(
    store: Store,
    *,
    min_seconds: float,
    min_revisions: int,
    interval_seconds: float,
    on_compacted: Callable[[int], None] | None = None,
    sleep: Callable[[float], Awaitable[float]] = sleep_monotonic,
) -> None:
    """Compact forever, keeping at least the last `min_seconds` and the last `min_revisions` readable.

    `on_compacted` is called with each compacted revision. Tests pass `sleep` to control the time.
    """
    samples = RevisionTimeline()
    revision = 0
    while True:
        now = await sleep(interval_seconds)
        # Read before the sleep and recorded with the time after it, so it was certainly reached by then.
        samples.add(now, revision)
        before = min(samples.revision_at(now - min_seconds), revision - min_revisions)
        try:
            if before > await store.oldest():
                await store.compact(before)
                if on_compacted is not None:
                    on_compacted(before)
            revision = await store.revision()
        except StoreUnavailable as error:
            log.warning("compaction failed; retrying later", reason=str(error), seconds=interval_seconds)


async def follow_compaction(
    store: Store,
    *,
    interval_seconds: float,
    on_compacted: Callable[[int], None],
    sleep: Callable[[float], Awaitable[float]] = sleep_monotonic,
) -> None:
    """Report compactions by other replicas forever."""
    while True:
        await sleep(interval_seconds)
        try:
            on_compacted(await store.oldest())
        except StoreUnavailable as error:
            log.info("reading the compacted revision failed; retrying later", reason=str(error))
