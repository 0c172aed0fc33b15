"""Turns requests and what became of them into events, as far as the policy asks for them. `stage.py` calls it."""

from collections.abc import Callable
from dataclasses import replace

from fairlead.core.call import Call, Reply, Target
from fairlead.core.clock import Clock
from fairlead.core.objects import Object
from fairlead.core.user import User
from fairlead.registry.catalog import Catalog
from fairlead.registry.kind import Kind
from fairlead.server.audit.credentials import Credentials
from fairlead.server.audit.draft import Body, Draft
from fairlead.server.audit.event import CUT_OFF, Exchange, event, line
from fairlead.server.audit.intake import GIVEN_UP, Intake, Logs
from fairlead.server.audit.plain import Plain
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
from fairlead.server.audit.trail import Trail
from fairlead.server.negotiate import JSON, media_type_of

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
