"""A virtual cluster may only be given a kubeconfig out of a Secret that its writer may read.

Otherwise whoever may make instances could go through the gateway with credentials of others in the project.
"""

from fairlead.admission.chain import May, Rule, concerning, is_one_of
from fairlead.core.call import Target
from fairlead.core.errors import Forbidden
from fairlead.core.objects import dig, metadata, name_of
from fairlead.core.user import CONTROLLER
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry


def virtual_cluster_secret(may: May, api_group: str) -> Rule:
    """The rule, for the API group that this server uses."""

    @concerning(lambda kind, verb: verb != "delete" and is_one_of(kind, api_group, "virtualclusterinstances"))
    async def rule(change: Change, registry: Registry) -> None:
        kind = change.kind
        name, namespace = dig(change.obj, "spec.config.secretName"), str(metadata(change.obj).get("namespace") or "")
        if change.user == CONTROLLER or not isinstance(name, str) or not name:
            return
        if dig(change.obj, "spec.config") == dig(change.old or {}, "spec.config"):
            return
        target = Target("get", "", group="", version="v1", resource="secrets", namespace=namespace, name=name)
        if not may(change.user, target).allowed:
            why = (
                f'User "{change.user.name}" cannot read the secret "{name}" in the namespace "{namespace}"; name one '
                "that you may read, or ask for that right"
            )
            raise Forbidden.of(kind.plural, kind.group, name_of(change.obj), why)

    return rule
