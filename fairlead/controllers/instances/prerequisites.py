"""The project and the cluster of an instance, and whether anything can be made there at all.

For the controllers of instances: `templates.py` and `remote_instance.py` both work out an instance's status, and
must come to the same result. An instance is never Ready while this finds an obstacle.
"""

from dataclasses import dataclass, field

from fairlead.controllers.instances.confinement import Confinement
from fairlead.controllers.instances.remote_errors import ERROR, IMPERSONATION_FORBIDDEN, WARNING, Trouble
from fairlead.core.cluster_identity import ClusterNames
from fairlead.core.objects import Object, dig, metadata
from fairlead.registry.codec import decode
from fairlead.registry.conditions import TRUE, find_condition
from fairlead.registry.registry import Registry

CLUSTERS, PROJECTS = "clusters", "projects"

NO_PROJECT = "NoProject"
CLUSTER_NOT_FOUND, CLUSTER_NOT_CONNECTED = "ClusterNotFound", "ClusterNotConnected"
CLUSTER_FAILED, CLUSTER_OFFLINE, CLUSTER_NOT_PROBED = "ClusterFailed", "ClusterOffline", "ClusterNotProbed"
IN_VIRTUAL_CLUSTER = "SpaceInVirtualCluster"
OBSTACLES = frozenset(
    {
        *(NO_PROJECT, IN_VIRTUAL_CLUSTER, CLUSTER_NOT_FOUND, CLUSTER_NOT_CONNECTED),
        *(CLUSTER_FAILED, CLUSTER_OFFLINE, CLUSTER_NOT_PROBED),
    }
)
"""The reasons of what is in the way of an instance before anything of its own is looked at."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Where instances are kept: the API group, and how the namespaces of projects begin; what identities are called in
    clusters; and what instances may ask for there without an administrator's template."""

    api_group: str
    prefix: str
    names: ClusterNames
    confinement: Confinement = field(default_factory=Confinement)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Reads what is around an instance from the registry."""

    registry: Registry
    setting: Setting

    def project(self, instance: Object) -> Object | None:
        namespace = metadata(instance)["namespace"]
        is_in_one = namespace.startswith(self.setting.prefix)
        return self._object(PROJECTS, self.project_name(instance)) if is_in_one else None

    def project_name(self, instance: Object) -> str:
        return str(metadata(instance)["namespace"].removeprefix(self.setting.prefix))

    def cluster(self, instance: Object) -> Object | None:
        """The cluster that the instance names, if there is one."""
        name = dig(instance, "spec.clusterRef.cluster")
        return self._object(CLUSTERS, name) if name else None

    def _object(self, plural: str, name: str) -> Object | None:
        entry = self.registry.resource(self.setting.api_group, plural).peek("", name)
        return decode(entry) if entry is not None else None

    def obstacle(self, instance: Object) -> Trouble | None:
        """What keeps it from being used."""
        return find_obstacle(instance, self.project(instance), self.cluster(instance))

    def can_be_made(self, instance: Object) -> bool:
        obstacle = self.obstacle(instance)
        return obstacle is None or obstacle.reason not in OBSTACLES


def find_obstacle(instance: Object, project: Object | None, cluster: Object | None) -> Trouble | None:
    """What keeps an instance from being made and used, whatever its template says. Pure."""
    if project is None:
        namespace = metadata(instance)["namespace"]
        why = f'namespace "{namespace}" belongs to no project; create the instance in the namespace of a project'
        return Trouble(NO_PROJECT, why, ERROR)
    if not dig(instance, "spec.clusterRef.cluster") or runs_elsewhere(instance):
        return None
    return _cluster_obstacle(instance, cluster)


def runs_elsewhere(instance: Object) -> bool:
    """Whether nothing is made for it: only what it answers, or what its own agent reports, says how it is."""
    spec = instance.get("spec") or {}
    return bool(dig(spec, "config.secretName") or spec.get("external") or spec.get("networkPeer"))


def _cluster_obstacle(instance: Object, cluster: Object | None) -> Trouble | None:
    name = dig(instance, "spec.clusterRef.cluster")
    if cluster is None:
        return Trouble(CLUSTER_NOT_FOUND, f'there is no cluster "{name}"; connect it', WARNING)
    has_agent = dig(cluster, "spec.networkPeer") or dig(cluster, "spec.local")
    if not is_connected(cluster) and not has_agent:
        why = f'cluster "{name}" is not connected; name a secret with its kubeconfig in its spec.config'
        return Trouble(CLUSTER_NOT_CONNECTED, why, WARNING)
    is_space = instance["kind"] == "SpaceInstance"
    if is_space and is_connected(cluster) and dig(instance, "spec.clusterRef.virtualCluster"):
        why = "spaces are made in clusters, not in virtual clusters; make one without spec.clusterRef.virtualCluster"
        return Trouble(IN_VIRTUAL_CLUSTER, why, ERROR)
    if dig(cluster, "status.phase") == "Failed":
        return Trouble(CLUSTER_FAILED, f'cluster "{name}" has failed; its status says why', WARNING)
    online = dig(cluster, "status.online")
    if online is False:
        why = f'cluster "{name}" is offline; this is usable again when the cluster is, and nothing is deleted meanwhile'
        return Trouble(CLUSTER_OFFLINE, why, WARNING)
    if online is None and not has_agent:
        return Trouble(CLUSTER_NOT_PROBED, f'waits until cluster "{name}" has been reached for the first time', WARNING)
    return _impersonation_obstacle(name, cluster) if is_space else None


def _impersonation_obstacle(name: str, cluster: Object) -> Trouble | None:
    """Gateways lead into a space with the credential of its cluster, in the name of whoever asks."""
    ready = find_condition(cluster.get("status"), "Ready") or {}
    if ready.get("status") == TRUE or ready.get("reason") != IMPERSONATION_FORBIDDEN:
        return None
    why = f'nobody can use cluster "{name}", since its stored credential may not impersonate users'
    return Trouble(IMPERSONATION_FORBIDDEN, f"{why}; give it the rights that the cluster's status names", WARNING)


def is_connected(cluster: Object | None) -> bool:
    """Whether a cluster is there for real, and not just said to be."""
    return bool(dig(cluster, "spec.config.secretName"))
