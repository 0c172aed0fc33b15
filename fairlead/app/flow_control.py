"""Builds flow control: component classification, cost estimates and limits."""

from fairlead.app.worker_limits import queued_body_bytes
from fairlead.core.call import Call, RequestInfo
from fairlead.core.errors import NotAcceptable
from fairlead.core.user import User
from fairlead.kinds.clusters.cluster import AGENT
from fairlead.kinds.clusters.runner import RUNNER_COMPONENT
from fairlead.registry.registry import Registry
from fairlead.server.api.content import YAML, negotiate
from fairlead.server.auth.stages import Identify
from fairlead.server.flow.classify import ClientCache, CostEstimator
from fairlead.server.flow.control import MAX_WAIT_SECONDS, FlowControl
from fairlead.server.flow.stage import FlowDependencies, FlowServices, FlowStage
from fairlead.server.flow.streams import Pacer, StreamLimiter, StreamLimits
from fairlead.server.workers.client import CoordinatorClient
from fairlead.server.workers.coordinator import SharedLimits
from fairlead.settings import Settings

COMPONENT_PREFIXES = ((AGENT.subject_prefix, "agents"), (RUNNER_COMPONENT.subject_prefix, "runners"))
"""User name prefixes of platform components, and their flow schemas."""
PERSISTED_SUBRESOURCES = frozenset({"", "status", "finalize"})
"""Subresources that are stored with the object (empty for the object itself). Others are actions."""


def build_flow_control(
    settings: Settings, registry: Registry, identify: Identify, coordinator: CoordinatorClient | None
) -> FlowServices:
    """`coordinator` counts the streams of all workers; None in a server with one process."""
    view = registry.view
    catalog = registry.catalog

    def size(group: str, resource: str, namespace: str, name: str) -> int:
        entry = view.get((group, resource, namespace, name))
        return len(entry.body) if entry is not None else 0

    def changes_store(target: RequestInfo) -> bool:
        kind = catalog.find(target.group, target.version, target.resource)
        return kind is not None and kind.persisted and target.subresource in PERSISTED_SUBRESOURCES

    def renew(call: Call) -> None:
        if call.user is not None and call.deferred_error is None:
            call.user = identify(call)

    workers = coordinator.worker_count if coordinator is not None else 1
    control = FlowControl(
        min(settings.request_timeout / 4, MAX_WAIT_SECONDS), max_queued_bytes=queued_body_bytes(settings, workers)
    )
    clients = ClientCache(control.levels, COMPONENT_PREFIXES)
    streams: StreamLimits
    if coordinator is not None:
        streams = coordinator.limit_streams(_is_component)
    else:
        streams = StreamLimiter(settings.watches_max, settings.watches_per_user, _is_component)
    dependencies = FlowDependencies(CostEstimator(view.count, size, _read_accept), changes_store, renew, streams)
    return FlowServices(
        stage=FlowStage(control, clients, dependencies),
        control=control,
        clients=clients,
        streams=streams,
        pacer=Pacer(control, clients),
    )


def shared_limits(settings: Settings) -> SharedLimits:
    """The limits that the coordinator enforces for all workers together."""
    return SharedLimits(settings.watches_max, settings.watches_per_user)


def _is_component(user: User) -> bool:
    """Whether the user is an agent or a runner. Only these are in a group of their own name."""
    return any(user.name.startswith(prefix) and user.name in user.groups for prefix, _ in COMPONENT_PREFIXES)


def _read_accept(accept: str) -> tuple[bool, bool]:
    """Whether an Accept header asks for YAML, and whether for a Table or metadata only."""
    try:
        form = negotiate(accept)
    except NotAcceptable:
        return False, False
    return form.media_type == YAML, bool(form.as_kind)
