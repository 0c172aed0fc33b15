"""StoreWrapper: a Store that forwards everything to another one.

Wrappers inherit from it and override what they change. Inheritance is otherwise not used, but the alternative is to
forward eleven methods in each wrapper.

A store wrapper with fencing: only the current leader can write.

`app` gives it to the controllers and everything else that only the leader may do. Each commit has the precondition
that the lease is unchanged since our last renewal. So a process that was paused and resumes after losing the lease
cannot write, whatever its clock says.

Our own renewals change the lease, too. A commit that collides with one is repeated once the renewal is known.
`controllers/runtime/leader.py` updates the `Fence`.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence

from fairlead.core.waiting import RevisionWaiters
from fairlead.storage.contract import (
    Event,
    Key,
    Page,
    Precondition,
    Record,
    RevisionConflict,
    Store,
    StoreUnavailable,
    Write,
)


class StoreWrapper:
    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.local_revision = inner.local_revision  # called by every GET, so without a forwarding method

    async def read(self, key: Key) -> Record | None:
        return await self.inner.read(key)

    async def scan(self, prefix: Key, *, after: Key | None = None, limit: int = 0, at: int | None = None) -> Page:
        return await self.inner.scan(prefix, after=after, limit=limit, at=at)

    async def commit(self, writes: Sequence[Write], preconditions: Sequence[Precondition] = ()) -> int:
        return await self.inner.commit(writes, preconditions)

    def watch(self, prefix: Key, since: int) -> AsyncIterator[Sequence[Event]]:
        return self.inner.watch(prefix, since)

    async def revision(self) -> int:
        return await self.inner.revision()

    async def oldest(self) -> int:
        return await self.inner.oldest()

    async def compact(self, before: int) -> None:
        await self.inner.compact(before)

    async def purge_deleted(self) -> None:
        await self.inner.purge_deleted()

    async def check_writable(self) -> None:
        await self.inner.check_writable()

    async def close(self) -> None:
        await self.inner.close()


class LeadershipLost(StoreUnavailable):
    """This replica is no longer the leader. A StoreUnavailable, because callers can only give up."""

    def __init__(self) -> None:
        super().__init__("this replica is no longer the leader; the new leader continues")


class Fence:
    """The revision of the lease while this replica holds it. Initially it holds none."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self.renewal_requested = asyncio.Event()
        """Set when a commit was rejected: the lease must be renewed, or found to be lost, immediately."""
        self._revision = 0
        self._waiters = RevisionWaiters()

    @property
    def is_held(self) -> bool:
        return self._revision > 0

    @property
    def revision(self) -> int:
        """The revision of the lease. Raises LeadershipLost if this replica does not hold it."""
        if not self._revision:
            raise LeadershipLost
        return self._revision

    def update(self, revision: int) -> None:
        """Record that this replica holds the lease at this revision."""
        self._revision = revision
        # Pending requests for a renewal are answered by this one.
        self.renewal_requested.clear()
        self._waiters.advance(revision)

    def release(self) -> None:
        """Record that this replica does not hold the lease, or is about to release it."""
        self._revision = 0
        self.renewal_requested.clear()
        self._waiters.fail(LeadershipLost)

    async def wait_newer(self, revision: int) -> None:
        """Wait for a renewal newer than this revision. Raises LeadershipLost."""
        if self.revision <= revision:
            self.renewal_requested.set()
            await self._waiters.add(revision + 1)


class FencedStore(StoreWrapper):
    """Adds the lease as a precondition to every commit."""

    def __init__(self, store: Store, fence: Fence) -> None:
        super().__init__(store)
        self._fence = fence

    async def commit(self, writes: Sequence[Write], preconditions: Sequence[Precondition] = ()) -> int:
        key = self._fence.key
        for change in writes:
            if change.key == key:
                return await self._commit_lease(change.expected_revision, writes, preconditions)
        while True:
            revision = self._fence.revision
            try:
                return await self.inner.commit(writes, (*preconditions, Precondition(key, revision)))
            except RevisionConflict as conflict:
                if conflict.key != key:
                    raise
            await self._fence.wait_newer(revision)

    async def _commit_lease(self, expected: int, changes: Sequence[Write], checks: Sequence[Precondition]) -> int:
        """A commit that writes the lease itself: its expected revision takes the place of the precondition."""
        if expected != self._fence.revision:
            raise RevisionConflict(self._fence.key, expected, self._fence.revision)
        return await self.inner.commit(changes, checks)

    async def compact(self, before: int) -> None:
        """Checked locally only: compacting twice is harmless, so the store need not enforce it."""
        _ = self._fence.revision
        await self.inner.compact(before)

    async def purge_deleted(self) -> None:
        _ = self._fence.revision
        await self.inner.purge_deleted()
