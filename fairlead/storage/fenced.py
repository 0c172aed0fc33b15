"""A store that only the holder of a lease can write to; whoever has lost the lease without knowing writes nothing.

The composition root puts it under what only one replica may do: controllers and the like. Each commit carries the
condition that the lease still is where our last renewal has put it. A process that stood still for a minute and wakes
up as if nothing had happened finds its commits refused by the store itself, whatever its clock says.

Our own renewals move the lease, too, and a commit may cross one of them on the way. Such a commit is made again once
the renewal is known. `controllers/runtime/leader.py` moves the `Fence`.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence

from fairlead.storage.contract import Change, Check, Conflict, Event, Key, Page, Record, Store, Unavailable


class LostLead(Unavailable):
    """Unavailable, because whoever gets it can do nothing but leave the work to another replica."""

    def __init__(self) -> None:
        super().__init__("this replica does not lead any more; the one that does carries on")


class Fence:
    """Where the lease stands as far as we hold it. A new one stands nowhere."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self.doubted = asyncio.Event()
        """Set when a commit was refused: the lease has to be renewed, or found to be lost, right now."""
        self._revision = 0
        self._moved = asyncio.Event()

    @property
    def held(self) -> bool:
        return self._revision > 0

    @property
    def revision(self) -> int:
        """Of the lease, which is ours. Raises LostLead where it is not."""
        if not self._revision:
            raise LostLead
        return self._revision

    def move(self, revision: int) -> None:
        """The lease is ours, as of this revision."""
        self._revision = revision
        # Whoever had doubts has the answer: no need to renew it once more for him.
        self.doubted.clear()
        self._moved.set()
        self._moved = asyncio.Event()

    def drop(self) -> None:
        """The lease is not ours, or not for long."""
        self.move(0)

    async def moved_from(self, revision: int) -> None:
        """Waits until we know of a newer renewal than this one. Raises LostLead."""
        while self.revision == revision:
            self.doubted.set()
            await self._moved.wait()


class Fenced:
    """The contract over another store, for the holder of the lease."""

    def __init__(self, store: Store, fence: Fence) -> None:
        self._store = store
        self._fence = fence

    async def commit(self, changes: Sequence[Change], checks: Sequence[Check] = ()) -> int:
        key = self._fence.key
        for change in changes:
            if change.key == key:
                return await self._commit_to_lease(change.expected, changes, checks)
        while True:
            revision = self._fence.revision
            try:
                return await self._store.commit(changes, (*checks, Check(key, revision)))
            except Conflict as conflict:
                if conflict.key != key:
                    raise
            await self._fence.moved_from(revision)

    async def _commit_to_lease(self, expected: int, changes: Sequence[Change], checks: Sequence[Check]) -> int:
        """Even a controller may have something to say about the lease. What it expects of it is the condition."""
        if expected != self._fence.revision:
            raise Conflict(self._fence.key, expected, self._fence.revision)
        return await self._store.commit(changes, checks)

    async def compact(self, before: int) -> None:
        """Checked here alone: compacting twice does no harm, so the store need not see to it."""
        _ = self._fence.revision
        await self._store.compact(before)

    async def scrub(self) -> None:
        _ = self._fence.revision
        await self._store.scrub()

    async def read(self, key: Key) -> Record | None:
        return await self._store.read(key)

    async def scan(self, prefix: Key, *, after: Key | None = None, limit: int = 0, at: int | None = None) -> Page:
        return await self._store.scan(prefix, after=after, limit=limit, at=at)

    def watch(self, prefix: Key, since: int) -> AsyncIterator[Sequence[Event]]:
        return self._store.watch(prefix, since)

    async def revision(self) -> int:
        return await self._store.revision()

    def known_revision(self) -> int | None:
        return self._store.known_revision()

    async def oldest(self) -> int:
        return await self._store.oldest()

    async def check(self) -> None:
        await self._store.check()

    async def close(self) -> None:
        await self._store.close()
