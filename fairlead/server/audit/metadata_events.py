"""Renders audit events that need no body, which is nearly all of them, from cached JSON fragments.

Every request creates a `MetadataEvent`, which only stores references. `log_writer.py` renders them in batches. The line
is identical to the one that `events.py` would produce, but the parts that repeat between requests (user, user agent,
resource, authorization decision) are cached as JSON text.
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
"""Clients choose paths and user agents. Longer ones are not cached, so that they cannot fill the memory."""

_users: dict[int, tuple[User, str, str]] = {}
"""By `id()`. The entry holds the user itself, so that its id cannot be reused while it is cached."""


class _Metadata(Struct):
    name: str = ""
    uid: str = ""
    resourceVersion: str = ""


class _Created(Struct):
    metadata: _Metadata


_created = msgspec.json.Decoder(_Created).decode


class Plain(Struct, eq=False):
    """The event of a request that got the status `code`. `kinds` decide whether a field selector may be logged."""

    exchange: Exchange
    stage: str
    code: int
    kinds: Sequence[Kind]
    ended: datetime
    seconds: float
    created: bytes = b""
    """The response body if the request created an object: it has the generated name, uid and resourceVersion."""

    def line(self) -> bytes:
        request = self.exchange
        call = request.call
        agent = call.headers.get("user-agent", "")
        if len(call.path) + len(agent) > LONGEST_KEPT:
            return self._long_line()
        user, acted_as = _who(call.user) if call.user is not None else ("{}", "")
        reference = _reference(call.target, self.created) if call.target.resource else ""
        # Values inserted without JSON encoding cannot contain characters that need escaping: they are our own
        # constants and numbers, or a percent-encoded URI.
        return (
            f'{{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"{LEVELS[request.rule.level]}",'
            f'"auditID":"{call.audit_id}","stage":"{self.stage}",'
            f'"requestURI":"{request_uri(call.path, call.query, self.kinds)}",'
            f'"verb":"{verb_of(call)}","user":{user},{_source(call.client, agent)}{acted_as}{reference},'
            f'"requestReceivedTimestamp":{_moment(request.received)},"stageTimestamp":{_moment(self.ended)},'
            f'"annotations":{{"{LATENCY}":"{self.seconds:.6f}s"{_annotations(call)}}},'
            f'"responseStatus":{{"metadata":{{}},"code":{self.code}}}}}\n'
        ).encode()

    def _long_line(self) -> bytes:
        built = event(self.exchange, self.stage, self.kinds, self.ended, self.seconds)
        if self.created and "objectRef" in built:
            new = _new(self.exchange.call.target, self.created)
            built["objectRef"] |= {name: shown(value) for name, value in new.items()}
        built["responseStatus"] = {"metadata": {}, "code": self.code}
        return line(built)


def _text(value: str) -> str:
    return orjson.dumps(shown(value)).decode()


@lru_cache(maxsize=4_096)
def _source(client: str, agent: str) -> str:
    """Client address and user agent. Both stay the same for a connection."""
    return f'"sourceIPs":[{_text(address(client))}],"userAgent":{_text(agent)}'


def _who(user: User) -> tuple[str, str]:
    """The requester and the impersonated user as JSON. Authenticators return the same User instances repeatedly."""
    cached = _users.get(id(user))
    if cached is not None:
        return cached[1], cached[2]
    requester, acted_as = user.impersonator or user, ""
    if user.impersonator is not None:
        acted_as = f',"impersonatedUser":{orjson.dumps(described(user)).decode()}'
    who = orjson.dumps(described(requester)).decode()
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
    """Name (unless the request has it), uid and resourceVersion of the created object."""
    try:
        meta = _created(created).metadata
    except msgspec.DecodeError:
        return {}
    found = {"name": "" if target.name else meta.name, "uid": meta.uid, "resourceVersion": meta.resourceVersion}
    return {name: value for name, value in found.items() if value}


@lru_cache(maxsize=1_024)
def _kind(resource: str, group: str, version: str, subresource: str) -> tuple[str, str]:
    """The `objectRef` fields before and after namespace and name."""
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
    # A user who may not list everything gets a filtered list: the request is allowed.
    return others + (_decided("forbid", decision.reason) if call.sieve is None else _decided("allow", CUT_LIST))


@lru_cache(maxsize=1_024)
def _decided(decision: str, reason: str) -> str:
    return f',"{DECISION}":"{decision}","{REASON}":{_text(reason)}'


def _moment(moment: datetime) -> str:
    """A quoted timestamp. orjson is fastest, but omits the fraction of a whole second, which MicroTime requires."""
    if not moment.microsecond:
        return f'"{micro_timestamp(moment)}"'
    return orjson.dumps(moment, option=orjson.OPT_UTC_Z).decode()
