"""Resolves the templates of workspaces, spaces and virtual clusters, and says in their status what came of it.

Versioned templates are resolved anew whenever they change. Unversioned ones are taken over when the instance is made,
when it asks for another template, and when it asks for `syncOnce`, which is set back when that is done. Of workspaces
only what is about templates is written here: where they run and how they do is another controller's matter. Where
there are neither runners nor templates for workspaces, these answer with just what they were sent.
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
        # Instances first, so that the index stands when it is asked about the others at the start.
        watched = (*TEMPLATES, *templates, CLUSTERS, PROJECTS, RUNNERS)
        self.watches = tuple((setting.api_group, plural) for plural in watched)
        self._registry = registry
        self._group = setting.api_group
        self._prefix = setting.prefix
        self._surroundings = Surroundings(registry, setting)
        self._projects: set[str] = set()
        """Those that are there. Whether an instance is in one matters, and nothing else about it."""
        self._uses: dict[tuple[str, str], set[Key]] = {}
        self._used: dict[Key, tuple[tuple[str, str], ...]] = {}
        self._kept: set[Key] = set()
        """Workspaces that were left alone because nobody runs any: to be looked at when that changes."""

    def concerned(self, key: Key, entry: Entry | None) -> Iterable[Key]:
        """An instance itself; a template or cluster concerns the instances that name it."""
        if key[1] == PROJECTS:
            return self._in_project(key[3], entry is not None)
        if key[1] not in TEMPLATES:
            kept = self._kept if key[1] in (RUNNERS, TEMPLATES[WORKSPACES][0]) else ()
            return {*self._uses.get((key[1], key[3]), ()), *kept}
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
                return None  # and look at it again as it is then
            await self._report(key, instance)
            if dig(instance, "spec.templateRef.syncOnce"):
                await self._finish_sync(key)
        except NotFound:  # it went meanwhile
            return None
        return None

    def _is_kept_only(self, workspace: Object) -> bool:
        """One that has nothing to resolve, or nobody to resolve it for."""
        if find_condition(workspace.get("status"), RESOLVED) is not None or dig(workspace, "spec.template"):
            return False
        made_here = any(self._registry.view.count(self._group, each) for each in (RUNNERS, TEMPLATES[WORKSPACES][0]))
        return not made_here or not dig(workspace, "spec.templateRef.name")

    async def _report(self, key: Key, instance: Object) -> None:
        if self._status(key, instance) == (instance.get("status") or {}):
            return
        before = instance

        def observed(current: Object) -> Object:
            nonlocal before
            before = current
            if dig(current, "status.ignoreReconciliation"):
                return current
            return {**current, "status": self._status(key, current)}

        resource = self._registry.resource(self._group, key[1])
        await resource.modify(key[2], key[3], observed, by_the_server("status"))
        if key[1] != WORKSPACES:
            await record_transition(self._registry, before, observed(before)["status"])

    def _status(self, key: Key, instance: Object) -> Object:
        """The status that the instance should have now. What others have written stays."""
        status = instance.get("status") or {}
        now, generation = timestamp(self._registry.clock.now()), metadata(instance).get("generation", 1)
        definition, visible = self._definitions(key[1], instance)
        obstacle = self._obstacle(key, instance)
        found = resolution(instance, definition, visible, obstacle)
        if found.taken_over:
            status = _with_rendered(instance, status, TEMPLATES[key[1]][1], found, now)
        status = with_conditions(status, found.conditions, now, generation)
        if key[1] == WORKSPACES:
            return status
        # Of what was taken over before there was that difference, and has changed since, nobody knows whose it was.
        known = status.get("templateTrust") or UNMARKED
        status = {**status, "templateTrust": self._find_trust(key[1], instance) if found.taken_over else known}
        if key[1] == "virtualclusterinstances":
            status.setdefault("serviceUID", metadata(instance)["uid"])
        return standing(instance, status, obstacle, now)

    def _obstacle(self, key: Key, instance: Object) -> Trouble | None:
        """Workspaces are on runners, and another controller knows about those."""
        return None if key[1] == WORKSPACES else self._surroundings.obstacle(instance)

    def _definitions(self, plural: str, instance: Object) -> tuple[Definition | Unresolved, str]:
        """What to make, or why it cannot be; and the fingerprint of what everybody may see of it."""
        name = dig(instance, "spec.templateRef.name") or ""
        entry = self._registry.resource(self._group, TEMPLATES[plural][0]).peek("", name)
        try:
            definition = definition_for(instance, decode(entry) if entry is not None else None)
            shown = definition_for(instance, orjson.loads(entry.body)) if entry is not None else Definition({}, None)
            return definition, fingerprint(instance, shown)
        except Unresolved as error:
            return error, ""

    def _find_trust(self, plural: str, instance: Object) -> str:
        name = dig(instance, "spec.templateRef.name") or ""
        entry = self._registry.resource(self._group, TEMPLATES[plural][0]).peek("", name)
        return find_trust(instance, decode(entry) if entry is not None else None)

    async def _hide_passwords(self, key: Key, instance: Object) -> bool:
        """Hides passwords that came before their template did, or before they were hidden at all; says whether."""

        def hidden(current: Object) -> Object:
            definition, _ = self._definitions(key[1], current)
            if isinstance(definition, Unresolved) or definition.parameters is None:
                return current
            spec = hide_passwords(current.get("spec") or {}, definition.parameters, secrets_of(current))
            if spec is None:
                return current
            new = copied({**current, "spec": spec})
            conceal_annotation(new)
            return new

        if hidden(instance) == instance:
            return False
        await self._registry.resource(self._group, key[1]).modify(key[2], key[3], hidden, by_the_server())
        return True

    async def _finish_sync(self, key: Key) -> None:
        """Sets `syncOnce` back, unless the template has moved on and there is something left to take over."""

        def finished(current: Object) -> Object:
            _, visible = self._definitions(key[1], current)
            if not visible or not dig(current, "spec.templateRef.syncOnce"):
                return current
            if dig(current, "spec.templateRef.name") and dig(current, "status.templateHash") != visible:
                return current
            spec = current["spec"]
            return {**current, "spec": {**spec, "templateRef": {**spec["templateRef"], "syncOnce": False}}}

        resource = self._registry.resource(self._group, key[1])
        await resource.modify(key[2], key[3], finished, by_the_server())


def _with_rendered(instance: Object, status: Object, field: str, found: Found, now: str) -> Object:
    """The status with the template as it was rendered. Nobody knows about what is rendered anew until it is applied."""
    if is_held(instance) and status.get(field) != found.rendered:
        status = forget_cluster(status, PROGRESSING, "its template has changed, and is being applied", now)
    return {**note_rendered(instance, status), field: found.rendered, "templateHash": found.hash}


def _named(entry: Entry) -> tuple[tuple[str, str], ...]:
    """The template and the cluster that an instance names."""
    templates = TEMPLATES[entry.key[1]][0]
    named = {
        templates: entry.fields.get("spec.templateRef.name"),
        CLUSTERS: entry.fields.get("spec.clusterRef.cluster"),
    }
    return tuple((plural, name) for plural, name in named.items() if name)
