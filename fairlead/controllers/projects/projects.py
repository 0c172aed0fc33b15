"""Reconciles projects: namespace, status with quota usage, and ordered teardown on deletion.

The namespace of a project is created again if it is missing. The status shows whether the project can be used, and the
usage of its quotas. A deleted project first deletes its instances, kind by kind, while the secrets that they need still
exist, then its namespace with all the rest. Meanwhile Ready is False and names the objects and finalizers that remain.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress

from fairlead.admission.namespaces import PROJECT_FINALIZER, build_namespace
from fairlead.core.call import NAMESPACE_RESOURCE
from fairlead.core.clock import timestamp
from fairlead.core.concurrency import iter_slices
from fairlead.core.errors import AlreadyExists, NotFound
from fairlead.core.objects import Object, has_finalizer, json_equal, metadata, name_of, remove_finalizer
from fairlead.domain.quotas import TEAM, USER, count_usage, quota_limits
from fairlead.kinds import DELETION_ORDER
from fairlead.kinds.projects.project import PROJECT
from fairlead.registry.codec import decode
from fairlead.registry.conditions import FALSE, TRUE, condition, find_condition, record_event, with_condition
from fairlead.registry.registry import Registry
from fairlead.registry.resource import Resource
from fairlead.registry.write_options import DeleteOptions, server_write_options
from fairlead.storage.contract import Key
from fairlead.storage.view.view import Entry

REQUEUE_SECONDS = 0.2
"""Requeue delay during deletion: the remaining objects may be of kinds that are not watched here."""
DELETE_BATCH_SIZE = 20
"""How many deletes are done before yielding to the event loop."""


class ProjectController:
    name, workers = "projects", 1

    def __init__(self, registry: Registry, api_group: str, namespace_prefix: str) -> None:
        self._registry = registry
        self._group = api_group
        self._namespace_prefix = namespace_prefix
        self._projects = registry.resource(api_group, PROJECT.plural)
        self._namespaces = registry.resource(*NAMESPACE_RESOURCE)
        self._teardown = NamespaceTeardown(registry, api_group)
        kinds = (each.kind for each in registry.namespaced_resources() if each.kind.persisted)
        self._plurals = tuple(kind.plural for kind in kinds if kind.group == api_group)
        instances = ((api_group, plural) for plural in self._plurals)
        self.watches = ((api_group, PROJECT.plural), NAMESPACE_RESOURCE, *instances)

    def keys_for(self, key: Key, entry: Entry | None) -> Iterable[Key]:
        """The project itself, or the project of the namespace that the object is in."""
        if key[1] == PROJECT.plural:
            yield key
        elif key[:2] == NAMESPACE_RESOURCE:
            if key[3].startswith(self._namespace_prefix):
                yield self._projects.kind.key("", key[3].removeprefix(self._namespace_prefix))
        elif key[2].startswith(self._namespace_prefix):
            yield self._projects.kind.key("", key[2].removeprefix(self._namespace_prefix))

    async def reconcile(self, key: Key) -> float | None:
        entry = self._projects.get_cached("", key[3])
        if entry is None:
            return None
        project = decode(entry)
        if "deletionTimestamp" in metadata(project):
            return await self._finalize(project)
        if not await self._ensure_namespace(project):
            return None  # a change of its namespace triggers the next reconcile
        await self._report_ready(project)
        return None

    async def _ensure_namespace(self, project: Object) -> bool:
        """Whether the project has its namespace. A missing one is created again, empty."""
        name = name_of(project)
        entry = self._namespaces.get_cached("", f"{self._namespace_prefix}{name}")
        if entry is not None and "deletionTimestamp" in metadata(decode(entry)):
            message = (
                f"namespace {self._namespace_prefix}{name} is terminating; it will be created again, without its "
                "content"
            )
            await self._write_status(project, condition("Ready", FALSE, "NamespaceTerminating", message))
            return False
        if entry is None:
            with suppress(AlreadyExists):
                await self._namespaces.create(build_namespace(self._namespace_prefix, name), "", server_write_options())
                message = (
                    f"namespace {self._namespace_prefix}{name} was deleted with all its content, and was created again"
                )
                await record_event(self._registry, project, "NamespaceRestored", message, type="Warning")
        return True

    async def _finalize(self, project: Object) -> float | None:
        """Deletes the content of the project; when nothing is left, removes the finalizer."""
        name = name_of(project)
        if not has_finalizer(project, PROJECT_FINALIZER):
            return None
        namespace = f"{self._namespace_prefix}{name}"
        remaining = await self._teardown.step(namespace)
        if remaining is not None:
            message = f"being deleted: {remaining}"
            await self._write_status(project, condition("Ready", FALSE, "Deleting", message))
            return REQUEUE_SECONDS
        await self._projects.modify(
            "", name, lambda current: remove_finalizer(current, PROJECT_FINALIZER), server_write_options()
        )
        message = f"namespace {namespace} was deleted with all its content"
        await record_event(self._registry, project, "NamespaceDeleted", message)
        return None

    async def _report_ready(self, project: Object) -> None:
        """Sets Ready to True; the first time, also records an Event."""
        message = f"namespace {self._namespace_prefix}{name_of(project)} exists"
        await self._write_status(project, condition("Ready", TRUE, "NamespaceReady", message))
        if find_condition(project.get("status"), "Ready") is None:
            await record_event(self._registry, project, "NamespaceReady", message)

    async def _write_status(self, project: Object, ready: Object) -> None:
        """Writes the status if it has changed."""
        now = timestamp(self._registry.clock.now())

        def edit(current: Object) -> Object:
            return {**current, "status": self._status(current, ready, now)}

        if not json_equal(edit(project)["status"], project.get("status") or {}):
            options = server_write_options("status")
            await self._projects.modify("", name_of(project), edit, options)

    def _status(self, project: Object, ready: Object, now: str) -> Object:
        generation = metadata(project)["generation"]
        known = {**(project.get("status") or {}), "observedGeneration": generation}
        status = with_condition(known, ready, now, generation)
        quotas = quota_status(project, self._project_objects(name_of(project)), self._plurals)
        status.pop("quotas", None)
        return {**status, "quotas": quotas} if quotas else status

    def _project_objects(self, project: str) -> Iterable[tuple[str, Object]]:
        for plural in self._plurals:
            for entry in self._registry.view.entries(self._group, plural, f"{self._namespace_prefix}{project}"):
                yield plural, decode(entry)


class NamespaceTeardown:
    """Deletes the content of a project's namespace in order. Called repeatedly until nothing is left."""

    def __init__(self, registry: Registry, api_group: str) -> None:
        self._registry = registry
        by_plural = {each.kind.plural: each for each in registry.namespaced_resources() if each.kind.group == api_group}
        self._ordered_resources = [by_plural[plural] for plural in DELETION_ORDER if plural in by_plural]
        self._all_resources = [each for each in registry.namespaced_resources() if each.kind.persisted]

    async def step(self, namespace: str) -> str | None:
        """Deletes what is next in order. Returns a message about what remains; None once the namespace is deleted."""
        for resource in self._ordered_resources:
            for count, name in enumerate(self._object_names(resource, namespace)):
                if count % DELETE_BATCH_SIZE == DELETE_BATCH_SIZE - 1:
                    await asyncio.sleep(
                        0
                    )  # deleting an object that waits for finalizers writes nothing, so nothing is awaited
                with suppress(NotFound):  # it was deleted meanwhile
                    options = DeleteOptions(propagation="Background")
                    await resource.delete(namespace, name, options, server_write_options())
            if self._object_names(resource, namespace):
                return await self._describe_remaining(namespace)
        try:
            namespaces = self._registry.resource("", "namespaces")
            await namespaces.delete("", namespace, DeleteOptions(), server_write_options())
        except NotFound:
            return None
        return await self._describe_remaining(namespace)

    def _object_names(self, resource: Resource, namespace: str) -> list[str]:
        kind = resource.kind
        return [entry.key[3] for entry in self._registry.view.entries(kind.group, kind.plural, namespace)]

    async def _describe_remaining(self, namespace: str) -> str:
        found = [each async for each in self._count_by_kind(namespace)]
        if not found:
            return f"waiting for the namespace {namespace}"
        return "waiting for " + ", ".join(found)

    async def _count_by_kind(self, namespace: str) -> AsyncIterator[str]:
        """The number of objects of each kind, with their finalizers."""
        for resource in self._all_resources:
            kind, finalizers = resource.kind, dict[str, None]()
            entries = self._registry.view.entries(kind.group, kind.plural, namespace)
            async for some in iter_slices(entries, lambda entry: len(entry.body)):
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
    project_limits = quota_limits(project, "project", counted)
    user_limits = quota_limits(project, "user", counted)
    if not project_limits and not user_limits:
        return None
    used = count_usage(objects)
    status: Object = {}
    if project_limits:
        status["project"] = {"limit": project_limits, "used": _format_amounts(used.total, project_limits)}
    if user_limits:
        by_kind: dict[str, Object] = {USER: {}, TEAM: {}}
        for (kind, name), amounts in sorted(used.by_owner.items()):
            by_kind[kind][name] = _format_amounts(amounts, user_limits)
        status["user"] = {"limit": user_limits, "used": {"users": by_kind[USER], "teams": by_kind[TEAM]}}
    return status


def _format_amounts(amounts: Counter[str], keys: Mapping[str, str]) -> Object:
    return {key: str(amounts[key]) for key in keys}
