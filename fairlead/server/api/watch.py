"""Watch streams: newline-delimited JSON events, with bookmarks, timeouts and a final ERROR event.

`registry/watch.py` produces the events. This module frames them. Once a stream has started, an error becomes its last
event.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter

import orjson
import structlog

from fairlead.core.call import Sieve
from fairlead.core.clock import Clock
from fairlead.core.errors import ApiError, Internal
from fairlead.core.objects import Object
from fairlead.core.user import User
from fairlead.registry.kind import Kind
from fairlead.registry.list import wait_for_version
from fairlead.registry.resource import Resource
from fairlead.registry.table import partial, table
from fairlead.registry.watch import Feed, WatchEvent, added_lines, line
from fairlead.server.api.errors import status_of
from fairlead.server.api.query_options import WatchQuery
from fairlead.server.flow.streams import NoPace, Pace, Pacer, Streams

BOOKMARK_SECONDS = 60.0
RECHECK_SECONDS = 5.0
"""How often an open watch checks that its access key and permissions are still valid."""
SHORTEST_SECONDS = 0.001
"""Minimum delay of the timer. Clocks differ slightly, and a timer that fires early must not cause a busy loop."""
INITIAL_EVENTS_END = "k8s.io/initial-events-end"

log = structlog.get_logger(__name__)

Encode = Callable[[WatchEvent], bytes]


@dataclass(frozen=True, slots=True)
class WatchLimits:
    """The default timeout of a watch (randomized between one and two times), and its queue size for slow clients."""

    seconds: float
    queue: int


@dataclass(frozen=True, slots=True)
class Opening:
    """A requested watch. `recheck` raises once the requester is no longer authorized."""

    resource: Resource
    namespace: str
    query: WatchQuery
    view: str = ""
    sieve: Sieve | None = None
    recheck: Callable[[], None] = lambda: None


class Watches:
    """Opens watch streams."""

    def __init__(self, limits: WatchLimits, clock: Clock, streams: Streams, pacer: Pacer | None = None) -> None:
        """Without a pacer, watches are not subject to flow control."""
        self._limits = limits
        self._clock = clock
        self._streams = streams
        self._pacer = pacer

    async def open(self, opening: Opening, user: User) -> AsyncIterator[bytes]:
        """Opens a watch for a user. Raises errors that can be detected before the first byte is sent."""
        resource, query, limits = opening.resource, opening.query, self._limits
        self._streams.require_room(user)
        await wait_for_version(resource.view, query.version)
        session = Feed(resource.view, resource.kind, opening.namespace, query.selection, limits.queue, opening.sieve)
        seconds = query.timeout or limits.seconds * random.uniform(1, 2)
        pace = self._pacer.pace_for(user) if self._pacer is not None else NoPace()
        stream = Stream(opening, session, self._clock, pace)
        return stream.lines(self._clock.monotonic() + seconds, self._streams.admitted(user))


class Stream:
    """One open watch."""

    def __init__(self, opening: Opening, feed: Feed, clock: Clock, pace: Pace) -> None:
        self._kind = opening.resource.kind
        self._feed = feed
        self._query = opening.query
        self._recheck = opening.recheck
        self._clock = clock
        self._pace = pace
        self._is_view = bool(opening.view)
        self._encode = _encoder(self._kind, opening.view, opening.query.include, clock.now)
        self._bookmark_at = self._recheck_at = 0.0
        self._alarm: asyncio.TimerHandle | None = None

    async def lines(self, deadline: float, counted: AbstractContextManager[None]) -> AsyncIterator[bytes]:
        """Yields chunks of complete lines until the deadline, shutdown or an error. `tracking` counts the watch."""
        try:
            with counted:
                async for chunk in self._begin():
                    yield chunk
                is_over = False
                while not is_over:
                    if self._is_view and self._feed.pending:  # a view is rendered for each watch separately
                        await self._pace.wait_for_turn()
                    chunk, is_over = self._look(deadline)
                    self._pace.end_turn()
                    if self._feed.is_sight_changed and not self._feed.pending:
                        await self._feed.check_sight()
                    if chunk:
                        yield chunk
                    if self._feed.pending:
                        await asyncio.sleep(0)
                    elif not is_over:
                        # Set the timer only now: if it fired while a slow client reads, the wakeup would be lost.
                        self._set_alarm(deadline)
                        await self._feed.news()
        except ApiError as error:
            yield line("ERROR", orjson.dumps(status_of(error)))
        except Exception:  # an internal error must not look like a regular end
            log.exception("a watch failed unexpectedly", kind=self._kind.name)
            yield line(
                "ERROR", orjson.dumps(status_of(Internal("an internal error has ended this watch; see the server log")))
            )
        finally:
            self._feed.close()
            if self._alarm is not None:
                self._alarm.cancel()

    def _look(self, deadline: float) -> tuple[bytes, bool]:
        """Returns the pending events, and whether the watch has ended."""
        now = self._clock.monotonic()
        if now >= self._recheck_at:
            self._recheck()
            self._recheck_at = now + RECHECK_SECONDS
        chunk = b"".join(map(self._encode, self._feed.take()))
        if self._feed.pending:  # more than fits one chunk
            return chunk, now >= deadline
        is_over = now >= deadline or self._feed.ended
        if is_over or now >= self._bookmark_at:
            self._bookmark_at = now + BOOKMARK_SECONDS
            chunk += self._bookmark({}) if self._query.bookmarks else b""
        return chunk, is_over

    def _set_alarm(self, deadline: float) -> None:
        """Sets a timer for the next bookmark, recheck or deadline. It stays set across polls: most polls are due to
        events long before it fires, and setting a timer costs as much as a wakeup."""
        if self._alarm is None:
            due = min(deadline, self._bookmark_at, self._recheck_at)
            seconds = max(due - self._clock.monotonic(), SHORTEST_SECONDS)
            self._alarm = asyncio.get_running_loop().call_later(seconds, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self._feed.rouse()

    async def _begin(self) -> AsyncIterator[bytes]:
        """Starts the watch session, and yields the initial events if they were requested."""
        now = self._clock.monotonic()
        self._bookmark_at, self._recheck_at = now + BOOKMARK_SECONDS, now + RECHECK_SECONDS
        if not self._query.existing:
            await self._feed.start(self._feed.position() if self._query.version is None else self._query.version)
            return
        position = self._feed.position()
        async for bodies in self._feed.existing(self._pace.wait_for_turn):
            chunk = self._added(bodies) if self._is_view else added_lines(bodies)
            self._pace.end_turn()
            if chunk:
                yield chunk
        if self._query.marked and self._query.bookmarks:
            yield self._bookmark({INITIAL_EVENTS_END: "true"}, position)

    def _added(self, bodies: list[bytes]) -> bytes:
        return b"".join([self._encode(WatchEvent("ADDED", body, b"")) for body in bodies])

    def _bookmark(self, annotations: dict[str, str], position: int = 0) -> bytes:
        """A bookmark for a revision up to which everything was sent. By default the latest, if no event is pending."""
        metadata: Object = {"resourceVersion": str(position or self._feed.position()), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = annotations
        obj = {"kind": self._kind.name, "apiVersion": self._kind.api_version, "metadata": metadata}
        return line("BOOKMARK", orjson.dumps(obj))


def _encoder(kind: Kind, view: str, include: str, now: Callable[[], datetime]) -> Encode:
    """Encodes events as they are, or with their objects converted to a Table or metadata only."""
    if not view:
        return attrgetter("line")
    if view == "Table":
        return lambda event: line(event.type, orjson.dumps(_row_table(kind, event, include, now())))
    return lambda event: line(event.type, orjson.dumps(partial(orjson.loads(event.body))))


def _row_table(kind: Kind, event: WatchEvent, include: str, now: datetime) -> Object:
    obj = orjson.loads(event.body)
    version = {"resourceVersion": obj["metadata"]["resourceVersion"]}
    return table(kind, [obj], version, include, now)
