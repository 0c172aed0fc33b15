"""Admission of objects in projects: no creates while the project is being deleted, and its allow lists.

The namespace of a project is deleted last, after the instances that need its content, so until then only
`require_active_project` prevents new objects. A create that races with the deletion is cleaned up with the namespace.

Allow lists (`allow_lists.py`) are checked when an object is created, and when it is changed to use something else. What
was allowed before may stay. They apply to all users, including administrators.
"""

from fairlead.admission import Rule, concerning, is_one_of
from fairlead.admission.allow_lists import CLUSTERS, USES, ClusterUse, Use, allowed_names, is_allowed, suggest
from fairlead.core.errors import Forbidden
from fairlead.core.objects import dig, metadata, name_of
from fairlead.registry.codec import decode
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry


def living_project(api_group: str, prefix: str) -> Rule:
    """Rejects creates of management kinds in a project that is being deleted; other kinds depend on the namespace."""

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


SHOWN = 10
"""How many names of an allow list an error message contains."""


def allowed(api_group: str, prefix: str, cluster_use: ClusterUse | None = None) -> Rule:
    """Rejects instances that use a cluster, template or runner that their project does not allow."""

    @concerning(lambda kind, verb: verb != "delete" and is_one_of(kind, api_group, *USES))
    async def rule(change: Change, registry: Registry) -> None:
        if change.subresource:
            return
        uses = [use for use in USES[change.kind.plural] if _is_new(change, use)]
        namespace = metadata(change.obj).get("namespace", "")
        if not uses or not namespace.startswith(prefix):
            return
        project = namespace.removeprefix(prefix)
        entry = registry.resource(api_group, "projects").peek("", project)
        if entry is None:
            return
        lists = decode(entry)
        for use in uses:
            names = allowed_names(lists, use.field, use.kind, api_group)
            if names is None and use.field == CLUSTERS and cluster_use is not None:
                if why := cluster_use.judge(change, registry, project, dig(change.obj, use.path)):
                    raise Forbidden.of(change.kind.plural, change.kind.group, name_of(change.obj), why)
            elif names is not None and not is_allowed(names, dig(change.obj, use.path)):
                raise _refused(change, use, project, names)

    return rule


def _is_new(change: Change, use: Use) -> bool:
    """Whether the change sets the field to another name. Schema validation rejects anything that is not a string."""
    name = dig(change.obj, use.path)
    return isinstance(name, str) and name != "" and name != dig(change.old, use.path)


def _refused(change: Change, use: Use, project: str, names: list[str]) -> Forbidden:
    listed = ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
    choice = f"allowed here: {listed}" if names else f"the project allows no {use.word} at all"
    why = (
        f'project "{project}" does not allow the {use.word} "{dig(change.obj, use.path)}" ({use.path}); {choice}; '
        f"choose an allowed one, or have it added to spec.{use.field} of the project"
    )
    if use.field == CLUSTERS:
        entry = f'{{"op":"add","path":"/spec/allowedClusters/-","value":{{"name":"{dig(change.obj, use.path)}"}}}}'
        why += suggest(project, f"[{entry}]", "json", dig(change.obj, use.path))
    return Forbidden.of(change.kind.plural, change.kind.group, name_of(change.obj), why)
