"""What a store holds, from one store to another: a snapshot on one side, an empty store that is filled on the other.

`backup.py` puts a file in between. `app/maintenance.py` calls both; no server takes part.

A filled store is a new history. Whoever followed the old one must not mistake it for a continuation: the old servers
may have gone on after the snapshot, and clients may remember what was lost. So the new store begins far above
(`first_above`), and nothing of how it was filled stays readable: clients that come back with an old resourceVersion are
told that it is gone and list again.

While a store is being filled a record says so. What was begun and not finished is no store: no server starts on it.
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
"""More commits than the old servers have made since the snapshot: a year's, at thirty each second without a break."""

UNFINISHED: Key = ("", "copies", "", "unfinished")
ONLY_PART = (
    "the store holds only a part: restoring or copying into it was not finished;"
    " do that again with --force, which begins anew"
)
_UNFINISHED_VALUE = orjson.dumps({"apiVersion": "v1", "kind": "Copy", "metadata": {"name": "unfinished"}})

PAGE = 500
BATCH_RECORDS = 100
"""etcd takes no more than 128 in one transaction, unless told otherwise."""
BATCH_BYTES = 1_000_000
"""And, likewise, one and a half megabytes."""
AT_ONCE = 4

Batch = list[tuple[Key, bytes]]

LENGTHS = struct.Struct(">II")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that a store held at one revision, in key order. The records come once, while the store is open."""

    revision: int
    records: AsyncGenerator[Record]


@dataclass(frozen=True, slots=True)
class Filled:
    count: int
    revision: int


class Occupied(Exception):
    """The store is not empty. The message says what is there; whoever shows it says how to insist."""


class Content:
    """A digest of keys and values, in key order, whatever their revisions: equal where two stores hold the same."""

    __slots__ = ("_hash", "count")

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.count = 0

    def add(self, key: Key, value: bytes) -> bytes:
        """Returns what it has counted in: the lengths, the packed key, and the value."""
        packed = pack(key)
        framed = b"".join((LENGTHS.pack(len(packed), len(value)), packed, value))
        self._hash.update(framed)
        self.count += 1
        return framed

    def digest(self) -> bytes:
        return self._hash.digest()


async def scanned(store: Store) -> Snapshot:
    """A snapshot of any store that is open, read page by page. Others may write meanwhile."""
    revision = await store.revision()
    return Snapshot(revision, _pages(store, revision))


async def _pages(store: Store, at: int) -> AsyncGenerator[Record]:
    after: Key | None = None
    while True:
        try:
            page = await store.scan((), after=after, limit=PAGE, at=at)
        except Compacted as error:
            advice = "try again, or let the servers keep more of it with a larger history_seconds"
            raise Unavailable(f"the store's history was forgotten faster than it could be read; {advice}") from error
        for record in page.records:
            yield record
        if not page.more:
            return
        after = page.records[-1].key


async def held_still(store: Store, snapshot: Snapshot) -> AsyncGenerator[Record]:
    """The snapshot's records. Unavailable where the store is written to before all of them were read."""
    await refuse_changed(store, snapshot.revision)
    async with aclosing(snapshot.records) as records:
        async for record in records:
            yield record
    await refuse_changed(store, snapshot.revision)


async def refuse_changed(store: Store, revision: int) -> None:
    if (newest := await store.revision()) != revision:
        advice = "stop all servers that use it, and try again"
        raise Unavailable(f"the store was written to meanwhile (revision {newest}, {revision} before); {advice}")


def first_above(revision: int) -> int:
    """Where a store begins that takes the place of one that was at `revision` when the snapshot was taken."""
    return revision + GAP


async def refuse_unfinished(store: Store) -> None:
    if await store.read(UNFINISHED) is not None:
        raise Unavailable(ONLY_PART)


async def refuse_occupied(store: Store) -> None:
    if await store.read(UNFINISHED) is not None:
        raise Occupied("restoring or copying into it was begun before and not finished")
    page = await store.scan((), limit=1)
    if page.records:
        raise Occupied(f"it holds something already, at revision {page.revision}")


async def fill(store: Store, records: AsyncIterator[tuple[Key, bytes]], *, replace: bool = False) -> Filled:
    """Writes all of the records, in key order, into a store that nobody else uses. Occupied unless it is empty.

    `replace` deletes what is there. When this fails the store stays marked as unfinished, unless it was left untouched.
    """
    mark, untouched = await _claim(store, replace)
    batches = _batches(records)
    try:
        # Looked at before anything goes: what is to come may turn out to be nothing.
        if not (batch := await _next(batches)):
            raise Unavailable("there is nothing to fill it with; see whether that comes from the right place")
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
    """Says that the store is not finished. The revision of that, and whether it is news."""
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
    """Empty after the last one."""
    async for batch in batches:
        return batch
    return []


async def _commit(store: Store, commits: Sequence[Sequence[Change]]) -> list[int]:
    try:
        return await asyncio.gather(*[store.commit(changes) for changes in commits])
    except Conflict as error:
        raise Unavailable(f"somebody else writes to the store ({error}); stop all servers that use it") from error


async def _compare(store: Store, written: Content) -> None:
    """Reads back what the store has now."""
    found = Content()
    async with aclosing((await scanned(store)).records) as records:
        async for record in records:
            if record.key != UNFINISHED:
                found.add(record.key, record.value)
    if found.digest() != written.digest():
        advice = "stop all servers that use it, and do this again with --force"
        raise Unavailable(f"the store does not hold what was written to it; {advice}")
