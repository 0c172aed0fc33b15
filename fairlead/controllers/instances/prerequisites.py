"""The project and the cluster of an instance, and whether they block its deployment.

For the controllers of instances: `templates.py` and `remote_instance.py` both compute the status of an instance, and
must get the same result. An instance is never Ready while there is a blocker.
"""

from dataclasses import dataclass, field
from datetime import datetime

from fairlead.controllers.instances.confinement import Confinement
from fairlead.controllers.instances.remote_errors import ERROR, IMPERSONATION_FORBIDDEN, WARNING, InstanceError
from fairlead.core.clock import parse_rfc3339
from fairlead.core.objects import Object, get_path, metadata
from fairlead.domain.cluster_identity import ClusterIdentityMapper
from fairlead.registry.codec import decode
from fairlead.registry.conditions import TRUE, find_condition
from fairlead.registry.registry import Registry

CLUSTERS, PROJECTS = "clusters", "projects"

NO_PROJECT = "NoProject"
CLUSTER_NOT_FOUND, CLUSTER_NOT_CONNECTED = "ClusterNotFound", "ClusterNotConnected"
CLUSTER_FAILED, CLUSTER_OFFLINE, CLUSTER_NOT_PROBED = "ClusterFailed", "ClusterOffline", "ClusterNotProbed"
SPACE_IN_VIRTUAL_CLUSTER = "SpaceInVirtualCluster"
BLOCKING_REASONS = frozenset(
    {
        *(NO_PROJECT, SPACE_IN_VIRTUAL_CLUSTER, CLUSTER_NOT_FOUND, CLUSTER_NOT_CONNECTED),
        *(CLUSTER_FAILED, CLUSTER_OFFLINE, CLUSTER_NOT_PROBED),
    }
)
"""Reasons that block an instance, whatever its own state is."""


MISSING_GRACE_SECONDS = 10.0
"""How long after its creation a workspace has no status while what it needs does not exist: manifests are applied in
any order, and clients change what they have just created with the `resourceVersion` of the create."""


def remaining_grace(instance: Object, now: datetime) -> float:
    """Seconds until it is reported that something does not exist; 0 if that is due."""
    created = parse_rfc3339(metadata(instance).get("creationTimestamp"))
    age = (now - created).total_seconds() if created is not None else MISSING_GRACE_SECONDS
    return max(0.0, MISSING_GRACE_SECONDS - max(0.0, age))


@dataclass(frozen=True, slots=True)
class InstanceConfig:
    """Configuration of the instance controllers: the API group, the prefix of project namespaces, the names of
    identities in clusters, and what instances may request without an administrator's template."""

    api_group: str
    namespace_prefix: str
    names: ClusterIdentityMapper
    confinement: Confinement = field(default_factory=Confinement)


@dataclass(frozen=True, slots=True)
class InstanceContext:
    """Reads the project and the cluster of an instance from the registry."""

    registry: Registry
    config: InstanceConfig

    def project(self, instance: Object) -> Object | None:
        namespace = metadata(instance)["namespace"]
        is_in_one = namespace.startswith(self.config.namespace_prefix)
        return self._cached_object(PROJECTS, self.project_name(instance)) if is_in_one else None

    def project_name(self, instance: Object) -> str:
        return str(metadata(instance)["namespace"].removeprefix(self.config.namespace_prefix))

    def cluster(self, instance: Object) -> Object | None:
        """The cluster that the instance names, if it exists."""
        name = get_path(instance, "spec.clusterRef.cluster")
        return self._cached_object(CLUSTERS, name) if name else None

    def _cached_object(self, plural: str, name: str) -> Object | None:
        entry = self.registry.resource(self.config.api_group, plural).get_cached("", name)
        return decode(entry) if entry is not None else None

    def find_blocker(self, instance: Object) -> InstanceError | None:
        """Why it cannot be deployed and used."""
        return find_blocker(instance, self.project(instance), self.cluster(instance))

    def can_deploy(self, instance: Object) -> bool:
        blocker = self.find_blocker(instance)
        return blocker is None or blocker.reason not in BLOCKING_REASONS


def find_blocker(instance: Object, project: Object | None, cluster: Object | None) -> InstanceError | None:
    """Why an instance cannot be deployed and used, whatever its template says. Pure."""
    if project is None:
        namespace = metadata(instance)["namespace"]
        message = f'namespace "{namespace}" belongs to no project; create the instance in a project namespace'
        return InstanceError(NO_PROJECT, message, ERROR)
    if not get_path(instance, "spec.clusterRef.cluster") or is_external(instance):
        return None
    return find_cluster_blocker(instance, cluster)


def is_external(instance: Object) -> bool:
    """Whether nothing is deployed for it: it is imported, external, or reported by its own agent."""
    spec = instance.get("spec") or {}
    return bool(get_path(spec, "config.secretName") or spec.get("external") or spec.get("networkPeer"))


def find_cluster_blocker(instance: Object, cluster: Object | None) -> InstanceError | None:
    """Why nothing can be deployed into the cluster that an instance or a runner names. Pure."""
    name = get_path(instance, "spec.clusterRef.cluster")
    if cluster is None:
        message = f'cluster "{name}" does not exist; connect it with `fairlead cluster add`, or use another one'
        return InstanceError(CLUSTER_NOT_FOUND, message, WARNING)
    has_agent = get_path(cluster, "spec.networkPeer") or get_path(cluster, "spec.local")
    if not has_kubeconfig(cluster) and not has_agent:
        message = f'cluster "{name}" is not connected; name a secret with its kubeconfig in its spec.config'
        return InstanceError(CLUSTER_NOT_CONNECTED, message, WARNING)
    is_space = instance["kind"] == "SpaceInstance"
    if is_space and has_kubeconfig(cluster) and get_path(instance, "spec.clusterRef.virtualCluster"):
        message = "spaces in virtual clusters are not supported; create one without spec.clusterRef.virtualCluster"
        return InstanceError(SPACE_IN_VIRTUAL_CLUSTER, message, ERROR)
    if get_path(cluster, "status.phase") == "Failed":
        return InstanceError(CLUSTER_FAILED, f'cluster "{name}" has failed; see its status', WARNING)
    online = get_path(cluster, "status.online")
    if online is False:
        message = f'cluster "{name}" is offline; this is usable again when it is back, and nothing is deleted meanwhile'
        return InstanceError(CLUSTER_OFFLINE, message, WARNING)
    if online is None and not has_agent:
        return InstanceError(CLUSTER_NOT_PROBED, f'waiting for the first connection to cluster "{name}"', WARNING)
    return _impersonation_blocker(name, cluster) if is_space else None


def _impersonation_blocker(name: str, cluster: Object) -> InstanceError | None:
    """Gateways access a space with the stored credential of its cluster, and impersonate the requester."""
    ready = find_condition(cluster.get("status"), "Ready") or {}
    if ready.get("status") == TRUE or ready.get("reason") != IMPERSONATION_FORBIDDEN:
        return None
    message = f'cluster "{name}" is unusable, since its stored credential may not impersonate users'
    return InstanceError(
        IMPERSONATION_FORBIDDEN, f"{message}; grant the permissions that the cluster's status lists", WARNING
    )


def has_kubeconfig(cluster: Object | None) -> bool:
    """Whether this server connects to the cluster with a kubeconfig, instead of just storing what others report."""
    return bool(get_path(cluster, "spec.config.secretName"))
