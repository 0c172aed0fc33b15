"""Renders audit events that a cluster agent reports for its direct endpoint, as lines for this server's log.

The agent is only trusted for its own endpoint. So each event is rebuilt from known fields, and annotated with the
cluster it comes from. `agent_reports.py` calls this.
"""

from datetime import datetime
from typing import Any, Literal

import msgspec

from fairlead.core.clock import micro_timestamp
from fairlead.core.objects import Object
from fairlead.server.audit.events import encode_line
from fairlead.server.audit.redaction import MAX_URI_LENGTH, sanitize

AGENT_ANNOTATION = "service.sh/agent"
"""The annotation with the cluster whose agent reported the event. Events of this server never have it."""

MAX_VALUES = 100
MAX_LINE_BYTES = 16 * 1024
"""A longer event is recorded without its groups, extra fields and annotations."""
TRUNCATED_ANNOTATION = "service.sh/cut"


class _User(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}


class _Reference(msgspec.Struct):
    resource: str = ""
    namespace: str = ""
    name: str = ""
    apiGroup: str = ""
    apiVersion: str = ""
    subresource: str = ""


class _Status(msgspec.Struct):
    code: int = 0
    reason: str = ""
    message: str = ""


class _Event(msgspec.Struct):
    """The fields of a reported event that are recorded."""

    auditID: str
    stage: Literal["RequestReceived", "ResponseStarted", "ResponseComplete", "Panic"]
    requestURI: str
    verb: str
    requestReceivedTimestamp: datetime
    stageTimestamp: datetime
    user: _User = msgspec.field(default_factory=_User)
    sourceIPs: list[str] = []
    userAgent: str = ""
    objectRef: _Reference | None = None
    responseStatus: _Status | None = None
    annotations: dict[str, str] = {}


def render_remote_event(event: Any, cluster: str) -> bytes | None:
    """The line for the log; None if the value is not a valid event."""
    try:
        parsed = msgspec.convert(event, _Event)
    except msgspec.ValidationError:
        return None
    rebuilt: Object = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "Metadata",
        "auditID": sanitize(parsed.auditID),
        "stage": parsed.stage,
        "requestURI": sanitize(parsed.requestURI, MAX_URI_LENGTH),
        "verb": sanitize(parsed.verb),
        "user": _sanitize_value(parsed.user),
        "sourceIPs": _sanitize_value(parsed.sourceIPs),
        "userAgent": sanitize(parsed.userAgent),
    }
    if parsed.objectRef is not None:
        rebuilt["objectRef"] = _sanitize_value(parsed.objectRef)
    if parsed.responseStatus is not None:
        rebuilt["responseStatus"] = {"metadata": {}, **_sanitize_value(parsed.responseStatus)}
    rebuilt["requestReceivedTimestamp"] = micro_timestamp(parsed.requestReceivedTimestamp)
    rebuilt["stageTimestamp"] = micro_timestamp(parsed.stageTimestamp)
    rebuilt["annotations"] = {**_sanitize_value(parsed.annotations), AGENT_ANNOTATION: cluster}
    encoded = encode_line(rebuilt)
    return encoded if len(encoded) <= MAX_LINE_BYTES else encode_line(_truncate_event(rebuilt, cluster))


def _truncate_event(event: Object, cluster: str) -> Object:
    """The event without the fields that can have any number of values."""
    user = {name: value for name, value in event["user"].items() if name in ("username", "uid")}
    annotations = {
        AGENT_ANNOTATION: cluster,
        TRUNCATED_ANNOTATION: "groups, extra fields and annotations removed: the event was too long",
    }
    return {**event, "user": user, "sourceIPs": event["sourceIPs"][:1], "annotations": annotations}


def _sanitize_value(value: Any) -> Any:
    """Removes empty fields, redacts what looks like a credential, and truncates texts and lists."""
    if isinstance(value, msgspec.Struct):
        return {name: _sanitize_value(each) for name, each in msgspec.structs.asdict(value).items() if each}
    if isinstance(value, dict):
        return {sanitize(name): _sanitize_value(each) for name, each in list(value.items())[:MAX_VALUES]}
    if isinstance(value, list):
        return [_sanitize_value(each) for each in value[:MAX_VALUES]]
    return sanitize(value) if isinstance(value, str) else value
