"""`AuditLog`: the audit log for the rest of the server, with its disk budget and metrics.

The budget is for all audit logs together. When they exceed it, they lose rotated files, in the order in which they are
given: unauthenticated requests first, then agent reports, and those of signed-in users last. Removing a file younger
than the minimum age is reported in the server log and in the metrics.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog

from fairlead.core.clock import Clock
from fairlead.server.audit.agent_reports import AgentReports
from fairlead.server.audit.intake import AuditLogs
from fairlead.server.audit.log_file import LogRetention
from fairlead.server.audit.log_reader import AuditLogReader
from fairlead.server.audit.stage import AuditStage
from fairlead.server.metrics.exposition import COUNTER, GAUGE, MINIMUM, Family, single_value

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class DiskBudget:
    """`logs` are the rotated files by log name, in the order of removal. `max_bytes` of 0 means no limit."""

    logs: Mapping[str, LogRetention]
    max_bytes: int
    early_removals: dict[str, int] = field(default_factory=dict)
    """By log: files removed before they reached the minimum age."""
    _last_early_removal: datetime | None = None

    def __post_init__(self) -> None:
        self.early_removals = dict.fromkeys(self.logs, 0)

    def clean_up(self, now: datetime) -> None:
        *_, last = self.logs.values()
        with last.lock_cleanup() as is_locked:  # one lock for all logs, the same in each process
            if is_locked:
                self._clean_up(now)

    def _clean_up(self, now: datetime) -> None:
        for retention in self.logs.values():
            retention.apply(now)
        try:
            self._free_space(now)
        except OSError as error:
            log.warning("could not remove old audit logs to free disk space", reason=str(error))

    def is_retention_met(self, now: datetime) -> bool:
        """Whether all events younger than the minimum age are still there, as far as this process knows."""
        min_days = max((retention.min_days for retention in self.logs.values()), default=0)
        return self._last_early_removal is None or now - self._last_early_removal >= timedelta(days=min_days)

    def _free_space(self, now: datetime) -> None:
        if not self.max_bytes:
            return
        total = self.total_bytes()
        for name, retention in self.logs.items():
            for rotated, path in reversed(retention.list_files()):
                if total <= self.max_bytes:
                    return
                total -= path.stat().st_size
                path.unlink()
                if not retention.is_past_min_age(rotated, now):
                    self._report_early_removal(name, path.name, retention.min_days, now)

    def total_bytes(self) -> int:
        """Bytes of all files, including those being written."""
        total = 0
        for retention in self.logs.values():
            for path in (retention.path, *(path for _, path in retention.list_files())):
                try:
                    total += path.stat().st_size
                except FileNotFoundError:
                    continue
        return total

    def _report_early_removal(self, name: str, file: str, min_days: int, now: datetime) -> None:
        self.early_removals[name] += 1
        self._last_early_removal = now
        log.error(
            "removed audit files before audit_min_days because the audit logs exceed audit_disk; "
            "find the source of the flood, raise audit_disk, or ship the files elsewhere",
            log=name,
            file=file,
            audit_min_days=min_days,
        )


@dataclass(frozen=True, slots=True)
class AuditLog:
    """`disk_budget` is None if the server does not manage log files, as with standard output."""

    stage: AuditStage
    logs: AuditLogs
    reports: AgentReports
    disk_budget: DiskBudget | None
    clock: Clock
    reader: AuditLogReader

    @property
    def event_count(self) -> int:
        """The number of events since the start."""
        return sum(writer.total_events for writer in self.logs.writers)

    def families(self) -> Iterator[Family]:
        counted = {**self.stage.suppressed_counts, "reports": self.reports.rejected_events}
        yield Family(
            "fairlead_audit_suppressed_total",
            COUNTER,
            "Events over a quota: counted in a summary instead of recorded, or rejected and returned to the agent.",
            ("category",),
            [((category,), count) for category, count in counted.items()],
        )
        yield single_value(
            "fairlead_audit_reports_lost_total",
            COUNTER,
            "Events that agents dropped before they could report them.",
            self.reports.lost_events,
        )
        if self.disk_budget is None:
            return
        yield Family(
            "fairlead_audit_files_removed_early_total",
            COUNTER,
            "Audit files removed to free disk space although they were younger than audit_min_days.",
            ("log",),
            [((log,), count) for log, count in self.disk_budget.early_removals.items()],
        )
        yield single_value(
            "fairlead_audit_retention_met",
            GAUGE,
            "0 while audit records of the last audit_min_days days are missing.",
            int(self.disk_budget.is_retention_met(self.clock.now())),
            MINIMUM,
        )
