"""Resolves the templates of workspaces, spaces and virtual clusters, and writes the result to their status.

Versioned templates are resolved again whenever they change. Unversioned ones are applied when the instance is created,
when it names another template, and on request by `syncOnce`, which is then reset. For workspaces, only the conditions
about templates are written here; the rest is up to `controllers/workspaces`. If there are neither runners nor workspace
templates, workspaces are plain objects, and nothing is written to them.
"""

from collections.abc import Iterable

import orjson

from fairlead.controllers.instances.prerequisites import CLUSTERS, PROJECTS, Setting, Surroundings
from fairlead.controllers.instances.remote_errors import Trouble
from fairlead.controllers.instances.status import (
    RESOLVED,
    Found,
    forget_cluster,
    is_held,
    record_transition,
    resolution,
    standing,
)
from fairlead.core.clock import timestamp
from fairlead.core.errors import NotFound
from fairlead.core.objects import Object, copied, dig, metadata
from fairlead.domain.password_parameters import conceal_annotation, hide_passwords, note_rendered, secrets_of
from fairlead.domain.template_resolution import TEMPLATES, Definition, Unresolved, definition_for, fingerprint
from fairlead.kinds.clusters.runner import RUNNERS
from fairlead.kinds.instances.fields import PROGRESSING
from fairlead.kinds.instances.templates import UNMARKED, find_trust
from fairlead.registry.codec import decode
from fairlead.registry.conditions import find_condition, with_conditions
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import by_the_server
from fairlead.storage.contract import Key
from fairlead.storage.view.view import Entry

WORKSPACES = "devpodworkspaceinstances"


class Instances:
    name, workers = "instances", 4

    def __init__(self, registry: Registry, setting: Setting) -> None:
        templates = [plural for plural, _ in TEMPLATES.values()]
        # Instances first, so that the index is complete when the other resources are listed at the start.
        watched = (*TEMPLATES, *templates, CLUSTERS, PROJECTS, RUNNERS)
        self.watches = tuple((setting.api_group, plural) for plural in watched)
        self._registry = registry
        self._group = setting.api_group
        self._prefix = setting.prefix
        self._surroundings = Surroundings(registry, setting)
        self._projects: set[str] = set()
        """Existing projects. Only the existence of the project matters to an instance here."""
        self._uses: dict[tuple[str, str], set[Key]] = {}
        self._used: dict[Key, tuple[tuple[str, str], ...]] = {}
        self._kept: set[Key] = set()
        """Workspaces that are not managed because there are no runners: reconciled when that changes."""

    def concerned(self, key: Key, entry: Entry | None) -> Iterable[Key]:
        """The instance itself; for a template or cluster, the instances that name it."""
        if key[1] == PROJECTS:
            return self._in_project(key[3], entry is not None)
        if key[1] not in TEMPLATES:
            unmanaged = self._kept if key[1] in (RUNNERS, TEMPLATES[WORKSPACES][0]) else ()
            return {*self._uses.get((key[1], key[3]), ()), *unmanaged}
        for used in self._used.pop(key, ()):
            self._uses[used].discard(key)
            if not self._uses[used]:
                del self._uses[used]
        if entry is not None:
            self._used[key] = _named(entry)
            for used in self._used[key]:
                self._uses.setdefault(used, set()).add(key)
        return (key,)

    def _in_project(self, name: str, is_there: bool) -> Iterable[Key]:
        if is_there == (name in self._projects):
            return ()
        (self._projects.add if is_there else self._projects.discard)(name)
        namespace = f"{self._prefix}{name}"
        return [
            each.key for plural in TEMPLATES for each in self._registry.view.entries(self._group, plural, namespace)
        ]

    async def reconcile(self, key: Key) -> float | None:
        self._kept.discard(key)
        entry = self._registry.resource(self._group, key[1]).peek(key[2], key[3])
        if entry is None:
            return None
        instance = decode(entry)
        if key[1] == WORKSPACES and self._is_kept_only(instance):
            self._kept.add(key)
            return None
        status = instance.get("status") or {}
        if "deletionTimestamp" in metadata(instance) or status.get("ignoreReconciliation"):
            return None
        try:
            if await self._hide_passwords(key, instance):
                return None  # that write triggers the next reconcile
            await self._report(key, instance)
            if dig(instance, "spec.templateRef.syncOnce"):
                await self._finish_sync(key)
        except NotFound:  # it was deleted meanwhile
            return None
        return None

    def _is_kept_only(self, workspace: Object) -> bool:
        """Whether there is no template to resolve, or nothing that would use it."""
        if find_condition(workspace.get("status"), RESOLVED) is not None or dig(workspace, "spec.template"):
            return False
        is_in_use = any(self._registry.view.count(self._group, each) for each in (RUNNERS, TEMPLATES[WORKSPACES][0]))
        return not is_in_use or not dig(workspace, "spec.templateRef.name")

    async def _report(self, key: Key, instance: Object) -> None:
        if self._status(key, instance) == (instance.get("status") or {}):
            return
        before = instance

        def edit(current: Object) -> Object:
            nonlocal before
            before = current
            if dig(current, "status.ignoreReconciliation"):
                return current
            return {**current, "status": self._status(key, current)}

        resource = self._registry.resource(self._group, key[1])
        await resource.modify(key[2], key[3], edit, by_the_server("status"))
        if key[1] != WORKSPACES:
            await record_transition(self._registry, before, edit(before)["status"])

    def _status(self, key: Key, instance: Object) -> Object:
        """The desired status of the instance. Fields of other writers are kept."""
        status = instance.get("status") or {}
        now, generation = timestamp(self._registry.clock.now()), metadata(instance).get("generation", 1)
        definition, visible = self._definitions(key[1], instance)
        blocker = self._obstacle(key, instance)
        result = resolution(instance, definition, visible, blocker)
        if result.taken_over:
            status = _with_rendered(instance, status, TEMPLATES[key[1]][1], result, now)
        status = with_conditions(status, result.conditions, now, generation)
        if key[1] == WORKSPACES:
            return status
        # If the template was applied before trust was recorded, and has changed since, its trust is unknown.
        known = status.get("templateTrust") or UNMARKED
        status = {**status, "templateTrust": self._find_trust(key[1], instance) if result.taken_over else known}
        if key[1] == "virtualclusterinstances":
            status.setdefault("serviceUID", metadata(instance)["uid"])
        return standing(instance, status, blocker, now)

    def _obstacle(self, key: Key, instance: Object) -> Trouble | None:
        """None for workspaces: they run on runners, which another controller checks."""
        return None if key[1] == WORKSPACES else self._surroundings.obstacle(instance)

    def _definitions(self, plural: str, instance: Object) -> tuple[Definition | Unresolved, str]:
        """The template definition, or why it cannot be resolved; and the fingerprint of its public part."""
        name = dig(instance, "spec.templateRef.name") or ""
        entry = self._registry.resource(self._group, TEMPLATES[plural][0]).peek("", name)
        try:
            definition = definition_for(instance, decode(entry) if entry is not None else None)
            public = definition_for(instance, orjson.loads(entry.body)) if entry is not None else Definition({}, None)
            return definition, fingerprint(instance, public)
        except Unresolved as error:
            return error, ""

    def _find_trust(self, plural: str, instance: Object) -> str:
        name = dig(instance, "spec.templateRef.name") or ""
        entry = self._registry.resource(self._group, TEMPLATES[plural][0]).peek("", name)
        return find_trust(instance, decode(entry) if entry is not None else None)

    async def _hide_passwords(self, key: Key, instance: Object) -> bool:
        """Hides password parameters that were stored before their template existed. Returns whether it wrote."""

        def edit(current: Object) -> Object:
            definition, _ = self._definitions(key[1], current)
            if isinstance(definition, Unresolved) or definition.parameters is None:
                return current
            spec = hide_passwords(current.get("spec") or {}, definition.parameters, secrets_of(current))
            if spec is None:
                return current
            new = copied({**current, "spec": spec})
            conceal_annotation(new)
            return new

        if edit(instance) == instance:
            return False
        await self._registry.resource(self._group, key[1]).modify(key[2], key[3], edit, by_the_server())
        return True

    async def _finish_sync(self, key: Key) -> None:
        """Resets `syncOnce`, unless the template has changed again and is still to be applied."""

        def edit(current: Object) -> Object:
            _, visible = self._definitions(key[1], current)
            if not visible or not dig(current, "spec.templateRef.syncOnce"):
                return current
            if dig(current, "spec.templateRef.name") and dig(current, "status.templateHash") != visible:
                return current
            spec = current["spec"]
            return {**current, "spec": {**spec, "templateRef": {**spec["templateRef"], "syncOnce": False}}}

        resource = self._registry.resource(self._group, key[1])
        await resource.modify(key[2], key[3], edit, by_the_server())


def _with_rendered(instance: Object, status: Object, field: str, found: Found, now: str) -> Object:
    """The status with the rendered template. If it has changed, cluster conditions are Unknown until it is applied."""
    if is_held(instance) and status.get(field) != found.rendered:
        status = forget_cluster(status, PROGRESSING, "its template has changed and is being applied", now)
    return {**note_rendered(instance, status), field: found.rendered, "templateHash": found.hash}


def _named(entry: Entry) -> tuple[tuple[str, str], ...]:
    """The template and the cluster that an instance names."""
    templates = TEMPLATES[entry.key[1]][0]
    references = {
        templates: entry.fields.get("spec.templateRef.name"),
        CLUSTERS: entry.fields.get("spec.clusterRef.cluster"),
    }
    return tuple((plural, name) for plural, name in references.items() if name)
