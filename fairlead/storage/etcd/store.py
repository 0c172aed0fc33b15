"""EtcdStore: implements the contract with an etcd cluster.

Reads go to etcd and are linearizable, commits go to the writer, and watches to the feed, which the follower fills
with the commits of all replicas, in order. A commit returns after the follower has delivered it.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence

import msgspec
import structlog
from msgspec.structs import replace

from fairlead.core.waiting import end_tasks
from fairlead.storage.commit import prepare_commit
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
from fairlead.storage.etcd.address import EtcdAddress, FutureRevision, RevisionCompacted
from fairlead.storage.etcd.client import DEFRAGMENT, RANGE, RETRY_TIMEOUT, TXN, EtcdClient
from fairlead.storage.etcd.history import EtcdFollower, History, to_store_events
from fairlead.storage.etcd.messages import (
    Format,
    KeySpace,
    KeyValue,
    Layout,
    RangeResponse,
    TxnResponse,
    WatchEvent,
    compare_create_revision,
    compare_mod_revision,
    op_put,
    op_range,
    range_request,
    txn_request,
)
from fairlead.storage.etcd.writer import EtcdWriter
from fairlead.storage.watch_feed import WatchFeed

CHUNK_RECORDS = 1_000
"""Records per request, because etcd builds each response in memory."""
DEFRAGMENT_TIMEOUT = 600.0

log = structlog.get_logger(__name__)


class EtcdStore:
    def __init__(self, client: EtcdClient, layout: Layout, history: History, head: KeyValue, oldest: int) -> None:
        """Use `open`. `head` and `oldest` have etcd's revisions."""
        self._client = client
        self._layout = layout
        self._history = history
        self._writer = EtcdWriter(client, layout)
        self._feed = WatchFeed(
            layout.from_etcd_revision(head.mod_revision), layout.from_etcd_revision(oldest), self._replay
        )
        self._follower = EtcdFollower(client, layout.keys, self._history, self, head)
        self._follower_task = asyncio.create_task(self._follower.run(), name="follow etcd")
        self._follower_task.add_done_callback(self._on_follower_done)
        self._pending_commits: set[asyncio.Task[int]] = set()
        self._newest_query: asyncio.Task[int] | None = None
        self._next_newest_query: asyncio.Task[int] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._has_failed = False

    @classmethod
    async def open(cls, address: EtcdAddress, first: int = FIRST_REVISION) -> "EtcdStore":
        """Open or create the store under the prefix. Its revision is then at least `first`.

        Raising the revision renumbers the store, so no server may be using it. Raises StoreUnavailable with advice.
        """
        client = EtcdClient(address)
        try:
            layout, head = await _open_layout(client, KeySpace(address.prefix.encode()), first)
            history = History(client, layout)
            oldest = await history.oldest()
        except BaseException:
            await client.close()
            raise
        return cls(client, layout, history, head, oldest)

    async def read(self, key: Key) -> Record | None:
        self._check_open()
        found = RangeResponse.parse(await self._call(RANGE, range_request(self._layout.keys.record_key(key))))
        return self._to_record(found.records[0]) if found.records else None

    async def scan(self, prefix: Key, *, after: Key | None = None, limit: int = 0, at: int | None = None) -> Page:
        self._check_open()
        etcd_revision = 0 if at is None else self._layout.to_etcd_revision(at)
        while True:
            if at is not None and at < self._layout.first:
                raise Compacted(at, await self.oldest())
            try:
                return await self._scan(self._layout.keys.record_range(prefix, after), limit, etcd_revision, at)
            except FutureRevision:
                etcd_revision = 0
            except RevisionCompacted:
                await self._history.refresh_compaction()
                if at is not None:
                    self._history.check_not_compacted(self._layout.to_etcd_revision(at))
                    # There were no commits of ours in between, unless more was compacted meanwhile.
                    etcd_revision = self._history.compact_revision

    async def commit(self, writes: Sequence[Write], preconditions: Sequence[Precondition] = ()) -> int:
        commit = prepare_commit(writes, preconditions)
        self._check_open()
        task = asyncio.create_task(self._writer.commit(commit))
        self._pending_commits.add(task)
        task.add_done_callback(self._on_commit_done)
        # Shielded: a commit that was sent cannot be cancelled.
        return self._layout.from_etcd_revision(await asyncio.shield(task))

    async def watch(self, prefix: Key, since: int) -> AsyncIterator[Sequence[Event]]:
        while True:
            feed = self._feed
            async for batch in feed.subscribe(prefix, since):
                yield batch
                since = batch[-1].revision
            # Either the store was closed, or the feed had a gap and was replaced.
            if feed is self._feed:
                return

    async def revision(self) -> int:
        """The newest revision, from etcd. Calls during a request, which may have started too early for them, share
        the next one."""
        self._check_open()
        if self._next_newest_query is None:
            self._next_newest_query = asyncio.create_task(self._query_newest(self._newest_query))
        return self._layout.from_etcd_revision(await asyncio.shield(self._next_newest_query))

    def local_revision(self) -> None:
        return None

    async def oldest(self) -> int:
        self._check_open()
        oldest = self._layout.from_etcd_revision(await self._history.oldest())
        self._feed.set_oldest(oldest)
        return oldest

    async def compact(self, before: int) -> None:
        before = min(before, await self.revision())
        await self._history.compact(self._layout.to_etcd_revision(before))
        await self.oldest()

    async def purge_deleted(self) -> None:
        """Defragment the members in the URL. etcd discards old entries of its WAL on its own schedule."""
        self._check_open()
        try:
            await self._client.call_each_member(DEFRAGMENT, b"", DEFRAGMENT_TIMEOUT)
        except StoreUnavailable as error:
            raise StoreUnavailable(f"{error} (defragmenting etcd requires its root user)") from error

    async def check_writable(self) -> None:
        self._check_open()
        if self._has_failed or self._follower.is_disconnected:
            # Requires a leader, a quorum and space, like a write, but changes nothing, because head exists.
            head = self._layout.keys.head
            await self._call(TXN, txn_request([compare_create_revision(head, 0)], [op_put(head, b"")]))
            self._has_failed = False

    async def close(self) -> None:
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(), name="close the store")
        await asyncio.shield(self._closing)

    def on_transaction(self, revision: int, watch_events: Sequence[WatchEvent]) -> None:
        """See Listener. Publishes to the watches before it resolves the commit."""
        revision_here = self._layout.from_etcd_revision(revision)
        if events := to_store_events(self._layout.keys, watch_events, revision_here):
            self._feed.publish(revision_here, events)
        self._writer.on_transaction(revision, watch_events)

    def on_gap(self, oldest: int) -> None:
        """See Listener. Watches of the old feed continue at the new one, which checks whether they missed anything."""
        self._writer.on_gap()
        old, revision_here = self._feed, self._layout.from_etcd_revision(oldest)
        self._feed = WatchFeed(revision_here, revision_here, self._replay)
        old.close()

    async def _close(self) -> None:
        await asyncio.gather(*self._pending_commits, return_exceptions=True)
        await end_tasks(self._follower_task)
        await self._writer.close()
        await self._client.close()

    def _on_commit_done(self, task: "asyncio.Task[int]") -> None:
        self._pending_commits.discard(task)
        if not task.cancelled() and isinstance(task.exception(), StoreUnavailable):
            self._has_failed = True

    def _on_follower_done(self, following: "asyncio.Task[None]") -> None:
        """The follower has ended: end all watches."""
        if not following.cancelled() and following.exception() is not None:
            log.error("following etcd failed", exc_info=following.exception())
        self._feed.close()

    def _check_open(self) -> None:
        if self._closing is not None:
            raise StoreUnavailable("the store is closed")
        if self._follower.fatal_error:
            raise StoreUnavailable(self._follower.fatal_error)
        if self._follower_task.done():
            raise StoreUnavailable("the store has stopped after an internal error; see the log and restart the server")

    async def _call(self, method: str, request: bytes) -> bytes:
        try:
            return await self._client.call_idempotent(method, request, RETRY_TIMEOUT)
        except StoreUnavailable:
            self._has_failed = True
            raise

    async def _query_newest(self, earlier: "asyncio.Task[int] | None") -> int:
        if earlier is not None:
            await asyncio.wait([earlier])
        self._newest_query, self._next_newest_query = self._next_newest_query, None
        return await self._history.newest()

    async def _scan(self, key_range: tuple[bytes, bytes], limit: int, at: int, requested: int | None) -> Page:
        """Scan all chunks at one revision of etcd. Raises RevisionCompacted and FutureRevision."""
        low, high = key_range
        head = op_range(range_request(self._layout.keys.head, keys_only=True))
        records: list[Record] = []
        newest = 0
        while True:
            chunk = min(CHUNK_RECORDS, limit - len(records)) if limit else CHUNK_RECORDS
            data = op_range(range_request(low, high, limit=chunk, revision=at))
            outcome = TxnResponse.parse(await self._call(TXN, txn_request([], [head, data])))
            newest = newest or self._history.parse_head(outcome.ranges[0]).mod_revision
            at = at or outcome.revision
            found = outcome.ranges[1]
            records += [self._to_record(each) for each in found.records]
            if not found.more or len(records) == limit:
                revision = self._layout.from_etcd_revision(newest)
                return Page(records, revision if requested is None else min(requested, revision), found.more)
            low = found.records[-1].key + b"\0"

    def _to_record(self, found: KeyValue) -> Record:
        return Record(
            self._layout.keys.parse_record_key(found.key),
            found.value,
            self._layout.from_etcd_revision(found.mod_revision),
        )

    async def _replay(self, prefix: Key, since: int, upto: int) -> tuple[Sequence[Event], int]:
        if since < self._layout.first:
            raise Compacted(since, await self.oldest())
        to_etcd = self._layout.to_etcd_revision
        events, reached = await self._history.replay(prefix, to_etcd(since), to_etcd(upto))
        return events, self._layout.from_etcd_revision(reached)


async def check_store_exists(address: EtcdAddress) -> None:
    """Raises StoreUnavailable if there is no store under the prefix. Changes nothing."""
    client = EtcdClient(address)
    try:
        key = KeySpace(address.prefix.encode()).format
        found = RangeResponse.parse(await client.call_idempotent(RANGE, range_request(key)))
    finally:
        await client.close()
    if not found.records:
        raise StoreUnavailable(
            f"{address}: there is no store with this prefix; check the URL that the servers use, with its prefix"
        )


async def _open_layout(client: EtcdClient, keys: KeySpace, first: int) -> tuple[Layout, KeyValue]:
    """Open the store under these keys, or create it. Returns it with its head."""
    there = [op_range(range_request(keys.format)), op_range(range_request(keys.head))]
    # Read first: an etcd that is out of space still allows reads.
    outcome = TxnResponse.parse(await client.call_idempotent(TXN, txn_request([], there)))
    if not outcome.ranges[0].records:
        operations = [op_put(keys.format, msgspec.json.encode(Format(first=first))), op_put(keys.head, b"")]
        outcome = TxnResponse.parse(
            await client.call_idempotent(TXN, txn_request([compare_create_revision(keys.format, 0)], operations, there))
        )
        if outcome.succeeded:
            revision = outcome.revision
            return Layout(keys, revision, first), KeyValue(keys.head, b"", revision, revision)
    format, head = outcome.ranges
    layout = Layout.parse(keys, format.records[0], str(client.address))
    newest = History(client, layout).parse_head(head)
    if layout.from_etcd_revision(newest.mod_revision) < first:
        layout = await _raise_revisions(client, format.records[0], layout, newest, first)
    return layout, newest


async def _raise_revisions(client: EtcdClient, format: KeyValue, layout: Layout, head: KeyValue, first: int) -> Layout:
    """Renumber the store so that its newest revision is `first`."""
    begins = first - (head.mod_revision - layout.base)
    renumbered = replace(msgspec.json.decode(format.value, type=Format), first=begins)
    put = op_put(format.key, msgspec.json.encode(renumbered))
    unchanged = [
        compare_mod_revision(format.key, format.mod_revision),
        compare_mod_revision(layout.keys.head, head.mod_revision),
    ]
    outcome = TxnResponse.parse(await client.call_idempotent(TXN, txn_request(unchanged, [put])))
    if not outcome.succeeded:
        raise StoreUnavailable(f"{client.address}: another process writes to the store; stop its servers and try again")
    return Layout(layout.keys, layout.base, begins)
