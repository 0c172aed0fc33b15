"""The Helm release and the health conditions of a virtual cluster. Pure; used by `virtual_clusters.py`."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Protocol

from fairlead.controllers.helm.chart import Chart, Release, parse_chart
from fairlead.controllers.instances.confinement import applied_trust, deployer_user, is_confined
from fairlead.controllers.instances.prerequisites import InstanceConfig
from fairlead.controllers.instances.remote_errors import ERROR, INFO, WARNING, InstanceError, translate_errors
from fairlead.controllers.instances.remote_instance import ABANDON_ANNOTATION, RemoteInstanceStore, is_abandoned
from fairlead.controllers.instances.remote_names import (
    UID_LABEL,
    VIRTUAL_CLUSTER_LABEL,
    ownership_labels,
)
from fairlead.controllers.instances.remote_namespace import bind_cluster_roles, unbind_cluster_roles
from fairlead.controllers.instances.role_bindings import BINDING_PREFIX, build_deployer_binding, build_role_bindings
from fairlead.controllers.instances.status import VC_ONLINE, VC_READY, VC_SYNCED
from fairlead.controllers.runtime.backoff import REQUEUE_SECONDS
from fairlead.core.backoff import add_jitter
from fairlead.core.errors import ApiError
from fairlead.core.objects import Object, get_path, metadata, name_of
from fairlead.kinds.instances.remote_instances import VIRTUAL_CLUSTER
from fairlead.kinds.instances.templates import CONFINED
from fairlead.registry.codec import decode
from fairlead.registry.conditions import FALSE, TRUE, UNKNOWN, condition, record_event
from fairlead.registry.registry import Registry
from fairlead.upstream.errors import UpstreamError
from fairlead.upstream.kube_client import KubeApi, RemoteApiError

SYNCED, READY = VC_SYNCED, VC_READY
ACCESS_SYNCED = "AccessSynced"
"""Whether the roles of its users are bound inside. Not required for Ready: it may have RBAC rules of its own."""

_version_pattern = re.compile(r"[0-9A-Za-z.+_-]{1,64}", re.ASCII)


def require_chart(instance: Object) -> Chart:
    """The chart of its rendered template. Raises InstanceError if there is none, or if it is invalid."""
    chart = parse_chart(get_path(instance, "status.virtualCluster") or {})
    if chart is None:
        message = (
            "its template names no chart in helmRelease.chart; fix the template, or import a running virtual cluster "
            "with spec.config"
        )
        raise InstanceError("ChartNotSet", message, ERROR)
    return chart


def build_release(instance: Object) -> Release:
    """The release to deploy, at the place that `spec.clusterRef` names. Raises InstanceError."""
    values = get_path(instance, "status.virtualCluster.helmRelease.values") or ""
    return Release(*_release_location(instance), require_chart(instance), values, _helm_user(instance))


def build_removal_release(instance: Object) -> Release:
    return Release(*_release_location(instance), Chart("", ""), "", _helm_user(instance))


def _release_location(instance: Object) -> tuple[str, str]:
    return get_path(instance, "spec.clusterRef.virtualCluster"), get_path(instance, "spec.clusterRef.namespace")


def _helm_user(instance: Object) -> str:
    """The user that helm impersonates; empty: none. Once confined, a release stays confined, even if no chart has been
    deployed yet: the owner could have written release Secrets into the namespace, and helm trusts those."""
    was_confined = get_path(instance, "status.deployedConfined") or applied_trust(instance) == CONFINED
    if not is_confined(instance) and not was_confined:
        return ""
    return deployer_user(get_path(instance, "spec.clusterRef.namespace") or "")


def confinement_bindings(release: Release, role: str) -> Sequence[Object]:
    """The RoleBinding that grants the deployer of a confined release the role in its namespace."""
    if not release.impersonate_user:
        return ()
    return (build_deployer_binding(f"{BINDING_PREFIX}deployer", release.namespace, role, release.impersonate_user),)


def conditions_from_probe(response: Object | UpstreamError | RemoteApiError) -> tuple[Object, Object]:
    """The conditions Online and Ready, from the response to the version request."""
    if isinstance(response, UpstreamError):
        offline = condition(VC_ONLINE, FALSE, response.reason, f"it cannot be reached: {response.message}", WARNING)
        return offline, condition(READY, UNKNOWN, response.reason, "unknown while it cannot be reached")
    online = condition(VC_ONLINE, TRUE, "Reachable", "it can be reached")
    if isinstance(response, RemoteApiError):
        message = f"it returns HTTP status {response.status} for /version; check that its kubeconfig is still valid"
        return online, condition(READY, FALSE, "NotReady", message, WARNING)
    version = response.get("gitVersion")
    known = version if isinstance(version, str) and _version_pattern.fullmatch(version) else "of an unknown version"
    return online, condition(READY, TRUE, "Ready", f"it runs Kubernetes {known}")


# --- vcluster access ---
# ClusterRoleBindings inside a virtual cluster for its users: applied while it exists, removed with the instance.
#
# For `virtual_clusters.py`. In a virtual cluster that this server deployed, they are deleted with it. An imported
# one continues to exist, so a finalizer delays the deletion of the instance until they are deleted. It is set before
# the first binding is created.


FINALIZER = "service.sh/virtual-cluster-access"
BINDING_TIMEOUT = 15.0
"""Timeout for all bindings of one virtual cluster."""


class VirtualClusterApis(Protocol):
    """The needed part of `cluster_access.py`. Both methods raise UpstreamError, and so do the returned objects."""

    def virtual_cluster_api(self, namespace: str, name: str) -> KubeApi: ...

    def virtual_cluster_cleanup_api(self, namespace: str, name: str) -> AbstractAsyncContextManager[KubeApi]: ...


class VirtualClusterAccess:
    def __init__(self, registry: Registry, config: InstanceConfig, apis: VirtualClusterApis) -> None:
        self._registry = registry
        self._group = config.api_group
        self._instances = RemoteInstanceStore(registry, config, VIRTUAL_CLUSTER.plural, FINALIZER)
        self._apis = apis
        self._names = config.names

    async def sync_bindings(self, instance: Object) -> Sequence[Object]:
        """Binds the roles of its users, whom the gateway impersonates there. Returns the condition."""
        project = self._instances.project(instance)
        if project is None or get_path(instance, "spec.external"):
            return ()
        bindings = build_role_bindings(
            self._names, instance, get_path(instance, "status.virtualCluster") or {}, project
        )
        instance_key = metadata(instance)["namespace"], name_of(instance)
        try:
            if get_path(instance, "spec.config.secretName"):
                await self._instances.ensure_finalizer(instance)
            async with _with_timeout(name_of(instance), "bind the roles of its users"):
                api = self._apis.virtual_cluster_api(*instance_key)
                await bind_cluster_roles(api, bindings, self._ownership_labels(instance), self._instance_exists)
        except InstanceError as error:
            return (error.as_condition(ACCESS_SYNCED),)
        return (condition(ACCESS_SYNCED, TRUE, "Synced", "the roles of its users are bound in it"),)

    def has_finalizer(self, instance: Object) -> bool:
        return self._instances.has_finalizer(instance)

    async def remove_bindings(self, instance: Object) -> float | None:
        """Deletes the bindings. Returns the seconds until the next try; None when done."""
        instance_key = metadata(instance)["namespace"], name_of(instance)
        if is_abandoned(instance):
            await self._instances.remove_finalizer(
                instance, _abandoned_message(instance, self._ownership_labels(instance))
            )
            return None
        try:
            async with (
                _with_timeout(name_of(instance), "delete the ClusterRoleBindings of its users"),
                self._apis.virtual_cluster_cleanup_api(*instance_key) as api,
            ):
                removed, others = await unbind_cluster_roles(api, self._ownership_labels(instance))
        except InstanceError as error:
            await self._instances.write_status(instance, _blocked_conditions(error), online=False)
            return add_jitter(REQUEUE_SECONDS)
        if summary := _removal_message(removed, others):
            with suppress(ApiError):  # no Event can be created in a terminating namespace
                await record_event(self._registry, instance, "AccessRemoved", summary)
        await self._instances.remove_finalizer(instance)
        return None

    def _instance_exists(self, uid: str) -> bool:
        """Whether an instance with this uid exists. Seldom needed, so there is no index."""
        entries = self._registry.view.entries(self._group, VIRTUAL_CLUSTER.plural)
        found = (decode(each) for each in entries if uid.encode() in each.body)
        return any(uid == self._ownership_labels(each)[UID_LABEL] for each in found)

    def _ownership_labels(self, instance: Object) -> Mapping[str, str]:
        """Uses `status.serviceUID`, which does not change when the instance moves to another project."""
        uid = get_path(instance, "status.serviceUID") or metadata(instance)["uid"]
        return ownership_labels(VIRTUAL_CLUSTER_LABEL, self._instances.project_name(instance), name_of(instance), uid)


@asynccontextmanager
async def _with_timeout(cluster: str, action: str) -> AsyncIterator[None]:
    """Raises errors of the block, and a timeout, as InstanceError."""
    try:
        with translate_errors(cluster, action):
            async with asyncio.timeout(BINDING_TIMEOUT):
                yield
    except TimeoutError:
        message = f'virtual cluster "{cluster}" takes too long to {action}; check its API server'
        raise InstanceError("TimedOut", message, WARNING) from None


def _blocked_conditions(error: InstanceError) -> Sequence[Object]:
    """The conditions of an instance whose deletion is blocked."""
    message = f"{error.message}; to delete this and leave them behind, annotate it with {ABANDON_ANNOTATION}=true"
    blocked = InstanceError(
        error.reason, f"the ClusterRoleBindings of its users cannot be deleted: {message}", error.severity
    )
    waiting = f"waiting for the deletion of the ClusterRoleBindings of its users: {message}"
    return blocked.as_condition(ACCESS_SYNCED), condition(READY, FALSE, "Deleting", waiting, INFO)


def _abandoned_message(instance: Object, labels: Mapping[str, str]) -> str:
    return (
        f'the ClusterRoleBindings in virtual cluster "{name_of(instance)}" were not deleted; if they still exist, '
        f"delete them yourself: kubectl delete clusterrolebindings -l {UID_LABEL}={labels[UID_LABEL]}"
    )


def _removal_message(removed: Sequence[str], retained_bindings: Mapping[str, str]) -> str:
    parts = [f"deleted in it: ClusterRoleBindings {', '.join(removed)}"] if removed else []
    parts += [f"{name} was kept, since {reason}" for name, reason in retained_bindings.items()]
    return "; ".join(parts)
