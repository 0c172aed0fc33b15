"""The metrics of the server itself: requests, the store, the event loop, flow control, certificates.

Other features have metrics of their own. `app/http.py` builds the endpoint for all of them.
"""

from functools import partial

from fairlead.authz.scope.gateway_requests import CLUSTER, SPACE, VIRTUAL_CLUSTER
from fairlead.console.build import ASSETS_PATH, PAGES_PATH
from fairlead.controllers.runtime.leader import LEASE_NAME
from fairlead.features.contract import Feature, Services
from fairlead.server.discovery.health import HEALTH_PATHS
from fairlead.server.metrics.endpoint import METRICS_PATH
from fairlead.server.metrics.families import PlatformMetrics, event_loop_families, flow_families, request_families
from fairlead.server.metrics.installation import InstallationMetrics, reload_families
from fairlead.signin.key_login import KEY_LOGIN_ENDPOINT
from fairlead.signin.login import LOGIN_ENDPOINT
from fairlead.signin.oauth import TOKEN_ENDPOINT

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
    KEY_LOGIN_ENDPOINT[1],
    TOKEN_ENDPOINT[1],
    PAGES_PATH,
    ASSETS_PATH,
)
"""Non-resource paths with a label value of their own in the request metrics."""
GATEWAY_TYPES = {CLUSTER: "cluster", SPACE: "space", VIRTUAL_CLUSTER: "virtualcluster"}
"""The label values of gateways in the request metrics."""


def build_metrics_feature(services: Services) -> Feature:
    view = services.registry.view
    audit = services.audit
    platform = PlatformMetrics(
        revision=lambda: view.revision,
        audit_events=lambda: audit.event_count if audit is not None else 0,
        commits=services.commit_seconds,
    )
    installation = InstallationMetrics(
        is_leader=services.is_leader,
        lease=LEASE_NAME,
        certificate=services.certificate,
        data=services.settings.data,
    )
    return Feature(
        name="metrics",
        metrics=(
            partial(request_families, services.requests),
            platform.families,
            partial(event_loop_families, services.watchdog),
            partial(flow_families, services.flow.control, services.flow.clients.metrics),
            partial(reload_families, services.certificate.reloads),
            installation.families,
        ),
    )
