"""The namespaces that the server itself relies on cannot be deleted."""

from collections.abc import Collection

from fairlead.admission.chain import Rule
from fairlead.core.call import NAMESPACES
from fairlead.core.errors import Forbidden
from fairlead.core.objects import name_of
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry


def lasting_namespaces(names: Collection[str]) -> Rule:
    """The rule, for the namespaces that are always there."""

    async def rule(change: Change, registry: Registry) -> None:
        if change.verb != "delete" or (change.kind.group, change.kind.plural) != NAMESPACES:
            return
        name = name_of(change.obj)
        if name in names:
            raise Forbidden.of("namespaces", "", name, "this namespace may not be deleted")

    return rule
