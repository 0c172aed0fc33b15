"""Resolves the templates of workspaces, spaces and virtual clusters, and writes the result to their status.

Versioned templates are resolved again whenever they change. Unversioned ones are applied when the instance is created,
when it names another template, and on request by `syncOnce`, which is then reset. For workspaces, only the conditions
about templates are written here; the rest is up to `controllers/workspaces`. That the template or environment of a new
workspace does not exist is reported after a grace period. The environment of a workspace is resolved together with its
template, and what that may not decide does not reach its runner (`workspace_templates.py`).
"""

from collections.abc import Iterable, Mapping

import orjson

from fairlead.controllers.instances.prerequisites import (
    CLUSTERS,
    PROJECTS,
    InstanceConfig,
    InstanceContext,
    remaining_grace,
)
from fairlead.controllers.instances.remote_errors import InstanceError
from fairlead.controllers.instances.remote_namespace import SPACE_LABEL, VIRTUAL_CLUSTER_LABEL
from fairlead.controllers.instances.status import (
    TemplateResolution,
    derive_status,
    has_remote_objects,
    mark_cluster_unknown,
    record_transition,
    resolve_template,
)
from fairlead.controllers.instances.workspace_templates import apply_environment, refuse_untrusted, without_rendered
from fairlead.core.clock import timestamp
from fairlead.core.errors import NotFound
from fairlead.core.objects import Object, deep_copy, get_path, metadata
from fairlead.domain.password_parameters import (
    hidden_values,
    hide_passwords,
    record_rendered_secrets,
    redact_last_applied,
)
from fairlead.domain.template_resolution import (
    ResolutionError,
    TemplateDefinition,
    find_definition,
    fingerprint,
    instance_values,
)
from fairlead.domain.typed_objects import (
    TEMPLATE_RESOLVED,
    RemoteInstance,
    SpaceInstance,
    TypedObject,
    VirtualClusterInstance,
)
from fairlead.kinds import TEMPLATE_INSTANCES
from fairlead.kinds.instances.fields import PROGRESSING
from fairlead.kinds.instances.remote_instances import SPACE, VIRTUAL_CLUSTER
from fairlead.kinds.instances.templates import ENVIRONMENT_TEMPLATE, UNMARKED, trust_level
from fairlead.kinds.instances.workspace import WORKSPACE
from fairlead.registry.codec import decode
from fairlead.registry.conditions import find_condition, with_conditions
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import server_write_options
from fairlead.storage.contract import Key
from fairlead.storage.view.view import Entry

_REMOTE_VIEWS: Mapping[str, type[RemoteInstance]] = {
    SPACE.plural: SpaceInstance,
    VIRTUAL_CLUSTER.plural: VirtualClusterInstance,
}
"""The views of instances that exist in clusters, by plural."""
_NAMESPACE_NAMES: Mapping[str, tuple[str, str]] = {
    SPACE.plural: (SPACE_LABEL, "space"),
    VIRTUAL_CLUSTER.plural: (VIRTUAL_CLUSTER_LABEL, "virtualCluster"),
}
"""The label of their namespaces, and the field of a project's `namespacePattern`, by plural."""


class InstanceTemplateController:
    name, workers = "instance-templates", 4

    def __init__(self, registry: Registry, config: InstanceConfig) -> None:
        templates = [instance.templates for instance in TEMPLATE_INSTANCES.values()]
        # Instances first, so that the index is complete when the other resources are listed at the start.
        watched = (*TEMPLATE_INSTANCES, *templates, ENVIRONMENT_TEMPLATE.plural, CLUSTERS, PROJECTS)
        self.watches = tuple((config.api_group, plural) for plural in watched)
        self._registry = registry
        self._group = config.api_group
        self._namespace_prefix = config.namespace_prefix
        self._context = InstanceContext(registry, config)
        self._projects: set[str] = set()
        """Existing projects. Only the existence of the project matters to an instance here."""
        self._instances_by_reference: dict[tuple[str, str], set[Key]] = {}
        self._references: dict[Key, tuple[tuple[str, str], ...]] = {}

    def keys_for(self, key: Key, entry: Entry | None) -> Iterable[Key]:
        """The instance itself; for a template, an environment or a cluster, the instances that name it."""
        if key[1] == PROJECTS:
            return self._keys_in_project(key[3], entry is not None)
        if key[1] not in TEMPLATE_INSTANCES:
            return set(self._instances_by_reference.get((key[1], key[3]), ()))
        for used in self._references.pop(key, ()):
            self._instances_by_reference[used].discard(key)
            if not self._instances_by_reference[used]:
                del self._instances_by_reference[used]
        if entry is not None:
            self._references[key] = _references_of(entry)
            for used in self._references[key]:
                self._instances_by_reference.setdefault(used, set()).add(key)
        return (key,)

    def _keys_in_project(self, name: str, exists: bool) -> Iterable[Key]:
        if exists == (name in self._projects):
            return ()
        (self._projects.add if exists else self._projects.discard)(name)
        namespace = f"{self._namespace_prefix}{name}"
        return [
            each.key
            for plural in TEMPLATE_INSTANCES
            for each in self._registry.view.entries(self._group, plural, namespace)
        ]

    async def reconcile(self, key: Key) -> float | None:
        entry = self._registry.resource(self._group, key[1]).get_cached(key[2], key[3])
        if entry is None:
            return None
        instance = decode(entry)
        status = instance.get("status") or {}
        if key[1] == WORKSPACE.plural and find_condition(status, TEMPLATE_RESOLVED) is None:
            if not _has_definition(instance):
                return None
            if self._is_reference_missing(instance) and (wait := remaining_grace(instance, self._registry.clock.now())):
                return wait
        if TypedObject(instance).is_deleting or TypedObject(instance).is_ignored:
            return None
        try:
            if await self._hide_passwords(key, instance):
                return None  # that write triggers the next reconcile
            await self._write_status(key, instance)
            if get_path(instance, "spec.templateRef.syncOnce"):
                await self._reset_sync_once(key)
        except NotFound:  # it was deleted meanwhile
            return None
        return None

    def _is_reference_missing(self, workspace: Object) -> bool:
        """Whether the workspace names a template or an environment that does not exist."""
        name = get_path(workspace, "spec.templateRef.name")
        templates = self._registry.resource(self._group, TEMPLATE_INSTANCES[WORKSPACE.plural].templates)
        if name and templates.get_cached("", name) is None:
            return True
        return bool(get_path(workspace, "spec.environmentRef.name")) and self._find_environment(workspace) is None

    def _find_environment(self, workspace: Object) -> Object | None:
        name = get_path(workspace, "spec.environmentRef.name") or ""
        entry = self._registry.resource(self._group, ENVIRONMENT_TEMPLATE.plural).get_cached("", name)
        return decode(entry) if entry is not None else None

    async def _write_status(self, key: Key, instance: Object) -> None:
        if self._build_status(key, instance) == (instance.get("status") or {}):
            return
        before = instance

        def edit(current: Object) -> Object:
            nonlocal before
            before = current
            if TypedObject(current).is_ignored:
                return current
            return {**current, "status": self._build_status(key, current)}

        resource = self._registry.resource(self._group, key[1])
        await resource.modify(key[2], key[3], edit, server_write_options("status"))
        if key[1] != WORKSPACE.plural:
            await record_transition(self._registry, before, edit(before)["status"])

    def _build_status(self, key: Key, instance: Object) -> Object:
        """The desired status of the instance. Fields of other writers are kept."""
        status = instance.get("status") or {}
        now = timestamp(self._registry.clock.now())
        generation = metadata(instance).get("generation", 1)
        definition, visible = self._find_definition(key[1], instance)
        blocker = self._find_blocker(key, instance)
        result = resolve_template(instance, definition, visible, blocker, self._find_own_values(key[1], instance))
        # If the template was applied before trust was recorded, and has changed since, its trust is unknown.
        trust = self._find_trust(key[1], instance) if result.is_adopted else status.get("templateTrust") or UNMARKED
        if (
            key[1] == WORKSPACE.plural
            and (refused := refuse_untrusted(instance, definition, result, trust)) is not None
        ):
            return with_conditions(without_rendered(status), refused.conditions, now, generation)
        if result.is_adopted:
            status = _with_rendered(instance, status, TEMPLATE_INSTANCES[key[1]].rendered_field, result, now)
        if key[1] == WORKSPACE.plural:
            environment = self._find_environment(instance)
            status, conditions = apply_environment(instance, environment, status, result.conditions)
            status = with_conditions(status, conditions, now, generation)
            return {**status, "templateTrust": trust} if status.get("instance") is not None else status
        status = {**with_conditions(status, result.conditions, now, generation), "templateTrust": trust}
        if key[1] == VIRTUAL_CLUSTER.plural:
            status.setdefault("serviceUID", metadata(instance)["uid"])
        return derive_status(_REMOTE_VIEWS[key[1]](instance), status, blocker, now)

    def _find_own_values(self, plural: str, instance: Object) -> Mapping[str, str] | None:
        """The values of the placeholders for what the instance has. None for workspaces, which have none of them."""
        view = _REMOTE_VIEWS.get(plural)
        if view is None:
            return None
        typed = view(instance)
        project = self._context.project(typed)
        if project is None:
            return instance_values(instance, project="", namespace=typed.remote_namespace)
        namespace = typed.remote_namespace
        if not namespace:
            label, pattern_field = _NAMESPACE_NAMES[plural]
            try:
                namespace = self._context.choose_namespace(typed, project, label, pattern_field)
            except InstanceError:  # reported when the namespace is claimed
                namespace = ""
        return instance_values(instance, project.name, namespace)

    def _find_blocker(self, key: Key, instance: Object) -> InstanceError | None:
        """None for workspaces: they run on runners, which another controller checks."""
        view = _REMOTE_VIEWS.get(key[1])
        return self._context.find_blocker(view(instance)) if view is not None else None

    def _find_definition(self, plural: str, instance: Object) -> tuple[TemplateDefinition | ResolutionError, str]:
        """The template definition, or why it cannot be resolved; and the fingerprint of its public part."""
        name = get_path(instance, "spec.templateRef.name") or ""
        entry = self._registry.resource(self._group, TEMPLATE_INSTANCES[plural].templates).get_cached("", name)
        try:
            definition = find_definition(instance, decode(entry) if entry is not None else None)
            public = (
                find_definition(instance, orjson.loads(entry.body))
                if entry is not None
                else TemplateDefinition({}, None)
            )
            return definition, fingerprint(instance, public)
        except ResolutionError as error:
            return error, ""

    def _find_trust(self, plural: str, instance: Object) -> str:
        name = get_path(instance, "spec.templateRef.name") or ""
        entry = self._registry.resource(self._group, TEMPLATE_INSTANCES[plural].templates).get_cached("", name)
        return trust_level(instance, decode(entry) if entry is not None else None)

    async def _hide_passwords(self, key: Key, instance: Object) -> bool:
        """Hides password parameters that were stored before their template existed. Returns whether it wrote."""

        def edit(current: Object) -> Object:
            definition, _ = self._find_definition(key[1], current)
            if isinstance(definition, ResolutionError) or definition.parameters is None:
                return current
            spec = hide_passwords(current.get("spec") or {}, definition.parameters, hidden_values(current))
            if spec is None:
                return current
            new = deep_copy({**current, "spec": spec})
            redact_last_applied(new)
            return new

        if edit(instance) == instance:
            return False
        await self._registry.resource(self._group, key[1]).modify(key[2], key[3], edit, server_write_options())
        return True

    async def _reset_sync_once(self, key: Key) -> None:
        """Resets `syncOnce`, unless the template has changed again and is still to be applied."""

        def edit(current: Object) -> Object:
            _, visible = self._find_definition(key[1], current)
            if not visible or not get_path(current, "spec.templateRef.syncOnce"):
                return current
            if get_path(current, "spec.templateRef.name") and get_path(current, "status.templateHash") != visible:
                return current
            spec = current["spec"]
            return {**current, "spec": {**spec, "templateRef": {**spec["templateRef"], "syncOnce": False}}}

        resource = self._registry.resource(self._group, key[1])
        await resource.modify(key[2], key[3], edit, server_write_options())


def _with_rendered(instance: Object, status: Object, field: str, result: TemplateResolution, now: str) -> Object:
    """The status with the rendered template. If it has changed, cluster conditions are Unknown until it is applied."""
    if has_remote_objects(TypedObject(instance)) and status.get(field) != result.rendered:
        status = mark_cluster_unknown(status, PROGRESSING, "its template has changed and is being applied", now)
    return {**record_rendered_secrets(instance, status), field: result.rendered, "templateHash": result.hash}


def _has_definition(workspace: Object) -> bool:
    """Whether there is anything to resolve."""
    names = ("templateRef.name", "template", "environmentRef.name")
    return any(get_path(workspace, f"spec.{each}") for each in names)


def _references_of(entry: Entry) -> tuple[tuple[str, str], ...]:
    """The template, the environment and the cluster that an instance names."""
    templates = TEMPLATE_INSTANCES[entry.key[1]].templates
    references = {
        templates: entry.fields.get("spec.templateRef.name"),
        ENVIRONMENT_TEMPLATE.plural: entry.fields.get("spec.environmentRef.name"),
        CLUSTERS: entry.fields.get("spec.clusterRef.cluster"),
    }
    return tuple((plural, name) for plural, name in references.items() if name)
