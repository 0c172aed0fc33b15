"""The two stages that keep the audit log. `app` puts them into the pipeline.

`recorded` stands outside of everything that can fail, so that it sees the answer to every request, and has what became
of it written: exactly one ResponseComplete each. `accountable` stands where it is known who asks for what and nothing
has been done yet: there a request is refused that could not be recorded, and announced if the policy asks for that.
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

# DOC-MERGED server/audit/recorder
# Turns requests and what became of them into events, as far as the policy asks for them. `stage.py` calls it.


CREATED, BROKEN = 201, 500
QUICKLY_READ = 16 * 1024
"""How many bytes of a new object are looked into on the event loop."""


class Kept:
    """Remembers the body that somebody reads; copies nothing."""

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
    """`at_least` is a level below which nothing stays that is recorded at all. It takes nothing away."""

    def __init__(self, policy: Policy, logs: Logs, catalog: Catalog, clock: Clock) -> None:
        self._policy = policy
        self._people = logs.people
        self._catalog = catalog
        self._clock = clock
        self.credentials = Credentials(catalog)
        self.intake = Intake(logs, catalog, clock, self.credentials)
        self.at_least: Callable[[], int] = _nothing

    def is_recorded(self, exchange: Exchange) -> bool:
        """Whether anything is to be recorded of a request, and how much, once it is known who asks for what."""
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
        """A stream is over."""
        if COMPLETE not in exchange.rule.omit:
            self._add_plain(trail, exchange, COMPLETE, code)

    def cut_off(self, exchange: Exchange) -> None:
        """The request was given up before there was an answer."""
        if COMPLETE not in exchange.rule.omit and (trail := self.intake.admit(exchange, GIVEN_UP)) is not None:
            made = self._event(exchange, COMPLETE)
            made["annotations"][CUT_OFF] = "the server gave the request up before its answer"
            trail.add(line(made))

    def answered(self, exchange: Exchange, reply: Reply, body: Kept | None) -> None:
        omit = exchange.rule.omit
        trail = self.intake.admit(exchange, reply.status)
        if trail is None:
            return
        if reply.status == BROKEN and PANIC not in omit:
            self._add_answer(trail, exchange, PANIC, reply, body)
        if COMPLETE not in omit:
            self._add_answer(trail, exchange, COMPLETE, reply, body)

    def _add_answer(self, trail: Trail, exchange: Exchange, stage: str, reply: Reply, body: Kept | None) -> None:
        """Most answers need no look at any body, or only a quick one at a new object."""
        status, level, is_resource = reply.status, exchange.rule.level, bool(exchange.call.target.resource)
        if status < 400 and (not is_resource or (level < REQUEST and status != CREATED)):
            self._add_plain(trail, exchange, stage, status)
        elif status == CREATED and level < REQUEST and reply.content_type == JSON and len(reply.body) <= QUICKLY_READ:
            self._add_plain(trail, exchange, stage, status, reply.body)
        else:
            made = self._event(exchange, stage)
            made["responseStatus"] = {"metadata": {}, "code": status}
            trail.add(self._draft(made, exchange, reply, body))

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
        """What a selector is held against before it is shown."""
        return self._kinds(call.target) if call.query and "fieldSelector" in call.query else ()

    def _rule(self, user: User | None, target: Target) -> Rule:
        """What the policy says, and at least that something is written where a credential is concerned."""
        asker = user.impersonator or user if user is not None else None
        rule = self._policy.rule_for(asker, target)
        if NONE < rule.level < (least := self.at_least()):
            rule = replace(rule, level=least)
        if (rule.level == NONE or COMPLETE in rule.omit) and self.credentials.concern(target):
            return Rule(max(rule.level, METADATA), omit=(rule.omit | {RECEIVED}) - {COMPLETE})
        return rule

    def _kinds(self, target: Target) -> tuple[Kind, ...]:
        """The kinds of the objects in the bodies, first what the request takes. None where nothing is known of them."""
        kind = self._catalog.find(target.group, target.version, target.resource)
        if kind is None:
            return ()
        if not target.subresource or target.subresource in kind.subresources:
            return (kind,)
        return next(((each.kind or kind, kind) for each in kind.actions if each.name == target.subresource), ())


def _sent(call: Call, body: Kept) -> Body | None:
    """The request's body; None if there was none."""
    if body.data is not None:
        return Body(body.data, media_type_of(call)) if body.data else None
    announced = call.headers.get("content-length", "0") != "0" or bool(call.headers.get("transfer-encoding", ""))
    return Body(None, "") if announced else None


ROOM_SECONDS = 10.0
"""How long a request waits for room in a full queue before it is sent away."""

_BODILESS = ("GET", "HEAD")


class Audit:
    """The audit log of one server. `mount` is where the management API hangs."""

    def __init__(self, policy: Policy, logs: Logs, catalog: Catalog, clock: Clock, mount: str) -> None:
        self._policy = policy
        self._trail = logs.people
        self._clock = clock
        self._recorder = Recorder(policy, logs, catalog, clock)
        self._health = frozenset(root + path for root in ("", mount) for path in HEALTH_PATHS)
        self._under_way: dict[int, Exchange] = {}
        self._streams: dict[Exchange, tuple[int, Trail]] = {}

    def record_at_least(self, level: Callable[[], int]) -> None:
        """From now on, whatever is recorded is recorded at this level or the policy's, whichever has more."""
        self._recorder.at_least = level

    @property
    def suppressed(self) -> Mapping[str, int]:
        """By sort, how many requests were counted and not recorded whole."""
        return self._recorder.intake.suppressed

    def recorded(self, call: Call, proceed: Proceed) -> Awaitable[Reply]:
        if self._trail.is_full:
            return self._recorded_with_room(call, proceed)
        exchange = Exchange(call, self._clock.now(), self._clock.monotonic())
        kept = Kept(call) if call.method not in _BODILESS and self._keeps_bodies() else None
        if self._policy.announces:
            self._under_way[id(call)] = exchange
        try:
            answer = proceed(call)
        except BaseException:
            self._cut_off(exchange)
            raise
        if isinstance(answer, Reply):
            return self._complete(exchange, answer, kept)
        return self._recorded_later(exchange, answer, kept)

    async def _recorded_later(self, exchange: Exchange, answer: Awaitable[Reply], kept: Kept | None) -> Reply:
        try:
            reply = await answer
        except BaseException:
            self._cut_off(exchange)
            raise
        return self._complete(exchange, reply, kept)

    async def _recorded_with_room(self, call: Call, proceed: Proceed) -> Reply:
        """Waits before anything is done."""
        if call.path in self._health:
            return await proceed(call)  # whoever asks how the server is must be told
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
            exchange = self._under_way.get(id(call))
            if exchange is not None and self._recorder.is_recorded(exchange):
                self._recorder.received(exchange)
        return proceed(call)

    def finish(self) -> None:
        """For the end of the server: streams that nobody has ended are over now, and summaries are due."""
        for exchange in list(self._streams):
            self._end(exchange)
        self._recorder.intake.flush()

    def _begin(self, exchange: Exchange, reply: Reply, kept: Kept | None) -> None:
        """Notes an answer that goes on, and follows it to its end. To a HEAD, nothing is sent of it."""
        if reply.upgrade is None and exchange.call.method == "HEAD":
            self._recorder.answered(exchange, reply, kept)
            return
        # What goes on as a WebSocket is a command or a tunnel, and recorded whatever the rate.
        trail = self._trail if reply.upgrade is not None else self._recorder.intake.admit(exchange, reply.status)
        if trail is None:
            return
        self._recorder.started(exchange, reply.status, trail)
        self._streams[exchange] = reply.status, trail
        if reply.upgrade is not None:
            reply.upgrade = self._accompanied(exchange, reply.upgrade)
        elif reply.stream is not None:
            reply.stream = self._followed(exchange, reply.stream)
            # One that is never begun never ends by itself either; it is only forgotten.
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
        """However many ways a stream ends in, it is written once."""
        begun = self._streams.pop(exchange, None)
        if begun is not None:
            self._recorder.ended(exchange, *begun)

    async def _refuse(self, call: Call) -> Reply:
        raise self._trail.unavailable()
