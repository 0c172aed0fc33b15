"""Builds audit events without request and response bodies, on the event loop.

`body_capture.py` adds bodies where needed. `metadata_events.py` is a faster way to the same JSON line for the rest.
"""

from collections.abc import Sequence
from datetime import datetime

import orjson
from msgspec import Struct

from fairlead.core.call import Call, Target
from fairlead.core.clock import micro_timestamp
from fairlead.core.objects import Object
from fairlead.core.user import User
from fairlead.registry.kind import Kind
from fairlead.server.audit.policy import LEVELS, UNRECORDED, Rule
from fairlead.server.audit.redaction import LONGEST_TEXT, address, request_uri, shown

ACCESS_KEY = "service.sh/access-key"
"""Key in `user.extra`: the name of the access key that authenticated the request."""

DECISION, REASON = "authorization.k8s.io/decision", "authorization.k8s.io/reason"
LATENCY = "service.sh/latency"
CUT_OFF = "service.sh/cut-off"
CUT_LIST = "the list is filtered to the objects that the user may get"
MOST_GROUPS, MOST_EXTRA = 100, 16
"""How many groups, and how many extra fields and values of each, an event contains."""

_VERBS = frozenset(
    {
        *("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"),
        *("post", "put", "head", "options", "connect", "trace"),
    }
)


class Exchange(Struct, eq=False):  # one for every request: a Struct is created much faster than a dataclass
    """A request, when it was received, and the policy rule that applies to it."""

    call: Call
    received: datetime
    began: float
    rule: Rule = UNRECORDED


def event(exchange: Exchange, stage: str, kinds: Sequence[Kind], now: datetime, seconds: float) -> Object:
    """The event of a request, `seconds` after it was received, still without `responseStatus`.

    `kinds` decide which fields a logged field selector may contain. Without kinds it is redacted.
    """
    call = exchange.call
    built: Object = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": LEVELS[exchange.rule.level],
        "auditID": call.audit_id,
        "stage": stage,
        "requestURI": request_uri(call.path, call.query, kinds),
        "verb": verb_of(call),
        "user": {},
        "sourceIPs": [address(call.client)],
        "userAgent": shown(call.headers.get("user-agent", "")),
    }
    if call.user is not None:
        _name_users(built, call.user)
    if call.target.resource:
        built["objectRef"] = _reference(call.target)
    built["requestReceivedTimestamp"] = _moment(exchange.received)
    built["stageTimestamp"] = _moment(now)
    built["annotations"] = _annotations(call, seconds)
    return built


def line(made: Object) -> bytes:
    return orjson.dumps(made, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_UTC_Z)


def verb_of(call: Call) -> str:
    """The verb for the log. Clients can send any HTTP method, so unknown ones become "unknown"."""
    verb = call.target.verb or call.method.lower()
    return verb if verb in _VERBS else "unknown"


def _name_users(made: Object, user: User) -> None:
    """As in Kubernetes, `user` is the authenticated requester and `impersonatedUser` the identity acted as."""
    if user.impersonator is not None:
        made["user"] = described(user.impersonator)
        made["impersonatedUser"] = described(user)
    else:
        made["user"] = described(user)


def described(user: User) -> Object:
    info: Object = {"username": user.name[:LONGEST_TEXT]}
    if user.uid:
        info["uid"] = user.uid[:LONGEST_TEXT]
    if user.groups:
        info["groups"] = bounded(user.groups)
    if user.extra or user.key:
        extra = {name[:LONGEST_TEXT]: bounded(values, MOST_EXTRA) for name, values in user.extra[:MOST_EXTRA]}
        if user.key:
            extra[ACCESS_KEY] = [user.key]
        info["extra"] = extra
    return info


def bounded(texts: Sequence[str], most: int = MOST_GROUPS) -> list[str]:
    """At most so many values, sanitized. A client that impersonates can send thousands of groups."""
    listed = [shown(text) for text in texts[:most]]
    return listed if len(texts) <= most else [*listed, f"... and {len(texts) - most} more"]


def _reference(target: Target) -> Object:
    reference: Object = {"resource": shown(target.resource)}
    if target.namespace:
        reference["namespace"] = shown(target.namespace)
    if target.name:
        reference["name"] = shown(target.name)
    if target.group:
        reference["apiGroup"] = shown(target.group)
    reference["apiVersion"] = shown(target.version)
    if target.subresource:
        reference["subresource"] = shown(target.subresource)
    return reference


def _annotations(call: Call, seconds: float) -> Object:
    annotations = {LATENCY: f"{seconds:.6f}s"}
    annotations.update((name, shown(value)) for name, value in call.annotations.items())
    decision = call.decision
    if decision is not None:
        # A user who may not list everything gets a filtered list: the request is allowed.
        allowed = decision.allowed or call.sieve is not None
        annotations[DECISION] = "allow" if allowed else "forbid"
        annotations[REASON] = shown(decision.reason) if decision.allowed or not allowed else CUT_LIST
    return annotations


def _moment(moment: datetime) -> datetime | str:
    """Formats whole seconds here: the encoder would omit the zero fraction that Kubernetes' MicroTime requires."""
    return moment if moment.microsecond else micro_timestamp(moment)
