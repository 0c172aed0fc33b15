"""The audit log of this server, from its first line to its last."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from fairlead.app.serving import MOUNT
from fairlead.core.clock import Clock
from fairlead.core.given import ON
from fairlead.registry.catalog import Catalog
from fairlead.server.audit.backups import Backups
from fairlead.server.audit.files import open_sink
from fairlead.server.audit.policy import DEFAULT
from fairlead.server.audit.policy_file import load_policy
from fairlead.server.audit.stage import Audit
from fairlead.server.audit.trail import Trail
from fairlead.settings import Settings

MEBIBYTE = 1024 * 1024


@asynccontextmanager
async def auditing(settings: Settings, catalog: Catalog, clock: Clock) -> AsyncIterator[tuple[Audit, Trail] | None]:
    """The log while the server runs, or None where it is turned off."""
    if not settings.audit_place:
        yield None
        return
    policy = load_policy(settings.audit_policy) if settings.audit_policy else DEFAULT
    backups = partial(
        Backups, count=settings.audit_backups, days=settings.audit_days, compress=settings.audit_compress == ON
    )
    trail = Trail(open_sink(settings.audit_place, backups, settings.audit_size * MEBIBYTE, clock))
    audit = Audit(policy, trail, catalog, clock, MOUNT)
    try:
        yield audit, trail
    finally:
        audit.finish()
        await trail.close()
