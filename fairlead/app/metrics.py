"""Builds the metrics of the requests, the store, the audit log, flow control, single sign-on and the installation."""

from functools import partial
from typing import TYPE_CHECKING

from fairlead.app.auth import Auth
from fairlead.app.flow_control import FlowServices
from fairlead.console.build import ASSETS_PATH, PAGES_PATH
from fairlead.controllers.runtime.leader import LEASE_NAME
from fairlead.kinds.clusters.runner import RUNNERS, describe_status
from fairlead.registry.codec import decode
from fairlead.registry.registry import Registry
from fairlead.server.auth.login import LOGIN_ENDPOINT
from fairlead.server.auth.oauth import TOKEN_ENDPOINT
from fairlead.server.discovery.health import HEALTH_PATHS
from fairlead.server.metrics.endpoint import METRICS_PATH, MetricsEndpoint
from fairlead.server.metrics.families import (
    PlatformMetrics,
    event_loop_families,
    flow_families,
    request_families,
    sign_on_families,
)
from fairlead.server.metrics.installation import InstallationMetrics, reload_families
from fairlead.server.metrics.stage import LabelResolver, RequestMetrics
from fairlead.settings import Settings

if TYPE_CHECKING:
    from fairlead.app.http import HandlerDependencies

LABELLED_PATHS = (
    *HEALTH_PATHS,
    "/",
    "/version",
    METRICS_PATH,
    "/api",
    "/apis",
    "/openapi/v2",
    "/openapi/v3",
    LOGIN_ENDPOINT[1],
    TOKEN_ENDPOINT[1],
    PAGES_PATH,
    ASSETS_PATH,
)
"""Non-resource paths with a label value of their own in the request metrics."""


def build_metrics(
    settings: Settings, registry: Registry, auth: Auth, deps: "HandlerDependencies", flow: FlowServices
) -> tuple[RequestMetrics, MetricsEndpoint]:
    """The metrics stage, and the metrics endpoint."""
    view, clusters, audit = registry.view, (settings.api_group, "clusters"), deps.audit
    requests = RequestMetrics(LabelResolver(registry.catalog, LABELLED_PATHS))
    platform = PlatformMetrics(
        phases=lambda: [entry.fields.get("status.phase", "") for entry in view.entries(*clusters)],
        revision=lambda: view.revision,
        audit_events=lambda: audit.event_count if audit is not None else 0,
        commits=deps.commit_seconds,
    )
    audit_families = (audit.families,) if audit is not None else ()
    loop_families = partial(event_loop_families, deps.watchdog)
    fairness_families = partial(flow_families, flow.control, flow.clients.metrics)
    installation = _build_installation_metrics(settings, registry, deps)
    certificate_families = partial(reload_families, deps.certificate.reloads)
    sign_ons = partial(sign_on_families, auth.sign_on.counters)
    others = (
        *(loop_families, fairness_families, sign_ons, certificate_families),
        *(installation.families, *audit_families),
    )
    sources = (lambda: request_families(requests), platform.families, *others)
    endpoint = MetricsEndpoint(sources, deps.coordinator)
    if deps.coordinator is not None:
        deps.coordinator.provide_metrics(endpoint.encode_page)
    return requests, endpoint


def _build_installation_metrics(
    settings: Settings, registry: Registry, deps: "HandlerDependencies"
) -> InstallationMetrics:
    view, runners = registry.view, (settings.api_group, RUNNERS)
    return InstallationMetrics(
        runner_statuses=lambda: [describe_status(decode(entry)) for entry in view.entries(*runners)],
        is_leader=deps.is_leader,
        lease=LEASE_NAME,
        certificate=deps.certificate,
        data=settings.data,
    )
