"""The audit log. `app/audit.py` opens it; the stage that writes it is part of the pipeline."""

from fairlead.features.contract import Feature, Services
from fairlead.server.audit.log_reader import AuditLogReader
from fairlead.storage.open import is_shared
from fairlead.subresources.audit_events import AuditEventSources, audit_event_handlers


def build_audit_feature(services: Services) -> Feature:
    """The search in the log. Without a log, it finds nothing."""
    audit = services.audit
    sources = AuditEventSources(
        audit.reader if audit is not None else AuditLogReader(()),
        services.flow.streams,
        services.registry.clock,
        services.auth.authorizer.is_within_scope,
        services.settings.watch_timeout_min,
        services.settings.namespace_prefix,
        has_replicas=is_shared(services.settings.store_url),
    )
    handlers = audit_event_handlers(services.api_group, sources)
    if audit is None:
        return Feature(name="audit", handlers=handlers)
    audit.stage.set_minimum_level(services.auth.dynamic_config.audit_level)
    return Feature(
        name="audit",
        handlers=handlers,
        metrics=(audit.families,),
        health_checks={"audit": audit.logs.authenticated.check_writable},
    )
