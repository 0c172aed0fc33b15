"""The two pipeline stages of the audit log, and the recorder that turns requests into audit events. Used by `app`.

`audit` runs outside every stage that can fail. It sees the response to each request and writes exactly one
ResponseComplete event for it. `require_auditable` runs after authentication and routing, before the request has any
effect: it rejects requests that could not be audited, and writes RequestReceived if the policy asks for it.
"""

import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace

from fairlead.core.call import Call, Reply, Socket, Target, Upgrade
from fairlead.core.clock import Clock
from fairlead.core.objects import Object
from fairlead.core.user import User
from fairlead.registry.catalog import Catalog
from fairlead.registry.kind import Kind
from fairlead.server.api.content import JSON, media_type_of
from fairlead.server.api.errors import failures
from fairlead.server.audit.body_capture import Body, Draft
from fairlead.server.audit.events import CUT_OFF, Exchange, event, line
from fairlead.server.audit.intake import GIVEN_UP, READS, Intake, Logs
from fairlead.server.audit.log_writer import Trail
from fairlead.server.audit.metadata_events import Plain
from fairlead.server.audit.policy import (
    COMPLETE,
    METADATA,
    NONE,
    PANIC,
    RECEIVED,
    REQUEST,
    REQUEST_RESPONSE,
    STARTED,
    Policy,
    Rule,
)
from fairlead.server.audit.redaction import Credentials
from fairlead.server.discovery.health import HEALTH_PATHS
from fairlead.server.http.pipeline import Proceed

CREATED, BROKEN = 201, 500
QUICKLY_READ = 16 * 1024
"""Created objects up to this size are decoded on the event loop; larger ones in the writer thread."""


class Kept:
    """Keeps a reference to the request body once a later stage reads it. Does not copy it."""

    def __init__(self, call: Call) -> None:
        self._read = call.read_body
        self.data: bytes | None = None
        call.read_body = self._kept

    async def _kept(self) -> bytes:
        self.data = await self._read()
        return self.data


def _nothing() -> int:
    return NONE


class Recorder:
    """Writes the events that the policy asks for. `minimum_level` can raise the level of a rule, never lower it."""

    def __init__(self, policy: Policy, logs: Logs, catalog: Catalog, clock: Clock) -> None:
        self._policy = policy
        self._people = logs.people
        self._catalog = catalog
        self._clock = clock
        self.credentials = Credentials(catalog)
        self.intake = Intake(logs, catalog, clock, self.credentials)
        self.at_least: Callable[[], int] = _nothing

    def is_recorded(self, exchange: Exchange) -> bool:
        """Sets the request's policy rule; returns whether to record it. Needs the call's user and target."""
        call = exchange.call
        rule = exchange.rule = self._rule(call.user, call.target)
        return rule.level != NONE

    def received(self, exchange: Exchange) -> None:
        if RECEIVED not in exchange.rule.omit and self.intake.announces(exchange.call):
            self._people.add(line(self._event(exchange, RECEIVED)))

    def started(self, exchange: Exchange, code: int, trail: Trail) -> None:
        if STARTED not in exchange.rule.omit:
            self._add_plain(trail, exchange, STARTED, code)

    def ended(self, exchange: Exchange, code: int, trail: Trail) -> None:
        """The end of a watch, WebSocket or other streamed response."""
        if COMPLETE not in exchange.rule.omit:
            self._add_plain(trail, exchange, COMPLETE, code)

    def cut_off(self, exchange: Exchange) -> None:
        """The request was cancelled or failed before there was a response."""
        if COMPLETE not in exchange.rule.omit and (writer := self.intake.admit(exchange, GIVEN_UP)) is not None:
            aborted = self._event(exchange, COMPLETE)
            aborted["annotations"][CUT_OFF] = "the server aborted the request before it sent a response"
            writer.add(line(aborted))

    def answered(self, exchange: Exchange, reply: Reply, body: Kept | None) -> None:
        omit = exchange.rule.omit
        writer = self.intake.admit(exchange, reply.status)
        if writer is None:
            return
        if reply.status == BROKEN and PANIC not in omit:
            self._add_answer(writer, exchange, PANIC, reply, body)
        if COMPLETE not in omit:
            self._add_answer(writer, exchange, COMPLETE, reply, body)

    def _add_answer(self, trail: Trail, exchange: Exchange, stage: str, reply: Reply, body: Kept | None) -> None:
        """Most responses need no body, or only a small created object, and take the fast path."""
        status, level, is_resource = reply.status, exchange.rule.level, bool(exchange.call.target.resource)
        if status < 400 and (not is_resource or (level < REQUEST and status != CREATED)):
            self._add_plain(trail, exchange, stage, status)
        elif status == CREATED and level < REQUEST and reply.content_type == JSON and len(reply.body) <= QUICKLY_READ:
            self._add_plain(trail, exchange, stage, status, reply.body)
        else:
            deferred = self._event(exchange, stage)
            deferred["responseStatus"] = {"metadata": {}, "code": status}
            trail.add(self._draft(deferred, exchange, reply, body))

    def _draft(self, made: Object, exchange: Exchange, reply: Reply, body: Kept | None) -> Draft:
        call = exchange.call
        level = exchange.rule.level if call.target.resource else METADATA
        kinds = self._kinds(call.target)
        answer = Body(reply.body, reply.content_type.partition(";")[0])
        return Draft(
            made,
            kinds,
            reply.status,
            answer=answer if reply.status >= 400 or reply.status == CREATED else None,
            request=_sent(call, body) if level >= REQUEST and body is not None else None,
            response=answer if level >= REQUEST_RESPONSE and reply.body else None,
            discreet=any(kind.secret for kind in kinds) or self.credentials.concern(call.target),
        )

    def _add_plain(self, trail: Trail, exchange: Exchange, stage: str, code: int, created: bytes = b"") -> None:
        clock, kinds = self._clock, self._shown_kinds(exchange.call)
        seconds = clock.monotonic() - exchange.began
        trail.gather(Plain(exchange, stage, code, kinds, clock.now(), seconds, created))

    def _event(self, exchange: Exchange, stage: str) -> Object:
        clock = self._clock
        seconds = clock.monotonic() - exchange.began
        return event(exchange, stage, self._shown_kinds(exchange.call), clock.now(), seconds)

    def _shown_kinds(self, call: Call) -> tuple[Kind, ...]:
        """The kinds whose schemas decide whether a field selector may be logged."""
        return self._kinds(call.target) if call.query and "fieldSelector" in call.query else ()

    def _rule(self, user: User | None, target: Target) -> Rule:
        """The policy's rule. Requests that involve credentials are always recorded, at least as Metadata."""
        requester = user.impersonator or user if user is not None else None
        rule = self._policy.rule_for(requester, target)
        if NONE < rule.level < (least := self.at_least()):
            rule = replace(rule, level=least)
        if (rule.level == NONE or COMPLETE in rule.omit) and self.credentials.concern(target):
            return Rule(max(rule.level, METADATA), omit=(rule.omit | {RECEIVED}) - {COMPLETE})
        return rule

    def _kinds(self, target: Target) -> tuple[Kind, ...]:
        """The kinds of the objects in the bodies, the request's kind first. Empty if the resource is unknown."""
        kind = self._catalog.find(target.group, target.version, target.resource)
        if kind is None:
            return ()
        if not target.subresource or target.subresource in kind.subresources:
            return (kind,)
        return next(((each.kind or kind, kind) for each in kind.actions if each.name == target.subresource), ())


def _sent(call: Call, body: Kept) -> Body | None:
    """The request body; None if there was none. Its data is None if a body was sent but not read."""
    if body.data is not None:
        return Body(body.data, media_type_of(call)) if body.data else None
    announced = call.headers.get("content-length", "0") != "0" or bool(call.headers.get("transfer-encoding", ""))
    return Body(None, "") if announced else None


ROOM_SECONDS = 10.0
"""How long a request waits for space in a full queue before it is rejected with 503."""

_BODILESS = ("GET", "HEAD")


class Audit:
    """The audit stages of one server. `mount` is the path prefix of the management API."""

    def __init__(self, policy: Policy, logs: Logs, catalog: Catalog, clock: Clock, mount: str) -> None:
        self._policy = policy
        self._trail = logs.people
        self._clock = clock
        self._recorder = Recorder(policy, logs, catalog, clock)
        self._health = frozenset(root + path for root in ("", mount) for path in HEALTH_PATHS)
        self._under_way: dict[int, Exchange] = {}
        self._streams: dict[Exchange, tuple[int, Trail]] = {}

    def record_at_least(self, level: Callable[[], int]) -> None:
        """Records at this level or the policy's, whichever is higher. Requests at level None stay unrecorded."""
        self._recorder.at_least = level

    @property
    def suppressed(self) -> Mapping[str, int]:
        """Requests over a quota by category: counted in a summary instead of recorded one by one."""
        return self._recorder.intake.suppressed

    def recorded(self, call: Call, proceed: Proceed) -> Awaitable[Reply]:
        if self._trail.is_full:
            return self._recorded_with_room(call, proceed)
        request = Exchange(call, self._clock.now(), self._clock.monotonic())
        capture = Kept(call) if call.method not in _BODILESS and self._keeps_bodies() else None
        if self._policy.announces:
            self._under_way[id(call)] = request
        try:
            answer = proceed(call)
        except BaseException:
            self._cut_off(request)
            raise
        if isinstance(answer, Reply):
            return self._complete(request, answer, capture)
        return self._recorded_later(request, answer, capture)

    async def _recorded_later(self, exchange: Exchange, answer: Awaitable[Reply], kept: Kept | None) -> Reply:
        try:
            reply = await answer
        except BaseException:
            self._cut_off(exchange)
            raise
        return self._complete(exchange, reply, kept)

    async def _recorded_with_room(self, call: Call, proceed: Proceed) -> Reply:
        """Back pressure: waits for space in the queue before the request has any effect."""
        if call.path in self._health:
            return await proceed(call)  # health checks must be answered even if the audit log is stuck
        if not await self._trail.room(ROOM_SECONDS):
            return await failures(call, self._refuse)
        return await self.recorded(call, proceed)

    def _keeps_bodies(self) -> bool:
        return self._policy.highest >= REQUEST or self._recorder.at_least() >= REQUEST

    def _complete(self, exchange: Exchange, reply: Reply, kept: Kept | None) -> Reply:
        if self._under_way:
            self._under_way.pop(id(exchange.call), None)
        if self._recorder.is_recorded(exchange):
            if reply.stream is None and reply.upgrade is None:
                self._recorder.answered(exchange, reply, kept)
            else:
                self._begin(exchange, reply, kept)
        return reply

    def _cut_off(self, exchange: Exchange) -> None:
        self._under_way.pop(id(exchange.call), None)
        if self._recorder.is_recorded(exchange):
            self._recorder.cut_off(exchange)

    def accountable(self, call: Call, proceed: Proceed) -> Awaitable[Reply]:
        if self._trail.failure and (call.target.verb not in READS or self._recorder.credentials.concern(call.target)):
            raise self._trail.unavailable()
        if self._under_way:
            request = self._under_way.get(id(call))
            if request is not None and self._recorder.is_recorded(request):
                self._recorder.received(request)
        return proceed(call)

    def finish(self) -> None:
        """For shutdown: writes the end of all open streams and the pending summaries."""
        for request in list(self._streams):
            self._end(request)
        self._recorder.intake.flush()

    def _begin(self, exchange: Exchange, reply: Reply, kept: Kept | None) -> None:
        """Records the start of a streamed response or upgrade, and tracks its end. A HEAD response has no stream."""
        if reply.upgrade is None and exchange.call.method == "HEAD":
            self._recorder.answered(exchange, reply, kept)
            return
        # WebSockets are exec, attach or port-forward: always recorded, without a quota.
        writer = self._trail if reply.upgrade is not None else self._recorder.intake.admit(exchange, reply.status)
        if writer is None:
            return
        self._recorder.started(exchange, reply.status, writer)
        self._streams[exchange] = reply.status, writer
        if reply.upgrade is not None:
            reply.upgrade = self._accompanied(exchange, reply.upgrade)
        elif reply.stream is not None:
            reply.stream = self._followed(exchange, reply.stream)
            # A generator that was never started does not run its `finally`; it is only garbage collected.
            weakref.finalize(reply.stream, self._end, exchange).atexit = False

    async def _followed(self, exchange: Exchange, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        try:
            async for chunk in chunks:
                yield chunk
        finally:
            self._end(exchange)
            if isinstance(chunks, AsyncGenerator):
                await chunks.aclose()

    def _accompanied(self, exchange: Exchange, upgrade: Upgrade) -> Upgrade:
        async def run(socket: Socket) -> None:
            try:
                await upgrade.run(socket)
            finally:
                self._end(exchange)

        return Upgrade(upgrade.protocol, run)

    def _end(self, exchange: Exchange) -> None:
        """Records the end of a stream once, even if several code paths report it."""
        started = self._streams.pop(exchange, None)
        if started is not None:
            self._recorder.ended(exchange, *started)

    async def _refuse(self, call: Call) -> Reply:
        raise self._trail.unavailable()
