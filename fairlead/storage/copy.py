"""Copies the content of one store to another: a snapshot of the source, and restoring into an empty store.

`backup.py` uses the same functions for files. `app/maintenance.py` calls both, without a running server.

A restored store starts a new history, which clients must not mistake for a continuation: the old servers may have
committed more after the snapshot, and clients may have seen it. So the new store starts at a much higher revision
(`first_revision_after`), and its restore is compacted: clients with an old resourceVersion get 410 and list again.

A marker record exists while a restore is in progress. Servers do not start on a store with this marker.
"""

import asyncio
import hashlib
import struct
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

import orjson

from fairlead.storage.commit import pack_key
from fairlead.storage.contract import Compacted, Key, Record, RevisionConflict, Store, StoreUnavailable, Write

REVISION_GAP = 1_000_000_000
"""More commits than the old servers can have made since the snapshot: thirty per second for a year."""

UNFINISHED_KEY: Key = ("", "copies", "", "unfinished")
UNFINISHED_MESSAGE = (
    "the store is incomplete: a restore or copy into it did not finish; repeat it with --force, which starts over"
)
_UNFINISHED_VALUE = orjson.dumps({"apiVersion": "v1", "kind": "Copy", "metadata": {"name": "unfinished"}})

PAGE_SIZE = 500
MAX_BATCH_RECORDS = 100
"""etcd accepts 128 operations per transaction by default."""
MAX_BATCH_BYTES = 1_000_000
"""etcd accepts 1.5 MB per request by default."""
MAX_CONCURRENT_COMMITS = 4

RecordBatch = list[tuple[Key, bytes]]

RECORD_LENGTHS = struct.Struct(">II")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The content of a store at one revision, in key order. The records can be read once, while the store is open."""

    revision: int
    records: AsyncGenerator[Record]


@dataclass(frozen=True, slots=True)
class CopyStats:
    count: int
    revision: int


class StoreNotEmpty(Exception):
    """The store is not empty. The message says what it contains; the caller adds how to override."""


class ContentDigest:
    """A digest of keys and values in key order, without revisions: equal for stores with equal content."""

    __slots__ = ("_hash", "count")

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.count = 0

    def add(self, key: Key, value: bytes) -> bytes:
        """Add a record. Returns the bytes added to the digest: the lengths, the packed key and the value."""
        packed = pack_key(key)
        framed = b"".join((RECORD_LENGTHS.pack(len(packed), len(value)), packed, value))
        self._hash.update(framed)
        self.count += 1
        return framed

    def digest(self) -> bytes:
        return self._hash.digest()


async def take_snapshot(store: Store) -> Snapshot:
    """A snapshot of an open store, read page by page. Concurrent writes are allowed."""
    revision = await store.revision()
    return Snapshot(revision, _iter_records(store, revision))


async def _iter_records(store: Store, at: int) -> AsyncGenerator[Record]:
    after: Key | None = None
    while True:
        try:
            page = await store.scan((), after=after, limit=PAGE_SIZE, at=at)
        except Compacted as error:
            advice = "try again, or keep more history with a larger history_seconds"
            raise StoreUnavailable(
                f"the store's history was compacted faster than it could be read; {advice}"
            ) from error
        for record in page.records:
            yield record
        if not page.has_more:
            return
        after = page.records[-1].key


async def frozen_records(store: Store, snapshot: Snapshot) -> AsyncGenerator[Record]:
    """The snapshot's records. Raises StoreUnavailable if the store is written to before all of them were read."""
    await check_unchanged(store, snapshot.revision)
    async with aclosing(snapshot.records) as records:
        async for record in records:
            yield record
    await check_unchanged(store, snapshot.revision)


async def check_unchanged(store: Store, revision: int) -> None:
    if (newest := await store.revision()) != revision:
        advice = "stop all servers that use it, and try again"
        raise StoreUnavailable(f"the store was modified in the meantime (revision {newest}, was {revision}); {advice}")


def first_revision_after(revision: int) -> int:
    """The first revision of a store that replaces one that was at `revision` when the snapshot was taken."""
    return revision + REVISION_GAP


async def check_complete(store: Store) -> None:
    if await store.read(UNFINISHED_KEY) is not None:
        raise StoreUnavailable(UNFINISHED_MESSAGE)


async def check_empty(store: Store) -> None:
    if await store.read(UNFINISHED_KEY) is not None:
        raise StoreNotEmpty("an earlier restore or copy into it did not finish")
    page = await store.scan((), limit=1)
    if page.records:
        raise StoreNotEmpty(f"it already contains data, at revision {page.revision}")


async def restore_records(
    store: Store, records: AsyncIterator[tuple[Key, bytes]], *, replace: bool = False
) -> CopyStats:
    """Write all records, in key order, into a store that no server uses. Raises StoreNotEmpty unless it is empty.

    `replace` deletes existing records. On failure the store stays marked as unfinished, unless nothing was changed.
    """
    mark, untouched = await _mark_unfinished(store, replace)
    batches = _batches(records)
    try:
        # Read the first batch before deleting anything: the source may turn out to be empty.
        if not (batch := await _next_batch(batches)):
            raise StoreUnavailable("there is nothing to restore; check that the source is the right one")
    except BaseException:
        if untouched:
            await _commit(store, [[Write(UNFINISHED_KEY, None, mark)]])
        raise
    if replace:
        await _delete_all(store)
    written = ContentDigest()
    while batch:
        window = [batch, *[await _next_batch(batches) for _ in range(MAX_CONCURRENT_COMMITS - 1)]]
        for key, value in (pair for each in window for pair in each):
            written.add(key, value)
        await _commit(store, [[Write(key, value, 0) for key, value in each] for each in window if each])
        batch = await _next_batch(batches)
    await _verify_written(store, written)
    [revision] = await _commit(store, [[Write(UNFINISHED_KEY, None, mark)]])
    await store.compact(revision)
    return CopyStats(written.count, revision)


async def _mark_unfinished(store: Store, replace: bool) -> tuple[int, bool]:
    """Write the marker of an unfinished restore. Returns its revision, and whether it did not exist before."""
    if not replace:
        await check_empty(store)
    there = await store.read(UNFINISHED_KEY)
    expected = there.revision if there else 0
    [mark] = await _commit(store, [[Write(UNFINISHED_KEY, _UNFINISHED_VALUE, expected)]])
    return mark, not expected


async def _delete_all(store: Store) -> None:
    while True:
        found = (await store.scan((), limit=MAX_BATCH_RECORDS + 1)).records
        doomed = [record for record in found if record.key != UNFINISHED_KEY][:MAX_BATCH_RECORDS]
        if not doomed:
            return
        await _commit(store, [[Write(record.key, None, record.revision) for record in doomed]])


async def _batches(records: AsyncIterator[tuple[Key, bytes]]) -> AsyncGenerator[RecordBatch]:
    batch: RecordBatch = []
    weight = 0
    async for key, value in records:
        if batch and (len(batch) == MAX_BATCH_RECORDS or weight + len(value) > MAX_BATCH_BYTES):
            yield batch
            batch, weight = [], 0
        batch.append((key, value))
        weight += len(value)
    if batch:
        yield batch


async def _next_batch(batches: AsyncGenerator[RecordBatch]) -> RecordBatch:
    """The next batch; empty after the last one."""
    async for batch in batches:
        return batch
    return []


async def _commit(store: Store, commits: Sequence[Sequence[Write]]) -> list[int]:
    try:
        return await asyncio.gather(*[store.commit(changes) for changes in commits])
    except RevisionConflict as error:
        raise StoreUnavailable(
            f"another process writes to the store ({error}); stop all servers that use it"
        ) from error


async def _verify_written(store: Store, written: ContentDigest) -> None:
    """Read the store back and compare it with what was written."""
    found = ContentDigest()
    async with aclosing((await take_snapshot(store)).records) as records:
        async for record in records:
            if record.key != UNFINISHED_KEY:
                found.add(record.key, record.value)
    if found.digest() != written.digest():
        advice = "stop all servers that use it, and repeat this with --force"
        raise StoreUnavailable(f"the store does not contain what was written to it; {advice}")
