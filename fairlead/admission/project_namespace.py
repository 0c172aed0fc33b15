"""A project's namespace comes and goes with the project, and not by itself.

Creating a project creates the namespace in the same commit. Deleting one leaves a finalizer behind, which the project
controller takes off when the namespace and all that was in it are gone.
"""

from fairlead.admission.chain import Rule, concerning
from fairlead.core.call import NAMESPACES
from fairlead.core.errors import Forbidden
from fairlead.core.objects import Object, metadata, name_of
from fairlead.core.user import CONTROLLER
from fairlead.registry.kind import Change
from fairlead.registry.names import label_faults
from fairlead.registry.record import decode
from fairlead.registry.registry import Registry
from fairlead.registry.writing import by_the_server

FINALIZER = "service.sh/project-namespace"
PROJECT_LABEL = "service.sh/project"


def project_namespace(prefix: str, api_group: str) -> Rule:
    """The rule, for the namespace prefix and API group that this server uses."""

    @concerning(lambda kind, verb: (kind.group, kind.plural) in (NAMESPACES, (api_group, "projects")))
    async def rule(change: Change, registry: Registry) -> None:
        if (change.kind.group, change.kind.plural) == NAMESPACES:
            _leave_to_project(change, registry, prefix, api_group)
        elif change.verb == "create":
            await _create_namespace(change, registry, prefix)
        elif change.verb == "update" and change.user != CONTROLLER:
            _keep_finalizer(change)

    return rule


def _keep_finalizer(change: Change) -> None:
    """Without it the project could go and leave behind a namespace that nobody may delete."""
    if FINALIZER in metadata(change.old or {}).get("finalizers", ()):
        finalizers = metadata(change.obj).setdefault("finalizers", [])
        if FINALIZER not in finalizers:
            finalizers.append(FINALIZER)


async def _create_namespace(change: Change, registry: Registry, prefix: str) -> None:
    meta = metadata(change.obj)
    if any(label_faults(f"{prefix}{meta.get('name', '')}")):
        return  # the project's own checks say what is wrong with its name
    finalizers = meta.setdefault("finalizers", [])
    if FINALIZER not in finalizers:
        finalizers.append(FINALIZER)
    namespace = build_namespace(prefix, meta["name"])
    change.also.append(await registry.resource("", "namespaces").draft(namespace, by_the_server()))


def build_namespace(prefix: str, project: str) -> Object:
    meta = {"name": f"{prefix}{project}", "labels": {PROJECT_LABEL: project}}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}


def _leave_to_project(change: Change, registry: Registry, prefix: str, api_group: str) -> None:
    """Not even the server deletes the namespace of a project that is there to stay."""
    name = name_of(change.obj)
    if not name.startswith(prefix) or change.verb == "update":
        return
    project = name.removeprefix(prefix)
    if change.user == CONTROLLER and not (change.verb == "delete" and _is_living(registry, api_group, project)):
        return
    why = f'it comes and goes with project "{project}"; {change.verb} the project instead'
    raise Forbidden.of("namespaces", "", name, why)


def _is_living(registry: Registry, api_group: str, project: str) -> bool:
    entry = registry.resource(api_group, "projects").peek("", project)
    return entry is not None and "deletionTimestamp" not in metadata(decode(entry))
