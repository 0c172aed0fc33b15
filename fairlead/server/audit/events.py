"""Builds audit events without request and response bodies, on the event loop.

`body_capture.py` adds bodies where needed. `metadata_events.py` is a faster way to the same JSON line for the rest.
"""

from collections.abc import Sequence
from datetime import datetime

import orjson
from msgspec import Struct

from fairlead.core.call import Call, RequestInfo
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

_VERBS = frozenset(
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
    return verb if verb in _VERBS else "unknown"


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
