"""`AuditLog`: the audit log for the rest of the server, and its metrics."""

from collections.abc import Iterator
from dataclasses import dataclass

from fairlead.core.clock import Clock
from fairlead.server.audit.agent_reports import ClusterReports
from fairlead.server.audit.disk_usage import Shelf
from fairlead.server.audit.intake import Logs
from fairlead.server.audit.stage import Audit
from fairlead.server.metrics.exposition import COUNTER, GAUGE, Family, labelled


@dataclass(frozen=True, slots=True)
class AuditLog:
    """`disk_budget` is None if the server does not manage log files, as with standard output."""

    audit: Audit
    logs: Logs
    reports: ClusterReports
    shelf: Shelf | None
    clock: Clock

    @property
    def events(self) -> int:
        """The number of events since the start."""
        return sum(writer.total for writer in self.logs.trails)

    def families(self) -> Iterator[Family]:
        counted = {**self.audit.suppressed, "reports": self.reports.refused}
        yield Family(
            "fairlead_audit_suppressed_total",
            COUNTER,
            "Events over a quota: counted in a summary instead of recorded, or rejected and returned to the agent.",
            [(labelled({"sort": category}), count) for category, count in counted.items()],
        )
        lost = [("", self.reports.dropped)]
        yield Family(
            "fairlead_audit_reports_lost_total",
            COUNTER,
            "Events that agents dropped before they could report them.",
            lost,
        )
        if self.shelf is None:
            return
        early = [(labelled({"log": log}), count) for log, count in self.shelf.removed_early.items()]
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
            [("", int(self.shelf.is_complete(self.clock.now())))],
        )
