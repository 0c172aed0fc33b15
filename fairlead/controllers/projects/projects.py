"""Keeps a project's status true, and empties the project in order before it goes.

The status says whether the project can be used, and what is used of its quotas. A project that is deleted ends what
runs in it first, one sort after the other, then its namespace with all the rest; meanwhile Ready is False and says what
is being waited for.
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

# DOC-MERGED controllers/quota_status
# What is used of a project's quotas, as its status shows it. Pure; `projects.py` writes it down.


def quota_status(project: Object, objects: Iterable[tuple[str, Object]], plurals: Iterable[str]) -> Object | None:
    """Limits and what is used of them, for the whole project and for each owner; None where nothing is limited.

    Only what the server counts itself is shown: for other keys nothing could be said about their use.
    """
    counted = tuple(plurals)
    whole, each = limits(project, "project", counted), limits(project, "user", counted)
    if not whole and not each:
        return None
    used = usage(objects)
    status: Object = {}
    if whole:
        status["project"] = {"limit": whole, "used": _texts(used.project, whole)}
    if each:
        by_sort: dict[str, Object] = {USER: {}, TEAM: {}}
        for (sort, name), amounts in sorted(used.holders.items()):
            by_sort[sort][name] = _texts(amounts, each)
        status["user"] = {"limit": each, "used": {"users": by_sort[USER], "teams": by_sort[TEAM]}}
    return status


def _texts(amounts: Counter[str], keys: Mapping[str, str]) -> Object:
    return {key: str(amounts[key]) for key in keys}


# DOC-MERGED controllers/emptying
# Empties a project's namespace in order: what runs goes first, while the secrets that it needs are still there.
#
# `projects.py` asks until nothing is left. What holds something back is told each time, so that people see whom to ask.


ORDER = ("devpodworkspaceinstances", "virtualclusterinstances", "spaceinstances")
"""Workspaces may run in virtual clusters, and those in spaces."""
AT_ONCE = 20
"""So many deletes are done before others get their turn."""


class Emptying:
    def __init__(self, registry: Registry, api_group: str) -> None:
        self._registry = registry
        by_plural = {each.kind.plural: each for each in registry.namespaced() if each.kind.group == api_group}
        self._first = [by_plural[plural] for plural in ORDER if plural in by_plural]
        self._all = [each for each in registry.namespaced() if each.kind.stored]

    async def go_on(self, namespace: str) -> str | None:
        """Deletes what is next in order. What is being waited for, in words; None once the namespace is gone."""
        for resource in self._first:
            for count, name in enumerate(self._names(resource, namespace)):
                if count % AT_ONCE == AT_ONCE - 1:
                    await asyncio.sleep(0)  # what finalizers hold is not written again, so nothing is waited for
                with suppress(NotFound):  # somebody was faster
                    deleting = Deleting(propagation="Background")
                    await resource.delete(namespace, name, deleting, by_the_server())
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
        """How many there are of each kind, and the finalizers that hold them."""
        for resource in self._all:
            kind, finalizers = resource.kind, dict[str, None]()
            entries = self._registry.view.entries(kind.group, kind.plural, namespace)
            async for some in in_slices(entries, lambda entry: len(entry.body)):
                for entry in some:
                    if b'"finalizers":' in entry.body:
                        finalizers.update(dict.fromkeys(metadata(decode(entry)).get("finalizers") or ()))
            if entries:
                held = f" (finalizers: {', '.join(finalizers)})" if finalizers else ""
                yield f"{len(entries)} {kind.singular if len(entries) == 1 else kind.plural}{held}"


PROJECTS = "projects"
LOOK_AGAIN = 0.2
"""What a project waits for need not be of a kind that is watched here."""


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
        """The project itself, or the one that the object lives in."""
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
            return None  # it is looked at again when its namespace has changed
        await self._report(project)
        return None

    async def _keep_namespace(self, project: Object) -> bool:
        """Whether the project has its namespace. One that is missing is made again, empty as it is."""
        name = name_of(project)
        entry = self._namespaces.peek("", f"{self._prefix}{name}")
        if entry is not None and "deletionTimestamp" in metadata(decode(entry)):
            message = f"namespace {self._prefix}{name} is being deleted with all that is in it; it is made again then"
            await self._write(project, condition("Ready", FALSE, "NamespaceTerminating", message))
            return False
        if entry is None:
            with suppress(AlreadyExists):
                await self._namespaces.create(build_namespace(self._prefix, name), "", by_the_server())
                message = f"namespace {self._prefix}{name} was gone with all that was in it, and was made again"
                await record(self._registry, project, "NamespaceRestored", message, type="Warning")
        return True

    async def _end(self, project: Object) -> float | None:
        """Empties the project; when nothing is left, takes the finalizer off."""
        name = name_of(project)
        if not has_finalizer(project, FINALIZER):
            return None
        namespace = f"{self._prefix}{name}"
        waiting = await self._emptying.go_on(namespace)
        if waiting is not None:
            message = f"being deleted: {waiting}"
            await self._write(project, condition("Ready", FALSE, "Deleting", message))
            return LOOK_AGAIN
        await self._projects.modify("", name, lambda current: remove_finalizer(current, FINALIZER), by_the_server())
        message = f"namespace {namespace} is gone with everything that was in it"
        await record(self._registry, project, "NamespaceDeleted", message)
        return None

    async def _report(self, project: Object) -> None:
        """Ready; the first time an Event says so, too."""
        message = f"namespace {self._prefix}{name_of(project)} is there"
        await self._write(project, condition("Ready", TRUE, "NamespaceReady", message))
        if find_condition(project.get("status"), "Ready") is None:
            await record(self._registry, project, "NamespaceReady", message)

    async def _write(self, project: Object, ready: Object) -> None:
        """Writes the status if it says something new."""
        now = timestamp(self._registry.clock.now())

        def observed(current: Object) -> Object:
            return {**current, "status": self._status(current, ready, now)}

        if not identical(observed(project)["status"], project.get("status") or {}):
            writing = by_the_server("status")
            await self._projects.modify("", name_of(project), observed, writing)

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
