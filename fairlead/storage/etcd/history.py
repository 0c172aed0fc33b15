"""The newest and the oldest revision, compaction, replay of old events, and the live watch. Used by EtcdStore.

All revisions here are etcd's. etcd reports its compacted revision only when a compacted one is requested, and other
clients may compact it, too. So we keep the last known value (`compact_revision`) and verify it with a range request
at that revision. If it was compacted, a watch from the start fails and returns the new value.

The oldest revision of the store is the newest of our commits up to `compact_revision`. Between the two there were no
commits of ours, so requests for revisions in between are answered with the state at `compact_revision`.

`EtcdFollower` is the one live watch of this process, through which EtcdStore receives all commits. It resumes after the
last transaction it has delivered, at any member, however often the connection breaks. If etcd was compacted meanwhile,
it checks whether any of our commits were lost, and only then reports a gap.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Protocol

import structlog

from fairlead.core.backoff import Backoff
from fairlead.storage.contract import Compacted, Event, Key, StoreUnavailable
from fairlead.storage.etcd.address import FutureRevision, RevisionCompacted, UnknownOutcome
from fairlead.storage.etcd.client import COMPACT, RANGE, RETRY, EtcdClient
from fairlead.storage.etcd.messages import (
    KeySpace,
    KeyValue,
    Layout,
    RangeResponse,
    WatchEvent,
    WatchResponse,
    compaction_request,
    range_request,
    watch_request,
)
from fairlead.storage.watch_feed import EVENT_OVERHEAD_BYTES

log = structlog.get_logger(__name__)

CHUNK_BYTES = 8 * 1024 * 1024
"""Each chunk of a replay needs a new watch, which takes up to 100 ms, so chunks are larger than in other stores."""
COMPACT_TIMEOUT = 60.0
MAX_REPLAY_ATTEMPTS = 5


async def iter_transactions(
    responses: AsyncIterator[WatchResponse],
) -> AsyncGenerator[tuple[int, Sequence[WatchEvent]]]:
    """Whole transactions with their revisions, in order; without events, the progress of the watch."""
    torn: list[WatchEvent] = []
    async for notice in responses:
        if notice.created:
            continue
        if not notice.events and not torn:
            yield notice.revision, ()
        for happening in notice.events:
            if torn and torn[-1].record.mod_revision != happening.record.mod_revision:
                yield torn[0].record.mod_revision, torn
                torn = []
            torn.append(happening)
        if torn and not notice.fragment:
            yield torn[0].record.mod_revision, torn
            torn = []


def to_store_events(keys: KeySpace, watch_events: Sequence[WatchEvent], revision: int) -> list[Event]:
    """The events of a transaction for our records. `revision` is ours."""
    return [
        Event(keys.parse_record_key(each.record.key), None if each.deleted else each.record.value, revision)
        for each in watch_events
        if each.record.key.startswith(keys.data)
    ]


class History:
    def __init__(self, client: EtcdClient, layout: Layout) -> None:
        self._client = client
        self._layout = layout
        self._keys = layout.keys
        self.compact_revision = layout.base
        """The last known compacted revision; initially the start of the store."""
        self._oldest = layout.base

    async def newest(self) -> int:
        """The revision of the newest commit of any replica. Linearizable."""
        return self.parse_head(
            RangeResponse.parse(await self._client.call_idempotent(RANGE, range_request(self._keys.head)))
        ).mod_revision

    def parse_head(self, response: RangeResponse) -> KeyValue:
        """The head record. Raises StoreUnavailable if it is not the one we know, because revisions would start over."""
        if not response.records or response.records[0].create_revision != self._layout.base:
            prefix = self._keys.prefix.decode()
            raise StoreUnavailable(
                f"{self._client.address}: the keys under {prefix} were deleted or replaced while the server ran;"
                " restore etcd from a backup if this was a mistake, then restart the servers"
            )
        return response.records[0]

    async def oldest(self) -> int:
        while True:
            try:
                await self.head_at(self.compact_revision)
                return self._oldest
            except RevisionCompacted:
                await self.refresh_compaction()

    async def refresh_compaction(self) -> None:
        """Find out the compacted revision, and update the oldest one."""
        while True:
            floor = await self._find_compact_revision()
            try:
                await self._record_compaction(max(floor, self._layout.base))
                return
            except RevisionCompacted:  # compacted again meanwhile
                continue

    async def compact(self, before: int) -> None:
        """Compact up to `before`, unless that was done already."""
        if before <= await self.oldest():
            return
        try:
            await self._client.call_idempotent(COMPACT, compaction_request(before), COMPACT_TIMEOUT)
            await self._record_compaction(before)
        except RevisionCompacted:
            await self.refresh_compaction()

    async def replay(self, prefix: Key, since: int, upto: int) -> tuple[Sequence[Event], int]:
        """Events after `since`, and the revision they reach, at most `upto`. Raises Compacted."""
        reason = ""
        for _ in range(MAX_REPLAY_ATTEMPTS):
            try:
                piece = await self._replay_chunk(prefix, since, upto)
                # Checked afterwards: compaction silently removes deletions during a watch.
                await self.head_at(since)
                return piece
            except UnknownOutcome as lost:
                reason = str(lost)
            except RevisionCompacted:
                await self.refresh_compaction()
                self.check_not_compacted(since)
                if upto <= self.compact_revision:
                    return (), upto
                since = max(since, self.compact_revision)
        raise StoreUnavailable(reason or f"{self._client.address} was compacted faster than it can be read")

    def check_not_compacted(self, revision: int) -> None:
        if revision < self._oldest:
            raise Compacted(self._layout.from_etcd_revision(revision), self._layout.from_etcd_revision(self._oldest))

    async def _replay_chunk(self, prefix: Key, since: int, upto: int) -> tuple[Sequence[Event], int]:
        events: list[Event] = []
        weight = 0
        request = watch_request(*self._keys.full_range, since + 1)
        async with (
            aclosing(self._client.watch(request)) as notices,
            aclosing(iter_transactions(notices)) as found,
        ):
            async for revision, happenings in found:
                if revision > upto:
                    break
                for event in to_store_events(self._keys, happenings, self._layout.from_etcd_revision(revision)):
                    if event.key[: len(prefix)] == prefix:
                        events.append(event)
                        weight += EVENT_OVERHEAD_BYTES + len(event.value or b"")
                if revision == upto or weight > CHUNK_BYTES:
                    return events, revision
        return events, upto

    async def head_at(self, revision: int) -> KeyValue:
        """The head record at a revision. Raises RevisionCompacted."""
        return self.parse_head(
            RangeResponse.parse(
                await self._client.call_idempotent(RANGE, range_request(self._keys.head, revision=revision))
            )
        )

    async def _record_compaction(self, compact_revision: int) -> None:
        self._oldest = max(self._oldest, (await self.head_at(compact_revision)).mod_revision)
        self.compact_revision = max(self.compact_revision, compact_revision)

    async def _find_compact_revision(self) -> int:
        request = watch_request(self._keys.format, b"", 1)
        for _ in range(MAX_REPLAY_ATTEMPTS):
            try:
                async with aclosing(self._client.watch(request)) as notices:
                    async for notice in notices:
                        # This key is written only once, so the history reaches back to the start.
                        if notice.events:
                            return self._layout.base
            except RevisionCompacted as gone:
                return int(gone.args[0])
            except UnknownOutcome as lost:
                reason = str(lost)
        raise StoreUnavailable(reason)


class CommitListener(Protocol):
    def on_transaction(self, revision: int, events: Sequence[WatchEvent]) -> None:
        """One whole transaction. `revision` is etcd's."""

    def on_gap(self, oldest: int) -> None:
        """Transactions up to this revision were compacted before they could be delivered."""


class EtcdFollower:
    def __init__(
        self, client: EtcdClient, keys: KeySpace, history: History, listener: CommitListener, head: KeyValue
    ) -> None:
        self._client = client
        self._keys = keys
        self._history = history
        self._listener = listener
        self._reached = head.mod_revision
        """Where the next connection resumes."""
        self._last_head: KeyValue | None = head
        """The head record of the newest commit that was delivered."""
        self.is_disconnected = False
        """Whether the last attempt to connect failed."""
        self.fatal_error: str | None = None
        """Why this etcd must not be used any more, for operators."""

    async def run(self) -> None:
        """Follow forever, until a fatal error."""
        backoff = Backoff(RETRY)
        while self.fatal_error is None:
            before = self._reached
            try:
                await self._check_same_history()
                self.is_disconnected = False
                await self._follow()
            except RevisionCompacted:
                await self._resume_after_compaction()
            except (UnknownOutcome, StoreUnavailable) as error:
                self.is_disconnected = True
                log.warning("the watch of etcd was interrupted; resuming", reason=str(error))
            # If the connection made progress, reconnect immediately.
            if self._reached > before:
                backoff.reset()
            await asyncio.sleep(backoff.next_delay())

    async def _follow(self) -> None:
        request = watch_request(*self._keys.full_range, self._reached + 1)
        async with (
            aclosing(self._client.watch(request)) as notices,
            aclosing(iter_transactions(notices)) as found,
        ):
            async for revision, happenings in found:
                if happenings:
                    self._listener.on_transaction(revision, happenings)
                    heads = [each.record for each in happenings if each.record.key == self._keys.head]
                    self._last_head = heads[0] if heads else self._last_head
                self._reached = max(self._reached, revision)

    async def _check_same_history(self) -> None:
        """Detect an etcd that was restored from a backup: its revisions after the backup would be reused."""
        if self._last_head is None:
            return
        try:
            if await self._history.head_at(self._last_head.mod_revision) == self._last_head:
                return
        except RevisionCompacted:
            return
        except FutureRevision:
            pass
        self.fatal_error = (
            f"{self._client.address} has lost revisions that it had acknowledged; it seems to have been restored"
            " from a backup: restart all servers, and their clients if they do not list again"
        )
        raise StoreUnavailable(self.fatal_error)

    async def _resume_after_compaction(self) -> None:
        try:
            await self._history.refresh_compaction()
            oldest = await self._history.oldest()
        except StoreUnavailable as error:
            log.warning("reading etcd's compacted revision failed; retrying", reason=str(error))
            return
        if oldest > self._reached:
            log.warning("etcd was compacted beyond what this server has read; watchers have to list again")
            self._listener.on_gap(oldest)
            self._last_head = None
        self._reached = max(self._reached, self._history.compact_revision)
