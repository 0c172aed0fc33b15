"""Keeps a project's status true, and ends its namespace before the project itself goes."""

from fairlead.admission.project_namespace import FINALIZER
from fairlead.controllers.loop import itself
from fairlead.core.clock import timestamp
from fairlead.core.errors import NotFound
from fairlead.core.objects import Object, metadata
from fairlead.core.user import CONTROLLER
from fairlead.registry.record import decode
from fairlead.registry.recording import record
from fairlead.registry.registry import Registry
from fairlead.registry.writing import Deleting, Writing
from fairlead.storage.contract import Key

LOOK_AGAIN = 0.2


class Projects:
    name, workers = "projects", 1
    concerned = staticmethod(itself)

    def __init__(self, registry: Registry, api_group: str, prefix: str) -> None:
        self.watches = ((api_group, "projects"),)
        self._registry = registry
        self._projects = registry.resource(api_group, "projects")
        self._prefix = prefix

    async def reconcile(self, key: Key) -> float | None:
        entry = self._projects.peek("", key[3])
        if entry is None:
            return None
        project = decode(entry)
        if "deletionTimestamp" in metadata(project):
            return await self._end(project)
        await self._report(project)
        return None

    async def _end(self, project: Object) -> float | None:
        """Deletes the namespace and waits for it, then takes the finalizer off."""
        name = metadata(project)["name"]
        namespace = f"{self._prefix}{name}"
        try:
            await self._registry.resource("", "namespaces").delete(
                "", namespace, Deleting(), Writing(CONTROLLER, "fairlead")
            )
            return LOOK_AGAIN
        except NotFound:
            await self._projects.modify("", name, _released, Writing(CONTROLLER, "fairlead"))
            return None

    async def _report(self, project: Object) -> None:
        """Ready, for the generation that was looked at; the first time an Event says so, too."""
        status = project.get("status") or {}
        if status.get("observedGeneration") == metadata(project)["generation"]:
            return
        now = timestamp(self._registry.clock.now())
        name = metadata(project)["name"]
        message = f"namespace {self._prefix}{name} is there"

        ready = {"type": "Ready", "status": "True", "reason": "NamespaceReady", "message": message}
        first = not _has_ready(project)

        def observed(current: Object) -> Object:
            conditions = (current.get("status") or {}).get("conditions") or []
            if not _has_ready(current):
                conditions = [*conditions, {**ready, "lastTransitionTime": now}]
            seen = {"observedGeneration": metadata(current)["generation"], "conditions": conditions}
            return {**current, "status": {**(current.get("status") or {}), **seen}}

        await self._projects.modify("", name, observed, Writing(CONTROLLER, "fairlead", subresource="status"))
        if first:
            await record(self._registry, project, "NamespaceReady", message)


def _has_ready(project: Object) -> bool:
    return any(each["type"] == "Ready" for each in (project.get("status") or {}).get("conditions") or ())


def _released(project: Object) -> Object:
    meta = metadata(project)
    finalizers = [each for each in meta.get("finalizers") or () if each != FINALIZER]
    return {**project, "metadata": {**meta, "finalizers": finalizers}}
