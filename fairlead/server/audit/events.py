"""Builds audit events without request and response bodies. `body_capture.py` adds bodies where needed.

Events that need no body, which is nearly all of them, take a faster way to the same JSON line. Every request creates a
`MetadataEvent`, which only stores references. `log_writer.py` renders them in batches. What repeats between requests is
cached as text: a template for each combination of user, verb and resource, with placeholders for the few values that
differ.
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
from fairlead.core.clock import micro_timestamp
from fairlead.core.objects import Object
from fairlead.core.user import User
from fairlead.registry.kind import Kind
from fairlead.server.audit.policy import LEVELS, UNMATCHED_RULE, PolicyRule
from fairlead.server.audit.redaction import MAX_TEXT_LENGTH, client_ip, request_uri, sanitize

ACCESS_KEY_EXTRA = "service.sh/access-key"
"""Key in `user.extra`: the name of the access key that authenticated the request."""

DECISION_ANNOTATION, REASON_ANNOTATION = "authorization.k8s.io/decision", "authorization.k8s.io/reason"
LATENCY_ANNOTATION = "service.sh/latency"
ABORTED_ANNOTATION = "service.sh/aborted"
FILTERED_LIST_REASON = "the list is filtered to the objects that the user may get"
MAX_GROUPS, MAX_EXTRA_VALUES = 100, 16
"""How many groups, and how many extra fields and values of each, an event contains."""

LOGGED_VERBS = frozenset(
    {
        *("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"),
        *("post", "put", "head", "options", "connect", "trace"),
    }
)


class AuditedRequest(Struct, eq=False):  # one for every request: a Struct is created much faster than a dataclass
    """A request, when it was received, and the policy rule that applies to it."""

    call: Call
    received_at: datetime
    rule: PolicyRule = UNMATCHED_RULE


def build_event(request: AuditedRequest, stage: str, kinds: Sequence[Kind], now: datetime, seconds: float) -> Object:
    """The event of a request, `seconds` after it was received, still without `responseStatus`.

    `kinds` decide which fields a logged field selector may contain. Without kinds it is redacted.
    """
    call = request.call
    built: Object = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": LEVELS[request.rule.level],
        "auditID": call.audit_id,
        "stage": stage,
        "requestURI": request_uri(call.path, call.query, kinds),
        "verb": verb_of(call),
        "user": {},
        "sourceIPs": [client_ip(call.source), *call.proxies],
        "userAgent": sanitize(call.headers.get("user-agent", "")),
    }
    if call.user is not None:
        _set_users(built, call.user)
    if call.target.resource:
        built["objectRef"] = _object_reference(call.target)
    built["requestReceivedTimestamp"] = _format_time(request.received_at)
    built["stageTimestamp"] = _format_time(now)
    built["annotations"] = _build_annotations(call, seconds)
    return built


def encode_line(event: Object) -> bytes:
    return orjson.dumps(event, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_UTC_Z)


def verb_of(call: Call) -> str:
    """The verb for the log. Clients can send any HTTP method, so unknown ones become "unknown"."""
    verb = call.target.verb or call.method.lower()
    return verb if verb in LOGGED_VERBS else "unknown"


def _set_users(event: Object, user: User) -> None:
    """As in Kubernetes, `user` is the authenticated requester and `impersonatedUser` the identity acted as."""
    if user.impersonator is not None:
        event["user"] = describe_user(user.impersonator)
        event["impersonatedUser"] = describe_user(user)
    else:
        event["user"] = describe_user(user)


def describe_user(user: User) -> Object:
    info: Object = {"username": user.name[:MAX_TEXT_LENGTH]}
    if user.uid:
        info["uid"] = user.uid[:MAX_TEXT_LENGTH]
    if user.groups:
        info["groups"] = truncate_values(user.groups)
    if user.extra or user.key:
        extra = {
            name[:MAX_TEXT_LENGTH]: truncate_values(values, MAX_EXTRA_VALUES)
            for name, values in user.extra[:MAX_EXTRA_VALUES]
        }
        if user.key:
            extra[ACCESS_KEY_EXTRA] = [user.key]
        info["extra"] = extra
    return info


def truncate_values(values: Sequence[str], limit: int = MAX_GROUPS) -> list[str]:
    """At most so many values, sanitized. A client that impersonates can send thousands of groups."""
    listed = [sanitize(text) for text in values[:limit]]
    return listed if len(values) <= limit else [*listed, f"... and {len(values) - limit} more"]


def _object_reference(target: RequestInfo) -> Object:
    reference: Object = {"resource": sanitize(target.resource)}
    if target.namespace:
        reference["namespace"] = sanitize(target.namespace)
    if target.name:
        reference["name"] = sanitize(target.name)
    if target.group:
        reference["apiGroup"] = sanitize(target.group)
    reference["apiVersion"] = sanitize(target.version)
    if target.subresource:
        reference["subresource"] = sanitize(target.subresource)
    return reference


def _build_annotations(call: Call, seconds: float) -> Object:
    annotations = {LATENCY_ANNOTATION: f"{seconds:.6f}s"}
    annotations.update((name, sanitize(value)) for name, value in call.annotations.items())
    decision = call.decision
    if decision is not None:
        # A user who may not list everything gets a filtered list: the request is allowed.
        allowed = decision.allowed or call.object_filter is not None
        annotations[DECISION_ANNOTATION] = "allow" if allowed else "forbid"
        annotations[REASON_ANNOTATION] = (
            sanitize(decision.reason) if decision.allowed or not allowed else FILTERED_LIST_REASON
        )
    return annotations


def _format_time(moment: datetime) -> datetime | str:
    """Formats whole seconds here: the encoder would omit the zero fraction that Kubernetes' MicroTime requires."""
    return moment if moment.microsecond else micro_timestamp(moment)


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
