"""The `objects` of a template inside a virtual cluster: applied while it runs, deleted when the template drops them.

They are applied with the credential of the virtual cluster: its owner has all permissions in there, so the trust of
the template does not matter. Those of an unchanged template are applied again from time to time, so that changes of
others are undone. Nothing is applied in a virtual cluster that was imported.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fairlead.controllers.instances.cluster_access import ClusterAccess
from fairlead.controllers.instances.confinement import template_trust
from fairlead.controllers.instances.instance_reconciler import InstanceReconciler
from fairlead.controllers.instances.prerequisites import InstanceContext
from fairlead.controllers.instances.remote_errors import InstanceError, limit_seconds
from fairlead.controllers.instances.remote_namespace import VIRTUAL_CLUSTER_LABEL, RemoteNamespace, ownership_labels
from fairlead.controllers.instances.remote_objects import (
    RemoteObjects,
    parse_objects,
    parse_recorded_objects,
    record_objects,
)
from fairlead.core.objects import Object
from fairlead.domain.typed_objects import VIRTUAL_CLUSTER_OBJECTS, VirtualClusterInstance
from fairlead.kinds.instances.templates import UNMARKED

DEFAULT_NAMESPACE = "default"
RESYNC_SECONDS = 240.0
"""After this time, the next full reconcile, one in five minutes, applies the objects of an unchanged template again."""
APPLY_TIMEOUT = 60.0
"""Timeout for all objects of one virtual cluster."""


@dataclass(frozen=True, slots=True)
class InnerObjectsResult:
    """The instance with what its status records now, how many objects its template has inside, and why they are not all
    applied."""

    instance: VirtualClusterInstance
    count: int = 0
    error: InstanceError | None = None


@dataclass(frozen=True, slots=True)
class _Applied:
    uid: str
    text: str
    due: float


class InnerObjects:
    def __init__(
        self, reconciler: InstanceReconciler[VirtualClusterInstance], context: InstanceContext, clusters: ClusterAccess
    ) -> None:
        self._reconciler = reconciler
        self._context = context
        self._clusters = clusters
        self._applied: dict[tuple[str, str], _Applied] = {}
        """What was last applied, by namespace and name of the instance."""

    async def sync(self, instance: VirtualClusterInstance) -> InnerObjectsResult:
        """Applies the objects if they have changed, or if it is time. Errors are in the result."""
        text = instance.rendered.get("objects") or ""
        if instance.is_deployed_elsewhere or template_trust(instance) == UNMARKED:
            return InnerObjectsResult(instance)
        try:
            objects = parse_objects(text)
            previous = parse_recorded_objects(instance, VIRTUAL_CLUSTER_OBJECTS)
            if (objects or previous) and self._is_due(instance, text):
                # Recorded before they are applied, since any of them may exist if that fails.
                instance = await self._record(instance, previous, objects)
                await self._apply(instance, objects, previous)
                instance = await self._record(instance, objects)
                due = self._context.registry.clock.monotonic() + RESYNC_SECONDS
                self._applied[instance.key] = _Applied(instance.uid, text, due)
        except InstanceError as error:
            self.forget(instance.key)
            return InnerObjectsResult(instance, 0, error)
        return InnerObjectsResult(instance, len(objects))

    def forget(self, key: tuple[str, str]) -> None:
        """They are applied again with the next sync, if the instance still exists."""
        self._applied.pop(key, None)

    def _is_due(self, instance: VirtualClusterInstance, text: str) -> bool:
        known = self._applied.get(instance.key)
        is_same = known is not None and (known.uid, known.text) == (instance.uid, text)
        return known is None or not is_same or self._context.registry.clock.monotonic() >= known.due

    async def _record(self, instance: VirtualClusterInstance, *lists: Sequence[Object]) -> VirtualClusterInstance:
        """Writes the status with these objects. Returns the instance with it, and otherwise as it was."""
        fields = record_objects(instance, *lists, field=VIRTUAL_CLUSTER_OBJECTS)
        if not fields:
            return instance
        await self._reconciler.write_status(instance, (), **fields)
        return VirtualClusterInstance({**instance.raw, "status": {**instance.status, **fields}})

    async def _apply(
        self, instance: VirtualClusterInstance, objects: Sequence[Object], previous: Sequence[Object]
    ) -> None:
        target = RemoteNamespace(instance.name, DEFAULT_NAMESPACE, self._labels(instance))
        async with limit_seconds(instance.name, "apply the objects of its template", APPLY_TIMEOUT):
            api = self._clusters.virtual_cluster_api(*instance.key)
            await RemoteObjects(api, target, is_whole_cluster=True).apply(objects, previous)

    def _labels(self, instance: VirtualClusterInstance) -> Mapping[str, str]:
        project = self._context.project_name(instance)
        return ownership_labels(VIRTUAL_CLUSTER_LABEL, project, instance.name, instance.owner_uid)
