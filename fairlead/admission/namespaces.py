"""Objects are only made in namespaces that exist and are not about to go."""

from collections.abc import Collection

from fairlead.admission import Rule, concerning
from fairlead.core.call import NAMESPACES
from fairlead.core.errors import Forbidden, NotFound, Problem
from fairlead.core.objects import Object, metadata, name_of
from fairlead.core.user import CONTROLLER
from fairlead.registry.codec import decode
from fairlead.registry.kind import Change
from fairlead.registry.names import label_faults
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import by_the_server
from fairlead.storage.contract import Check


@concerning(lambda kind, verb: verb == "create" and kind.namespaced)
async def living_namespace(change: Change, registry: Registry) -> None:
    meta = metadata(change.obj)
    entry = registry.resource("", "namespaces").peek("", meta["namespace"])
    if entry is None:
        raise NotFound.of("namespaces", "", meta["namespace"])
    if b'"deletionTimestamp":' in entry.body and "deletionTimestamp" in metadata(decode(entry)):
        raise _terminating(change, meta["namespace"])
    # The namespace could begin to end between this look and the commit; then the commit must not happen either.
    change.checks.append(Check(entry.key, entry.revision))


def _terminating(change: Change, namespace: str) -> Forbidden:
    kind, name = change.kind, metadata(change.obj).get("name", "")
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    problem = Problem("metadata.namespace", "NamespaceTerminating", f"namespace {namespace} is being terminated")
    return Forbidden.of(kind.plural, kind.group, name, why, (problem,))


# DOC-MERGED admission/lasting_namespaces
# The namespaces that the server itself relies on cannot be deleted.


def lasting_namespaces(names: Collection[str]) -> Rule:
    """The rule, for the namespaces that are always there."""

    @concerning(lambda kind, verb: verb == "delete" and (kind.group, kind.plural) == NAMESPACES)
    async def rule(change: Change, registry: Registry) -> None:
        name = name_of(change.obj)
        if name in names:
            raise Forbidden.of("namespaces", "", name, "this namespace may not be deleted")

    return rule


# DOC-MERGED admission/project_namespace
# A project's namespace comes and goes with the project, and not by itself.
#
# Creating a project creates the namespace in the same commit. Deleting one leaves a finalizer behind, which the project
# controller takes off when the namespace and all that was in it are gone.


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
