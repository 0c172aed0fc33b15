"""Builds the audit log. It consists of three logs: that of authenticated users, and beside it one for unauthenticated
requests and one for the reports of agents. Their file names derive from `audit_path`. On the standard output, or in a
device, they are one.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from fairlead.app.worker_limits import audit_quotas, build_audit_writer
from fairlead.client.admin_kubeconfig import MANAGEMENT_PATH
from fairlead.core.clock import Clock
from fairlead.registry.kind import Catalog
from fairlead.server.audit.agent_reports import AgentReports
from fairlead.server.audit.intake import AuditLogs
from fairlead.server.audit.log import AuditLog, DiskBudget
from fairlead.server.audit.log_file import STANDARD_OUTPUT, LogRetention, RotatingFile, open_sink
from fairlead.server.audit.log_query import LOG_NAMES
from fairlead.server.audit.log_reader import AuditLogReader
from fairlead.server.audit.log_segments import SegmentedLog
from fairlead.server.audit.policy import DEFAULT_POLICY, load_policy
from fairlead.server.audit.stage import AuditStage
from fairlead.settings import Settings
from fairlead.settings.values import ON

MEBIBYTE = 1024 * 1024
UNAUTHENTICATED, AGENTS, USERS = "unauthenticated", "agents", "authenticated"
"""The logs, in the order in which their rotated files are deleted when the disk quota is reached."""
OUTPUT_LOCK_FILE = ".audit-output.lock"
"""In the data folder: workers that write the audit log to the standard output take turns with it."""
MAX_SIDE_LOG_QUEUE_BYTES = 16 * MEBIBYTE
"""The queue size of the logs other than that of users, in bytes."""


@asynccontextmanager
async def open_audit_log(
    settings: Settings, catalog: Catalog, clock: Clock, workers: int = 1
) -> AsyncIterator[AuditLog | None]:
    """Opens the audit log and closes it on exit. None if it is disabled. `workers` processes write to it."""
    if not settings.audit_destination:
        yield None
        return
    policy = load_policy(settings.audit_policy) if settings.audit_policy else DEFAULT_POLICY
    logs, disk = _open_logs(settings, clock, workers)
    audit = AuditStage(policy, logs, catalog, clock, MANAGEMENT_PATH)
    try:
        yield AuditLog(
            stage=audit,
            logs=logs,
            reports=AgentReports(logs.agents, clock),
            disk_budget=disk,
            clock=clock,
            reader=_build_reader(disk),
        )
    finally:
        audit.finish()
        for writer in logs.writers:
            await writer.close()


def _build_reader(disk: DiskBudget | None) -> AuditLogReader:
    return AuditLogReader([SegmentedLog(disk.logs[name]) for name in LOG_NAMES] if disk is not None else [])


def _open_logs(settings: Settings, clock: Clock, workers: int) -> tuple[AuditLogs, DiskBudget | None]:
    allowances = audit_quotas(settings, workers)
    new_backups = partial(
        LogRetention,
        max_files=settings.audit_backups,
        max_days=settings.audit_max_days,
        compress=settings.audit_compress == ON,
        min_days=settings.audit_min_days,
    )
    size = settings.audit_size * MEBIBYTE
    path = settings.audit_destination
    if path == STANDARD_OUTPUT or _is_device(Path(path)):
        output_lock = settings.data / OUTPUT_LOCK_FILE if workers > 1 else None
        writer = build_audit_writer(open_sink(path, new_backups, size, clock, output_lock), workers)
        return AuditLogs(writer, writer, writer, allowances), None
    disk = DiskBudget(
        {name: new_backups(file) for name, file in _log_paths(Path(path))}, settings.audit_disk * MEBIBYTE
    )
    sinks = {name: RotatingFile(backups, size, clock, disk.clean_up) for name, backups in disk.logs.items()}
    logs = AuditLogs(
        authenticated=build_audit_writer(sinks[USERS], workers),
        unauthenticated=build_audit_writer(sinks[UNAUTHENTICATED], workers, MAX_SIDE_LOG_QUEUE_BYTES),
        agents=build_audit_writer(sinks[AGENTS], workers, MAX_SIDE_LOG_QUEUE_BYTES),
        quotas=allowances,
    )
    return logs, disk


def _is_device(path: Path) -> bool:
    """Whether the path is a device such as /dev/null, next to which no other files should be created."""
    return path.exists() and not path.is_file() and not path.is_dir()


def _log_paths(path: Path) -> Iterator[tuple[str, Path]]:
    for name in (UNAUTHENTICATED, AGENTS):
        yield name, path.with_name(f"{path.stem}.{name}{path.suffix}")
    yield USERS, path
