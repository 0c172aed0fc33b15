"""Renders audit events that need no body, which is nearly all of them, from cached JSON fragments.

Every request creates a `MetadataEvent`, which only stores references. `log_writer.py` renders them in batches. The line
is identical to the one that `events.py` would produce. What repeats between requests is cached as text: a template for
each combination of user, verb and resource, with placeholders for the few values that differ.
"""

import re
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache

import msgspec
import orjson
from msgspec import Struct

from fairlead.core.bounded_cache import BoundedCache
from fairlead.core.call import Call, RequestInfo, RequestShape
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

TEMPLATE_CACHE_SIZE, MAX_CACHED_TEMPLATE_CHARACTERS = 4_096, 4 * 1024 * 1024
"""The number of cached templates, and their total length: a user can have many groups."""
MAX_CACHED_TEXT_LENGTH = 512
"""Clients choose paths and user agents. Longer ones are not cached, so that they cannot fill the memory."""

_is_plain = re.compile(r"[a-z0-9/.:-]*", re.ASCII).fullmatch
"""Matches text that needs no escaping in a URI or a JSON string, and no redaction: `sanitize` redacts no lower case."""

TemplateKey = tuple[RequestShape, str, str, int, int, str]
"""Shape, namespace and method of the request; `id()` of its user; level and stage of the event."""

_templates: BoundedCache[TemplateKey, tuple[User | None, str]] = BoundedCache(
    TEMPLATE_CACHE_SIZE, MAX_CACHED_TEMPLATE_CHARACTERS, lambda cached: len(cached[1])
)
"""With the user itself, so that its id cannot be reused while it is cached. Authenticators return the same User
instances repeatedly."""


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
        request, created = self.request, self.created_body
        call, level, stage = request.call, request.rule.level, self.stage
        user, target, path, agent = call.user, call.target, call.path, call.headers.get("user-agent")
        if len(path) + len(agent) > MAX_CACHED_TEXT_LENGTH:
            return self._render_uncached()
        shape = target.cached_shape or target.compute_shape()
        key = shape, target.namespace, call.method, id(user), level, stage
        cached = _templates.get(key)
        if cached is None:
            cached = _templates[key] = user, _build_template(request, stage)
        is_uri = not call.query and _is_plain(path)
        line = cached[1] % (
            call.audit_id,
            path if is_uri else request_uri(path, call.query, self.kinds),
            _source_fields(call.source, call.proxies, agent),
            f',"name":{_json_string(target.name)}' if target.name else "",
            _created_fields(target, created) if created else "",
            request.received_at.isoformat("T", "microseconds"),
            self.ended_at.isoformat("T", "microseconds"),
            self.seconds,
            _annotation_fields(call),
            self.code,
        )
        return line.encode()

    def _render_uncached(self) -> bytes:
        built = build_event(self.request, self.stage, self.kinds, self.ended_at, self.seconds)
        if self.created_body and "objectRef" in built:
            new = _created_fields(self.request.call.target, self.created_body)
            built["objectRef"] |= orjson.loads(f"{{{new[1:]}}}")
        built["responseStatus"] = {"metadata": {}, "code": self.code}
        return encode_line(built)


def _json_string(value: str) -> str:
    if len(value) <= MAX_CACHED_TEXT_LENGTH and _is_plain(value):
        return f'"{value}"'
    return orjson.dumps(sanitize(value)).decode()


@lru_cache(maxsize=4_096)
def _source_fields(client: str, proxies: tuple[str, ...], agent: str) -> str:
    """Client address, proxies and user agent. They stay the same for a connection of one client."""
    addresses = ",".join(map(_json_string, (client_ip(client), *proxies)))
    return f'"sourceIPs":[{addresses}],"userAgent":{_json_string(agent)}'


def _build_template(request: AuditedRequest, stage: str) -> str:
    """The line, with placeholders for the values of `MetadataEvent.render`."""
    call, target = request.call, request.call.target
    user, acted_as = _user_json(call.user) if call.user is not None else ("{}", "")
    before_name, after_name = _reference_json(target) if target.resource else ("", "")
    before_source = f'"verb":"{verb_of(call)}","user":{user},'
    parts = (
        f'{{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"{LEVELS[request.rule.level]}","auditID":"',
        "%s",
        f'","stage":"{stage}","requestURI":"',
        "%s",
        f'",{_escape(before_source)}',
        "%s",
        _escape(acted_as + before_name),
        "%s" if target.resource else "%.0s",  # the name
        _escape(after_name),
        "%s}" if target.resource else "%.0s",  # the identity of a created object
        # 26 characters end after the microseconds, which Kubernetes' MicroTime requires.
        ',"requestReceivedTimestamp":"%.26sZ","stageTimestamp":"%.26sZ"',
        f',"annotations":{{"{LATENCY_ANNOTATION}":"%.6fs"%s}},"responseStatus":{{"metadata":{{}},"code":%d}}}}\n',
    )
    return "".join(parts)


def _escape(text: str) -> str:
    return text.replace("%", "%%")


def _user_json(user: User) -> tuple[str, str]:
    """The requester, and the field of the impersonated user."""
    requester = orjson.dumps(describe_user(user.impersonator or user)).decode()
    if user.impersonator is None:
        return requester, ""
    return requester, f',"impersonatedUser":{orjson.dumps(describe_user(user)).decode()}'


def _reference_json(target: RequestInfo) -> tuple[str, str]:
    """The field `objectRef` before and after the name, without the closing brace."""
    namespace = f',"namespace":{_json_string(target.namespace)}' if target.namespace else ""
    api_group = f',"apiGroup":{_json_string(target.group)}' if target.group else ""
    below = f',"subresource":{_json_string(target.subresource)}' if target.subresource else ""
    return (
        f',"objectRef":{{"resource":{_json_string(target.resource)}{namespace}',
        f'{api_group},"apiVersion":{_json_string(target.version)}{below}',
    )


def _created_fields(target: RequestInfo, created_body: bytes) -> str:
    """Name (unless the request has it), uid and resourceVersion of the created object, as further fields."""
    try:
        meta = _decode_created(created_body).metadata
    except msgspec.DecodeError:
        return ""
    name = f',"name":{_json_string(meta.name)}' if meta.name and not target.name else ""
    uid = f',"uid":{_json_string(meta.uid)}' if meta.uid else ""
    version = f',"resourceVersion":{_json_string(meta.resourceVersion)}' if meta.resourceVersion else ""
    return name + uid + version


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
