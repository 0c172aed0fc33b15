"""Builds flow control: component classification, cost estimates and limits."""

from dataclasses import dataclass

from fairlead.core.call import Call, Target
from fairlead.core.errors import NotAcceptable
from fairlead.core.user import User
from fairlead.kinds.clusters.cluster import AGENT
from fairlead.kinds.clusters.runner import RUNNER_COMPONENT
from fairlead.registry.registry import Registry
from fairlead.server.api.content import YAML, chosen_form
from fairlead.server.auth.stages import Identify
from fairlead.server.flow.classify import AGENTS, RUNNERS, Clients, Costs
from fairlead.server.flow.control import LONGEST_WAIT, FlowControl
from fairlead.server.flow.stage import FlowStage, Judgement
from fairlead.server.flow.streams import Pacer, Streams
from fairlead.settings import Settings

COMPONENTS = ((AGENT.subject_prefix, AGENTS), (RUNNER_COMPONENT.subject_prefix, RUNNERS))
"""User name prefixes of platform components, and their flow schemas."""
STORED_PARTS = frozenset({"", "status", "finalize"})
"""Subresources that are stored with the object (empty for the object itself). Others are actions."""


@dataclass(frozen=True, slots=True)
class Flow:
    """The stage of the pipeline, and its parts for metrics and watches."""

    stage: FlowStage
    control: FlowControl
    clients: Clients
    streams: Streams
    pacer: Pacer


def flow_control(settings: Settings, registry: Registry, identify: Identify) -> Flow:
    view, catalog = registry.view, registry.catalog

    def size(group: str, resource: str, namespace: str, name: str) -> int:
        entry = view.get((group, resource, namespace, name))
        return len(entry.body) if entry is not None else 0

    def changes_store(target: Target) -> bool:
        kind = catalog.find(target.group, target.version, target.resource)
        return kind is not None and kind.stored and target.subresource in STORED_PARTS

    def renew(call: Call) -> None:
        if call.user is not None and call.failure is None:
            call.user = identify(call)

    control = FlowControl(min(settings.request_timeout / 4, LONGEST_WAIT))
    clients = Clients(control.levels, COMPONENTS)
    streams = Streams(settings.watches_max, settings.watches_per_key or settings.watches_per_user, _is_component)
    judgement = Judgement(Costs(view.count, size, _form), changes_store, renew, streams)
    return Flow(FlowStage(control, clients, judgement), control, clients, streams, Pacer(control, clients))


def _is_component(user: User) -> bool:
    """Whether the user is an agent or a runner. Only these are in a group of their own name."""
    return any(user.name.startswith(prefix) and user.name in user.groups for prefix, _ in COMPONENTS)


def _form(accept: str) -> tuple[bool, bool]:
    """Whether an Accept header asks for YAML, and whether for a Table or metadata only."""
    try:
        form = chosen_form(accept)
    except NotAcceptable:
        return False, False
    return form.media_type == YAML, bool(form.view)
