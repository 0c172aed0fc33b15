"""EtcdStore: implements the contract with an etcd cluster.

Reads go to etcd and are linearizable, commits go to the writer, and watches to the feed, which the follower fills
with the commits of all replicas, in order. A commit returns after the follower has delivered it.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence

import msgspec
import structlog

from fairlead.storage.commit import prepare
from fairlead.storage.contract import (
    FIRST_REVISION,
    Change,
    Check,
    Compacted,
    Event,
    Key,
    Page,
    Record,
    Unavailable,
)
from fairlead.storage.etcd.address import Address, Gone, NotYet
from fairlead.storage.etcd.client import ASK_SECONDS, DEFRAGMENT, RANGE, TXN, Client
from fairlead.storage.etcd.follower import Follower
from fairlead.storage.etcd.history import History, events_of
from fairlead.storage.etcd.layout import Format, Layout, Names
from fairlead.storage.etcd.messages import (
    Found,
    Happening,
    KeyValue,
    Outcome,
    find,
    if_created_at,
    if_modified_at,
    op_find,
    op_put,
    transaction,
)
from fairlead.storage.etcd.writer import Writer
from fairlead.storage.watch_feed import Feed

CHUNK = 1_000
"""Records per request, because etcd builds each response in memory."""
SCRUB_SECONDS = 600.0

log = structlog.get_logger(__name__)


class EtcdStore:
    def __init__(self, client: Client, layout: Layout, history: History, head: KeyValue, oldest: int) -> None:
        """Use `open`. `head` and `oldest` have etcd's revisions."""
        self._client = client
        self._layout = layout
        self._history = history
        self._writer = Writer(client, layout)
        self._feed = Feed(layout.ours(head.modified), layout.ours(oldest), self._replay)
        self._follower = Follower(client, layout.names, self._history, self, head)
        self._following = asyncio.create_task(self._follower.run(), name="follow etcd")
        self._following.add_done_callback(self._left_alone)
        self._under_way: set[asyncio.Task[int]] = set()
        self._asking: asyncio.Task[int] | None = None
        self._asking_next: asyncio.Task[int] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._failed = False

    @classmethod
    async def open(cls, address: Address, first: int = FIRST_REVISION) -> "EtcdStore":
        """Open or create the store under the prefix. Its revision is then at least `first`.

        Raising the revision renumbers the store, so no server may be using it. Raises StoreUnavailable with advice.
        """
        client = Client(address)
        try:
            layout, head = await _found(client, Names(address.prefix.encode()), first)
            history = History(client, layout)
            oldest = await history.oldest()
        except BaseException:
            await client.close()
            raise
        return cls(client, layout, history, head, oldest)

    async def read(self, key: Key) -> Record | None:
        self._refuse()
        found = Found.parse(await self._ask(RANGE, find(self._layout.names.stored(key))))
        return self._record(found.records[0]) if found.records else None

    async def scan(self, prefix: Key, *, after: Key | None = None, limit: int = 0, at: int | None = None) -> Page:
        self._refuse()
        theirs = 0 if at is None else self._layout.theirs(at)
        while True:
            if at is not None and at < self._layout.first:
                raise Compacted(at, await self.oldest())
            try:
                return await self._scan(self._layout.names.records(prefix, after), limit, theirs, at)
            except NotYet:
                theirs = 0
            except Gone:
                await self._history.learn()
                if at is not None:
                    self._history.refuse_compacted(self._layout.theirs(at))
                    # There were no commits of ours in between, unless more was compacted meanwhile.
                    theirs = self._history.floor

    async def commit(self, changes: Sequence[Change], checks: Sequence[Check] = ()) -> int:
        commit = prepare(changes, checks)
        self._refuse()
        task = asyncio.create_task(self._writer.commit(commit))
        self._under_way.add(task)
        task.add_done_callback(self._settled)
        # Shielded: a commit that was sent cannot be cancelled.
        return self._layout.ours(await asyncio.shield(task))

    async def watch(self, prefix: Key, since: int) -> AsyncIterator[Sequence[Event]]:
        while True:
            feed = self._feed
            async for batch in feed.follow(prefix, since):
                yield batch
                since = batch[-1].revision
            # Either the store was closed, or the feed had a gap and was replaced.
            if feed is self._feed:
                return

    async def revision(self) -> int:
        """The newest revision, from etcd. Calls during a request, which may have started too early for them, share
        the next one."""
        self._refuse()
        if self._asking_next is None:
            self._asking_next = asyncio.create_task(self._ask_newest(self._asking))
        return self._layout.ours(await asyncio.shield(self._asking_next))

    def known_revision(self) -> None:
        return None

    async def oldest(self) -> int:
        self._refuse()
        oldest = self._layout.ours(await self._history.oldest())
        self._feed.compacted(oldest)
        return oldest

    async def compact(self, before: int) -> None:
        before = min(before, await self.revision())
        await self._history.compact(self._layout.theirs(before))
        await self.oldest()

    async def scrub(self) -> None:
        """Defragment the members in the URL. etcd discards old entries of its WAL on its own schedule."""
        self._refuse()
        try:
            await self._client.ask_each(DEFRAGMENT, b"", SCRUB_SECONDS)
        except Unavailable as error:
            raise Unavailable(f"{error} (defragmenting etcd requires its root user)") from error

    async def check(self) -> None:
        self._refuse()
        if self._failed or self._follower.cut_off:
            # Requires a leader, a quorum and space, like a write, but changes nothing, because head exists.
            head = self._layout.names.head
            await self._ask(TXN, transaction([if_created_at(head, 0)], [op_put(head, b"")]))
            self._failed = False

    async def close(self) -> None:
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(), name="close the store")
        await asyncio.shield(self._closing)

    def happened(self, revision: int, happenings: Sequence[Happening]) -> None:
        """See Listener. Publishes to the watches before it resolves the commit."""
        ours = self._layout.ours(revision)
        if events := events_of(self._layout.names, happenings, ours):
            self._feed.publish(ours, events)
        self._writer.happened(revision, happenings)

    def skipped(self, oldest: int) -> None:
        """See Listener. Watches of the old feed continue at the new one, which checks whether they missed anything."""
        self._writer.skipped()
        old, ours = self._feed, self._layout.ours(oldest)
        self._feed = Feed(ours, ours, self._replay)
        old.close()

    async def _close(self) -> None:
        await asyncio.gather(*self._under_way, return_exceptions=True)
        self._following.cancel()
        await asyncio.gather(self._following, return_exceptions=True)
        await self._writer.close()
        await self._client.close()

    def _settled(self, task: "asyncio.Task[int]") -> None:
        self._under_way.discard(task)
        if not task.cancelled() and isinstance(task.exception(), Unavailable):
            self._failed = True

    def _left_alone(self, following: "asyncio.Task[None]") -> None:
        """The follower has ended: end all watches."""
        if not following.cancelled() and following.exception() is not None:
            log.error("following etcd failed", exc_info=following.exception())
        self._feed.close()

    def _refuse(self) -> None:
        if self._closing is not None:
            raise Unavailable("the store is closed")
        if self._follower.broken:
            raise Unavailable(self._follower.broken)
        if self._following.done():
            raise Unavailable("the store has stopped after an internal error; see the log and restart the server")

    async def _ask(self, method: str, request: bytes) -> bytes:
        try:
            return await self._client.ask(method, request, ASK_SECONDS)
        except Unavailable:
            self._failed = True
            raise

    async def _ask_newest(self, earlier: "asyncio.Task[int] | None") -> int:
        if earlier is not None:
            await asyncio.wait([earlier])
        self._asking, self._asking_next = self._asking_next, None
        return await self._history.newest()

    async def _scan(self, span: tuple[bytes, bytes], limit: int, at: int, asked: int | None) -> Page:
        """Scan all chunks at one revision of etcd. Raises RevisionCompacted and FutureRevision."""
        low, high = span
        head = op_find(find(self._layout.names.head, keys_only=True))
        records: list[Record] = []
        newest = 0
        while True:
            chunk = min(CHUNK, limit - len(records)) if limit else CHUNK
            data = op_find(find(low, high, limit=chunk, revision=at))
            outcome = Outcome.parse(await self._ask(TXN, transaction([], [head, data])))
            newest = newest or self._history.head_of(outcome.found[0]).modified
            at = at or outcome.revision
            found = outcome.found[1]
            records += [self._record(each) for each in found.records]
            if not found.more or len(records) == limit:
                shown = self._layout.ours(newest)
                return Page(records, shown if asked is None else min(asked, shown), found.more)
            low = found.records[-1].key + b"\0"

    def _record(self, found: KeyValue) -> Record:
        return Record(self._layout.names.key(found.key), found.value, self._layout.ours(found.modified))

    async def _replay(self, prefix: Key, since: int, upto: int) -> tuple[Sequence[Event], int]:
        if since < self._layout.first:
            raise Compacted(since, await self.oldest())
        theirs = self._layout.theirs
        events, reached = await self._history.replay(prefix, theirs(since), theirs(upto))
        return events, self._layout.ours(reached)


async def _found(client: Client, names: Names, first: int) -> tuple[Layout, KeyValue]:
    """Open the store under these keys, or create it. Returns it with its head."""
    there = [op_find(find(names.format)), op_find(find(names.head))]
    # Read first: an etcd that is out of space still allows reads.
    outcome = Outcome.parse(await client.ask(TXN, transaction([], there)))
    if not outcome.found[0].records:
        made = [op_put(names.format, msgspec.json.encode(Format(first=first))), op_put(names.head, b"")]
        outcome = Outcome.parse(await client.ask(TXN, transaction([if_created_at(names.format, 0)], made, there)))
        if outcome.succeeded:
            revision = outcome.revision
            return Layout(names, revision, first), KeyValue(names.head, b"", revision, revision)
    format, head = outcome.found
    layout = Layout.read(names, format.records[0], str(client.address))
    newest = History(client, layout).head_of(head)
    if layout.ours(newest.modified) < first:
        layout = await _raised(client, format.records[0], layout, newest, first)
    return layout, newest


async def _raised(client: Client, format: KeyValue, layout: Layout, head: KeyValue, first: int) -> Layout:
    """Renumber the store so that its newest revision is `first`."""
    begins = first - (head.modified - layout.base)
    put = op_put(format.key, msgspec.json.encode(Format(first=begins)))
    unchanged = [if_modified_at(format.key, format.modified), if_modified_at(layout.names.head, head.modified)]
    outcome = Outcome.parse(await client.ask(TXN, transaction(unchanged, [put])))
    if not outcome.succeeded:
        raise Unavailable(f"{client.address}: another process writes to the store; stop its servers and try again")
    return Layout(layout.names, layout.base, begins)
