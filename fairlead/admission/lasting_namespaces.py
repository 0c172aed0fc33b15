"""The namespaces that the server itself relies on cannot be deleted."""

from collections.abc import Collection

from fairlead.admission.chain import Rule, concerning
from fairlead.core.call import NAMESPACES
from fairlead.core.errors import Forbidden
from fairlead.core.objects import name_of
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry


def lasting_namespaces(names: Collection[str]) -> Rule:
    """The rule, for the namespaces that are always there."""

    @concerning(lambda kind, verb: verb == "delete" and (kind.group, kind.plural) == NAMESPACES)
    async def rule(change: Change, registry: Registry) -> None:
        name = name_of(change.obj)
        if name in names:
            raise Forbidden.of("namespaces", "", name, "this namespace may not be deleted")

    return rule
