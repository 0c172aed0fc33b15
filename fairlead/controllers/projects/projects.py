"""Reconciles projects: namespace, status with quota usage, and ordered teardown on deletion.

The namespace of a project is created again if it is missing. The status shows whether the project can be used, and the
usage of its quotas. A deleted project first deletes its instances, kind by kind, while the secrets that they need still
exist, then its namespace with all the rest. Meanwhile Ready is False and names the objects and finalizers that remain.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress

from fairlead.admission.namespaces import FINALIZER, build_namespace
from fairlead.core.call import NAMESPACES
from fairlead.core.clock import timestamp
from fairlead.core.concurrency import in_slices
from fairlead.core.errors import AlreadyExists, NotFound
from fairlead.core.objects import Object, has_finalizer, identical, metadata, name_of, remove_finalizer
from fairlead.domain.quotas import TEAM, USER, limits, usage
from fairlead.registry.codec import decode
from fairlead.registry.conditions import FALSE, TRUE, condition, find_condition, with_condition
from fairlead.registry.events import record
from fairlead.registry.registry import Registry
from fairlead.registry.resource import Resource
from fairlead.registry.write_options import Deleting, by_the_server
from fairlead.storage.contract import Key
from fairlead.storage.view.view import Entry

PROJECTS = "projects"
LOOK_AGAIN = 0.2
"""Requeue delay during deletion: the remaining objects may be of kinds that are not watched here."""
ORDER = ("devpodworkspaceinstances", "virtualclusterinstances", "spaceinstances")
"""Instances are deleted in this order: workspaces may run in virtual clusters, and those in spaces."""
AT_ONCE = 20
"""How many deletes are done before yielding to the event loop."""


class Projects:
    name, workers = "projects", 1

    def __init__(self, registry: Registry, api_group: str, prefix: str) -> None:
        self._registry = registry
        self._group = api_group
        self._prefix = prefix
        self._projects = registry.resource(api_group, PROJECTS)
        self._namespaces = registry.resource(*NAMESPACES)
        self._emptying = Emptying(registry, api_group)
        kinds = (each.kind for each in registry.namespaced() if each.kind.stored)
        self._plurals = tuple(kind.plural for kind in kinds if kind.group == api_group)
        instances = ((api_group, plural) for plural in self._plurals)
        self.watches = ((api_group, PROJECTS), NAMESPACES, *instances)

    def concerned(self, key: Key, entry: Entry | None) -> Iterable[Key]:
        """The project itself, or the project of the namespace that the object is in."""
        if key[1] == PROJECTS:
            yield key
        elif key[:2] == NAMESPACES:
            if key[3].startswith(self._prefix):
                yield self._projects.kind.key("", key[3].removeprefix(self._prefix))
        elif key[2].startswith(self._prefix):
            yield self._projects.kind.key("", key[2].removeprefix(self._prefix))

    async def reconcile(self, key: Key) -> float | None:
        entry = self._projects.peek("", key[3])
        if entry is None:
            return None
        project = decode(entry)
        if "deletionTimestamp" in metadata(project):
            return await self._end(project)
        if not await self._keep_namespace(project):
            return None  # a change of its namespace triggers the next reconcile
        await self._report(project)
        return None

    async def _keep_namespace(self, project: Object) -> bool:
        """Whether the project has its namespace. A missing one is created again, empty."""
        name = name_of(project)
        entry = self._namespaces.peek("", f"{self._prefix}{name}")
        if entry is not None and "deletionTimestamp" in metadata(decode(entry)):
            message = f"namespace {self._prefix}{name} is terminating; it will be created again, without its content"
            await self._write(project, condition("Ready", FALSE, "NamespaceTerminating", message))
            return False
        if entry is None:
            with suppress(AlreadyExists):
                await self._namespaces.create(build_namespace(self._prefix, name), "", by_the_server())
                message = f"namespace {self._prefix}{name} was deleted with all its content, and was created again"
                await record(self._registry, project, "NamespaceRestored", message, type="Warning")
        return True

    async def _end(self, project: Object) -> float | None:
        """Deletes the content of the project; when nothing is left, removes the finalizer."""
        name = name_of(project)
        if not has_finalizer(project, FINALIZER):
            return None
        namespace = f"{self._prefix}{name}"
        remaining = await self._emptying.go_on(namespace)
        if remaining is not None:
            message = f"being deleted: {remaining}"
            await self._write(project, condition("Ready", FALSE, "Deleting", message))
            return LOOK_AGAIN
        await self._projects.modify("", name, lambda current: remove_finalizer(current, FINALIZER), by_the_server())
        message = f"namespace {namespace} was deleted with all its content"
        await record(self._registry, project, "NamespaceDeleted", message)
        return None

    async def _report(self, project: Object) -> None:
        """Sets Ready to True; the first time, also records an Event."""
        message = f"namespace {self._prefix}{name_of(project)} exists"
        await self._write(project, condition("Ready", TRUE, "NamespaceReady", message))
        if find_condition(project.get("status"), "Ready") is None:
            await record(self._registry, project, "NamespaceReady", message)

    async def _write(self, project: Object, ready: Object) -> None:
        """Writes the status if it has changed."""
        now = timestamp(self._registry.clock.now())

        def edit(current: Object) -> Object:
            return {**current, "status": self._status(current, ready, now)}

        if not identical(edit(project)["status"], project.get("status") or {}):
            options = by_the_server("status")
            await self._projects.modify("", name_of(project), edit, options)

    def _status(self, project: Object, ready: Object, now: str) -> Object:
        generation = metadata(project)["generation"]
        known = {**(project.get("status") or {}), "observedGeneration": generation}
        status = with_condition(known, ready, now, generation)
        quotas = quota_status(project, self._in_use(name_of(project)), self._plurals)
        status.pop("quotas", None)
        return {**status, "quotas": quotas} if quotas else status

    def _in_use(self, project: str) -> Iterable[tuple[str, Object]]:
        for plural in self._plurals:
            for entry in self._registry.view.entries(self._group, plural, f"{self._prefix}{project}"):
                yield plural, decode(entry)


class Emptying:
    """Deletes the content of a project's namespace in order. Called repeatedly until nothing is left."""

    def __init__(self, registry: Registry, api_group: str) -> None:
        self._registry = registry
        by_plural = {each.kind.plural: each for each in registry.namespaced() if each.kind.group == api_group}
        self._first = [by_plural[plural] for plural in ORDER if plural in by_plural]
        self._all = [each for each in registry.namespaced() if each.kind.stored]

    async def go_on(self, namespace: str) -> str | None:
        """Deletes what is next in order. Returns a message about what remains; None once the namespace is deleted."""
        for resource in self._first:
            for count, name in enumerate(self._names(resource, namespace)):
                if count % AT_ONCE == AT_ONCE - 1:
                    await asyncio.sleep(
                        0
                    )  # deleting an object that waits for finalizers writes nothing, so nothing is awaited
                with suppress(NotFound):  # it was deleted meanwhile
                    options = Deleting(propagation="Background")
                    await resource.delete(namespace, name, options, by_the_server())
            if self._names(resource, namespace):
                return await self._remaining(namespace)
        try:
            namespaces = self._registry.resource("", "namespaces")
            await namespaces.delete("", namespace, Deleting(), by_the_server())
        except NotFound:
            return None
        return await self._remaining(namespace)

    def _names(self, resource: Resource, namespace: str) -> list[str]:
        kind = resource.kind
        return [entry.key[3] for entry in self._registry.view.entries(kind.group, kind.plural, namespace)]

    async def _remaining(self, namespace: str) -> str:
        found = [each async for each in self._counted(namespace)]
        if not found:
            return f"waiting for the namespace {namespace}"
        return "waiting for " + ", ".join(found)

    async def _counted(self, namespace: str) -> AsyncIterator[str]:
        """The number of objects of each kind, with their finalizers."""
        for resource in self._all:
            kind, finalizers = resource.kind, dict[str, None]()
            entries = self._registry.view.entries(kind.group, kind.plural, namespace)
            async for some in in_slices(entries, lambda entry: len(entry.body)):
                for entry in some:
                    if b'"finalizers":' in entry.body:
                        finalizers.update(dict.fromkeys(metadata(decode(entry)).get("finalizers") or ()))
            if entries:
                suffix = f" (finalizers: {', '.join(finalizers)})" if finalizers else ""
                yield f"{len(entries)} {kind.singular if len(entries) == 1 else kind.plural}{suffix}"


def quota_status(project: Object, objects: Iterable[tuple[str, Object]], plurals: Iterable[str]) -> Object | None:
    """`status.quotas`: limits and usage, for the whole project and for each owner; None if there are no limits.

    Only keys that this server counts are included: the usage of others is not known.
    """
    counted = tuple(plurals)
    project_limits, user_limits = limits(project, "project", counted), limits(project, "user", counted)
    if not project_limits and not user_limits:
        return None
    used = usage(objects)
    status: Object = {}
    if project_limits:
        status["project"] = {"limit": project_limits, "used": _texts(used.project, project_limits)}
    if user_limits:
        by_kind: dict[str, Object] = {USER: {}, TEAM: {}}
        for (kind, name), amounts in sorted(used.holders.items()):
            by_kind[kind][name] = _texts(amounts, user_limits)
        status["user"] = {"limit": user_limits, "used": {"users": by_kind[USER], "teams": by_kind[TEAM]}}
    return status


def _texts(amounts: Counter[str], keys: Mapping[str, str]) -> Object:
    return {key: str(amounts[key]) for key in keys}
