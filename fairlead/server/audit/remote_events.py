"""Audit events that a cluster's agent reports of its direct endpoint, as lines for this server's own log.

The agent is trusted for what happens at its endpoint and for nothing else: an event is built anew from the fields that
are known, and marked with the cluster that it is from. `subresources/cluster_agents.py` calls this.
"""

from datetime import datetime
from typing import Any, Literal

import msgspec

from fairlead.core.clock import micro_timestamp
from fairlead.core.objects import Object
from fairlead.server.audit.events import line
from fairlead.server.audit.redaction import LONGEST_URI, shown

FROM_AGENT = "service.sh/agent"
"""The annotation that says which cluster's agent has seen the request. No event of this server's own has it."""

MAX_VALUES = 100
MAX_LINE = 16 * 1024
"""A longer event is recorded without what makes it long."""
CUT = "service.sh/cut"


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
    """What is taken of an event."""

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


def reported(event: Any, cluster: str) -> bytes | None:
    """The line for the log; None for what is no event."""
    try:
        told = msgspec.convert(event, _Event)
    except msgspec.ValidationError:
        return None
    made: Object = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "Metadata",
        "auditID": shown(told.auditID),
        "stage": told.stage,
        "requestURI": shown(told.requestURI, LONGEST_URI),
        "verb": shown(told.verb),
        "user": _clean(told.user),
        "sourceIPs": _clean(told.sourceIPs),
        "userAgent": shown(told.userAgent),
    }
    if told.objectRef is not None:
        made["objectRef"] = _clean(told.objectRef)
    if told.responseStatus is not None:
        made["responseStatus"] = {"metadata": {}, **_clean(told.responseStatus)}
    made["requestReceivedTimestamp"] = micro_timestamp(told.requestReceivedTimestamp)
    made["stageTimestamp"] = micro_timestamp(told.stageTimestamp)
    made["annotations"] = {**_clean(told.annotations), FROM_AGENT: cluster}
    found = line(made)
    return found if len(found) <= MAX_LINE else line(_shortened(made, cluster))


def _shortened(made: Object, cluster: str) -> Object:
    """The event without the fields of which an agent can send as many values as it likes."""
    user = {name: value for name, value in made["user"].items() if name in ("username", "uid")}
    annotations = {FROM_AGENT: cluster, CUT: "groups, extra fields and annotations were too long"}
    return {**made, "user": user, "sourceIPs": made["sourceIPs"][:1], "annotations": annotations}


def _clean(value: Any) -> Any:
    """The same without empty fields, without what looks like a credential, and no longer than anybody would read."""
    if isinstance(value, msgspec.Struct):
        return {name: _clean(each) for name, each in msgspec.structs.asdict(value).items() if each}
    if isinstance(value, dict):
        return {shown(name): _clean(each) for name, each in list(value.items())[:MAX_VALUES]}
    if isinstance(value, list):
        return [_clean(each) for each in value[:MAX_VALUES]]
    return shown(value) if isinstance(value, str) else value
