"""SocketStore: implements the contract in a worker, with the store of the owner.

Commits and reads are requests to the owner. Watches are served by a `WatchFeed` in this process, which gets every
commit from the owner and requests old ones from it.

Bounds the commits of one worker: those that it has sent without a response yet, and those that wait for that.

The window is large enough to fill a transaction of the owner. Commits beyond it wait in a queue, in order. When the
queue is long, or its first commit has already waited long, another one would wait as long or longer, so it is refused
at once: the client should retry later, and the server must not collect work that it cannot do.

A worker's connection to the owner of the store: calls that wait for their response, and the feed of all commits.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from time import monotonic as current_time

from fairlead.core.framed_socket import FramedConnection, connect_framed
from fairlead.storage.commit import PreparedCommit, pack_key, prepare_commit, unpack_key
from fairlead.storage.contract import (
    Compacted,
    Event,
    Key,
    Page,
    Precondition,
    Record,
    RevisionConflict,
    StoreUnavailable,
    Write,
)
from fairlead.storage.socket.frames import (
    CHECK_WRITABLE,
    COMMIT,
    COMPACT,
    COMPACTED,
    CONFLICT,
    FEED,
    FEED_KIND,
    HELLO,
    HELLO_FRAME,
    INVALID,
    MAX_FRAME_BYTES,
    NUMBER,
    OLDEST,
    PURGE_DELETED,
    READ,
    REPLAY,
    REQUEST,
    RESPONSE,
    RESULT,
    ROWS,
    SCAN,
    SKIPPED,
    SKIPPED_FRAME,
    SharedRevision,
    clamp_number,
    decode_events,
    decode_records,
    decode_replay,
    encode_commit,
    encode_scan,
    has_more_rows,
)
from fairlead.storage.watch_feed import WatchFeed

MAX_SENT_COMMITS = 512
MAX_SENT_BYTES = 4 * 1024 * 1024
"""A larger commit is sent alone."""
MAX_QUEUED_COMMITS = 5_000
MAX_WAIT_SECONDS = 0.25

BUSY_MESSAGE = "too many writes are waiting for the store; retry later"


@dataclass(slots=True)
class CommitCall:
    """A commit that waits for its response. Not frozen, for speed."""

    commit: PreparedCommit
    body: bytes
    done: asyncio.Future[int]
    queued_at: float = 0.0


class CommitWindow:
    """`send` is called for each commit when it is its turn."""

    def __init__(self, send: Callable[[CommitCall], None]) -> None:
        self._send = send
        self._sent_commits = 0
        self._sent_bytes = 0
        self.queue: deque[CommitCall] = deque()
        """Commits that were not sent yet."""

    def submit(self, call: CommitCall) -> None:
        """Send a commit now or later. Raises StoreUnavailable if it would wait too long."""
        if not self.queue and self._has_room(call):
            self._start(call)
            return
        now = current_time()
        if len(self.queue) >= MAX_QUEUED_COMMITS or (self.queue and now - self.queue[0].queued_at > MAX_WAIT_SECONDS):
            raise StoreUnavailable(BUSY_MESSAGE)
        call.queued_at = now
        self.queue.append(call)

    def release(self, call: CommitCall) -> None:
        """A response has arrived: the next commits can be sent."""
        self._sent_commits -= 1
        self._sent_bytes -= len(call.body)
        while self.queue and (self.queue[0].done.done() or self._has_room(self.queue[0])):
            waiting = self.queue.popleft()
            if not waiting.done.done():  # its caller was not cancelled
                self._start(waiting)

    def _has_room(self, call: CommitCall) -> bool:
        return self._sent_commits == 0 or (
            self._sent_commits < MAX_SENT_COMMITS and self._sent_bytes + len(call.body) <= MAX_SENT_BYTES
        )

    def _start(self, call: CommitCall) -> None:
        self._sent_commits += 1
        self._sent_bytes += len(call.body)
        self._send(call)


CLOSED_MESSAGE = "the store is closed"
LOST_MESSAGE = "the process that owns the store has ended; this server restarts"
CLOSE_SECONDS = 2.0
MAX_COMMIT_BYTES = MAX_FRAME_BYTES - REQUEST.size

Response = tuple[int, bytes]
"""The number of a response, and the whole frame."""


class OwnerLink:
    """Use `attach` to build the handler of a `FramedConnection`."""

    connection: FramedConnection

    def __init__(self) -> None:
        self.epoch = 0
        self.feed = WatchFeed(0, 0, self._replay)
        """Replaced when compaction has overtaken this worker. The watches of the old one get Compacted."""
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the owner has sent its epoch and revision."""
        self.failure: str | None = None
        """Why no more calls are possible."""
        self._last_id = 0
        self._calls: dict[int, asyncio.Future[Response]] = {}
        self._commits: dict[int, CommitCall] = {}
        self._window = CommitWindow(self._send_commit)

    def attach(self, connection: FramedConnection) -> "OwnerLink":
        self.connection = connection
        return self

    def commit(self, commit: PreparedCommit) -> "asyncio.Future[int]":
        """The future revision of the commit. Raises StoreUnavailable if it was not sent."""
        self.check_usable()
        body = encode_commit(commit)
        if len(body) > MAX_COMMIT_BYTES:
            raise ValueError(f"a commit may have at most {MAX_COMMIT_BYTES:,} bytes; split it")
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._window.submit(CommitCall(commit, body, done))
        return done

    def call(self, kind: int, *parts: bytes) -> "asyncio.Future[Response]":
        """The future response to a request. Raises StoreUnavailable if it was not sent."""
        self.check_usable()
        done: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._last_id += 1
        self._calls[self._last_id] = done
        self.connection.send(REQUEST.pack(kind, self._last_id), *parts)
        return done

    def check_usable(self) -> None:
        if self.failure is not None:
            raise StoreUnavailable(self.failure)

    async def close(self) -> None:
        """Finish the commits, then disconnect."""
        self.failure = self.failure or CLOSED_MESSAGE
        while pending := [call.done for call in self._all_commits() if not call.done.done()]:
            await asyncio.wait(pending)
        self.feed.close()
        self.connection.close()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self.connection.wait_closed()
        except TimeoutError:
            self.connection.abort()

    def on_frames(self, frames: list[bytes]) -> None:
        for frame in frames:
            kind = frame[0]
            if kind == FEED:
                self._publish(frame)
            elif kind == SKIPPED:
                self._skip_compacted(*SKIPPED_FRAME.unpack(frame)[1:])
            elif kind == HELLO:
                _, self.epoch, self.feed.revision = HELLO_FRAME.unpack(frame)
                self.ready.set_result(None)
            else:
                self._on_response(kind, frame)

    def on_closed(self) -> None:
        self.failure = failure = self.failure or LOST_MESSAGE
        if not self.ready.done():
            self.ready.set_exception(StoreUnavailable(failure))
        for call in self._commits.values():
            _fail(call.done, f"{failure}; the write may have happened")
        for call in self._window.queue:
            _fail(call.done, failure)
        for done in self._calls.values():
            _fail(done, failure)
        self._window.queue.clear()
        self._commits.clear()
        self._calls.clear()
        self.feed.close()

    def _all_commits(self) -> list[CommitCall]:
        return [*self._commits.values(), *self._window.queue]

    def _send_commit(self, call: CommitCall) -> None:
        self._last_id += 1
        self._commits[self._last_id] = call
        self.connection.send(REQUEST.pack(COMMIT, self._last_id), call.body)

    def _on_response(self, kind: int, frame: bytes) -> None:
        _, id, number = RESPONSE.unpack_from(frame)
        commit = self._commits.pop(id, None)
        if commit is not None:
            self._window.release(commit)
            if commit.done.done():  # its caller was cancelled
                return
            if kind == RESULT:
                commit.done.set_result(number)
            else:
                commit.done.set_exception(_decode_error(kind, number, frame, commit.commit))
            return
        done = self._calls.pop(id)
        if done.done():
            return
        if kind in (RESULT, ROWS):
            done.set_result((number, frame))
        else:
            done.set_exception(_decode_error(kind, number, frame, None))

    def _publish(self, frame: bytes) -> None:
        """Publish commits. After catching up, some of them may be known."""
        feed = self.feed
        for revision, events in groupby(decode_events(frame, len(FEED_KIND)), attrgetter("revision")):
            if revision > feed.revision:
                feed.publish(revision, list(events))

    def _skip_compacted(self, oldest: int) -> None:
        old = self.feed
        self.feed = WatchFeed(oldest, oldest, self._replay)
        old.set_oldest(oldest)
        old.close()

    async def _replay(self, prefix: Key, since: int, upto: int) -> tuple[Sequence[Event], int]:
        reached, frame = await self.call(REPLAY, NUMBER.pack(clamp_number(since)), pack_key(prefix))
        return [event for event in decode_replay(frame) if event.revision <= upto], min(reached, upto)


def _fail(done: "asyncio.Future[int] | asyncio.Future[Response]", message: str) -> None:
    if not done.done():
        done.set_exception(StoreUnavailable(message))


def _decode_error(kind: int, number: int, frame: bytes, commit: PreparedCommit | None) -> Exception:
    detail = frame[RESPONSE.size :]
    if kind == CONFLICT and commit is not None:
        return _find_conflict(commit, detail, number)
    if kind == COMPACTED:
        return Compacted(number, *NUMBER.unpack(detail))
    if kind == INVALID:
        return ValueError(detail.decode())
    return StoreUnavailable(detail.decode())


def _find_conflict(commit: PreparedCommit, packed: bytes, actual: int) -> RevisionConflict:
    """The conflict of the write or precondition with this key."""
    key = unpack_key(packed)
    expected = {change.key: change.expected_revision for change in commit.writes}
    expected |= {check.key: check.expected_revision for check in commit.preconditions}
    return RevisionConflict(key, expected[key], actual)


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
