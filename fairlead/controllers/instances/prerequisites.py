"""The project and the cluster of an instance, and whether they block its deployment.

For the controllers of instances: that of templates and those of spaces and virtual clusters all compute the status of
an instance, and must get the same result. An instance is never Ready while there is a blocker.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import orjson

from fairlead.controllers.instances.confinement import Confinement
from fairlead.controllers.instances.remote_errors import ERROR, IMPERSONATION_FORBIDDEN, WARNING, InstanceError
from fairlead.controllers.instances.remote_namespace import choose_namespace, distinguish_namespace
from fairlead.core.call import RequestInfo
from fairlead.core.clock import parse_rfc3339
from fairlead.core.objects import Object
from fairlead.domain.cluster_identity import ClusterIdentityMapper
from fairlead.domain.typed_objects import Cluster, PlacedObject, Project, RemoteInstance, SpaceInstance, TypedObject
from fairlead.kinds import CLUSTER_INSTANCES
from fairlead.registry.codec import decode
from fairlead.registry.conditions import TRUE
from fairlead.registry.registry import Registry
from fairlead.storage.contract import Key
from fairlead.storage.view.view import Entry

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


CONNECT_ADVICE = "name a secret with its kubeconfig in its spec.config, or set spec.networkPeer and start its agent"
MISSING_GRACE_SECONDS = 10.0
"""How long after its creation a workspace has no status while what it needs does not exist: manifests are applied in
any order, and clients change what they have just created with the `resourceVersion` of the create."""


def remaining_grace(instance: Object, now: datetime) -> float:
    """Seconds until it is reported that something does not exist; 0 if that is due."""
    created = parse_rfc3339(TypedObject(instance).meta.get("creationTimestamp"))
    age = (now - created).total_seconds() if created is not None else MISSING_GRACE_SECONDS
    return max(0.0, MISSING_GRACE_SECONDS - max(0.0, age))


def use_no_secret(writer: str, target: RequestInfo) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class InstanceConfig:
    """Configuration of the instance controllers: the API group, the prefix of project namespaces, the names of
    identities in clusters, what instances may request without an administrator's template, and whether the user who
    wrote a reference to a secret may use that now."""

    api_group: str
    namespace_prefix: str
    names: ClusterIdentityMapper
    confinement: Confinement = field(default_factory=Confinement)
    may_use_secret: Callable[[str, RequestInfo], bool] = use_no_secret


@dataclass(frozen=True, slots=True)
class InstanceContext:
    """Reads the project and the cluster of an instance from the registry."""

    registry: Registry
    config: InstanceConfig

    def project(self, instance: TypedObject) -> Project | None:
        if not instance.namespace.startswith(self.config.namespace_prefix):
            return None
        found = self._cached_object(PROJECTS, self.project_name(instance))
        return Project(found) if found is not None else None

    def project_name(self, instance: TypedObject) -> str:
        return instance.namespace.removeprefix(self.config.namespace_prefix)

    def cluster(self, instance: PlacedObject) -> Cluster | None:
        """The cluster that the instance names, if it exists."""
        found = self._cached_object(CLUSTERS, instance.cluster) if instance.cluster else None
        return Cluster(found) if found is not None else None

    def choose_namespace(self, instance: RemoteInstance, project: Project, label: str, pattern_field: str) -> str:
        """The namespace of an instance that has none yet, for its claim and for the placeholder of templates. `label`
        is the label key of its kind, and `pattern_field` its field in the `namespacePattern` of projects. One that
        moved to another project keeps its namespace: another of the same name, here, gets another one. Raises
        InstanceError."""
        pattern = project.namespace_patterns.get(pattern_field) or ""
        namespace = choose_namespace(label, project.name, instance.name, pattern)
        if pattern or not self._has_namespace(instance.cluster, namespace):
            return namespace
        return distinguish_namespace(namespace, instance.uid)

    def _has_namespace(self, cluster: str, namespace: str) -> bool:
        """Whether some space or virtual cluster has this namespace in the cluster. Seldom needed: there is no index.
        Only those that contain the name are decoded."""
        text = orjson.dumps(namespace)
        return any(
            PlacedObject(decode(entry)).remote_namespace == namespace
            for plural in CLUSTER_INSTANCES
            for entry in self.registry.view.entries(self.config.api_group, plural)
            if entry.fields.get("spec.clusterRef.cluster") == cluster and text in entry.body
        )

    def has_transport(self, instance: PlacedObject) -> bool:
        """Whether this server reaches the cluster of the instance."""
        cluster = self.cluster(instance)
        return cluster is not None and cluster.has_transport

    def _cached_object(self, plural: str, name: str) -> Object | None:
        entry = self.registry.resource(self.config.api_group, plural).get_cached("", name)
        return decode(entry) if entry is not None else None

    def find_blocker(self, instance: RemoteInstance) -> InstanceError | None:
        """Why it cannot be deployed and used."""
        return find_blocker(instance, self.project(instance), self.cluster(instance))

    def can_deploy(self, instance: RemoteInstance) -> bool:
        """Whether nothing blocks its deployment. A change of that triggers a reconcile."""
        blocker = self.find_blocker(instance)
        return blocker is None or blocker.reason not in BLOCKING_REASONS

    def attempt_inputs(self, instance: RemoteInstance) -> object:
        """All inputs that the outcome of a try depends on."""
        project = self.project(instance)
        cluster = self.cluster(instance)
        return (
            instance.uid,
            instance.generation,
            instance.rendered,
            instance.sleep_type,
            project and project.relevant_state,
            cluster and cluster.relevant_state,
        )


class ObservedStates:
    """Which objects have changed in a part that matters: the status of many is updated all the time."""

    def __init__(self) -> None:
        self._states: dict[Key, object] = {}

    def has_changed(self, key: Key, state: object) -> bool:
        """`state` is the part that matters; None if the object is deleted."""
        if state == self._states.get(key):
            return False
        if state is None:
            del self._states[key]
        else:
            self._states[key] = state
        return True


class InstanceTriggers:
    """Which instances of a resource are reconciled after a change: the instance itself, and all of a project or cluster
    that has changed in a part that matters."""

    def __init__(self, context: InstanceContext, plural: str) -> None:
        self._context = context
        self._plural = plural
        self._observed = ObservedStates()

    @property
    def watches(self) -> Sequence[tuple[str, str]]:
        return tuple((self._context.config.api_group, plural) for plural in (self._plural, CLUSTERS, PROJECTS))

    def keys_for(self, key: Key, entry: Entry | None) -> Iterable[Key]:
        if key[1] == self._plural:
            return (key,)
        typed = Project if key[1] == PROJECTS else Cluster
        state = typed(decode(entry)).relevant_state if entry is not None else None
        if not self._observed.has_changed(key, state):
            return ()
        if key[1] == PROJECTS:
            return [each.key for each in self._entries(f"{self._context.config.namespace_prefix}{key[3]}")]
        return [each.key for each in self._entries() if each.fields.get("spec.clusterRef.cluster") == key[3]]

    def _entries(self, namespace: str = "") -> list[Entry]:
        return self._context.registry.view.entries(self._context.config.api_group, self._plural, namespace)


def find_blocker(instance: RemoteInstance, project: Project | None, cluster: Cluster | None) -> InstanceError | None:
    """Why an instance cannot be deployed and used, whatever its template says. Pure."""
    if project is None:
        message = f'namespace "{instance.namespace}" belongs to no project; create the instance in a project namespace'
        return InstanceError(NO_PROJECT, message, ERROR)
    if not instance.cluster or instance.is_deployed_elsewhere:
        return None
    return find_cluster_blocker(instance, cluster)


def find_cluster_blocker(instance: PlacedObject, cluster: Cluster | None) -> InstanceError | None:
    """Why nothing can be deployed into the cluster that an instance or a runner names. Pure."""
    name = instance.cluster
    if cluster is None:
        message = f'cluster "{name}" does not exist; connect it with `fairlead cluster add`, or use another one'
        return InstanceError(CLUSTER_NOT_FOUND, message, WARNING)
    if not cluster.has_transport and not cluster.has_agent:
        message = f'cluster "{name}" is not connected; {CONNECT_ADVICE}'
        return InstanceError(CLUSTER_NOT_CONNECTED, message, WARNING)
    if isinstance(instance, SpaceInstance) and cluster.has_transport and instance.virtual_cluster:
        message = "spaces in virtual clusters are not supported; create one without spec.clusterRef.virtualCluster"
        return InstanceError(SPACE_IN_VIRTUAL_CLUSTER, message, ERROR)
    if cluster.phase == "Failed":
        return InstanceError(CLUSTER_FAILED, f'cluster "{name}" has failed; see its status', WARNING)
    if cluster.is_online is False:
        message = f'cluster "{name}" is offline; this is usable again when it is back, and nothing is deleted meanwhile'
        return InstanceError(CLUSTER_OFFLINE, message, WARNING)
    if cluster.is_online is None and not cluster.has_agent:
        return InstanceError(CLUSTER_NOT_PROBED, f'waiting for the first connection to cluster "{name}"', WARNING)
    ready = cluster.condition("Ready")
    is_refused = ready.get("status") != TRUE and ready.get("reason") == IMPERSONATION_FORBIDDEN
    if is_refused and isinstance(instance, SpaceInstance):
        # Gateways access a space with the stored credential of its cluster, and impersonate the requester.
        message = f'cluster "{name}" is unusable, since its stored credential may not impersonate users'
        advice = "grant the permissions that the cluster's status lists"
        return InstanceError(IMPERSONATION_FORBIDDEN, f"{message}; {advice}", WARNING)
    return None
