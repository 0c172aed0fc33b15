"""Where an AppInstance is deployed: the cluster, the namespace, and the permissions that Helm has there.

| target | namespace | permissions |
|---|---|---|
| space | that of the space | a user of its own, with the role of the setting `chart_role` in the namespace |
| virtual cluster | created if it does not exist | those of the kubeconfig of the virtual cluster |
| cluster | created if it does not exist | the stored credential of the cluster; for an untrusted App as for a space |

In a space, other users can write Secrets, and Helm trusts what is in the Secrets of a release. So there it has no more
permissions than in the namespace, whatever the App is. Once a release was confined, it stays confined.
"""

from dataclasses import dataclass

from fairlead.controllers.apps.charts import is_trusted
from fairlead.controllers.helm.deploy import ReleaseTarget, cluster_target, virtual_cluster_target
from fairlead.controllers.instances.cluster_access import ClusterAccess
from fairlead.controllers.instances.confinement import app_deployer_user
from fairlead.controllers.instances.prerequisites import (
    CLUSTER_FAILED,
    CLUSTER_NOT_CONNECTED,
    CLUSTER_NOT_FOUND,
    CLUSTER_OFFLINE,
    CONNECT_ADVICE,
)
from fairlead.controllers.instances.remote_errors import (
    ERROR,
    INFO,
    NAMESPACE_TERMINATING,
    WARNING,
    InstanceError,
    translate_errors,
)
from fairlead.controllers.instances.remote_namespace import MANAGED_LABEL, NAMESPACES_PATH, UID_LABEL, url_segment
from fairlead.controllers.instances.role_bindings import BINDING_PREFIX, RBAC, build_deployer_binding
from fairlead.core.objects import Object, get_path, labels_of, metadata
from fairlead.domain.cluster_identity import find_identity_conflict
from fairlead.domain.sleep_mode import sleep_type_of
from fairlead.domain.typed_objects import (
    App,
    AppInstance,
    Cluster,
    PlacedObject,
    RemoteInstance,
    SpaceInstance,
    TypedObject,
    VirtualClusterInstance,
)
from fairlead.kinds.instances.app_instance import TARGETS
from fairlead.registry.codec import decode
from fairlead.registry.registry import Registry
from fairlead.upstream.kube_client import KubeApi, delete_if_exists, get_or_none

TARGET_NOT_FOUND, TARGET_NOT_READY, TARGET_DELETING = "TargetNotFound", "TargetNotReady", "TargetDeleting"
TARGET_REPLACED, NAMESPACE_MANAGED = "TargetReplaced", "NamespaceManaged"


@dataclass(frozen=True, slots=True)
class AppTarget:
    """`field` is the one of spec.target. `cluster` is the connected cluster; that of a virtual cluster is the one that
    it runs in."""

    field: str
    release_target: ReleaseTarget
    cluster: str
    namespace: str
    uid: str
    """Of the Cluster, space or virtual cluster."""
    namespace_in_cluster: Object
    """As `status.namespaceInCluster` of the instance."""

    @property
    def namespace_path(self) -> str:
        return f"{NAMESPACES_PATH}/{url_segment(self.namespace)}"

    def api(self, impersonate_user: str = "") -> KubeApi:
        return self.release_target.api(impersonate_user)


def is_same_target(instance: AppInstance, found: TypedObject) -> bool:
    """Whether the target is the one that it was deployed to. The permissions of the requester were checked for that
    one; a new one of the same name may belong to another user."""
    return instance.target_uid in ("", found.uid)


def deploying_user(instance: AppInstance, app: App | None, target: AppTarget) -> str:
    """The user that Helm impersonates; empty: none. Without an App, as for the last deployment."""
    if target.field == "virtualClusterInstance":
        return ""
    if target.field == "cluster" and not instance.was_confined and (app is None or is_trusted(app)):
        return ""
    return app_deployer_user(target.namespace)


@dataclass(frozen=True, slots=True)
class AppTargets:
    registry: Registry
    api_group: str
    clusters: ClusterAccess

    def find_object(self, instance: AppInstance) -> TypedObject | None:
        """The Cluster, space or virtual cluster that it names."""
        field = instance.target_field
        namespace = "" if field == "cluster" else instance.namespace
        entry = self.registry.resource(self.api_group, TARGETS[field][0]).get_cached(namespace, instance.target_name)
        return TypedObject(decode(entry)) if entry is not None else None

    def is_asleep(self, instance: AppInstance) -> bool:
        """Whether the space or virtual cluster that it names sleeps, or falls asleep, or wakes up."""
        found = self.find_object(instance)
        if found is None or instance.target_field == "cluster" or found.is_deleting:
            return False
        return bool(sleep_type_of(found.raw) or get_path(found.status, "sleep.stage"))

    def resolve(self, instance: AppInstance) -> AppTarget:
        """Where to deploy it. Raises InstanceError while that is not possible."""
        field = instance.target_field
        found = self.find_object(instance)
        name = instance.target_name
        noun = TARGETS[field][1]
        if found is None:
            reason = CLUSTER_NOT_FOUND if field == "cluster" else TARGET_NOT_FOUND
            raise InstanceError(reason, f'there is no {noun} "{name}"; create it, or delete this', ERROR)
        if not is_same_target(instance, found):
            message = f'the {noun} "{name}" was deleted and created again; {_advise_after_replacement(instance)}'
            raise InstanceError(TARGET_REPLACED, message, ERROR)
        if found.is_deleting:
            raise InstanceError(TARGET_DELETING, f'the {noun} "{name}" is being deleted; delete this, too', WARNING)
        if field == "cluster":
            _check_cluster(Cluster(found.raw))
        elif not found.is_true("Ready"):
            reason = found.status.get("reason") or "no status yet"
            message = f'the {noun} "{name}" is not ready ({reason}); this is deployed when it is'
            raise InstanceError(TARGET_NOT_READY, message, INFO)
        return self.locate(instance, found)

    def locate(self, instance: AppInstance, found: TypedObject) -> AppTarget:
        """Where it is deployed, whether or not that is usable now."""
        field = instance.target_field
        clusters = self.clusters
        place = PlacedObject(found.raw)  # of a space or a virtual cluster
        if field == "virtualClusterInstance":
            return AppTarget(
                field=field,
                release_target=virtual_cluster_target(clusters, found.key),
                cluster=place.cluster,
                namespace=instance.target_namespace or "default",
                uid=found.uid,
                namespace_in_cluster=_describe_namespace(VirtualClusterInstance(found.raw)),
            )
        cluster = found.name if field == "cluster" else place.cluster
        return AppTarget(
            field=field,
            release_target=cluster_target(clusters, cluster),
            cluster=cluster,
            namespace=instance.target_namespace if field == "cluster" else place.remote_namespace,
            uid=found.uid,
            namespace_in_cluster={} if field == "cluster" else _describe_namespace(SpaceInstance(found.raw)),
        )


def _describe_namespace(target: RemoteInstance) -> Object:
    if target.is_deployed_elsewhere or not target.remote_namespace:
        return {}
    return {"cluster": target.cluster, "namespace": target.remote_namespace, "uid": target.owner_uid}


def _advise_after_replacement(instance: AppInstance) -> str:
    """In a cluster that was disconnected, the release still exists, and another instance does not take it over."""
    again = "delete this, and install the app again"
    if instance.target_field != "cluster" or not instance.release.get("name"):
        return again
    title = f'release "{instance.release_name}" in namespace "{instance.release.get("namespace")}"'
    return f"if it still has {title}, uninstall that with helm; {again}"


def _check_cluster(cluster: Cluster) -> None:
    name = cluster.name
    if not cluster.has_transport:
        message = f'cluster "{name}" is not connected; {CONNECT_ADVICE}'
        raise InstanceError(CLUSTER_NOT_CONNECTED, message, WARNING)
    if find_identity_conflict(cluster.raw):
        raise InstanceError(CLUSTER_FAILED, f'cluster "{name}" has failed; see its status', WARNING)
    if cluster.is_online is False:
        raise InstanceError(CLUSTER_OFFLINE, f'cluster "{name}" is offline; this is deployed when it is back', WARNING)


async def prepare_namespace(target: AppTarget, instance: AppInstance, user: str, role: str) -> None:
    """Creates the namespace if needed, and grants the impersonated user the role in it. Raises InstanceError."""
    with translate_errors(target.release_target.name, f'prepare namespace "{target.namespace}"'):
        existing = await get_or_none(target.api(), target.namespace_path)
        if existing is None and target.field != "spaceInstance":
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": target.namespace}}
            await target.api().create(NAMESPACES_PATH, body)
        elif existing is None or "deletionTimestamp" in metadata(existing):
            message = f'namespace "{target.namespace}" is terminating or gone; this is deployed when it is back'
            raise InstanceError(NAMESPACE_TERMINATING, message, INFO)
        elif target.field == "cluster" and MANAGED_LABEL in labels_of(existing):
            message = (
                f'namespace "{target.namespace}" in cluster "{target.cluster}" belongs to a space or virtual cluster; '
                "deploy into that instead, or into another namespace"
            )
            raise InstanceError(NAMESPACE_MANAGED, message, ERROR)
        if user:
            await target.api().apply(_binding_path(target, instance), _build_binding(target, instance, user, role))


async def remove_binding(target: AppTarget, instance: AppInstance) -> None:
    await delete_if_exists(target.api(), _binding_path(target, instance))


def _binding_name(instance: AppInstance) -> str:
    return f"{BINDING_PREFIX}app:{instance.release_name}"


def _binding_path(target: AppTarget, instance: AppInstance) -> str:
    folder = f"/apis/{RBAC}/v1/namespaces/{url_segment(target.namespace)}/rolebindings"
    return f"{folder}/{url_segment(_binding_name(instance))}"


def _build_binding(target: AppTarget, instance: AppInstance, user: str, role: str) -> Object:
    """With the uid of this instance: the controller of the space deletes bindings of its own only."""
    binding = build_deployer_binding(_binding_name(instance), target.namespace, role, user)
    labels = {**binding["metadata"]["labels"], UID_LABEL: instance.uid}
    return {**binding, "metadata": {**binding["metadata"], "labels": labels}}
