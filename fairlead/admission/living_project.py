"""Nothing new is made in a project that is being deleted.

Its namespace goes last, after the instances that still need what is in there, so until then only this rule keeps
people from filling what is being emptied. What comes in through the last gap is found when the namespace is emptied.
"""

from fairlead.admission.chain import Rule, concerning
from fairlead.core.errors import Forbidden
from fairlead.core.objects import metadata, name_of
from fairlead.registry.kind import Change
from fairlead.registry.record import decode
from fairlead.registry.registry import Registry


def living_project(api_group: str, prefix: str) -> Rule:
    """The rule, for the management kinds; others go by the namespace."""

    @concerning(lambda kind, verb: verb == "create" and kind.group == api_group and kind.namespaced)
    async def rule(change: Change, registry: Registry) -> None:
        namespace = metadata(change.obj).get("namespace", "")
        project = namespace.removeprefix(prefix)
        if project == namespace:
            return
        entry = registry.resource(api_group, "projects").peek("", project)
        if entry is not None and "deletionTimestamp" in metadata(decode(entry)):
            why = f'project "{project}" is being deleted; use another one, or wait and create it again'
            raise Forbidden.of(change.kind.plural, change.kind.group, name_of(change.obj), why)

    return rule
