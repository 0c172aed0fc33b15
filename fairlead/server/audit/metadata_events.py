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

from fairlead.core.bounded_cache import BoundedCache
from fairlead.core.call import Call, RequestInfo
from fairlead.core.clock import micro_timestamp
from fairlead.core.user import User
from fairlead.registry.kind import Kind
from fairlead.server.audit.events import (
    DECISION_ANNOTATION,
    FILTERED_LIST_REASON,
    LATENCY_ANNOTATION,
    REASON_ANNOTATION,
    AuditedRequest,
    build_event,
    describe_user,
    encode_line,
    verb_of,
)
from fairlead.server.audit.policy import LEVELS
from fairlead.server.audit.redaction import client_ip, request_uri, sanitize

USER_CACHE_SIZE = 4_096
MAX_CACHED_TEXT_LENGTH = 512
"""Clients choose paths and user agents. Longer ones are not cached, so that they cannot fill the memory."""

_user_cache: BoundedCache[int, tuple[User, str, str]] = BoundedCache(USER_CACHE_SIZE)
"""By `id()`. The entry holds the user itself, so that its id cannot be reused while it is cached."""


class _CreatedMetadata(Struct):
    name: str = ""
    uid: str = ""
    resourceVersion: str = ""


class _CreatedObject(Struct):
    metadata: _CreatedMetadata


_decode_created = msgspec.json.Decoder(_CreatedObject).decode


class MetadataEvent(Struct, eq=False):
    """The event of a request that got the status `code`. `kinds` decide whether a field selector may be logged."""

    request: AuditedRequest
    stage: str
    code: int
    kinds: Sequence[Kind]
    ended_at: datetime
    seconds: float
    created_body: bytes = b""
    """The response body if the request created an object: it has the generated name, uid and resourceVersion."""

    def render(self) -> bytes:
        request = self.request
        call = request.call
        agent = call.headers.get("user-agent", "")
        if len(call.path) + len(agent) > MAX_CACHED_TEXT_LENGTH:
            return self._render_uncached()
        user, acted_as = _user_json(call.user) if call.user is not None else ("{}", "")
        reference = _object_reference(call.target, self.created_body) if call.target.resource else ""
        # Values inserted without JSON encoding cannot contain characters that need escaping: they are our own
        # constants and numbers, or a percent-encoded URI.
        return (
            f'{{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"{LEVELS[request.rule.level]}",'
            f'"auditID":"{call.audit_id}","stage":"{self.stage}",'
            f'"requestURI":"{request_uri(call.path, call.query, self.kinds)}",'
            f'"verb":"{verb_of(call)}","user":{user},{_source_fields(call.client, agent)}{acted_as}{reference},'
            f'"requestReceivedTimestamp":{_time_json(request.received_at)},"stageTimestamp":{_time_json(self.ended_at)},'
            f'"annotations":{{"{LATENCY_ANNOTATION}":"{self.seconds:.6f}s"{_annotation_fields(call)}}},'
            f'"responseStatus":{{"metadata":{{}},"code":{self.code}}}}}\n'
        ).encode()

    def _render_uncached(self) -> bytes:
        built = build_event(self.request, self.stage, self.kinds, self.ended_at, self.seconds)
        if self.created_body and "objectRef" in built:
            new = _created_identity(self.request.call.target, self.created_body)
            built["objectRef"] |= {name: sanitize(value) for name, value in new.items()}
        built["responseStatus"] = {"metadata": {}, "code": self.code}
        return encode_line(built)


def _json_string(value: str) -> str:
    return orjson.dumps(sanitize(value)).decode()


@lru_cache(maxsize=4_096)
def _source_fields(client: str, agent: str) -> str:
    """Client address and user agent. Both stay the same for a connection."""
    return f'"sourceIPs":[{_json_string(client_ip(client))}],"userAgent":{_json_string(agent)}'


def _user_json(user: User) -> tuple[str, str]:
    """The requester and the impersonated user as JSON. Authenticators return the same User instances repeatedly."""
    cached = _user_cache.get(id(user))
    if cached is not None:
        return cached[1], cached[2]
    requester, acted_as = user.impersonator or user, ""
    if user.impersonator is not None:
        acted_as = f',"impersonatedUser":{orjson.dumps(describe_user(user)).decode()}'
    who = orjson.dumps(describe_user(requester)).decode()
    _user_cache[id(user)] = user, who, acted_as
    return who, acted_as


def _object_reference(target: RequestInfo, created_body: bytes) -> str:
    resource, rest = _resource_fields(target.resource, target.group, target.version, target.subresource)
    namespace = f',"namespace":{_json_string(target.namespace)}' if target.namespace else ""
    name = f',"name":{_json_string(target.name)}' if target.name else ""
    if created_body:
        rest += "".join(
            [f',"{field}":{_json_string(value)}' for field, value in _created_identity(target, created_body).items()]
        )
    return f"{resource}{namespace}{name}{rest}}}"


def _created_identity(target: RequestInfo, created_body: bytes) -> Mapping[str, str]:
    """Name (unless the request has it), uid and resourceVersion of the created object."""
    try:
        meta = _decode_created(created_body).metadata
    except msgspec.DecodeError:
        return {}
    found = {"name": "" if target.name else meta.name, "uid": meta.uid, "resourceVersion": meta.resourceVersion}
    return {name: value for name, value in found.items() if value}


@lru_cache(maxsize=1_024)
def _resource_fields(resource: str, group: str, version: str, subresource: str) -> tuple[str, str]:
    """The `objectRef` fields before and after namespace and name."""
    api_group = f',"apiGroup":{_json_string(group)}' if group else ""
    below = f',"subresource":{_json_string(subresource)}' if subresource else ""
    return (
        f',"objectRef":{{"resource":{_json_string(resource)}',
        f'{api_group},"apiVersion":{_json_string(version)}{below}',
    )


def _annotation_fields(call: Call) -> str:
    decision, others = call.decision, ""
    if call.annotations:
        pairs = [f",{orjson.dumps(name).decode()}:{_json_string(value)}" for name, value in call.annotations.items()]
        others = "".join(pairs)
    if decision is None:
        return others
    if decision.allowed:
        return others + _decision_fields("allow", decision.reason)
    # A user who may not list everything gets a filtered list: the request is allowed.
    return others + (
        _decision_fields("forbid", decision.reason)
        if call.object_filter is None
        else _decision_fields("allow", FILTERED_LIST_REASON)
    )


@lru_cache(maxsize=1_024)
def _decision_fields(decision: str, reason: str) -> str:
    return f',"{DECISION_ANNOTATION}":"{decision}","{REASON_ANNOTATION}":{_json_string(reason)}'


def _time_json(moment: datetime) -> str:
    """A quoted timestamp. orjson is fastest, but omits the fraction of a whole second, which MicroTime requires."""
    if not moment.microsecond:
        return f'"{micro_timestamp(moment)}"'
    return orjson.dumps(moment, option=orjson.OPT_UTC_Z).decode()
