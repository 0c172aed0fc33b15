"""The quota for the reports of agents: events and bytes per cluster and minute.

`ReportCounts` counts the reports of this process. With several workers, one process counts for all (`server/workers/`).
"""

from typing import Protocol

from msgspec import Struct

from fairlead.core.clock import Clock
from fairlead.core.errors import Details, TooManyRequests

WINDOW_SECONDS = 60.0
MAX_CLUSTER_EVENTS, MAX_CLUSTER_BYTES = 6_000, 8 * 1024 * 1024
"""The quota of one cluster per minute."""


class ReportQuota(Protocol):
    async def charge_events(self, cluster: str, events: int) -> None:
        """Charges a report to the quota of its cluster, before its events are processed. Raises TooManyRequests."""

    def charge_bytes(self, cluster: str, count: int) -> None:
        """Charges what the events of a report take in the log."""


class _ClusterUsage(Struct, eq=False):
    events: int = 0
    bytes: int = 0


class ReportCounts:
    """The usage of all clusters in the current minute."""

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
