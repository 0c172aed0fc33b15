"""What a reader of the audit log asks for, and the objects that it gets: filters, and the fields of an `AuditEvent`."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

import msgspec
import orjson

from fairlead.core.call import DRY_RUN_ANNOTATION
from fairlead.core.clock import micro_timestamp, parse_rfc3339
from fairlead.core.errors import AUTHENTICATION, AUTHORIZATION, BadRequest, Unauthorized, quote_value
from fairlead.core.objects import Object
from fairlead.core.refusals import REFUSED_BY_ANNOTATION, REFUSED_CODES
from fairlead.registry.selectors import Requirement
from fairlead.server.audit.events import DECISION_ANNOTATION

SERVED_FIELDS = (
    *("level", "auditID", "stage", "requestURI", "verb", "user", "impersonatedUser", "sourceIPs", "userAgent"),
    *("objectRef", "responseStatus", "requestReceivedTimestamp", "stageTimestamp", "annotations"),
)
"""The fields of a line that readers get. Never the bodies."""

SINCE, UNTIL = "since", "until"
LOG_FIELD, DECISION_FIELD, DRY_RUN_FIELD = "log", "decision", "dryRun"
REFUSED_BY_FIELD = "refusedBy"
LOG_NAMES = ("authenticated", "unauthenticated", "agents")
"""The values of the field `log`, in the order of `Found.log`."""
VIRTUAL_FIELDS = (DECISION_FIELD, REFUSED_BY_FIELD, DRY_RUN_FIELD, LOG_FIELD, SINCE, UNTIL)
"""What a field selector can name in addition to the fields of the kind."""
UNKNOWN_REFUSAL = "unknown"

_DURATION = re.compile(r"(?=.)(?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,9})s)?", re.ASCII)
_PLAIN_NAME = re.compile(r"[A-Za-z0-9._:@/-]{1,253}", re.ASCII)


class LoggedUser(msgspec.Struct):
    username: str = ""
    uid: str = ""


class LoggedReference(msgspec.Struct):
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    apiGroup: str = ""


class LoggedStatus(msgspec.Struct):
    code: int = 0


class LoggedEvent(msgspec.Struct):
    """The fields of a line that filters compare."""

    auditID: str
    stage: str
    stageTimestamp: str
    verb: str = ""
    requestURI: str = ""
    requestReceivedTimestamp: str = ""
    user: LoggedUser = msgspec.field(default_factory=LoggedUser)
    impersonatedUser: LoggedUser | None = None
    objectRef: LoggedReference | None = None
    responseStatus: LoggedStatus | None = None
    annotations: dict[str, str] = {}


_decode_event = msgspec.json.Decoder(LoggedEvent).decode


def parse_line(line: bytes) -> LoggedEvent | None:
    """None for a line that is not an audit event."""
    try:
        return _decode_event(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def refused_by(event: LoggedEvent) -> str:
    """What refused the request; empty if nothing did. Events of earlier versions, and of agents, do not say it."""
    noted = event.annotations.get(REFUSED_BY_ANNOTATION, "")
    code = event.responseStatus.code if event.responseStatus is not None else 0
    if noted:
        return noted
    if event.annotations.get(DECISION_ANNOTATION) == "forbid":
        return AUTHORIZATION
    if code == Unauthorized.code:
        return AUTHENTICATION
    return UNKNOWN_REFUSAL if code in REFUSED_CODES else ""


_NO_USER = LoggedUser()
_NO_REFERENCE = LoggedReference()

FIELDS: Mapping[str, Callable[[LoggedEvent], str]] = {
    "metadata.name": lambda event: event.auditID,
    "auditID": lambda event: event.auditID,
    "stage": lambda event: event.stage,
    "verb": lambda event: event.verb,
    "user.username": lambda event: event.user.username,
    "impersonatedUser.username": lambda event: (event.impersonatedUser or _NO_USER).username,
    "objectRef.resource": lambda event: (event.objectRef or _NO_REFERENCE).resource,
    "objectRef.subresource": lambda event: (event.objectRef or _NO_REFERENCE).subresource,
    "objectRef.namespace": lambda event: (event.objectRef or _NO_REFERENCE).namespace,
    "objectRef.name": lambda event: (event.objectRef or _NO_REFERENCE).name,
    "objectRef.apiGroup": lambda event: (event.objectRef or _NO_REFERENCE).apiGroup,
    "responseStatus.code": lambda event: str(event.responseStatus.code) if event.responseStatus is not None else "",
    DECISION_FIELD: lambda event: event.annotations.get(DECISION_ANNOTATION, ""),
    REFUSED_BY_FIELD: refused_by,
    DRY_RUN_FIELD: lambda event: event.annotations.get(DRY_RUN_ANNOTATION, ""),
}
"""The fields that a selector can compare, as text. A missing field is empty."""
CONSTANT_FIELDS = (
    "auditID",
    "metadata.name",
    "objectRef.name",
    "user.username",
    "impersonatedUser.username",
    "objectRef.namespace",
    "objectRef.subresource",
    "objectRef.resource",
    "objectRef.apiGroup",
    "verb",
)
"""The fields whose text is also in all later lines of the request, the most selective first. So a search for the text
does not miss that a request has a later stage."""


@dataclass(frozen=True, slots=True)
class Requester:
    """Whose events a reader sees. A new user with the name of a deleted one has another uid."""

    name: str
    uid: str


class EventGroup(Protocol):
    @property
    def needle(self) -> bytes:
        """Text that is in the lines of all its events; empty if there is none."""

    def matches(self, event: LoggedEvent) -> bool: ...


@dataclass(frozen=True, slots=True)
class EventQuery:
    """Which events to return. `since` and `until` are timestamps in the format of the log; empty for no limit.

    With `own`, only the requests of that user are returned, whatever else is selected.
    """

    fields: tuple[Requirement, ...] = ()
    since: str = ""
    until: str = ""
    own: Requester | None = None
    needle: bytes = b""
    """Text that is in every line to return. Other lines are not decoded."""
    group: "EventGroup | None" = None
    """Events that no single field identifies."""

    @property
    def logs(self) -> tuple[int, ...]:
        """The logs to read. The user names in reports of agents are those of other clusters."""
        return (0,) if self.own is not None else tuple(range(len(LOG_NAMES)))

    def matches(self, event: LoggedEvent, log: int) -> bool:
        own = self.own
        if own is not None and (log != 0 or (event.user.username, event.user.uid) != (own.name, own.uid)):
            return False
        if (self.since and event.stageTimestamp < self.since) or (self.until and event.stageTimestamp > self.until):
            return False
        if self.group is not None and not self.group.matches(event):
            return False
        return all(
            each.matches({each.key: LOG_NAMES[log] if each.key == LOG_FIELD else FIELDS[each.key](event)})
            for each in self.fields
        )


def build_query(
    fields: tuple[Requirement, ...], own: Requester | None, now: datetime, group: EventGroup | None = None
) -> EventQuery:
    """The query of a field selector whose fields were checked. Raises BadRequest for an invalid time."""
    times = {SINCE: "", UNTIL: ""}
    others = []
    for each in fields:
        if each.key not in times:
            others.append(each)
            continue
        if times[each.key]:
            raise can_be_given_once(each.key)
        times[each.key] = _parse_time(each.key, single_value(each), now)
    needle = _find_needle(others, own) or (group.needle if group is not None else b"")
    return EventQuery(tuple(others), times[SINCE], times[UNTIL], own, needle, group)


def single_value(requirement: Requirement) -> str:
    """The value of a field that can only be compared with `=`. Raises BadRequest."""
    if requirement.operator != "in":
        raise can_be_given_once(requirement.key)
    return next(iter(requirement.values))


def can_be_given_once(field: str) -> BadRequest:
    return BadRequest(f"fieldSelector: {field} can be given once, with =")


def _find_needle(fields: Sequence[Requirement], own: Requester | None) -> bytes:
    """The text of the most selective field, as far as all lines to return must contain it."""
    wanted = {each.key: _quoted(next(iter(each.values))) for each in fields if each.operator == "in"}
    of_requester = _quoted(own.name) if own is not None else b""
    return next(filter(None, (of_requester, *(wanted.get(key, b"") for key in CONSTANT_FIELDS))), b"")


def _quoted(text: str) -> bytes:
    """The text as it is in a line; empty if it may be written in another way."""
    return f'"{text}"'.encode() if _PLAIN_NAME.fullmatch(text) else b""


def query_by_id(audit_id: str, own: Requester | None) -> EventQuery | None:
    """The query for one request; None if no request has such an id."""
    if not _PLAIN_NAME.fullmatch(audit_id):
        return None
    requirement = Requirement("auditID", "in", frozenset({audit_id}))
    return EventQuery((requirement,), own=own, needle=f'"auditID":"{audit_id}"'.encode())


def _parse_time(name: str, text: str, now: datetime) -> str:
    """A timestamp, or a duration before now."""
    moment = parse_rfc3339(text)
    if moment is None:
        match = _DURATION.fullmatch(text)
        if match is None:
            raise BadRequest(
                f"fieldSelector: {name} must be a time such as 2026-01-02T03:04:05Z or a duration such as 90m, "
                f"not {quote_value(text)}"
            )
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        try:
            moment = now - timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        except OverflowError:
            raise BadRequest(f"fieldSelector: {name} is too long ago: {quote_value(text)}") from None
    return micro_timestamp(moment)


def build_object(line: bytes, api_version: str, version: str) -> Object:
    """The AuditEvent of a line that was parsed."""
    event = orjson.loads(line)
    received = parse_rfc3339(event.get("requestReceivedTimestamp"))
    metadata = {
        "name": event["auditID"],
        "creationTimestamp": event["requestReceivedTimestamp"][:19] + "Z" if received is not None else None,
        "resourceVersion": version,
    }
    served = {name: event[name] for name in SERVED_FIELDS if name in event}
    return {"kind": "AuditEvent", "apiVersion": api_version, "metadata": metadata, **served}
