"""The audit log of this server, from its first line to its last: the log of people, and those beside it.

They lie side by side, with names that follow from `audit_path`. On the standard output, or in a device, they are one.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from fairlead.app.serving import MOUNT
from fairlead.core.clock import Clock
from fairlead.core.given import ON
from fairlead.registry.catalog import Catalog
from fairlead.server.audit.backups import Backups
from fairlead.server.audit.cluster_reports import ClusterReports
from fairlead.server.audit.files import STANDARD_OUTPUT, RotatedFile, open_sink
from fairlead.server.audit.intake import Allowances, Logs
from fairlead.server.audit.log import AuditLog
from fairlead.server.audit.policy import DEFAULT
from fairlead.server.audit.policy_file import load_policy
from fairlead.server.audit.shelf import Shelf
from fairlead.server.audit.stage import Audit
from fairlead.server.audit.trail import Trail
from fairlead.settings import Settings

MEBIBYTE = 1024 * 1024
UNAUTHENTICATED, AGENTS, PEOPLE = "unauthenticated", "agents", "people"
"""The logs, in the order in which their old files go when there is no room."""
SIDE_BYTES = 16 * MEBIBYTE
"""How much may wait to be written into one of the logs beside that of people."""


@asynccontextmanager
async def auditing(settings: Settings, catalog: Catalog, clock: Clock) -> AsyncIterator[AuditLog | None]:
    """The log while the server runs, or None where it is turned off."""
    if not settings.audit_place:
        yield None
        return
    policy = load_policy(settings.audit_policy) if settings.audit_policy else DEFAULT
    logs, shelf = _open(settings, clock)
    audit = Audit(policy, logs, catalog, clock, MOUNT)
    try:
        yield AuditLog(audit, logs, ClusterReports(logs.agents, clock), shelf, clock)
    finally:
        audit.finish()
        for trail in logs.trails:
            await trail.close()


def _open(settings: Settings, clock: Clock) -> tuple[Logs, Shelf | None]:
    allowances = Allowances(settings.audit_refused, settings.audit_reads)
    make = partial(
        Backups,
        count=settings.audit_backups,
        days=settings.audit_days,
        compress=settings.audit_compress == ON,
        days_min=settings.audit_days_min,
    )
    size, place = settings.audit_size * MEBIBYTE, settings.audit_place
    if place == STANDARD_OUTPUT or _is_special(Path(place)):
        trail = Trail(open_sink(place, make, size, clock))
        return Logs(trail, trail, trail, allowances), None
    shelf = Shelf({name: make(path) for name, path in _paths(Path(place))}, settings.audit_disk * MEBIBYTE)
    sinks = {name: RotatedFile(backups, size, clock, shelf.tidy) for name, backups in shelf.logs.items()}
    people, unauthenticated, agents = (sinks[name] for name in (PEOPLE, UNAUTHENTICATED, AGENTS))
    aside = Trail(unauthenticated, size=SIDE_BYTES), Trail(agents, size=SIDE_BYTES)
    return Logs(Trail(people), *aside, allowances), shelf


def _is_special(path: Path) -> bool:
    """Something like /dev/null, beside which no other file belongs."""
    return path.exists() and not path.is_file() and not path.is_dir()


def _paths(path: Path) -> Iterator[tuple[str, Path]]:
    for name in (UNAUTHENTICATED, AGENTS):
        yield name, path.with_name(f"{path.stem}.{name}{path.suffix}")
    yield PEOPLE, path
