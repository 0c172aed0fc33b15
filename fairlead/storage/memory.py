"""A store in memory, for tests and `memory:`. Nothing survives the process.

It implements the whole contract, including history, compaction and watches. No method awaits before it is done, so
each is atomic and needs no lock. Each then yields to the event loop once, so that its result may be outdated when the
caller gets it, as with any other store.
"""

import asyncio
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from itertools import islice

from fairlead.storage.commit import (
    PreparedCommit,
    find_conflict,
    pack_key,
    prefix_range,
    prepare_commit,
    resolve_future,
)
from fairlead.storage.contract import (
    FIRST_REVISION,
    Compacted,
    Event,
    Key,
    Page,
    Precondition,
    Record,
    StoreUnavailable,
    Write,
)
from fairlead.storage.watch_feed import SingleWriterStore, WatchFeed, take_chunk


class MemoryStore(SingleWriterStore):
    def __init__(self, first: int = FIRST_REVISION) -> None:
        super().__init__(WatchFeed(first, first, self._replay))
        self._keys: list[bytes] = []
        """All packed keys that have a version, sorted."""
        self._versions: dict[bytes, list[Event]] = {}
        """Versions by packed key, oldest first; the lists are never empty."""
        self._log: list[Event] = []
        """All events after `oldest()`, by revision."""
        self._closed = False

    async def read(self, key: Key) -> Record | None:
        self._check_open()
        record = self._record_at(pack_key(key), self._feed.revision)
        await asyncio.sleep(0)
        return record

    async def scan(self, prefix: Key, *, after: Key | None = None, limit: int = 0, at: int | None = None) -> Page:
        self._check_open()
        at = self._feed.revision if at is None else min(at, self._feed.revision)
        if at < self._feed.oldest:
            raise Compacted(at, self._feed.oldest)
        low, high = prefix_range(prefix, after)
        records = list(islice(self._iter_records(low, high, at), limit + 1 if limit else None))
        await asyncio.sleep(0)
        return Page(records[: limit or None], at, has_more=bool(limit) and len(records) > limit)

    async def commit(self, writes: Sequence[Write], preconditions: Sequence[Precondition] = ()) -> int:
        self._check_open()
        commit = prepare_commit(writes, preconditions)
        if conflict := find_conflict(commit, self._revision_of):
            raise conflict
        revision = self._apply(commit)
        await asyncio.sleep(0)
        return revision

    def submit_commit(self, commit: PreparedCommit) -> "asyncio.Future[int]":
        self._check_open()
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        resolve_future(done, find_conflict(commit, self._revision_of) or self._apply(commit))
        return done

    def _apply(self, commit: PreparedCommit) -> int:
        revision = self._feed.revision + 1
        events = [Event(change.key, change.value, revision) for change in commit.writes]
        for packed, event in zip(commit.write_keys, events, strict=True):
            if packed not in self._versions:
                insort(self._keys, packed)
            self._versions.setdefault(packed, []).append(event)
        self._log.extend(events)
        self._feed.publish(revision, events)
        return revision

    async def compact(self, before: int) -> None:
        self._check_open()
        before = min(before, self._feed.revision)
        self._feed.set_oldest(before)
        forgotten = bisect_right(self._log, before, key=_revision)
        touched = {pack_key(event.key) for event in self._log[:forgotten]}
        del self._log[:forgotten]
        for packed in touched:
            self._discard_versions(packed, before)
        await asyncio.sleep(0)

    async def purge_deleted(self) -> None:
        self._check_open()

    async def check_writable(self) -> None:
        self._check_open()

    async def close(self) -> None:
        self._closed = True
        self._feed.close()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("the store is closed")

    def _record_at(self, packed: bytes, at: int) -> Record | None:
        versions = self._versions.get(packed, [])
        index = bisect_right(versions, at, key=_revision) - 1
        if index < 0 or (value := versions[index].value) is None:
            return None
        return Record(versions[index].key, value, versions[index].revision)

    def _iter_records(self, low: bytes, high: bytes, at: int) -> Iterator[Record]:
        for index in range(bisect_left(self._keys, low), bisect_left(self._keys, high)):
            if record := self._record_at(self._keys[index], at):
                yield record

    def _revision_of(self, packed: bytes) -> int:
        record = self._record_at(packed, self._feed.revision)
        return record.revision if record else 0

    def _discard_versions(self, packed: bytes, before: int) -> None:
        """Discard the versions that no revision from `before` on needs: superseded ones, and a deletion."""
        versions = self._versions[packed]
        newest = bisect_right(versions, before, key=_revision) - 1
        if versions[newest].value is None:
            newest += 1
        del versions[:newest]
        if not versions:
            del self._versions[packed]
            del self._keys[bisect_left(self._keys, packed)]

    async def _replay(self, prefix: Key, since: int, upto: int) -> tuple[Sequence[Event], int]:
        start = bisect_right(self._log, since, key=_revision)
        end = bisect_right(self._log, upto, key=_revision)
        wanted = [event for event in self._log[start:end] if event.key[: len(prefix)] == prefix]
        return take_chunk(wanted, upto)


def _revision(event: Event) -> int:
    return event.revision
