"""A cluster may only be given a Secret that its writer may read; otherwise it would lend out others' credentials."""

from fairlead.admission.chain import May, Rule
from fairlead.core.call import Target
from fairlead.core.errors import Forbidden
from fairlead.core.objects import dig, name_of
from fairlead.core.user import CONTROLLER
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry


def cluster_secret(may: May, api_group: str, default_namespace: str) -> Rule:
    """The rule. A reference without a namespace means `default_namespace`."""

    async def rule(change: Change, registry: Registry) -> None:
        kind = change.kind
        if (kind.group, kind.plural) != (api_group, "clusters") or change.verb == "delete" or change.user == CONTROLLER:
            return
        config = dig(change.obj, "spec.config")
        name, namespace = dig(config, "secretName"), dig(config, "secretNamespace") or default_namespace
        if not isinstance(name, str) or not name or config == dig(change.old or {}, "spec.config"):
            return
        target = Target("get", "", group="", version="v1", resource="secrets", namespace=namespace, name=name)
        if not may(change.user, target).allowed:
            why = (
                f'User "{change.user.name}" cannot read the secret "{name}" in the namespace "{namespace}"; name one '
                "that you may read, or ask for that right"
            )
            raise Forbidden.of(kind.plural, kind.group, name_of(change.obj), why)

    return rule
