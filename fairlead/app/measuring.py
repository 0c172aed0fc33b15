"""What is counted, and where the numbers are that nobody has to count."""

from functools import partial

from fairlead.app.flow import Flow
from fairlead.registry.registry import Registry
from fairlead.server.audit.log import AuditLog
from fairlead.server.event_loop import Watchdog
from fairlead.server.health import HEALTH_PATHS
from fairlead.server.login import LOGIN
from fairlead.server.metrics.endpoint import PATH, Metrics
from fairlead.server.metrics.event_loop import event_loop_families
from fairlead.server.metrics.flow import flow_families
from fairlead.server.metrics.histogram import Histogram
from fairlead.server.metrics.labels import Known
from fairlead.server.metrics.platform import Platform
from fairlead.server.metrics.requests import request_families
from fairlead.server.metrics.stage import Requests
from fairlead.settings import Settings

PATHS = (*HEALTH_PATHS, "/", "/version", PATH, "/api", "/apis", "/openapi/v2", "/openapi/v3", LOGIN[1])
"""What is told apart beside resources."""


def measuring(
    settings: Settings,
    registry: Registry,
    audit: AuditLog | None,
    commits: Histogram,
    watchdog: Watchdog,
    flow: Flow,
) -> tuple[Requests, Metrics]:
    """The stage that counts, and what tells it."""
    view, clusters = registry.view, (settings.api_group, "clusters")
    requests = Requests(Known(registry.catalog, PATHS), note=watchdog.note)
    platform = Platform(
        phases=lambda: [entry.fields.get("status.phase", "") for entry in view.entries(*clusters)],
        revision=lambda: view.revision,
        audit_events=lambda: audit.events if audit is not None else 0,
        commits=commits,
    )
    of_audit = (audit.families,) if audit is not None else ()
    of_loop = partial(event_loop_families, watchdog)
    of_flow = partial(flow_families, flow.control, flow.clients.tallies)
    sources = (lambda: request_families(requests), platform.families, of_loop, of_flow, *of_audit)
    return requests, Metrics(sources)
