"""Events that need no look at a body, which is nearly all of them.

Every request makes one, so at first nothing more is done than to note what came when. `log_writer.py` asks for the lines of
some at a time. A line says exactly what `events.py` would have it say. But most of that is the same for very many
requests - who asks, with what, for which kind of object, and why they may - so those parts are kept as text, and a line
is put together from them.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache

import msgspec
import orjson
from msgspec import Struct

from fairlead.core.call import Call, Target
from fairlead.core.clock import micro_timestamp
from fairlead.core.user import User
from fairlead.registry.kind import Kind
from fairlead.server.audit.events import CUT_LIST, DECISION, LATENCY, REASON, Exchange, described, event, line, verb_of
from fairlead.server.audit.policy import LEVELS
from fairlead.server.audit.redaction import address, request_uri, shown

KEPT_USERS = 4_096
LONGEST_KEPT = 512
"""What anybody can send must not be able to fill the memory: texts that are longer are not kept."""

_users: dict[int, tuple[User, str, str]] = {}
"""By identity, and with the users themselves: while they are in here, nobody else can have their identity."""


class _Metadata(Struct):
    name: str = ""
    uid: str = ""
    resourceVersion: str = ""


class _Created(Struct):
    metadata: _Metadata


_created = msgspec.json.Decoder(_Created).decode


class Plain(Struct, eq=False):
    """A request that was answered with `code`. `kinds` are held against a selector before it is shown."""

    exchange: Exchange
    stage: str
    code: int
    kinds: Sequence[Kind]
    ended: datetime
    seconds: float
    created: bytes = b""
    """The new object, if the request made one: it has a name by now, and more."""

    def line(self) -> bytes:
        exchange = self.exchange
        call = exchange.call
        agent = call.headers.get("user-agent", "")
        if len(call.path) + len(agent) > LONGEST_KEPT:
            return self._long_line()
        user, acted_as = _who(call.user) if call.user is not None else ("{}", "")
        reference = _reference(call.target, self.created) if call.target.resource else ""
        # None of what stands here without being encoded could hold a character that JSON writes otherwise: they are
        # words and numbers of ours, and a URI has its own way to write them.
        return (
            f'{{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"{LEVELS[exchange.rule.level]}",'
            f'"auditID":"{call.audit_id}","stage":"{self.stage}",'
            f'"requestURI":"{request_uri(call.path, call.query, self.kinds)}",'
            f'"verb":"{verb_of(call)}","user":{user},{_source(call.client, agent)}{acted_as}{reference},'
            f'"requestReceivedTimestamp":{_moment(exchange.received)},"stageTimestamp":{_moment(self.ended)},'
            f'"annotations":{{"{LATENCY}":"{self.seconds:.6f}s"{_annotations(call)}}},'
            f'"responseStatus":{{"metadata":{{}},"code":{self.code}}}}}\n'
        ).encode()

    def _long_line(self) -> bytes:
        made = event(self.exchange, self.stage, self.kinds, self.ended, self.seconds)
        if self.created and "objectRef" in made:
            new = _new(self.exchange.call.target, self.created)
            made["objectRef"] |= {name: shown(value) for name, value in new.items()}
        made["responseStatus"] = {"metadata": {}, "code": self.code}
        return line(made)


def _text(value: str) -> str:
    return orjson.dumps(shown(value)).decode()


@lru_cache(maxsize=4_096)
def _source(client: str, agent: str) -> str:
    """From where and with what, which a connection does not change."""
    return f'"sourceIPs":[{_text(address(client))}],"userAgent":{_text(agent)}'


def _who(user: User) -> tuple[str, str]:
    """Who really asks, and whom they act as. An authenticator hands out the same users again and again."""
    kept = _users.get(id(user))
    if kept is not None:
        return kept[1], kept[2]
    asker, acted_as = user.impersonator or user, ""
    if user.impersonator is not None:
        acted_as = f',"impersonatedUser":{orjson.dumps(described(user)).decode()}'
    who = orjson.dumps(described(asker)).decode()
    if len(_users) >= KEPT_USERS:
        _users.clear()
    _users[id(user)] = user, who, acted_as
    return who, acted_as


def _reference(target: Target, created: bytes) -> str:
    resource, rest = _kind(target.resource, target.group, target.version, target.subresource)
    namespace = f',"namespace":{_text(target.namespace)}' if target.namespace else ""
    name = f',"name":{_text(target.name)}' if target.name else ""
    if created:
        rest += "".join([f',"{field}":{_text(value)}' for field, value in _new(target, created).items()])
    return f"{resource}{namespace}{name}{rest}}}"


def _new(target: Target, created: bytes) -> Mapping[str, str]:
    """What a new object is called, unless the request has said so, and what tells it from others of that name."""
    try:
        made = _created(created).metadata
    except msgspec.DecodeError:
        return {}
    found = {"name": "" if target.name else made.name, "uid": made.uid, "resourceVersion": made.resourceVersion}
    return {name: value for name, value in found.items() if value}


@lru_cache(maxsize=1_024)
def _kind(resource: str, group: str, version: str, subresource: str) -> tuple[str, str]:
    """What stands before the place of an object, and what after it."""
    api_group = f',"apiGroup":{_text(group)}' if group else ""
    below = f',"subresource":{_text(subresource)}' if subresource else ""
    return f',"objectRef":{{"resource":{_text(resource)}', f'{api_group},"apiVersion":{_text(version)}{below}'


def _annotations(call: Call) -> str:
    decision, others = call.decision, ""
    if call.annotations:
        pairs = [f",{orjson.dumps(name).decode()}:{_text(value)}" for name, value in call.annotations.items()]
        others = "".join(pairs)
    if decision is None:
        return others
    if decision.allowed:
        return others + _decided("allow", decision.reason)
    # Whoever may not list all is let in to see a part, which is no refusal.
    return others + (_decided("forbid", decision.reason) if call.sieve is None else _decided("allow", CUT_LIST))


@lru_cache(maxsize=1_024)
def _decided(decision: str, reason: str) -> str:
    return f',"{DECISION}":"{decision}","{REASON}":{_text(reason)}'


def _moment(moment: datetime) -> str:
    """With its quotes. By far the quickest way, but for a whole second, of which the encoder leaves out the zeros."""
    if not moment.microsecond:
        return f'"{micro_timestamp(moment)}"'
    return orjson.dumps(moment, option=orjson.OPT_UTC_Z).decode()
