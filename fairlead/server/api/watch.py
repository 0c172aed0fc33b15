"""Watch streams: newline-delimited JSON events, with bookmarks, timeouts and a final ERROR event.

`registry/watch.py` produces the events, encoded as lines. This module sends them, and adds bookmarks. Once a stream has
started, an error becomes its last event.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter

import orjson
import structlog

from fairlead.core.call import RECHECK_SECONDS, ObjectFilter
from fairlead.core.clock import Clock
from fairlead.core.errors import ApiError, Internal
from fairlead.core.objects import Object
from fairlead.core.user import User
from fairlead.registry.kind import Kind
from fairlead.registry.list import wait_for_version
from fairlead.registry.resource import Resource
from fairlead.registry.table import partial_metadata_without_owners, partial_object_metadata, render_table
from fairlead.registry.watch import WatchEvent, WatchSession, encode_added_events, encode_event
from fairlead.server.api.errors import status_of
from fairlead.server.api.query_options import WatchQuery
from fairlead.server.flow.streams import NoPace, Pace, Pacer, StreamLimits

BOOKMARK_SECONDS = 60.0
MIN_TIMER_SECONDS = 0.001
"""Minimum delay of the timer. Clocks differ slightly, and a timer that fires early must not cause a busy loop."""
INITIAL_EVENTS_END = "k8s.io/initial-events-end"

log = structlog.get_logger(__name__)

EventEncoder = Callable[[WatchEvent], bytes]


@dataclass(frozen=True, slots=True)
class WatchLimits:
    """The default timeout of a watch (randomized between one and two times), and its queue size for slow clients."""

    default_seconds: float
    queue_size: int


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """A requested watch. `as_kind` is that of the representation; `recheck` raises once access was revoked."""

    resource: Resource
    namespace: str
    query: WatchQuery
    as_kind: str = ""
    object_filter: ObjectFilter | None = None
    recheck: Callable[[], None] = lambda: None
    hides_owners: bool = False
    """Whether metadata is sent without owners and finalizers."""


class WatchService:
    """Opens watch streams."""

    def __init__(self, limits: WatchLimits, clock: Clock, streams: StreamLimits, pacer: Pacer | None = None) -> None:
        """Without a pacer, watches are not subject to flow control."""
        self._limits = limits
        self._clock = clock
        self._streams = streams
        self._pacer = pacer

    async def open(self, request: WatchRequest, user: User) -> AsyncIterator[bytes]:
        """Opens a watch for a user. Raises errors that can be detected before the first byte is sent."""
        resource, query, limits = request.resource, request.query, self._limits
        await self._streams.require_room(user)
        await wait_for_version(resource.view, query.version)
        session = WatchSession(
            resource.view, resource.kind, request.namespace, query.selector, limits.queue_size, request.object_filter
        )
        seconds = query.timeout_seconds or limits.default_seconds * random.uniform(1, 2)
        pace = self._pacer.pace_for(user) if self._pacer is not None else NoPace()
        stream = WatchStream(request, session, self._clock, pace)
        return stream.lines(self._clock.monotonic() + seconds, self._streams.admit(user))


class WatchStream:
    """One open watch."""

    def __init__(self, request: WatchRequest, session: WatchSession, clock: Clock, pace: Pace) -> None:
        self._kind = request.resource.kind
        self._session = session
        self._query = request.query
        self._recheck = request.recheck
        self._clock = clock
        self._pace = pace
        self._is_transformed = bool(request.as_kind)
        self._encode = _build_encoder(request, clock.now)
        # Not only when the stream starts: by then the client may have seen the response, and made the next change.
        self._since = session.current_revision() if request.query.version is None else request.query.version
        self._bookmark_at = self._recheck_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    async def lines(self, deadline: float, tracking: AbstractAsyncContextManager[None]) -> AsyncIterator[bytes]:
        """Yields chunks of complete lines until the deadline, shutdown or an error. `tracking` counts the watch."""
        try:
            async with tracking:
                async for chunk in self._start():
                    yield chunk
                is_over = False
                while not is_over:
                    if self._is_transformed and self._session.has_pending:  # rendered for each watch separately
                        await self._pace.wait_for_slot()
                    chunk, is_over = self._poll(deadline)
                    self._pace.release_slot()
                    if self._session.is_visibility_check_due and not self._session.has_pending:
                        await self._session.check_visibility()
                    if chunk:
                        yield chunk
                    if self._session.has_pending:
                        await asyncio.sleep(0)
                    elif not is_over:
                        # Set the timer only now: if it fired while a slow client reads, the wakeup would be lost.
                        self._set_timer(deadline)
                        await self._session.wait_for_events()
        except ApiError as error:
            yield encode_event("ERROR", orjson.dumps(status_of(error)))
        except Exception:  # an internal error must not look like a regular end
            log.exception("a watch failed unexpectedly", kind=self._kind.name)
            yield encode_event(
                "ERROR", orjson.dumps(status_of(Internal("an internal error has ended this watch; see the server log")))
            )
        finally:
            self._session.close()
            if self._timer is not None:
                self._timer.cancel()

    def _poll(self, deadline: float) -> tuple[bytes, bool]:
        """Returns the pending events, and whether the watch has ended."""
        now = self._clock.monotonic()
        if now >= self._recheck_at:
            self._recheck()
            self._recheck_at = now + RECHECK_SECONDS
        chunk = b"".join(map(self._encode, self._session.poll()))
        if self._session.has_pending:  # more than fits one chunk
            return chunk, now >= deadline
        is_over = now >= deadline or self._session.is_ended
        if is_over or now >= self._bookmark_at:
            self._bookmark_at = now + BOOKMARK_SECONDS
            chunk += self._encode_bookmark({}) if self._query.allow_bookmarks else b""
        return chunk, is_over

    def _set_timer(self, deadline: float) -> None:
        """Sets a timer for the next bookmark, recheck or deadline. It stays set across polls: most polls are due to
        events long before it fires, and setting a timer costs as much as a wakeup."""
        if self._timer is None:
            due = min(deadline, self._bookmark_at, self._recheck_at)
            seconds = max(due - self._clock.monotonic(), MIN_TIMER_SECONDS)
            self._timer = asyncio.get_running_loop().call_later(seconds, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._session.wake()

    async def _start(self) -> AsyncIterator[bytes]:
        """Starts the watch session, and yields the initial events if they were requested."""
        now = self._clock.monotonic()
        self._bookmark_at, self._recheck_at = now + BOOKMARK_SECONDS, now + RECHECK_SECONDS
        if not self._query.send_initial_events:
            await self._session.start(self._since)
            return
        position = self._session.current_revision()
        async for bodies in self._session.initial_objects(self._pace.wait_for_slot):
            chunk = self._encode_added(bodies) if self._is_transformed else encode_added_events(bodies)
            self._pace.release_slot()
            if chunk:
                yield chunk
        if self._query.allow_bookmarks:
            yield self._encode_bookmark({INITIAL_EVENTS_END: "true"}, position)

    def _encode_added(self, bodies: list[bytes]) -> bytes:
        return b"".join([self._encode(WatchEvent("ADDED", body, b"")) for body in bodies])

    def _encode_bookmark(self, annotations: dict[str, str], position: int = 0) -> bytes:
        """A bookmark for a revision up to which everything was sent. By default the latest, if no event is pending."""
        metadata: Object = {
            "resourceVersion": str(position or self._session.current_revision()),
            "creationTimestamp": None,
        }
        if annotations:
            metadata["annotations"] = annotations
        obj = {"kind": self._kind.name, "apiVersion": self._kind.api_version, "metadata": metadata}
        return encode_event("BOOKMARK", orjson.dumps(obj))


def _build_encoder(request: WatchRequest, now: Callable[[], datetime]) -> EventEncoder:
    """Encodes events as they are, or with their objects converted to a Table or metadata only."""
    kind, include = request.resource.kind, request.query.include_object
    if not request.as_kind:
        return attrgetter("line")
    if request.as_kind == "Table":
        return lambda event: encode_event(event.type, orjson.dumps(_event_table(kind, event, include, now())))
    convert = partial_metadata_without_owners if request.hides_owners else partial_object_metadata
    return lambda event: encode_event(event.type, orjson.dumps(convert(orjson.loads(event.body))))


def _event_table(kind: Kind, event: WatchEvent, include: str, now: datetime) -> Object:
    obj = orjson.loads(event.body)
    version = {"resourceVersion": obj["metadata"]["resourceVersion"]}
    return render_table(kind, [obj], version, include, now)
