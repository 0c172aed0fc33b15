"""Admission of instances: those without a template or chart, outside of projects, remote access, and abandoning.

- An instance without a template, or with an inline one, can be anything. Unless the project allows that to all members,
  it needs the permission to create `<plural>/restricted`.
- A virtual cluster that the server is to deploy needs a definition with a chart. The source of an imported one needs
  `use` on its cluster.
- An instance in a namespace of no project gets a warning: nothing is deployed for it.
- Cluster roles that a space grants in the remote cluster must be in the setting `space_roles` or come from a template.
  Choosing the remote namespace needs `<plural>/restricted` as well: otherwise it could take a name that is meant for
  another instance. Values that were set before may stay.
- The annotation `service.sh/abandon` removes an instance without deleting its remote objects, which then no longer
  count towards any quota. It needs the permission to update the Cluster. Imported virtual clusters are exempt: they run
  in no cluster of this server. So are apps in spaces and virtual clusters.

Owners of instances are in `instance_owners.py`, their parameters in `parameters.py`.
"""

from collections.abc import Collection
from typing import Any

from fairlead.admission import Rule, applies_to, forbidden, invalid, is_resource
from fairlead.admission.projects import find_project
from fairlead.admission.restricted import RESTRICTED_SUBRESOURCE, may_create_restricted
from fairlead.admission.secret_references import writer_name
from fairlead.core.call import Authorize, RequestInfo
from fairlead.core.errors import Forbidden, Problem
from fairlead.core.objects import Object, get_path, metadata, name_of
from fairlead.core.user import CONTROLLER_USER
from fairlead.domain.import_sources import (
    IMPORT_SOURCE_ANNOTATION,
    IMPORT_WRITER_ANNOTATION,
    import_source_text,
    import_writer,
    parse_import_source,
)
from fairlead.domain.template_resolution import ResolutionError, find_definition
from fairlead.domain.typed_objects import ABANDON_ANNOTATION, Cluster, VirtualClusterInstance
from fairlead.kinds import CLUSTER_INSTANCES, INSTANCES, TEMPLATE_INSTANCES
from fairlead.kinds.instances.app_instance import APP_INSTANCE
from fairlead.kinds.instances.remote_instances import SPACE, VIRTUAL_CLUSTER
from fairlead.registry.codec import decode
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry

DEFAULT_SPACE_ROLES = frozenset({"view", "edit", "admin"})
"""The user-facing roles that every Kubernetes cluster has."""


def require_template(authorize: Authorize, api_group: str, prefix: str) -> Rule:
    """Restricts instances without a template. `prefix` is that of project namespaces."""

    @applies_to(lambda kind, verb: verb != "delete" and is_resource(kind, api_group, *TEMPLATE_INSTANCES))
    async def rule(change: Change, registry: Registry) -> None:
        if change.subresource or change.user == CONTROLLER_USER or not _bypasses_template(change):
            return
        project = find_project(change, registry, (api_group, prefix))
        if get_path(project, "spec.requireTemplate.disabled") is not True:
            _require_restricted(change, authorize)

    return rule


def _bypasses_template(change: Change) -> bool:
    """Whether the change sets content that no stored template defines. Content that was set before may stay."""
    after = _template_source(change.obj)
    name, template, _ = after
    if name and not template:
        return False
    return change.old is None or after != _template_source(change.old)


def _template_source(instance: Object) -> tuple[Any, Any, Any]:
    template = get_path(instance, "spec.template") or None
    # A stored template validates its parameters; for an inline one they are unrestricted content.
    parameters = (get_path(instance, "spec.parameters") or None) if template else None
    return get_path(instance, "spec.templateRef.name") or None, template, parameters


def _require_restricted(change: Change, authorize: Authorize) -> None:
    if not may_create_restricted(change, authorize):
        kind, namespace = change.kind, str(metadata(change.obj).get("namespace") or "")
        rest = " and leave spec.template out" if get_path(change.obj, "spec.template") else ""
        preset = get_path(change.obj, "spec.presetRef.name")
        hint = f'; the preset "{preset}" does not exist, or gives no template' if preset and not rest else ""
        why = (
            f'User "{change.user.name}" cannot create {kind.plural}/{RESTRICTED_SUBRESOURCE} in the namespace '
            f'"{namespace}"; '
            f"name a template in spec.templateRef.name{rest}, or ask for that permission{hint}"
        )
        raise Forbidden.of(kind.plural, kind.group, name_of(change.obj), why)


def require_chart(api_group: str) -> Rule:
    """Rejects a virtual cluster that the server would have to deploy without a chart. A definition that cannot be found
    is reported in a condition: manifests are applied in any order."""

    @applies_to(lambda kind, verb: verb != "delete" and is_resource(kind, api_group, VIRTUAL_CLUSTER.plural))
    async def rule(change: Change, registry: Registry) -> None:
        if change.subresource or change.user == CONTROLLER_USER or change.is_move or change.problems:
            return
        if change.old is not None and _deployment_source(change.old) == _deployment_source(change.obj):
            return
        instance = VirtualClusterInstance(change.obj)
        if instance.is_deployed_elsewhere or not _is_connected(instance.cluster, registry, api_group):
            return
        templates = TEMPLATE_INSTANCES[VIRTUAL_CLUSTER.plural].templates
        entry = registry.resource(api_group, templates).get_cached("", instance.template_name)
        try:
            definition = find_definition(change.obj, decode(entry) if entry is not None else None)
        except ResolutionError:
            return
        if not get_path(definition.template, "helmRelease.chart.name"):
            raise invalid(change, _no_chart_problem(instance))

    return rule


def _deployment_source(instance: Object) -> tuple[Any, ...]:
    """What decides whether the server deploys a virtual cluster, and which chart."""
    fields = ("templateRef", "template", "clusterRef.cluster", "config", "external", "networkPeer")
    return tuple(get_path(instance, f"spec.{each}") or None for each in fields)


def _is_connected(cluster: str, registry: Registry, api_group: str) -> bool:
    """Whether this server connects to the cluster, and so deploys into it."""
    entry = registry.resource(api_group, "clusters").get_cached("", cluster) if cluster else None
    return entry is not None and Cluster(decode(entry)).has_transport


def _no_chart_problem(instance: VirtualClusterInstance) -> Problem:
    advice = (
        "so there is nothing to deploy; name a template with a chart, or import a running virtual cluster with "
        "`fairlead vcluster import`"
    )
    if instance.template_name:
        why = f"this template names no chart in helmRelease.chart, {advice}"
        return Problem.invalid("spec.templateRef.name", instance.template_name, why)
    return Problem.required("spec.templateRef.name", f"no template is named, {advice}")


def check_import_source(authorize: Authorize, api_group: str) -> Rule:
    """Checks the annotation that names where an imported virtual cluster runs, which the server then connects through:
    its form, and that the requester may use the cluster. Records the requester, who has to have that permission as long
    as the annotation is there."""

    @applies_to(lambda kind, verb: verb != "delete" and is_resource(kind, api_group, VIRTUAL_CLUSTER.plural))
    async def rule(change: Change, registry: Registry) -> None:
        text = import_source_text(change.new)
        if change.subresource or change.user == CONTROLLER_USER or change.is_move:
            return
        if not text or text == import_source_text(change.old):
            _set_import_writer(change, import_writer(change.old) if text else "")
            return
        field = f"metadata.annotations[{IMPORT_SOURCE_ANNOTATION}]"
        source = parse_import_source(text)
        if source is None:
            problem = Problem.invalid(field, text, "must be CLUSTER/NAMESPACE/RELEASE")
            raise invalid(change, problem)
        if not get_path(change.obj, "spec.config.secretName"):
            problem = Problem.forbidden(field, "is only for imported virtual clusters; set spec.config, or remove it")
            raise invalid(change, problem)
        target = RequestInfo(verb="use", group=api_group, version="v1", resource="clusters", name=source.cluster)
        if not authorize(change.user, target).allowed:
            why = (
                f'User "{change.user.name}" may not use the cluster "{source.cluster}", through which the virtual '
                "cluster would be reached; ask for an entry in its spec.access with the verbs get and use"
            )
            raise forbidden(change, why)
        _set_import_writer(change, writer_name(change.user))

    return rule


def _set_import_writer(change: Change, writer: str) -> None:
    """Other values are replaced without a warning: clients send back what they have read before."""
    if import_writer(change.obj) == writer:
        return
    meta = metadata(change.obj)
    others = {key: value for key, value in meta["annotations"].items() if key != IMPORT_WRITER_ANNOTATION}
    meta["annotations"] = {**others, IMPORT_WRITER_ANNOTATION: writer} if writer else others
    if not meta["annotations"]:
        del meta["annotations"]


def warn_outside_of_projects(api_group: str, prefix: str) -> Rule:
    """Warns about an instance in a namespace of no project: nothing is deployed for it. A runner runs workspaces that
    name it in any namespace."""

    @applies_to(lambda kind, verb: verb == "create" and is_resource(kind, api_group, *INSTANCES))
    async def rule(change: Change, registry: Registry) -> None:
        namespace = str(metadata(change.obj).get("namespace") or "")
        if change.user == CONTROLLER_USER or get_path(change.obj, "spec.runnerRef.runner"):
            return
        if not namespace.startswith(prefix):
            change.warnings.append(
                f'namespace "{namespace}" belongs to no project, so nothing runs or is deployed for this '
                f"{INSTANCES[change.kind.plural].noun}; create it in the namespace of a project, {prefix}<project>"
            )

    return rule


def restrict_remote_access(authorize: Authorize, api_group: str, roles: Collection[str] = DEFAULT_SPACE_ROLES) -> Rule:
    """Restricts cluster roles and the namespace in the remote cluster. Any writer of a space may grant `roles`."""

    @applies_to(lambda kind, verb: verb != "delete" and is_resource(kind, api_group, *CLUSTER_INSTANCES))
    async def rule(change: Change, registry: Registry) -> None:
        if change.subresource or change.user == CONTROLLER_USER or change.new is None:
            return
        old = change.old or {}
        if change.kind.plural == SPACE.plural:
            denied = sorted(_granted_cluster_roles(change.new) - _granted_cluster_roles(old) - set(roles))
            if denied:
                raise _role_denied_error(change, denied[0], roles)
        if change.is_move:
            return  # it keeps its namespace
        namespace = get_path(change.new, "spec.clusterRef.namespace")
        if (
            namespace
            and namespace != get_path(old, "spec.clusterRef.namespace")
            and not may_create_restricted(change, authorize)
        ):
            advice = "leave it out, so that the server chooses one, or ask for that permission"
            raise _restricted_error(change, "setting spec.clusterRef.namespace", advice)

    return rule


def _granted_cluster_roles(instance: Object) -> set[str]:
    """The cluster roles that the instance itself grants, without those of a stored template."""
    granted = [
        *_rule_cluster_roles(get_path(instance, "spec.extraAccessRules")),
        *_rule_cluster_roles(get_path(instance, "spec.template.access.rules")),
    ]
    granted.append(get_path(instance, "spec.template.access.defaultClusterRole"))
    return {role for role in granted if isinstance(role, str) and role}


def _rule_cluster_roles(rules: Any) -> list[Any]:
    """The cluster roles of access rules. Schema validation rejects anything that is not a list of rules."""
    return [each.get("clusterRole") for each in rules if isinstance(each, dict)] if isinstance(rules, list) else []


def _role_denied_error(change: Change, role: str, roles: Collection[str]) -> Forbidden:
    why = (
        f'the cluster role "{role}" cannot be granted in spec.extraAccessRules or spec.template.access; use '
        f"{', '.join(sorted(roles))}, have an administrator add it to a template, or have it added to the setting "
        "space_roles"
    )
    return forbidden(change, why)


def _restricted_error(change: Change, action: str, advice: str) -> Forbidden:
    kind, namespace = change.kind, str(metadata(change.obj).get("namespace") or "")
    right = f'create {kind.plural}/{RESTRICTED_SUBRESOURCE} in the namespace "{namespace}"'
    why = f'User "{change.user.name}" cannot {right}, which {action} needs; {advice}'
    return Forbidden.of(kind.plural, kind.group, name_of(change.obj), why)


def check_abandon(authorize: Authorize, api_group: str) -> Rule:
    """Setting the annotation `service.sh/abandon` needs the permission to update the Cluster."""
    plurals = (*CLUSTER_INSTANCES, APP_INSTANCE.plural)

    @applies_to(lambda kind, verb: verb != "delete" and is_resource(kind, api_group, *plurals))
    async def rule(change: Change, registry: Registry) -> None:
        if change.user == CONTROLLER_USER or change.is_move or not _has_abandon_annotation(change.obj):
            return
        cluster = get_path(change.obj, _cluster_field(change))
        if (
            _has_abandon_annotation(change.old)
            and cluster == get_path(change.old, _cluster_field(change))
            and not _stops_being_imported(change)
        ):
            return
        if not cluster and change.kind.plural == APP_INSTANCE.plural:
            return  # what it leaves behind is in a space or virtual cluster of the project
        if (not isinstance(cluster, str) or not cluster) and get_path(change.obj, "spec.config.secretName"):
            return  # imported: it runs in no cluster of this server
        cluster = cluster if isinstance(cluster, str) else ""
        target = RequestInfo(verb="update", group=api_group, version="v1", resource="clusters", name=cluster)
        if not authorize(change.user, target).allowed:
            where = f'the cluster "{cluster}"' if cluster else "clusters"
            why = (
                f'User "{change.user.name}" may not update {where}, and the annotation {ABANDON_ANNOTATION} needs '
                "that permission "
                "because it leaves objects behind there; delete without it, or have an administrator of the cluster "
                "set it"
            )
            raise forbidden(change, why)

    return rule


def _cluster_field(change: Change) -> str:
    return "spec.target.cluster.name" if change.kind.plural == APP_INSTANCE.plural else "spec.clusterRef.cluster"


def _stops_being_imported(change: Change) -> bool:
    """Whether the change turns an imported instance into one that the server deploys to a cluster."""
    was_imported, is_imported = (bool(get_path(each, "spec.config.secretName")) for each in (change.old, change.obj))
    return was_imported and not is_imported


def _has_abandon_annotation(instance: Object | None) -> bool:
    annotations = metadata(instance).get("annotations") if instance is not None else None
    return isinstance(annotations, dict) and annotations.get(ABANDON_ANNOTATION) == "true"
