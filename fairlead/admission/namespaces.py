"""Admission of namespaces: NamespaceLifecycle as in Kubernetes, and the namespaces of projects.

Objects are created only in namespaces that exist and are not terminating, and the server's own namespaces cannot be
deleted. The namespace of a project is created in the commit that creates the project and cannot be written separately.
A finalizer on the project stays until the project controller has seen the namespace and its content deleted.
"""

from collections.abc import Collection

from fairlead.admission import Rule, applies_to
from fairlead.core.call import NAMESPACE_RESOURCE
from fairlead.core.errors import Forbidden, NotFound, Problem
from fairlead.core.objects import Object, metadata, name_of
from fairlead.core.user import CONTROLLER_USER
from fairlead.registry.codec import decode
from fairlead.registry.kind import Change
from fairlead.registry.names import dns_label_errors
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import server_write_options
from fairlead.storage.contract import Precondition


@applies_to(lambda kind, verb: verb == "create" and kind.namespaced)
async def require_active_namespace(change: Change, registry: Registry) -> None:
    """Rejects creates in a namespace that does not exist or is terminating."""
    meta = metadata(change.obj)
    entry = registry.resource("", "namespaces").get_cached("", meta["namespace"])
    if entry is None:
        raise NotFound.of("namespaces", "", meta["namespace"])
    if b'"deletionTimestamp":' in entry.body and "deletionTimestamp" in metadata(decode(entry)):
        raise _terminating_error(change, meta["namespace"])
    # The commit must fail if the namespace starts terminating before it.
    change.preconditions.append(Precondition(entry.key, entry.revision))


def _terminating_error(change: Change, namespace: str) -> Forbidden:
    kind, name = change.kind, metadata(change.obj).get("name", "")
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    problem = Problem("metadata.namespace", "NamespaceTerminating", f"namespace {namespace} is being terminated")
    return Forbidden.of(kind.plural, kind.group, name, why, (problem,))


def protect_system_namespaces(names: Collection[str]) -> Rule:
    """Rejects the deletion of the namespaces that the server itself needs."""

    @applies_to(lambda kind, verb: verb == "delete" and (kind.group, kind.plural) == NAMESPACE_RESOURCE)
    async def rule(change: Change, registry: Registry) -> None:
        name = name_of(change.obj)
        if name in names:
            raise Forbidden.of("namespaces", "", name, "this namespace may not be deleted")

    return rule


PROJECT_FINALIZER = "service.sh/project-namespace"
PROJECT_LABEL = "service.sh/project"


def manage_project_namespace(prefix: str, api_group: str) -> Rule:
    """Creates the namespace of a new project and protects it from separate creates and deletes."""

    @applies_to(lambda kind, verb: (kind.group, kind.plural) in (NAMESPACE_RESOURCE, (api_group, "projects")))
    async def rule(change: Change, registry: Registry) -> None:
        if (change.kind.group, change.kind.plural) == NAMESPACE_RESOURCE:
            _reject_direct_write(change, registry, prefix, api_group)
        elif change.verb == "create":
            await _create_namespace(change, registry, prefix)
        elif change.verb == "update" and change.user != CONTROLLER_USER:
            _keep_finalizer(change)

    return rule


def _keep_finalizer(change: Change) -> None:
    """Keeps the finalizer on updates: without it, a deleted project would leave a namespace that no user may delete."""
    if PROJECT_FINALIZER in metadata(change.old or {}).get("finalizers", ()):
        finalizers = metadata(change.obj).setdefault("finalizers", [])
        if PROJECT_FINALIZER not in finalizers:
            finalizers.append(PROJECT_FINALIZER)


async def _create_namespace(change: Change, registry: Registry, prefix: str) -> None:
    meta = metadata(change.obj)
    if any(dns_label_errors(f"{prefix}{meta.get('name', '')}")):
        return  # validation of the project rejects the name
    finalizers = meta.setdefault("finalizers", [])
    if PROJECT_FINALIZER not in finalizers:
        finalizers.append(PROJECT_FINALIZER)
    namespace = build_namespace(prefix, meta["name"])
    change.extra_writes.append(
        await registry.resource("", "namespaces").build_create_write(namespace, server_write_options())
    )


def build_namespace(prefix: str, project: str) -> Object:
    meta = {"name": f"{prefix}{project}", "labels": {PROJECT_LABEL: project}}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}


def _reject_direct_write(change: Change, registry: Registry, prefix: str, api_group: str) -> None:
    """Rejects creating and deleting a project's namespace. The server may do both, but may delete it only after the
    project has been deleted."""
    name = name_of(change.obj)
    if not name.startswith(prefix) or change.verb == "update":
        return
    project = name.removeprefix(prefix)
    if change.user == CONTROLLER_USER and not (
        change.verb == "delete" and _is_active_project(registry, api_group, project)
    ):
        return
    why = f'it belongs to project "{project}"; {change.verb} the project instead'
    raise Forbidden.of("namespaces", "", name, why)


def _is_active_project(registry: Registry, api_group: str, project: str) -> bool:
    entry = registry.resource(api_group, "projects").get_cached("", project)
    return entry is not None and "deletionTimestamp" not in metadata(decode(entry))
