"""ClusterRoleBindings inside a virtual cluster for its users: applied while it exists, removed with the instance.

In a virtual cluster that this server deployed, they are deleted with it. An imported one continues to exist, so a
finalizer delays the deletion of the instance until they are deleted. It is set before the first binding is created.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from fairlead.controllers.instances.cluster_access import ClusterAccess
from fairlead.controllers.instances.instance_reconciler import InstanceReconciler, Removal
from fairlead.controllers.instances.prerequisites import InstanceContext
from fairlead.controllers.instances.remote_errors import INFO, InstanceError, limit_seconds
from fairlead.controllers.instances.remote_namespace import UID_LABEL, VIRTUAL_CLUSTER_LABEL, ownership_labels
from fairlead.controllers.instances.role_bindings import bind_cluster_roles, build_role_bindings, unbind_cluster_roles
from fairlead.controllers.instances.status import VC_READY
from fairlead.core.errors import ApiError
from fairlead.core.objects import Object
from fairlead.domain.typed_objects import ABANDON_ANNOTATION, VirtualClusterInstance
from fairlead.kinds.instances.remote_instances import VIRTUAL_CLUSTER
from fairlead.registry.codec import decode
from fairlead.registry.conditions import FALSE, TRUE, condition, record_event

FINALIZER = "service.sh/virtual-cluster-access"
ACCESS_SYNCED = "AccessSynced"
"""Whether the roles of its users are bound inside. Not required for Ready: it may have RBAC rules of its own."""
BINDING_TIMEOUT = 15.0
"""Timeout for all bindings of one virtual cluster."""


class VirtualClusterAccess:
    def __init__(
        self,
        context: InstanceContext,
        clusters: ClusterAccess,
        derive: Callable[[VirtualClusterInstance, Object, str], Object],
    ) -> None:
        self._context = context
        self._registry = context.registry
        self._group = context.config.api_group
        self._clusters = clusters
        resource = (self._group, VIRTUAL_CLUSTER.plural)
        self._instances = InstanceReconciler(self._registry, resource, VirtualClusterInstance, FINALIZER, derive)

    async def sync_bindings(self, instance: VirtualClusterInstance) -> Sequence[Object]:
        """Binds the roles of its users, whom the gateway impersonates there. Returns the condition."""
        project = self._context.project(instance)
        if project is None or instance.is_external:
            return ()
        access = instance.rendered.get("access") or {}
        bindings = build_role_bindings(self._context.config.names, instance, access, project)
        try:
            if instance.is_imported:
                await self._instances.claim(instance)
            async with limit_seconds(instance.name, "bind the roles of its users", BINDING_TIMEOUT):
                api = self._clusters.virtual_cluster_api(*instance.key)
                await bind_cluster_roles(api, bindings, self._labels(instance), self._instance_exists)
        except InstanceError as error:
            return (error.as_condition(ACCESS_SYNCED),)
        return (condition(ACCESS_SYNCED, TRUE, "Synced", "the roles of its users are bound in it"),)

    async def remove(self, instance: VirtualClusterInstance) -> float | None:
        """Deletes the bindings. Returns the seconds until the next try; None when done."""
        if not self._instances.has_finalizer(instance):
            return None
        if instance.is_abandoned:
            uid = self._labels(instance)[UID_LABEL]
            message = (
                f'the ClusterRoleBindings in virtual cluster "{instance.name}" were not deleted; if they still exist, '
                f"delete them yourself: kubectl delete clusterrolebindings -l {UID_LABEL}={uid}"
            )
            await self._instances.abandon(instance, ACCESS_SYNCED, message)
            return None

        async def delete_all() -> None:
            async with (
                limit_seconds(instance.name, "delete the ClusterRoleBindings of its users", BINDING_TIMEOUT),
                self._clusters.virtual_cluster_cleanup_api(*instance.key) as api,
            ):
                removed, others = await unbind_cluster_roles(api, self._labels(instance))
            if summary := _removal_message(removed, others):
                with suppress(ApiError):  # no Event can be created in a terminating namespace
                    await record_event(self._registry, instance.raw, "AccessRemoved", summary)

        return await self._instances.clean_up(
            instance, Removal(delete_all, _blocked_conditions, fields={"online": False})
        )

    def _instance_exists(self, uid: str) -> bool:
        """Whether an instance with this uid exists. Seldom needed, so there is no index."""
        entries = self._registry.view.entries(self._group, VIRTUAL_CLUSTER.plural)
        found = (VirtualClusterInstance(decode(each)) for each in entries if uid.encode() in each.body)
        return any(uid == each.owner_uid for each in found)

    def _labels(self, instance: VirtualClusterInstance) -> Mapping[str, str]:
        project = self._context.project_name(instance)
        return ownership_labels(VIRTUAL_CLUSTER_LABEL, project, instance.name, instance.owner_uid)


def _blocked_conditions(error: InstanceError) -> Sequence[Object]:
    """The conditions of an instance whose deletion is blocked."""
    message = f"{error.message}; to delete this and leave them behind, annotate it with {ABANDON_ANNOTATION}=true"
    blocked = f"the ClusterRoleBindings of its users cannot be deleted: {message}"
    waiting = f"waiting for the deletion of the ClusterRoleBindings of its users: {message}"
    return (
        condition(ACCESS_SYNCED, FALSE, error.reason, blocked, error.severity),
        condition(VC_READY, FALSE, "Deleting", waiting, INFO),
    )


def _removal_message(removed: Sequence[str], retained_bindings: Mapping[str, str]) -> str:
    parts = [f"deleted in it: ClusterRoleBindings {', '.join(removed)}"] if removed else []
    parts += [f"{name} was kept, since {reason}" for name, reason in retained_bindings.items()]
    return "; ".join(parts)
