"""The roles that users of a virtual cluster have inside of it: given while it is there, taken away when it goes.

For `virtual_clusters.py`. Bindings in a virtual cluster that was deployed from here go with it. One that was imported
stays when its instance is deleted, so a finalizer holds the instance until the bindings in it are gone. It is set
before the first one is made.
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
"""For all bindings in one virtual cluster."""


class Ways(Protocol):
    """What this needs of `cluster_access.py`. Both raise UpstreamError, and what they return does."""

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
        """Binds the roles of those who may use it: the gateway lets them in as themselves. Returns the condition."""
        project = self._instances.project(instance)
        if project is None or dig(instance, "spec.external"):
            return ()
        bindings = role_bindings(self._names, instance, dig(instance, "status.virtualCluster") or {}, project)
        where = metadata(instance)["namespace"], name_of(instance)
        try:
            if dig(instance, "spec.config.secretName"):
                await self._instances.hold(instance)
            async with _bounded(name_of(instance), "bind the roles of those who may use it"):
                api = self._ways.virtual_cluster(*where)
                await bind_cluster_roles(api, bindings, self._marks(instance), self._is_living)
        except Trouble as trouble:
            return (trouble.as_condition(ACCESS),)
        return (condition(ACCESS, TRUE, "Synced", "those who may use it have their roles in it"),)

    def holds(self, instance: Object) -> bool:
        return self._instances.holds(instance)

    async def take_away(self, instance: Object) -> float | None:
        """Removes the bindings. Returns the seconds after which to try again; None when there is nothing left to do."""
        where = metadata(instance)["namespace"], name_of(instance)
        if is_abandoned(instance):
            await self._instances.let_go(instance, _left_behind(instance, self._marks(instance)))
            return None
        try:
            async with (
                _bounded(name_of(instance), "remove the ClusterRoleBindings that were made in it"),
                self._ways.leaving_virtual_cluster(*where) as api,
            ):
                removed, others = await unbind_cluster_roles(api, self._marks(instance))
        except Trouble as trouble:
            await self._instances.tell(instance, _stuck(trouble), online=False)
            return jittered(RETRY)
        if told := _told(removed, others):
            with suppress(ApiError):  # in a namespace that is going, nothing is written any more
                await record(self._registry, instance, "AccessRemoved", told)
        await self._instances.let_go(instance)
        return None

    def _is_living(self, uid: str) -> bool:
        """Whether there is an instance with this uid. Seldom asked, so there is no index."""
        entries = self._registry.view.entries(self._group, VIRTUAL_CLUSTERS)
        found = (decode(each) for each in entries if uid.encode() in each.body)
        return any(uid == self._marks(each)[UID] for each in found)

    def _marks(self, instance: Object) -> Mapping[str, str]:
        """By what stays when it moves to another project."""
        uid = dig(instance, "status.serviceUID") or metadata(instance)["uid"]
        return marks(VIRTUAL_CLUSTER, self._instances.project_name(instance), name_of(instance), uid)


@asynccontextmanager
async def _bounded(cluster: str, doing: str) -> AsyncIterator[None]:
    """Whatever goes wrong inside, or takes too long, is raised as Trouble."""
    try:
        with troubles(cluster, doing):
            async with asyncio.timeout(BINDING_SECONDS):
                yield
    except TimeoutError:
        why = f'virtual cluster "{cluster}" takes too long to {doing}; see how it is'
        raise Trouble("TimedOut", why, WARNING) from None


def _stuck(trouble: Trouble) -> Sequence[Object]:
    """The conditions of one whose deletion does not get on."""
    why = f"{trouble.message}; or annotate this with {ABANDON}=true to let it go and leave them behind"
    told = Trouble(trouble.reason, f"the ClusterRoleBindings in it cannot be removed: {why}", trouble.severity)
    waits = f"waits until the ClusterRoleBindings that were made in it are removed: {why}"
    return told.as_condition(ACCESS), condition(READY, FALSE, "Deleting", waits, INFO)


def _left_behind(instance: Object, labels: Mapping[str, str]) -> str:
    return (
        f'the ClusterRoleBindings in virtual cluster "{name_of(instance)}" were not removed; if they are still there, '
        f"delete them yourself: kubectl delete clusterrolebindings -l {UID}={labels[UID]}"
    )


def _told(removed: Sequence[str], others: Mapping[str, str]) -> str:
    parts = [f"removed from it: ClusterRoleBindings {', '.join(removed)}"] if removed else []
    parts += [f"{name} stays there, since {why}" for name, why in others.items()]
    return "; ".join(parts)
