"""Warns at once about what the server cannot deploy because it has no Helm. The condition of the instance says so
later, and until Helm is installed."""

from collections.abc import Callable

from fairlead.admission import Rule, applies_to, is_resource
from fairlead.core.helm_program import MISSING_HELM, find_helm
from fairlead.core.objects import get_path
from fairlead.core.user import CONTROLLER_USER
from fairlead.kinds.instances.app_instance import APP_INSTANCE
from fairlead.kinds.instances.remote_instances import VIRTUAL_CLUSTER
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry


def warn_without_helm(api_group: str, find: Callable[[], str | None] = find_helm) -> Rule:
    """Warns who creates a deployed app or a virtual cluster."""

    @applies_to(
        lambda kind, verb: (
            verb == "create" and is_resource(kind, api_group, APP_INSTANCE.plural, VIRTUAL_CLUSTER.plural)
        )
    )
    async def rule(change: Change, registry: Registry) -> None:
        is_deployed = change.user != CONTROLLER_USER and not get_path(change.obj, "spec.external")
        if is_deployed and not change.subresource and find() is None:
            change.warnings.append(f"nothing is deployed yet: {MISSING_HELM}")

    return rule
