"""The namespace that a space or a virtual cluster has in a connected cluster, with all that is in it.

For `spaces.py` and `virtual_clusters.py`. The place is chosen once. The namespace and its bindings are applied with the
stored credential of the cluster; for the objects, see `confinement.py`. On deletion, the cleanup is skipped if the
Cluster object is deleted, or by an annotation of the instance.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from fairlead.controllers.instances.cluster_access import ClusterAccess
from fairlead.controllers.instances.confinement import TEMPLATE_NOT_TRUSTED, TemplatePlan, check_owner
from fairlead.controllers.instances.drift import DriftTracker
from fairlead.controllers.instances.prerequisites import InstanceContext
from fairlead.controllers.instances.remote_errors import ERROR, INFO, InstanceError, translate_errors
from fairlead.controllers.instances.remote_instance import ChangedMeanwhile, InstanceStore, Removal
from fairlead.controllers.instances.remote_namespace import (
    DELETING,
    RecordingApi,
    RemoteNamespace,
    choose_namespace,
    ensure_namespace,
    get_or_none,
    ownership_labels,
)
from fairlead.controllers.instances.remote_objects import RemoteObjects
from fairlead.controllers.instances.role_bindings import bind_roles
from fairlead.core.objects import Object, name_of
from fairlead.domain.views import ABANDON_ANNOTATION, SPACE_READY, SPACE_SYNCED, Project, RemoteInstance
from fairlead.registry.conditions import FALSE, condition
from fairlead.registry.names import dns_label_errors

MAX_LISTED_OBJECTS = 5

R = TypeVar("R", bound=RemoteInstance)


@dataclass(frozen=True, slots=True)
class DesiredContents:
    """The desired content of a namespace. `previous` are objects that may exist from earlier reconciles."""

    bindings: Sequence[Object]
    objects: Sequence[Object]
    previous: Sequence[Object] = ()


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """`retained` are objects of a former template that the owner is not permitted to delete."""

    is_usable: bool
    is_new: bool
    retained: Sequence[Object]
    message: str


@dataclass(frozen=True, slots=True)
class NamespaceContents(Generic[R]):
    """For the instances of one kind. `label` is the label key of the kind, and `pattern` its field in the
    `namespacePattern` of projects."""

    store: InstanceStore[R]
    context: InstanceContext
    clusters: ClusterAccess
    drift: DriftTracker
    label: str
    pattern: str

    async def claim(self, instance: R, project: Project, **others: str) -> R:
        """Chooses the place of the instance, once, and adds the finalizer. `others` are further fields of its
        clusterRef. Returns the updated instance. Raises InstanceError and ChangedMeanwhile."""
        cluster = self.context.cluster(instance)
        if cluster is not None and cluster.is_unusable and not self.store.has_finalizer(instance):
            advice = "use another cluster, or set its spec.unusable to false"
            message = f'cluster "{cluster.name}" accepts no new instances; {advice}'
            raise InstanceError("ClusterUnusable", message, ERROR)
        pattern = project.namespace_patterns.get(self.pattern) or ""
        namespace = instance.remote_namespace or choose_namespace(self.label, project.name, instance.name, pattern)
        for fault in dns_label_errors(namespace):
            advice = "delete this instance and create one with another namespace"
            raise InstanceError("InvalidNamespace", f"spec.clusterRef.namespace {fault}; {advice}", ERROR)
        place = {**instance.cluster_ref, "namespace": namespace, **others}
        claimed = await self.store.claim(instance, place)
        if not claimed.is_resolved:  # the rendered template is outdated
            raise ChangedMeanwhile
        return claimed

    def target(self, instance: R) -> RemoteNamespace:
        project = self.context.project_name(instance)
        labels = ownership_labels(self.label, project, instance.name, instance.owner_uid)
        return RemoteNamespace(instance.cluster, instance.remote_namespace, labels)

    async def apply(self, instance: R, plan: TemplatePlan, desired: DesiredContents) -> ApplyResult:
        """Applies everything. Raises InstanceError."""
        target = self.target(instance)
        location = target.location
        if plan.impersonate_user and not plan.skips_contents and (desired.objects or desired.previous):
            check_owner(self.store.registry, self.store.group, instance)
        retained: Sequence[Object] = ()
        with translate_errors(target.cluster, f'create namespace "{target.namespace}" and its content'):
            async with self.drift.track_pass(instance, target, self.clusters.cluster_api(target.cluster)) as api:
                if plan.skips_contents:
                    await _require_namespace(api, target)
                is_usable = await ensure_namespace(
                    api, target, plan.template, pod_security=plan.pod_security, leave_as_is=plan.skips_contents
                )
                await bind_roles(api, target, desired.bindings)
                if not plan.skips_contents:
                    user = plan.impersonate_user
                    writer = api.with_api(self.clusters.cluster_api(target.cluster, user)) if user else None
                    objects = RemoteObjects(api, target, writer, user)
                    retained = await objects.apply(desired.objects, desired.previous)
        caveats = f"{self.drift.watch_caveat(instance)}{_describe_retained(retained)}{plan.omitted_note}"
        return ApplyResult(is_usable, api.has_created_namespace, retained, f"{location} is in sync{caveats}")

    async def remove(self, instance: R, tear_down: Callable[[RemoteNamespace], Awaitable[None]]) -> float | None:
        """Continues the cleanup. Returns the requeue delay; None when the finalizer is removed."""
        if not self.store.has_finalizer(instance):
            return None
        # Without a valid clusterRef, nothing can have been created for it.
        if not instance.cluster or any(dns_label_errors(instance.remote_namespace)):
            await self.store.release(instance)
            return None
        target = self.target(instance)
        location = target.location
        if instance.is_abandoned or self.context.cluster(instance) is None:
            message = f"{location} was not deleted; if it still exists, delete it yourself"
            await self.store.release(instance, message)
            return None

        async def delete_all() -> None:
            self.drift.track_removal(instance, target)
            with translate_errors(target.cluster, f"delete {location}"):
                await tear_down(target)

        def waiting(remaining: InstanceError) -> Sequence[Object]:
            detail = f": {remaining.message}" if remaining.message else ""
            message = f"waiting for the deletion of {location}{detail}"
            return (condition(SPACE_READY, FALSE, remaining.reason, message, remaining.severity),)

        def blocked(error: InstanceError) -> Sequence[Object]:
            advice = f"to delete this and leave {location} behind, annotate it with {ABANDON_ANNOTATION}=true"
            message = f"{location} cannot be deleted: {error.message}; {advice}"
            synced = condition(SPACE_SYNCED, FALSE, error.reason, message, error.severity)
            return synced, condition(SPACE_READY, FALSE, DELETING, f"waiting until {location} can be deleted", INFO)

        begins = waiting(InstanceError(DELETING, "", INFO))
        removal = Removal(delete_all, blocked, waiting, begins=begins, fields={"online": False})
        return await self.store.clean_up(instance, removal)


def _describe_retained(retained: Sequence[Object]) -> str:
    if not retained:
        return ""
    titles = ", ".join(f"{each['kind']} {name_of(each)}" for each in retained[:MAX_LISTED_OBJECTS])
    more = f" and {len(retained) - MAX_LISTED_OBJECTS} more" if len(retained) > MAX_LISTED_OBJECTS else ""
    return f"; {titles}{more} of a former template were kept, since the owner is not permitted to delete them"


async def _require_namespace(api: RecordingApi, target: RemoteNamespace) -> None:
    """A namespace that is created again without the objects of its template would be less restricted than before."""
    if await get_or_none(api, target.path) is None:
        message = (
            f"{target.location} was deleted, and is not created again until an administrator has marked its template: "
            "`kubectl annotate TEMPLATE NAME service.sh/trusted=true`"
        )
        raise InstanceError(TEMPLATE_NOT_TRUSTED, message, ERROR)
