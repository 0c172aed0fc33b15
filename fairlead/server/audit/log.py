"""`AuditLog`: the audit log for the rest of the server, and its metrics."""

from collections.abc import Iterator
from dataclasses import dataclass

from fairlead.core.clock import Clock
from fairlead.server.audit.agent_reports import AgentReports
from fairlead.server.audit.disk_usage import DiskBudget
from fairlead.server.audit.intake import AuditLogs
from fairlead.server.audit.stage import AuditStages
from fairlead.server.metrics.exposition import COUNTER, GAUGE, Family, format_labels


@dataclass(frozen=True, slots=True)
class AuditLog:
    """`disk_budget` is None if the server does not manage log files, as with standard output."""

    stages: AuditStages
    logs: AuditLogs
    reports: AgentReports
    disk_budget: DiskBudget | None
    clock: Clock

    @property
    def event_count(self) -> int:
        """The number of events since the start."""
        return sum(writer.total_events for writer in self.logs.writers)

    def families(self) -> Iterator[Family]:
        counted = {**self.stages.suppressed_counts, "reports": self.reports.rejected_events}
        yield Family(
            "fairlead_audit_suppressed_total",
            COUNTER,
            "Events over a quota: counted in a summary instead of recorded, or rejected and returned to the agent.",
            [(format_labels({"sort": category}), count) for category, count in counted.items()],
        )
        lost = [("", self.reports.lost_events)]
        yield Family(
            "fairlead_audit_reports_lost_total",
            COUNTER,
            "Events that agents dropped before they could report them.",
            lost,
        )
        if self.disk_budget is None:
            return
        early = [(format_labels({"log": log}), count) for log, count in self.disk_budget.early_removals.items()]
        yield Family(
            "fairlead_audit_files_removed_early_total",
            COUNTER,
            "Audit files removed to free disk space although they were younger than audit_days_min.",
            early,
        )
        yield Family(
            "fairlead_audit_retention_met",
            GAUGE,
            "0 while audit records of the last audit_days_min days are missing.",
            [("", int(self.disk_budget.is_retention_met(self.clock.now())))],
        )
