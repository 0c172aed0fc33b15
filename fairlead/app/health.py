"""The checks of /readyz."""

from collections.abc import Mapping

from fairlead.app.drain import Drain
from fairlead.registry.storage_errors import translate_storage_errors
from fairlead.server.audit.log import AuditLog
from fairlead.server.discovery.health import HealthCheck
from fairlead.storage.contract import Store


def build_readiness_checks(store: Store, audit: AuditLog | None, drain: Drain) -> Mapping[str, HealthCheck]:
    async def check_store() -> None:
        with translate_storage_errors():
            await store.check_writable()

    checks: dict[str, HealthCheck] = {"store": check_store}
    if audit is not None:
        checks["audit"] = audit.logs.authenticated.check_writable
    checks["shutdown"] = drain.check
    return checks
