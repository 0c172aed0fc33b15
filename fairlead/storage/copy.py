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

from fairlead.storage.commit import pack
from fairlead.storage.contract import Change, Compacted, Conflict, Key, Record, Store, Unavailable

GAP = 1_000_000_000
"""More commits than the old servers can have made since the snapshot: thirty per second for a year."""

UNFINISHED: Key = ("", "copies", "", "unfinished")
ONLY_PART = (
    "the store is incomplete: a restore or copy into it did not finish; repeat it with --force, which starts over"
)
_UNFINISHED_VALUE = orjson.dumps({"apiVersion": "v1", "kind": "Copy", "metadata": {"name": "unfinished"}})

PAGE = 500
BATCH_RECORDS = 100
"""etcd accepts 128 operations per transaction by default."""
BATCH_BYTES = 1_000_000
"""etcd accepts 1.5 MB per request by default."""
AT_ONCE = 4

Batch = list[tuple[Key, bytes]]

LENGTHS = struct.Struct(">II")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The content of a store at one revision, in key order. The records can be read once, while the store is open."""

    revision: int
    records: AsyncGenerator[Record]


@dataclass(frozen=True, slots=True)
class Filled:
    count: int
    revision: int


class Occupied(Exception):
    """The store is not empty. The message says what it contains; the caller adds how to override."""


class Content:
    """A digest of keys and values in key order, without revisions: equal for stores with equal content."""

    __slots__ = ("_hash", "count")

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.count = 0

    def add(self, key: Key, value: bytes) -> bytes:
        """Add a record. Returns the bytes added to the digest: the lengths, the packed key and the value."""
        packed = pack(key)
        framed = b"".join((LENGTHS.pack(len(packed), len(value)), packed, value))
        self._hash.update(framed)
        self.count += 1
        return framed

    def digest(self) -> bytes:
        return self._hash.digest()


async def scanned(store: Store) -> Snapshot:
    """A snapshot of an open store, read page by page. Concurrent writes are allowed."""
    revision = await store.revision()
    return Snapshot(revision, _pages(store, revision))


async def _pages(store: Store, at: int) -> AsyncGenerator[Record]:
    after: Key | None = None
    while True:
        try:
            page = await store.scan((), after=after, limit=PAGE, at=at)
        except Compacted as error:
            advice = "try again, or keep more history with a larger history_seconds"
            raise Unavailable(f"the store's history was compacted faster than it could be read; {advice}") from error
        for record in page.records:
            yield record
        if not page.more:
            return
        after = page.records[-1].key


async def held_still(store: Store, snapshot: Snapshot) -> AsyncGenerator[Record]:
    """The snapshot's records. Raises StoreUnavailable if the store is written to before all of them were read."""
    await refuse_changed(store, snapshot.revision)
    async with aclosing(snapshot.records) as records:
        async for record in records:
            yield record
    await refuse_changed(store, snapshot.revision)


async def refuse_changed(store: Store, revision: int) -> None:
    if (newest := await store.revision()) != revision:
        advice = "stop all servers that use it, and try again"
        raise Unavailable(f"the store was modified in the meantime (revision {newest}, was {revision}); {advice}")


def first_above(revision: int) -> int:
    """The first revision of a store that replaces one that was at `revision` when the snapshot was taken."""
    return revision + GAP


async def refuse_unfinished(store: Store) -> None:
    if await store.read(UNFINISHED) is not None:
        raise Unavailable(ONLY_PART)


async def refuse_occupied(store: Store) -> None:
    if await store.read(UNFINISHED) is not None:
        raise Occupied("an earlier restore or copy into it did not finish")
    page = await store.scan((), limit=1)
    if page.records:
        raise Occupied(f"it already contains data, at revision {page.revision}")


async def fill(store: Store, records: AsyncIterator[tuple[Key, bytes]], *, replace: bool = False) -> Filled:
    """Write all records, in key order, into a store that no server uses. Raises StoreNotEmpty unless it is empty.

    `replace` deletes existing records. On failure the store stays marked as unfinished, unless nothing was changed.
    """
    mark, untouched = await _claim(store, replace)
    batches = _batches(records)
    try:
        # Read the first batch before deleting anything: the source may turn out to be empty.
        if not (batch := await _next(batches)):
            raise Unavailable("there is nothing to restore; check that the source is the right one")
    except BaseException:
        if untouched:
            await _commit(store, [[Change(UNFINISHED, None, mark)]])
        raise
    if replace:
        await _clear(store)
    written = Content()
    while batch:
        window = [batch, *[await _next(batches) for _ in range(AT_ONCE - 1)]]
        for key, value in (pair for each in window for pair in each):
            written.add(key, value)
        await _commit(store, [[Change(key, value, 0) for key, value in each] for each in window if each])
        batch = await _next(batches)
    await _compare(store, written)
    [revision] = await _commit(store, [[Change(UNFINISHED, None, mark)]])
    await store.compact(revision)
    return Filled(written.count, revision)


async def _claim(store: Store, replace: bool) -> tuple[int, bool]:
    """Write the marker of an unfinished restore. Returns its revision, and whether it did not exist before."""
    if not replace:
        await refuse_occupied(store)
    there = await store.read(UNFINISHED)
    expected = there.revision if there else 0
    [mark] = await _commit(store, [[Change(UNFINISHED, _UNFINISHED_VALUE, expected)]])
    return mark, not expected


async def _clear(store: Store) -> None:
    while True:
        found = (await store.scan((), limit=BATCH_RECORDS + 1)).records
        doomed = [record for record in found if record.key != UNFINISHED][:BATCH_RECORDS]
        if not doomed:
            return
        await _commit(store, [[Change(record.key, None, record.revision) for record in doomed]])


async def _batches(records: AsyncIterator[tuple[Key, bytes]]) -> AsyncGenerator[Batch]:
    batch: Batch = []
    weight = 0
    async for key, value in records:
        if batch and (len(batch) == BATCH_RECORDS or weight + len(value) > BATCH_BYTES):
            yield batch
            batch, weight = [], 0
        batch.append((key, value))
        weight += len(value)
    if batch:
        yield batch


async def _next(batches: AsyncGenerator[Batch]) -> Batch:
    """The next batch; empty after the last one."""
    async for batch in batches:
        return batch
    return []


async def _commit(store: Store, commits: Sequence[Sequence[Change]]) -> list[int]:
    try:
        return await asyncio.gather(*[store.commit(changes) for changes in commits])
    except Conflict as error:
        raise Unavailable(f"another process writes to the store ({error}); stop all servers that use it") from error


async def _compare(store: Store, written: Content) -> None:
    """Read the store back and compare it with what was written."""
    found = Content()
    async with aclosing((await scanned(store)).records) as records:
        async for record in records:
            if record.key != UNFINISHED:
                found.add(record.key, record.value)
    if found.digest() != written.digest():
        advice = "stop all servers that use it, and repeat this with --force"
        raise Unavailable(f"the store does not contain what was written to it; {advice}")
