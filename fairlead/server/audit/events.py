"""An event without its bodies: what is known of a request on the event loop, quickly.

`body_capture.py` goes on with those that need a look at a body. For the others, `metadata_events.py` has a quicker way to the same line.
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
"""Under `user.extra`: the name of the access key that the request came with."""

DECISION, REASON = "authorization.k8s.io/decision", "authorization.k8s.io/reason"
LATENCY = "service.sh/latency"
CUT_OFF = "service.sh/cut-off"
CUT_LIST = "sees what it may get of the list"
MOST_GROUPS, MOST_EXTRA = 100, 16
"""How many groups, and values of an extra field, a record names."""

_VERBS = frozenset(
    {
        *("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"),
        *("post", "put", "head", "options", "connect", "trace"),
    }
)


class Exchange(Struct, eq=False):  # made for every request, and much more quickly than a dataclass
    """A request, when it came, and the rule that says how much of it is recorded."""

    call: Call
    received: datetime
    began: float
    rule: Rule = UNRECORDED


def event(exchange: Exchange, stage: str, kinds: Sequence[Kind], now: datetime, seconds: float) -> Object:
    """What the log says of a request `seconds` after it came. The status comes later, if there is one.

    `kinds` say which fields a selector may be shown for; without any it is not.
    """
    call = exchange.call
    made: Object = {
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
        _name_users(made, call.user)
    if call.target.resource:
        made["objectRef"] = _reference(call.target)
    made["requestReceivedTimestamp"] = _moment(exchange.received)
    made["stageTimestamp"] = _moment(now)
    made["annotations"] = _annotations(call, seconds)
    return made


def line(made: Object) -> bytes:
    return orjson.dumps(made, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_UTC_Z)


def verb_of(call: Call) -> str:
    """A method can be any word, and the log takes none that it does not know."""
    verb = call.target.verb or call.method.lower()
    return verb if verb in _VERBS else "unknown"


def _name_users(made: Object, user: User) -> None:
    """Kubernetes names whoever really asks first, and whom they act as beside it."""
    if user.impersonator is not None:
        made["user"] = described(user.impersonator)
        made["impersonatedUser"] = described(user)
    else:
        made["user"] = described(user)


def described(user: User) -> Object:
    described: Object = {"username": user.name[:LONGEST_TEXT]}
    if user.uid:
        described["uid"] = user.uid[:LONGEST_TEXT]
    if user.groups:
        described["groups"] = bounded(user.groups)
    if user.extra or user.key:
        extra = {name[:LONGEST_TEXT]: bounded(values, MOST_EXTRA) for name, values in user.extra[:MOST_EXTRA]}
        if user.key:
            extra[ACCESS_KEY] = [user.key]
        described["extra"] = extra
    return described


def bounded(texts: Sequence[str], most: int = MOST_GROUPS) -> list[str]:
    """No more of a user's texts than a record has room for. Whoever impersonates can name thousands of groups."""
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
        # Whoever may not list all is let in to see a part, which is no refusal.
        allowed = decision.allowed or call.sieve is not None
        annotations[DECISION] = "allow" if allowed else "forbid"
        annotations[REASON] = shown(decision.reason) if decision.allowed or not allowed else CUT_LIST
    return annotations


def _moment(moment: datetime) -> datetime | str:
    """The encoder leaves out a fraction of zero, which Kubernetes' own readers do not expect."""
    return moment if moment.microsecond else micro_timestamp(moment)
