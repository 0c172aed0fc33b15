"""Writes the audit events that cluster agents report into their own log, with a quota for each cluster.

An agent is only trusted for its own cluster. It must not displace the reports of other agents or fill the server's own
log. An agent over its quota gets 429 with Retry-After. It keeps its events until then, and counts those that it has to
drop. `subresources/cluster_agents.py` calls this.
"""

from typing import Any

import structlog
from msgspec import Struct

from fairlead.core.clock import Clock, micro_timestamp
from fairlead.core.errors import Details, TooManyRequests
from fairlead.core.objects import Object
from fairlead.server.audit.events import line
from fairlead.server.audit.intake import COUNT, OF
from fairlead.server.audit.log_writer import Trail
from fairlead.server.audit.redaction import shown
from fairlead.server.audit.remote_events import FROM_AGENT, reported

WINDOW_SECONDS = 60.0
CLUSTER_EVENTS, CLUSTER_BYTES = 6_000, 8 * 1024 * 1024
"""The quota of one cluster per minute."""
MOST_LOGGED = 100
"""Uses of the direct endpoint that are written to the server log for one report."""

log = structlog.get_logger(__name__)


class _Used(Struct, eq=False):
    events: int = 0
    bytes: int = 0


class ClusterReports:
    """The reports of all agents. `writer` is the agents' audit log; None if there is no audit log."""

    def __init__(self, trail: Trail | None, clock: Clock) -> None:
        self._trail = trail
        self._clock = clock
        self._until = 0.0
        self._used: dict[str, _Used] = {}
        self.refused = 0
        """Events rejected since the start because their cluster was over its quota."""
        self.dropped = 0
        """Events lost since the start: dropped by an agent, or invalid."""

    def record(self, cluster: str, spec: Object) -> int:
        """Writes all events to the log, or raises if there is no space. Returns the number of events recorded."""
        events, activity = spec.get("events") or (), spec.get("activity") or ()
        if self._trail is not None and (self._trail.is_full or self._trail.failure):
            raise self._trail.unavailable()
        used = self._take(cluster, 1 + len(events) + min(len(activity), MOST_LOGGED))
        lines = [found for event in events if (found := reported(event, cluster)) is not None]
        lost = max(int(spec.get("dropped") or 0), 0) + len(events) - len(lines)
        recorded = len(lines)
        if lost:
            lines.append(self._summary(cluster, lost))
        used.bytes += sum(map(len, lines))
        if self._trail is not None:
            for each in lines:
                self._trail.add(each)
        if lost:
            self.dropped += lost
            log.warning("audit events of an agent were lost", cluster=cluster, events=lost)
        _log_activity(cluster, activity)
        return recorded if self._trail is not None else 0

    def _take(self, cluster: str, events: int) -> _Used:
        """Charges a report to the quota of its cluster, before its events are processed."""
        now = self._clock.monotonic()
        if now >= self._until:
            self._until, self._used = now + WINDOW_SECONDS, {}
        used = self._used.setdefault(cluster, _Used())
        if used.events + events > CLUSTER_EVENTS or used.bytes >= CLUSTER_BYTES:
            self.refused += events
            limit = f"{CLUSTER_EVENTS} events or {CLUSTER_BYTES} bytes per minute"
            message = f"the agent of this cluster reports more than {limit}; keep the events and report them later"
            raise TooManyRequests(message, Details(retry_after=max(int(self._until - now), 1)))
        used.events += events
        return used

    def _summary(self, cluster: str, lost: int) -> bytes:
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
            "annotations": {FROM_AGENT: cluster, COUNT: str(lost), OF: "lost by the agent"},
        }
        return line(event)


def _log_activity(cluster: str, activity: Any) -> None:
    for use in activity[:MOST_LOGGED]:
        user, last_use = (shown(str(use.get(name) or "")) for name in ("user", "lastUse"))
        log.info("used a direct endpoint", cluster=cluster, user=user, last_use=last_use)
    if len(activity) > MOST_LOGGED:
        log.info("used a direct endpoint", cluster=cluster, more_tokens=len(activity) - MOST_LOGGED)
