"""StoreServer: serves the owner's store to the workers.

One task follows the store. It encodes the commits once, publishes their revision in shared memory, and passes the same
bytes to all workers (the feed).

A response is held until the worker has been sent all commits that were published before it. A worker that does not
read is dropped from the live feed and catches up from the history of the store, so it costs bounded memory. If
compaction overtakes it there, it continues with the oldest revision that is left, and its watches expire.

Executes the requests of workers on the owner's store. Every request has exactly one response, of bounded size.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import structlog

from fairlead.core.framed_socket import FramedConnection, encode_frame, serve_framed
from fairlead.core.waiting import RevisionWaiters, end_tasks
from fairlead.storage.commit import PreparedCommit, pack_key, unpack_key
from fairlead.storage.contract import Compacted, Event, RevisionConflict, Store, StoreUnavailable
from fairlead.storage.socket.frames import (
    CHECK_WRITABLE,
    COMMIT,
    COMPACT,
    COMPACTED,
    CONFLICT,
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
    ROWS,
    ROWS_ARE_COMPLETE,
    ROWS_HAVE_MORE,
    SCAN,
    SKIPPED,
    SKIPPED_FRAME,
    UNAVAILABLE,
    SharedRevision,
    decode_commit,
    decode_scan,
    encode_feed,
    encode_result,
    encode_row,
)

SCAN_RECORDS, SCAN_BYTES = 1_000, 4 * 1024 * 1024
"""Records that are read at once, and the size above which the others are discarded, which is rare. A worker requests
the next piece of a longer scan."""

INTERNAL_ERROR_MESSAGE = "the store has failed with an internal error; see the log"

log = structlog.get_logger(__name__)


async def execute_request(store: Store, frame: bytes) -> bytes:
    """Execute a request other than a commit, and return its response. Errors are responses, too."""
    kind, id = REQUEST.unpack_from(frame)
    try:
        return await EXECUTORS[kind](store, id, frame)
    except Exception as error:  # noqa: BLE001 - the worker gets every error
        return encode_error(id, error)


def encode_error(id: int, error: BaseException) -> bytes:
    """The response for a request that has failed."""
    match error:
        case RevisionConflict():
            return encode_frame(RESPONSE.pack(CONFLICT, id, error.actual), pack_key(error.key))
        case Compacted():
            return encode_frame(RESPONSE.pack(COMPACTED, id, error.requested), NUMBER.pack(error.oldest))
        case StoreUnavailable():
            return encode_frame(RESPONSE.pack(UNAVAILABLE, id, 0), str(error).encode())
        case ValueError():
            return encode_frame(RESPONSE.pack(INVALID, id, 0), str(error).encode())
    log.error("a request of a worker to the store failed", exc_info=error)
    return encode_frame(RESPONSE.pack(UNAVAILABLE, id, 0), INTERNAL_ERROR_MESSAGE.encode())


async def _read(store: Store, id: int, frame: bytes) -> bytes:
    record = await store.read(unpack_key(frame[REQUEST.size :]))
    rows = [] if record is None else [encode_row(pack_key(record.key), record.value, record.revision)]
    return encode_frame(RESPONSE.pack(ROWS, id, 0), ROWS_ARE_COMPLETE, *rows)


async def _scan(store: Store, id: int, frame: bytes) -> bytes:
    prefix, after, limit, at = decode_scan(frame)
    page = await store.scan(prefix, after=after, limit=min(limit or SCAN_RECORDS, SCAN_RECORDS), at=at)
    rows: list[bytes] = []
    size = 0
    for record in page.records:
        row = encode_row(pack_key(record.key), record.value, record.revision)
        rows.append(row)
        size += len(row)
        if size >= SCAN_BYTES:
            break
    has_more = page.has_more or len(rows) < len(page.records)
    return encode_frame(
        RESPONSE.pack(ROWS, id, page.revision), ROWS_HAVE_MORE if has_more else ROWS_ARE_COMPLETE, *rows
    )


async def _replay(store: Store, id: int, frame: bytes) -> bytes:
    """The next events after a revision, which the worker knows not to be the newest. The number is the revision that
    they reach."""
    (since,) = NUMBER.unpack_from(frame, REQUEST.size)
    prefix = unpack_key(frame[REQUEST.size + NUMBER.size :])
    # Without the prefix, there is always an event, so this does not wait for the next commit.
    async with aclosing(store.watch((), since)) as batches:  # type: ignore[type-var]  # the stores return generators
        async for batch in batches:
            rows = [
                encode_row(pack_key(event.key), event.value, event.revision)
                for event in batch
                if event.key[: len(prefix)] == prefix
            ]
            return encode_frame(RESPONSE.pack(ROWS, id, batch[-1].revision), ROWS_ARE_COMPLETE, *rows)
    raise StoreUnavailable("the store is closed")


async def _oldest(store: Store, id: int, frame: bytes) -> bytes:
    return encode_result(id, await store.oldest())


async def _compact(store: Store, id: int, frame: bytes) -> bytes:
    await store.compact(*NUMBER.unpack_from(frame, REQUEST.size))
    return encode_result(id, 0)


async def _purge_deleted(store: Store, id: int, frame: bytes) -> bytes:
    await store.purge_deleted()
    return encode_result(id, 0)


async def _check_writable(store: Store, id: int, frame: bytes) -> bytes:
    await store.check_writable()
    return encode_result(id, 0)


EXECUTORS: dict[int, Callable[[Store, int, bytes], Awaitable[bytes]]] = {
    READ: _read,
    SCAN: _scan,
    REPLAY: _replay,
    OLDEST: _oldest,
    COMPACT: _compact,
    PURGE_DELETED: _purge_deleted,
    CHECK_WRITABLE: _check_writable,
}


MAX_BEHIND_BYTES = 8 * 1024 * 1024
"""A worker with more unread data does not get live commits any more."""
RETRY_SECONDS = 0.5


@asynccontextmanager
async def serve_store(store: Store, path: Path, shared: SharedRevision) -> AsyncIterator[None]:
    """Serve the store on a Unix socket. Only one process may do that at a time, which the lock of the store ensures.

    At the end, requests in progress are finished, and the workers are disconnected. The store stays open.
    """
    if not isinstance(store, OwnedStore):
        raise TypeError("several servers can use this store at the same time, so workers open it themselves")
    server = StoreServer(store, shared)
    try:
        async with serve_framed(path, server.accept, MAX_FRAME_BYTES):
            try:
                yield
            finally:
                await server.finish_requests()
    finally:
        await server.stop()


@runtime_checkable
class OwnedStore(Store, Protocol):
    """A store that belongs to one process. The others can be opened by every worker."""

    def local_revision(self) -> int: ...

    def submit_commit(self, commit: PreparedCommit) -> "asyncio.Future[int]":
        """Like `commit`, with what `prepare_commit` returns, and without a coroutine."""


class StoreServer:
    def __init__(self, store: OwnedStore, shared: SharedRevision) -> None:
        self.store = store
        revision = store.local_revision()
        self.live_revision = revision
        """The newest revision that was sent to the workers, except for those that are behind."""
        self.requests: set[asyncio.Future[Any]] = set()
        """Requests in progress, also of workers that have ended: their commits still happen."""
        self.workers: set[WorkerConnection] = set()
        self._shared = shared
        self._waiters = RevisionWaiters()
        shared.begin_epoch(revision)
        self._follower = asyncio.create_task(self._follow(), name="follow the store for its workers")
        self._follower.add_done_callback(self._on_follower_done)

    def accept(self, connection: FramedConnection) -> "WorkerConnection":
        """Handle the connection of a new worker."""
        connection.send(HELLO_FRAME.pack(HELLO, self._shared.epoch, self.live_revision))
        worker = WorkerConnection(self, connection)
        self.workers.add(worker)
        return worker

    async def finish_requests(self) -> None:
        """Wait for the requests in progress, and until their responses are sent."""
        while self.requests:
            await asyncio.wait(self.requests)
        published = self.store.local_revision()
        if published > self.live_revision and not self._follower.done():
            await self._waiters.add(published)

    async def stop(self) -> None:
        await end_tasks(self._follower)

    async def _follow(self) -> None:
        while True:
            try:
                async for batch in self.store.watch((), self.live_revision):
                    self._publish(batch)
                return
            except (Compacted, StoreUnavailable) as error:
                # Possible only if a huge batch of commits did not fit into the queue of the watch.
                log.warning("following the store for its workers was interrupted", reason=str(error))
                for worker in self.workers:
                    worker.start_catch_up()
                self.live_revision = self.store.local_revision()
                self._shared.publish(self.live_revision)
                self._waiters.advance(self.live_revision)
                await asyncio.sleep(RETRY_SECONDS if isinstance(error, StoreUnavailable) else 0)

    def _on_follower_done(self, follower: "asyncio.Task[None]") -> None:
        """Without the feed, responses would be held forever, so end the connections instead."""
        if not follower.cancelled() and follower.exception() is not None:
            log.error("following the store for its workers failed", exc_info=follower.exception())
            for worker in self.workers:
                worker.abort()

    def _publish(self, batch: Sequence[Event]) -> None:
        self.live_revision = batch[-1].revision
        self._shared.publish(self.live_revision)
        frames = encode_feed(batch)
        for worker in self.workers:
            worker.send_commits(frames, self.live_revision)
        self._waiters.advance(self.live_revision)


class WorkerConnection:
    """The connection of one worker: its requests, its responses and its feed."""

    def __init__(self, server: StoreServer, connection: FramedConnection) -> None:
        self._server = server
        self._connection = connection
        self._sent_revision = server.live_revision
        self._held: deque[tuple[int, bytes]] = deque()
        """Responses, and the revision that the worker must have been sent before. Sorted."""
        self._catch_up_task: asyncio.Task[None] | None = None

    def on_frames(self, frames: list[bytes]) -> None:
        requests = self._server.requests
        for frame in frames:
            if frame[0] == COMMIT:
                self._submit_commit(frame)
            else:
                request = asyncio.create_task(self._execute(frame))
                requests.add(request)
                request.add_done_callback(requests.discard)

    def on_closed(self) -> None:
        self._server.workers.discard(self)
        self._held.clear()
        if self._catch_up_task is not None:
            self._catch_up_task.cancel()

    def abort(self) -> None:
        self._connection.abort()

    def send_commits(self, frames: bytes, revision: int) -> None:
        """Send live commits, unless the worker is behind."""
        if self._catch_up_task is not None:
            return
        if self._connection.pending_bytes > MAX_BEHIND_BYTES:
            self.start_catch_up()
            return
        self._connection.send_encoded(frames)
        self._advance(revision)

    def start_catch_up(self) -> None:
        """Continue from the history, because live commits are not sent."""
        if self._catch_up_task is None:
            log.warning("a worker is behind; it catches up from the history", revision=self._sent_revision)
            self._catch_up_task = asyncio.create_task(self._catch_up(), name="catch up")

    def _submit_commit(self, frame: bytes) -> None:
        """Without a task of its own, because there are many."""
        _, id = REQUEST.unpack_from(frame)
        try:
            done = self._server.store.submit_commit(decode_commit(frame))
        except (StoreUnavailable, ValueError) as error:
            self._respond(encode_error(id, error))
            return
        self._server.requests.add(done)
        done.add_done_callback(partial(self._on_commit_done, id))

    def _on_commit_done(self, id: int, done: "asyncio.Future[int]") -> None:
        self._server.requests.discard(done)
        error = done.exception()
        self._respond(encode_result(id, done.result()) if error is None else encode_error(id, error))

    async def _execute(self, frame: bytes) -> None:
        self._respond(await execute_request(self._server.store, frame))

    def _respond(self, response: bytes) -> None:
        published = self._server.store.local_revision()
        if published > self._sent_revision or published > self._server.live_revision:
            self._held.append((published, response))
        else:
            self._connection.send_encoded(response)

    def _advance(self, revision: int) -> None:
        """The worker has been sent all commits up to this revision."""
        self._sent_revision = max(self._sent_revision, revision)
        self._release_held()

    def _release_held(self) -> None:
        # Also not before the revision is in shared memory. A worker that catches up may be ahead of that.
        reached = min(self._sent_revision, self._server.live_revision)
        while self._held and self._held[0][0] <= reached:
            self._connection.send_encoded(self._held.popleft()[1])

    async def _catch_up(self) -> None:
        while True:
            try:
                await self._connection.drain()
                if self._sent_revision >= self._server.live_revision:
                    break
                await self._send_history()
            except Compacted as error:
                self._connection.send(SKIPPED_FRAME.pack(SKIPPED, error.oldest))
                self._advance(error.oldest)
            except StoreUnavailable as error:
                log.warning("a worker cannot catch up from the history; retrying", reason=str(error))
                await asyncio.sleep(RETRY_SECONDS)
        # No await since the comparison, so the live feed continues exactly here.
        self._catch_up_task = None
        self._release_held()

    async def _send_history(self) -> None:
        """Send commits until the worker has all that the others have."""
        async with aclosing(self._server.store.watch((), self._sent_revision)) as batches:  # type: ignore[type-var]  # a generator
            async for batch in batches:
                self._connection.send_encoded(encode_feed(batch))
                self._advance(batch[-1].revision)
                if self._sent_revision >= self._server.live_revision:
                    return
                await self._connection.drain()
        raise StoreUnavailable("the store is closed")
