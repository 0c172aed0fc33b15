"""ClusterRoleBindings inside a virtual cluster for its users: applied while it exists, removed with the instance.

For `virtual_clusters.py`. In a virtual cluster that this server deployed, they are deleted with it. An imported one
continues to exist, so a finalizer delays the deletion of the instance until they are deleted. It is set before the
first binding is created.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Protocol

from fairlead.controllers.instances.prerequisites import Setting
from fairlead.controllers.instances.remote_errors import INFO, WARNING, Trouble, troubles
from fairlead.controllers.instances.remote_instance import ABANDON, ConnectedInstances, is_abandoned
from fairlead.controllers.instances.remote_names import UID, VIRTUAL_CLUSTER, marks
from fairlead.controllers.instances.remote_namespace import Api, bind_cluster_roles, unbind_cluster_roles
from fairlead.controllers.instances.role_bindings import role_bindings
from fairlead.controllers.instances.vcluster_release import ACCESS, READY
from fairlead.controllers.runtime.backoff import RETRY, jittered
from fairlead.core.errors import ApiError
from fairlead.core.objects import Object, dig, metadata, name_of
from fairlead.registry.codec import decode
from fairlead.registry.conditions import FALSE, TRUE, condition
from fairlead.registry.events import record
from fairlead.registry.registry import Registry

VIRTUAL_CLUSTERS = "virtualclusterinstances"
FINALIZER = "service.sh/virtual-cluster-access"
BINDING_SECONDS = 15.0
"""Timeout for all bindings of one virtual cluster."""


class Ways(Protocol):
    """The needed part of `cluster_access.py`. Both methods raise UpstreamError, and so do the returned objects."""

    def virtual_cluster(self, namespace: str, name: str) -> Api: ...

    def leaving_virtual_cluster(self, namespace: str, name: str) -> AbstractAsyncContextManager[Api]: ...


class VirtualClusterAccess:
    def __init__(self, registry: Registry, setting: Setting, ways: Ways) -> None:
        self._registry = registry
        self._group = setting.api_group
        self._instances = ConnectedInstances(registry, setting, VIRTUAL_CLUSTERS, FINALIZER)
        self._ways = ways
        self._names = setting.names

    async def give(self, instance: Object) -> Sequence[Object]:
        """Binds the roles of its users, whom the gateway impersonates there. Returns the condition."""
        project = self._instances.project(instance)
        if project is None or dig(instance, "spec.external"):
            return ()
        bindings = role_bindings(self._names, instance, dig(instance, "status.virtualCluster") or {}, project)
        instance_key = metadata(instance)["namespace"], name_of(instance)
        try:
            if dig(instance, "spec.config.secretName"):
                await self._instances.hold(instance)
            async with _bounded(name_of(instance), "bind the roles of its users"):
                api = self._ways.virtual_cluster(*instance_key)
                await bind_cluster_roles(api, bindings, self._marks(instance), self._is_living)
        except Trouble as error:
            return (error.as_condition(ACCESS),)
        return (condition(ACCESS, TRUE, "Synced", "the roles of its users are bound in it"),)

    def holds(self, instance: Object) -> bool:
        return self._instances.holds(instance)

    async def take_away(self, instance: Object) -> float | None:
        """Deletes the bindings. Returns the seconds until the next try; None when done."""
        instance_key = metadata(instance)["namespace"], name_of(instance)
        if is_abandoned(instance):
            await self._instances.let_go(instance, _left_behind(instance, self._marks(instance)))
            return None
        try:
            async with (
                _bounded(name_of(instance), "delete the ClusterRoleBindings of its users"),
                self._ways.leaving_virtual_cluster(*instance_key) as api,
            ):
                removed, others = await unbind_cluster_roles(api, self._marks(instance))
        except Trouble as error:
            await self._instances.tell(instance, _stuck(error), online=False)
            return jittered(RETRY)
        if summary := _told(removed, others):
            with suppress(ApiError):  # no Event can be created in a terminating namespace
                await record(self._registry, instance, "AccessRemoved", summary)
        await self._instances.let_go(instance)
        return None

    def _is_living(self, uid: str) -> bool:
        """Whether an instance with this uid exists. Seldom needed, so there is no index."""
        entries = self._registry.view.entries(self._group, VIRTUAL_CLUSTERS)
        found = (decode(each) for each in entries if uid.encode() in each.body)
        return any(uid == self._marks(each)[UID] for each in found)

    def _marks(self, instance: Object) -> Mapping[str, str]:
        """Uses `status.serviceUID`, which does not change when the instance moves to another project."""
        uid = dig(instance, "status.serviceUID") or metadata(instance)["uid"]
        return marks(VIRTUAL_CLUSTER, self._instances.project_name(instance), name_of(instance), uid)


@asynccontextmanager
async def _bounded(cluster: str, doing: str) -> AsyncIterator[None]:
    """Raises errors of the block, and a timeout, as InstanceError."""
    try:
        with troubles(cluster, doing):
            async with asyncio.timeout(BINDING_SECONDS):
                yield
    except TimeoutError:
        message = f'virtual cluster "{cluster}" takes too long to {doing}; check its API server'
        raise Trouble("TimedOut", message, WARNING) from None


def _stuck(trouble: Trouble) -> Sequence[Object]:
    """The conditions of an instance whose deletion is blocked."""
    message = f"{trouble.message}; to delete this and leave them behind, annotate it with {ABANDON}=true"
    blocked = Trouble(
        trouble.reason, f"the ClusterRoleBindings of its users cannot be deleted: {message}", trouble.severity
    )
    waiting = f"waiting for the deletion of the ClusterRoleBindings of its users: {message}"
    return blocked.as_condition(ACCESS), condition(READY, FALSE, "Deleting", waiting, INFO)


def _left_behind(instance: Object, labels: Mapping[str, str]) -> str:
    return (
        f'the ClusterRoleBindings in virtual cluster "{name_of(instance)}" were not deleted; if they still exist, '
        f"delete them yourself: kubectl delete clusterrolebindings -l {UID}={labels[UID]}"
    )


def _told(removed: Sequence[str], others: Mapping[str, str]) -> str:
    parts = [f"deleted in it: ClusterRoleBindings {', '.join(removed)}"] if removed else []
    parts += [f"{name} was kept, since {reason}" for name, reason in others.items()]
    return "; ".join(parts)
