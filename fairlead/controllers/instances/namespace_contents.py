"""The namespace that a space or a virtual cluster has in a connected cluster, with all that is in it.

For `spaces.py` and `virtual_clusters.py`. The place is chosen once. The namespace and its bindings are applied with the
stored credential of the cluster; for the objects, see `confinement.py`. On deletion, the cleanup is skipped if the
Cluster object is deleted, or by an annotation of the instance.

The status records the objects of the template, so that those that the template drops are deleted: before they are
applied, since any of them may exist if that fails. It also records the Helm releases. If the namespace does not exist,
they were deleted with it, so their records are removed before it is created.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from fairlead.controllers.instances.cluster_access import ClusterAccess
from fairlead.controllers.instances.confinement import TEMPLATE_NOT_TRUSTED, TemplatePlan, check_owner
from fairlead.controllers.instances.drift import DriftTracker
from fairlead.controllers.instances.instance_reconciler import ChangedMeanwhile, InstanceReconciler, Removal
from fairlead.controllers.instances.prerequisites import InstanceContext
from fairlead.controllers.instances.remote_errors import ERROR, INFO, InstanceError, translate_errors
from fairlead.controllers.instances.remote_namespace import (
    DELETING,
    RemoteNamespace,
    ensure_namespace,
    ownership_labels,
)
from fairlead.controllers.instances.remote_objects import RemoteObjects, parse_recorded_objects, record_objects
from fairlead.controllers.instances.role_bindings import bind_roles
from fairlead.core.objects import Object, name_of
from fairlead.domain.typed_objects import ABANDON_ANNOTATION, SPACE_READY, SPACE_SYNCED, Project, RemoteInstance
from fairlead.registry.conditions import FALSE, condition
from fairlead.registry.names import dns_label_errors

MAX_LISTED_OBJECTS = 5

R = TypeVar("R", bound=RemoteInstance)


@dataclass(frozen=True, slots=True)
class DesiredContents:
    """The desired content of a namespace: RoleBindings, and the objects of the template."""

    bindings: Sequence[Object]
    objects: Sequence[Object]


@dataclass(frozen=True, slots=True)
class ApplyResult(Generic[R]):
    """`instance` is the one that was applied, with what its status records now."""

    instance: R
    is_usable: bool
    message: str


@dataclass(frozen=True, slots=True)
class NamespaceContents(Generic[R]):
    """For the instances of one kind. `label` is the label key of the kind, and `pattern` its field in the
    `namespacePattern` of projects."""

    reconciler: InstanceReconciler[R]
    context: InstanceContext
    clusters: ClusterAccess
    drift: DriftTracker
    label: str
    pattern: str

    async def claim(self, instance: R, project: Project, **others: str) -> R:
        """Chooses the place of the instance, once, and adds the finalizer. `others` are further fields of its
        clusterRef. Returns the updated instance. Raises InstanceError and ChangedMeanwhile."""
        cluster = self.context.cluster(instance)
        if cluster is not None and cluster.is_unusable and not self.reconciler.has_finalizer(instance):
            advice = "use another cluster, or set its spec.unusable to false"
            message = f'cluster "{cluster.name}" accepts no new instances; {advice}'
            raise InstanceError("ClusterUnusable", message, ERROR)
        namespace = instance.remote_namespace
        if not namespace:
            namespace = self.context.choose_namespace(instance, project, self.label, self.pattern)
        for fault in dns_label_errors(namespace):
            advice = "delete this instance and create one with another namespace"
            raise InstanceError("InvalidNamespace", f"spec.clusterRef.namespace {fault}; {advice}", ERROR)
        place = {**instance.cluster_ref, "namespace": namespace, **others}
        claimed = await self.reconciler.claim(instance, place)
        if not claimed.is_resolved:  # the rendered template is outdated
            raise ChangedMeanwhile
        return claimed

    def target(self, instance: R) -> RemoteNamespace:
        project = self.context.project_name(instance)
        labels = ownership_labels(self.label, project, instance.name, instance.owner_uid)
        return RemoteNamespace(instance.cluster, instance.remote_namespace, labels)

    async def apply(self, instance: R, plan: TemplatePlan, desired: DesiredContents) -> ApplyResult[R]:
        """Applies everything, and deletes the objects of a former template. Raises InstanceError."""
        target = self.target(instance)
        location = target.location
        previous = parse_recorded_objects(instance)
        if not plan.skips_contents:
            if plan.impersonate_user and (desired.objects or previous):
                check_owner(self.reconciler.registry, self.reconciler.group, instance)
            instance = await self._record(instance, record_objects(instance, previous, desired.objects))
        retained: Sequence[Object] = ()

        async def before_creation() -> None:
            nonlocal instance
            if plan.skips_contents:
                raise _missing_namespace_error(target)
            instance = await self._record(instance, instance.fields_without_releases)

        with translate_errors(target.cluster, f'create namespace "{target.namespace}" and its content'):
            async with self.drift.track_pass(instance, target, self.clusters.cluster_api(target.cluster)) as api:
                is_usable = await ensure_namespace(
                    api,
                    target,
                    plan.template,
                    pod_security=plan.pod_security,
                    leave_as_is=plan.skips_contents,
                    before_creation=before_creation,
                )
                await bind_roles(api, target, desired.bindings)
                if not plan.skips_contents:
                    user = plan.impersonate_user
                    writer = api.with_api(self.clusters.cluster_api(target.cluster, user)) if user else None
                    objects = RemoteObjects(api, target, writer, user)
                    retained = await objects.apply(desired.objects, previous)
        if not plan.skips_contents:
            instance = await self._record(instance, record_objects(instance, desired.objects, retained))
        caveats = f"{self.drift.watch_caveat(instance)}{_describe_retained(retained)}{plan.omitted_note}"
        return ApplyResult(instance, is_usable, f"{location} is in sync{caveats}")

    async def _record(self, instance: R, fields: Object) -> R:
        """Writes fields of the status. Returns the instance with them, and otherwise as it was: the conditions that
        follow are about what was applied, even if its template has changed meanwhile."""
        if not fields:
            return instance
        await self.reconciler.write_status(instance, (), **fields)
        return type(instance)({**instance.raw, "status": {**instance.status, **fields}})

    async def remove(self, instance: R, tear_down: Callable[[RemoteNamespace], Awaitable[None]]) -> float | None:
        """Continues the cleanup. Returns the requeue delay; None when the finalizer is removed."""
        if not self.reconciler.has_finalizer(instance):
            return None
        # Without a valid clusterRef, nothing can have been created for it.
        if not instance.cluster or any(dns_label_errors(instance.remote_namespace)):
            await self.reconciler.release(instance)
            return None
        target = self.target(instance)
        location = target.location
        if instance.is_abandoned or self.context.cluster(instance) is None:
            message = f"{location} was not deleted; if it still exists, delete it yourself"
            await self.reconciler.abandon(instance, SPACE_READY, message)
            return None

        async def delete_all() -> None:
            self.drift.track_removal(instance, target)
            with translate_errors(target.cluster, f"delete {location}"):
                await tear_down(target)

        advice = f"to delete this and leave {location} behind, annotate it with {ABANDON_ANNOTATION}=true"

        def waiting(remaining: InstanceError) -> Sequence[Object]:
            detail = f": {remaining.message}; {advice}" if remaining.message else ""
            message = f"waiting for the deletion of {location}{detail}"
            return (condition(SPACE_READY, FALSE, remaining.reason, message, remaining.severity),)

        def blocked(error: InstanceError) -> Sequence[Object]:
            message = f"{location} cannot be deleted: {error.message}; {advice}"
            synced = condition(SPACE_SYNCED, FALSE, error.reason, message, error.severity)
            return synced, condition(SPACE_READY, FALSE, DELETING, f"waiting until {location} can be deleted", INFO)

        begins = waiting(InstanceError(DELETING, "", INFO))
        removal = Removal(delete_all, blocked, waiting, begins=begins, fields={"online": False})
        return await self.reconciler.clean_up(instance, removal)


def _describe_retained(retained: Sequence[Object]) -> str:
    if not retained:
        return ""
    titles = ", ".join(f"{each['kind']} {name_of(each)}" for each in retained[:MAX_LISTED_OBJECTS])
    more = f" and {len(retained) - MAX_LISTED_OBJECTS} more" if len(retained) > MAX_LISTED_OBJECTS else ""
    return f"; {titles}{more} of a former template were kept, since the owner is not permitted to delete them"


def _missing_namespace_error(target: RemoteNamespace) -> InstanceError:
    """A namespace that is created again without the objects of its template would be less restricted than before."""
    message = (
        f"{target.location} was deleted, and is not created again until an administrator has marked its template: "
        "`kubectl annotate TEMPLATE NAME service.sh/trusted=true`"
    )
    return InstanceError(TEMPLATE_NOT_TRUSTED, message, ERROR)
