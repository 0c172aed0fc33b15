"""Writes the audit events that cluster agents report into their own log, with a quota for each cluster.

An agent is only trusted for its own cluster. So each event is rebuilt from known fields, and annotated with the cluster
it comes from.

An agent must not displace the reports of other agents or fill the server's own log. If it is over its quota, it gets
429 with Retry-After. It keeps its events until then, and counts those that it has to drop. `subresources/clusters.py`
calls this.
"""

from datetime import datetime
from typing import Any, Literal, Protocol

import msgspec
import structlog
from msgspec import Struct

from fairlead.core.clock import Clock, micro_timestamp
from fairlead.core.errors import Details, TooManyRequests
from fairlead.core.objects import Object
from fairlead.server.audit.events import encode_line
from fairlead.server.audit.intake import SUMMARY_CATEGORY_ANNOTATION, SUMMARY_COUNT_ANNOTATION
from fairlead.server.audit.log_writer import AuditLogWriter
from fairlead.server.audit.redaction import MAX_URI_LENGTH, sanitize

WINDOW_SECONDS = 60.0
MAX_CLUSTER_EVENTS = 6_000
MAX_CLUSTER_BYTES = 8 * 1024 * 1024
"""The quota of one cluster per minute."""

AGENT_ANNOTATION = "service.sh/agent"
"""The annotation with the cluster whose agent reported the event. Events of this server never have it."""
MAX_VALUES = 100
MAX_LINE_BYTES = 16 * 1024
"""A longer event is recorded without its groups, extra fields and annotations."""
TRUNCATED_ANNOTATION = "service.sh/truncated"
MAX_LOGGED_USES = 100
"""Uses of the direct endpoint that are written to the server log for one report."""

log = structlog.get_logger(__name__)


class ReportQuota(Protocol):
    async def charge_events(self, cluster: str, events: int) -> None:
        """Charges a report to the quota of its cluster, before its events are processed. Raises TooManyRequests."""

    def charge_bytes(self, cluster: str, count: int) -> None:
        """Charges what the events of a report take in the log."""


class _ClusterUsage(Struct, eq=False):
    events: int = 0
    bytes: int = 0


class ReportCounts:
    """The usage of all clusters in the current minute, as reported to this process. With several workers, one process
    counts for all (`server/workers/`)."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._window_end = 0.0
        self._usage: dict[str, _ClusterUsage] = {}

    async def charge_events(self, cluster: str, events: int) -> None:
        self.add_events(cluster, events)

    def add_events(self, cluster: str, events: int) -> None:
        """Charges events at once, or raises TooManyRequests."""
        now = self._clock.monotonic()
        if now >= self._window_end:
            self._window_end, self._usage = now + WINDOW_SECONDS, {}
        used = self._usage.setdefault(cluster, _ClusterUsage())
        if used.events + events > MAX_CLUSTER_EVENTS or used.bytes >= MAX_CLUSTER_BYTES:
            limit = f"{MAX_CLUSTER_EVENTS} events or {MAX_CLUSTER_BYTES} bytes per minute"
            message = f"the agent of this cluster reports more than {limit}; keep the events and report them later"
            raise TooManyRequests(message, Details(retry_after=max(int(self._window_end - now), 1)))
        used.events += events

    def charge_bytes(self, cluster: str, count: int) -> None:
        self._usage.setdefault(cluster, _ClusterUsage()).bytes += count


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


class AgentReports:
    """The reports of all agents. `writer` is the agents' audit log; None if there is no audit log."""

    def __init__(self, writer: AuditLogWriter | None, clock: Clock) -> None:
        self._writer = writer
        self._clock = clock
        self._quota: ReportQuota = ReportCounts(clock)
        self.rejected_events = 0
        """Events rejected since the start because their cluster was over its quota."""
        self.lost_events = 0
        """Events lost since the start: dropped by an agent, or invalid."""

    def use_quota(self, quota: ReportQuota) -> None:
        """Replaces the quota of this process, for example by one for all workers."""
        self._quota = quota

    async def record(self, cluster: str, spec: Object) -> int:
        """Writes all events to the log, or raises if there is no space. Returns the number of events recorded."""
        events = spec.get("events") or ()
        activity = spec.get("activity") or ()
        if self._writer is not None and (self._writer.is_full or self._writer.failure):
            raise self._writer.unavailable_error()
        await self._charge_events(cluster, 1 + len(events) + min(len(activity), MAX_LOGGED_USES))
        lines = [found for event in events if (found := render_remote_event(event, cluster)) is not None]
        lost = max(int(spec.get("dropped") or 0), 0) + len(events) - len(lines)
        recorded = len(lines)
        if lost:
            lines.append(self._render_loss_event(cluster, lost))
        self._quota.charge_bytes(cluster, sum(map(len, lines)))
        if self._writer is not None:
            for each in lines:
                self._writer.add(each)
        if lost:
            self.lost_events += lost
            log.warning("audit events of an agent were lost", cluster=cluster, events=lost)
        _log_activity(cluster, activity)
        return recorded if self._writer is not None else 0

    async def _charge_events(self, cluster: str, events: int) -> None:
        try:
            await self._quota.charge_events(cluster, events)
        except TooManyRequests:
            self.rejected_events += events
            raise

    def _render_loss_event(self, cluster: str, lost: int) -> bytes:
        moment = micro_timestamp(self._clock.now())
        event: Object = {
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "level": "Metadata",
            "auditID": "",
            "stage": "ResponseComplete",
            "requestURI": "",
            "verb": "unknown",
            "user": {},
            "requestReceivedTimestamp": moment,
            "stageTimestamp": moment,
            "annotations": {
                AGENT_ANNOTATION: cluster,
                SUMMARY_COUNT_ANNOTATION: str(lost),
                SUMMARY_CATEGORY_ANNOTATION: "lost by the agent",
            },
        }
        return encode_line(event)


def _log_activity(cluster: str, activity: Any) -> None:
    for use in activity[:MAX_LOGGED_USES]:
        user, last_use = (sanitize(str(use.get(name) or "")) for name in ("user", "lastUse"))
        log.info("a direct endpoint was used", cluster=cluster, user=user, last_use=last_use)
    if len(activity) > MAX_LOGGED_USES:
        log.info("a direct endpoint was used", cluster=cluster, more_tokens=len(activity) - MAX_LOGGED_USES)
