"""StoreWrapper: a Store that forwards everything to another one.

Wrappers inherit from it and override what they change. Inheritance is otherwise not used, but the alternative is to
forward eleven methods in each wrapper.
"""

from collections.abc import AsyncIterator, Sequence

from fairlead.storage.contract import Event, Key, Page, Precondition, Record, Store, Write


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
