"""A worker's connection to the owner of the store: calls that wait for their response, and the feed of all commits."""

import asyncio
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter

from fairlead.core.framed_socket import FramedConnection
from fairlead.storage.commit import PreparedCommit, pack_key, unpack_key
from fairlead.storage.contract import Compacted, Event, Key, RevisionConflict, StoreUnavailable
from fairlead.storage.socket.commit_window import CommitCall, CommitWindow
from fairlead.storage.socket.frames import (
    COMMIT,
    COMPACTED,
    CONFLICT,
    FEED,
    FEED_KIND,
    HELLO,
    HELLO_FRAME,
    INVALID,
    MAX_FRAME_BYTES,
    NUMBER,
    REPLAY,
    REQUEST,
    RESPONSE,
    RESULT,
    ROWS,
    SKIPPED,
    SKIPPED_FRAME,
    clamp_number,
    decode_events,
    decode_replay,
    encode_commit,
)
from fairlead.storage.watch_feed import WatchFeed

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
