"""The namespaces that the server itself relies on cannot be deleted."""

from collections.abc import Collection

from fairlead.admission.chain import Rule
from fairlead.core.errors import Details, Forbidden
from fairlead.core.objects import name_of
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry


def lasting_namespaces(names: Collection[str]) -> Rule:
    """The rule, for the namespaces that are always there."""

    async def rule(change: Change, registry: Registry) -> None:
        if change.verb != "delete" or (change.kind.group, change.kind.plural) != ("", "namespaces"):
            return
        name = name_of(change.obj)
        if name in names:
            why = "this namespace may not be deleted"
            raise Forbidden(f'namespaces "{name}" is forbidden: {why}', Details(name, "", "namespaces"))

    return rule
