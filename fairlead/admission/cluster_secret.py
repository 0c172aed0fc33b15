"""A cluster may only be given a Secret that its writer may read; otherwise it would lend out others' credentials."""

from collections.abc import Callable

from fairlead.admission.chain import Rule
from fairlead.core.call import Target, Verdict
from fairlead.core.errors import Details, Forbidden, qualified
from fairlead.core.objects import dig, name_of
from fairlead.core.user import CONTROLLER, User
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry


def cluster_secret(may: Callable[[User, Target], Verdict], api_group: str, default_namespace: str) -> Rule:
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
            why = f'User "{change.user.name}" cannot read the secret "{name}" in the namespace "{namespace}"'
            cluster = name_of(change.obj)
            message = f'{qualified(kind.plural, kind.group)} "{cluster}" is forbidden: {why}'
            raise Forbidden(message, Details(cluster, kind.group, kind.plural))

    return rule
