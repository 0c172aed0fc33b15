"""Admission of namespaces: NamespaceLifecycle as in Kubernetes, and the namespaces of projects.

Objects are created only in namespaces that exist and are not terminating, and the server's own namespaces cannot be
deleted. The namespace of a project is created in the commit that creates the project and cannot be written separately.
A finalizer on the project stays until the project controller has seen the namespace and its content deleted.
"""

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
    """Rejects creates in a namespace that does not exist or is terminating."""
    meta = metadata(change.obj)
    entry = registry.resource("", "namespaces").peek("", meta["namespace"])
    if entry is None:
        raise NotFound.of("namespaces", "", meta["namespace"])
    if b'"deletionTimestamp":' in entry.body and "deletionTimestamp" in metadata(decode(entry)):
        raise _terminating(change, meta["namespace"])
    # The commit must fail if the namespace starts terminating before it.
    change.checks.append(Check(entry.key, entry.revision))


def _terminating(change: Change, namespace: str) -> Forbidden:
    kind, name = change.kind, metadata(change.obj).get("name", "")
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    problem = Problem("metadata.namespace", "NamespaceTerminating", f"namespace {namespace} is being terminated")
    return Forbidden.of(kind.plural, kind.group, name, why, (problem,))


def lasting_namespaces(names: Collection[str]) -> Rule:
    """Rejects the deletion of the namespaces that the server itself needs."""

    @concerning(lambda kind, verb: verb == "delete" and (kind.group, kind.plural) == NAMESPACES)
    async def rule(change: Change, registry: Registry) -> None:
        name = name_of(change.obj)
        if name in names:
            raise Forbidden.of("namespaces", "", name, "this namespace may not be deleted")

    return rule


FINALIZER = "service.sh/project-namespace"
PROJECT_LABEL = "service.sh/project"


def project_namespace(prefix: str, api_group: str) -> Rule:
    """Creates the namespace of a new project and protects it from separate creates and deletes."""

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
    """Keeps the finalizer on updates: without it, a deleted project would leave a namespace that no user may delete."""
    if FINALIZER in metadata(change.old or {}).get("finalizers", ()):
        finalizers = metadata(change.obj).setdefault("finalizers", [])
        if FINALIZER not in finalizers:
            finalizers.append(FINALIZER)


async def _create_namespace(change: Change, registry: Registry, prefix: str) -> None:
    meta = metadata(change.obj)
    if any(label_faults(f"{prefix}{meta.get('name', '')}")):
        return  # validation of the project rejects the name
    finalizers = meta.setdefault("finalizers", [])
    if FINALIZER not in finalizers:
        finalizers.append(FINALIZER)
    namespace = build_namespace(prefix, meta["name"])
    change.also.append(await registry.resource("", "namespaces").draft(namespace, by_the_server()))


def build_namespace(prefix: str, project: str) -> Object:
    meta = {"name": f"{prefix}{project}", "labels": {PROJECT_LABEL: project}}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}


def _leave_to_project(change: Change, registry: Registry, prefix: str, api_group: str) -> None:
    """Rejects creating and deleting a project's namespace. The server may do both, but may delete it only after the
    project has been deleted."""
    name = name_of(change.obj)
    if not name.startswith(prefix) or change.verb == "update":
        return
    project = name.removeprefix(prefix)
    if change.user == CONTROLLER and not (change.verb == "delete" and _is_living(registry, api_group, project)):
        return
    why = f'it belongs to project "{project}"; {change.verb} the project instead'
    raise Forbidden.of("namespaces", "", name, why)


def _is_living(registry: Registry, api_group: str, project: str) -> bool:
    entry = registry.resource(api_group, "projects").peek("", project)
    return entry is not None and "deletionTimestamp" not in metadata(decode(entry))
