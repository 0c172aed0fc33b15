"""SocketStore: implements the contract in a worker, with the store of the owner.

Commits and reads are requests to the owner. Watches are served by a `WatchFeed` in this process, which gets every
commit from the owner and requests old ones from it.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path

from fairlead.core.framed_socket import connect_framed
from fairlead.storage.commit import pack_key, prepare_commit
from fairlead.storage.contract import Compacted, Event, Key, Page, Precondition, Record, StoreUnavailable, Write
from fairlead.storage.socket.frames import (
    CHECK_WRITABLE,
    COMPACT,
    MAX_FRAME_BYTES,
    NUMBER,
    OLDEST,
    PURGE_DELETED,
    READ,
    SCAN,
    clamp_number,
    decode_records,
    encode_scan,
    has_more_rows,
)
from fairlead.storage.socket.owner_link import LOST_MESSAGE, OwnerLink
from fairlead.storage.socket.shared_revision import SharedRevision
from fairlead.storage.watch_feed import WatchFeed

FORMER_OWNER_MESSAGE = "the store has a new owner; this process belongs to the former one and has to be restarted"


class SocketStore:
    def __init__(self, link: OwnerLink, shared: SharedRevision) -> None:
        self._link = link
        self._shared = shared
        self._epoch = link.epoch
        self._closing: asyncio.Task[None] | None = None

    @classmethod
    async def connect(cls, path: Path, shared: SharedRevision) -> "SocketStore":
        """Connect to the owner, which uses the same shared memory. Raises StoreUnavailable."""
        link = OwnerLink()
        try:
            await connect_framed(path, link.attach, MAX_FRAME_BYTES)
        except OSError as error:
            raise StoreUnavailable(f"{path}: cannot connect to the owner of the store ({error})") from error
        try:
            await link.ready
            store = cls(link, shared)
            store._check_usable()
        except BaseException:
            link.connection.abort()
            raise
        return store

    async def read(self, key: Key) -> Record | None:
        self._check_usable()
        _, response = await self._link.call(READ, pack_key(key))
        records = decode_records(response)
        return records[0] if records else None

    async def scan(self, prefix: Key, *, after: Key | None = None, limit: int = 0, at: int | None = None) -> Page:
        while True:
            try:
                return await self._scan_pieces(prefix, after, limit, at)
            except Compacted:
                if at is not None:
                    raise
                # The revision of the first piece was compacted meanwhile. Start again at the current one.

    async def commit(self, writes: Sequence[Write], preconditions: Sequence[Precondition] = ()) -> int:
        commit = prepare_commit(writes, preconditions)
        self._check_usable()
        return await self._link.commit(commit)

    async def watch(self, prefix: Key, since: int) -> AsyncIterator[Sequence[Event]]:
        """See `Store.watch`. Raises StoreUnavailable if the owner has ended."""
        feed: WatchFeed | None = None
        while feed is not self._link.feed:
            feed = self._link.feed
            async with aclosing(feed.subscribe(prefix, since)) as batches:  # type: ignore[type-var]  # a generator
                async for batch in batches:
                    since = batch[-1].revision
                    yield batch
            since = max(since, feed.revision)
        if self._closing is None:
            raise StoreUnavailable(LOST_MESSAGE)

    async def revision(self) -> int:
        self._check_usable()
        return self._shared.revision

    def local_revision(self) -> int | None:
        return self._shared.revision_in(self._epoch)

    async def oldest(self) -> int:
        self._check_usable()
        oldest, _ = await self._link.call(OLDEST)
        return oldest

    async def compact(self, before: int) -> None:
        self._check_usable()
        await self._link.call(COMPACT, NUMBER.pack(clamp_number(before)))

    async def purge_deleted(self) -> None:
        self._check_usable()
        await self._link.call(PURGE_DELETED)

    async def check_writable(self) -> None:
        self._check_usable()
        await self._link.call(CHECK_WRITABLE)

    async def close(self) -> None:
        """The store of the owner stays open."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._link.close(), name="close the store")
        # Shielded: a cancelled caller must not cancel the close for the others.
        await asyncio.shield(self._closing)

    async def wait_lost(self) -> None:
        """Wait until the connection to the owner is gone. This process is of no use then."""
        await self._link.connection.wait_closed()

    async def _scan_pieces(self, prefix: Key, after: Key | None, limit: int, at: int | None) -> Page:
        records: list[Record] = []
        while True:
            self._check_usable()
            left = limit - len(records) if limit else 0
            revision, response = await self._link.call(SCAN, encode_scan(prefix, after, left, at))
            records += decode_records(response)
            if not has_more_rows(response) or len(records) == limit:
                return Page(records, revision, has_more_rows(response))
            after, at = records[-1].key, revision

    def _check_usable(self) -> None:
        self._link.check_usable()
        if self._shared.revision_in(self._epoch) is None:
            raise StoreUnavailable(FORMER_OWNER_MESSAGE)
