"""Product objects with typed fields, for the controllers of what is deployed into clusters.

A typed object wraps an object as it is stored, and reads a field when it is asked for. It copies and checks nothing:
the schema of the kind has done that when the object was written. What is not set is empty, not None.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fairlead.core.objects import Object, get_path
from fairlead.domain.sleep_mode import sleep_type_of
from fairlead.registry.conditions import TRUE, UNKNOWN, find_condition

SPACE_SYNCED, SPACE_READY = "SpaceSynced", "SpaceReady"
"""Conditions of spaces, and of virtual clusters, which also have a namespace: it exists and has its content; it can be
used."""
TEMPLATE_RESOLVED = "TemplateResolved"
SPACE_OBJECTS, VIRTUAL_CLUSTER_OBJECTS = "spaceObjects", "virtualClusterObjects"
"""Fields of the status of spaces and virtual clusters: what was applied and deployed in the namespace, and inside the
virtual cluster."""
RELEASE_PARTS = ("charts", "apps")
"""The parts of a template that are Helm releases, and of the fields above."""
WAKE_FAILED = "WakeFailed"
"""The reason of `Asleep`, and of the readiness, while a wake-up that has failed is retried."""
FALLING_ASLEEP, ASLEEP_STAGE = "FallingAsleep", "Asleep"
WAKING_UP, STARTING = "WakingUp", "Starting"
"""Stages of the sleep of a space or virtual cluster in its cluster. Each is recorded before the first change that
belongs to it, so that a server that is interrupted knows what may have been done. A virtual cluster is starting from
when it has its workloads again until it answers."""
ASLEEP, SLEEP_REFUSED = "Asleep", "SleepRefused"
"""The condition about it, and its reason if it must not sleep, since its data would be lost."""
INGRESS_SUFFIX_ANNOTATION = "service.sh/ingress-suffix"
"""On a Cluster: the domain below which its ingress controller is reached."""
ABANDON_ANNOTATION = "service.sh/abandon"
"""Annotation that skips the cleanup in the cluster when an object is deleted."""


@dataclass(frozen=True, slots=True)
class TypedObject:
    """What all objects have."""

    raw: Object

    @property
    def meta(self) -> Object:
        found: Object = self.raw["metadata"]
        return found

    @property
    def name(self) -> str:
        return str(self.meta["name"])

    @property
    def namespace(self) -> str:
        return str(self.meta.get("namespace", ""))

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.namespace, self.name

    @property
    def uid(self) -> str:
        return str(self.meta["uid"])

    @property
    def generation(self) -> int:
        return int(self.meta.get("generation", 1))

    @property
    def is_deleting(self) -> bool:
        return "deletionTimestamp" in self.meta

    @property
    def is_abandoned(self) -> bool:
        return (self.meta.get("annotations") or {}).get(ABANDON_ANNOTATION) == "true"

    @property
    def basis(self) -> object:
        """What the conditions of a reconcile are about. They are outdated if it has changed meanwhile."""
        return self.generation

    @property
    def spec(self) -> Object:
        return self.raw.get("spec") or {}

    @property
    def status(self) -> Object:
        return self.raw.get("status") or {}

    def condition(self, type: str) -> Object:
        """The condition of that type; empty if there is none."""
        return find_condition(self.status, type) or {}

    def is_true(self, type: str) -> bool:
        return self.condition(type).get("status") == TRUE

    @property
    def owner(self) -> Mapping[str, str]:
        """With a `user` or a `team`."""
        return self.spec.get("owner") or {}

    @property
    def access(self) -> Sequence[Object]:
        return self.spec.get("access") or ()

    @property
    def is_ignored(self) -> bool:
        """Whether controllers skip it, as during a migration."""
        return bool(self.status.get("ignoreReconciliation"))

    @property
    def target_state(self) -> object:
        """The state that apps which are deployed into it depend on."""
        deletion = self.meta.get("deletionTimestamp")
        return self.uid, self.generation, deletion, self.status.get("phase"), self.status.get("online")


@dataclass(frozen=True, slots=True)
class PlacedObject(TypedObject):
    """What spaces, virtual clusters and runners have: a namespace in a connected cluster."""

    @property
    def cluster_ref(self) -> Object:
        return self.spec.get("clusterRef") or {}

    @property
    def cluster(self) -> str:
        """The connected cluster that it names."""
        return self.cluster_ref.get("cluster") or ""

    @property
    def remote_namespace(self) -> str:
        """Its namespace in that cluster, as soon as it is chosen."""
        return self.cluster_ref.get("namespace") or ""


@dataclass(frozen=True, slots=True)
class RemoteInstance(PlacedObject):
    """What spaces and virtual clusters have: a template, and a namespace in a cluster."""

    @property
    def template_name(self) -> str:
        return get_path(self.spec, "templateRef.name") or ""

    @property
    def template_trust(self) -> str:
        """The trust of the rendered template; empty if it is not known yet."""
        return self.status.get("templateTrust") or ""

    @property
    def applied_trust(self) -> str:
        """The trust of the template that was applied last, as far as that was recorded."""
        return self.status.get("templateApplied") or ""

    @property
    def is_resolved(self) -> bool:
        """Whether its template is resolved for the current generation, and its trust is known."""
        resolved = self.condition(TEMPLATE_RESOLVED)
        is_current = resolved.get("observedGeneration") == self.generation
        return is_current and resolved.get("status") == TRUE and bool(self.template_trust)

    @property
    def rendered(self) -> Object:
        """The rendered template."""
        raise NotImplementedError

    @property
    def space_template(self) -> Object:
        """The part of the rendered template for its namespace."""
        raise NotImplementedError

    @property
    def owner_uid(self) -> str:
        """The uid in the labels of what it has in the cluster."""
        return self.uid

    @property
    def basis(self) -> object:
        return self.rendered

    @property
    def space_objects(self) -> Object:
        """What was applied and deployed in its namespace."""
        return self.status.get(SPACE_OBJECTS) or {}

    @property
    def fields_without_releases(self) -> Object:
        """Those fields of its status that record Helm releases, as they are if none is deployed; empty if none is
        recorded."""
        fields: Object = {}
        for field in (SPACE_OBJECTS, VIRTUAL_CLUSTER_OBJECTS):
            recorded = self.status.get(field) or {}
            if any(part in recorded for part in RELEASE_PARTS):
                fields[field] = {name: value for name, value in recorded.items() if name not in RELEASE_PARTS}
        if self.status.get("deployHash"):
            fields["deployHash"] = ""
        if self.status.get("lastAttempt"):
            fields["lastAttempt"] = None
        return fields

    @property
    def sleep_type(self) -> str:
        """Why it is to sleep; empty if it is to be awake."""
        return sleep_type_of(self.raw)

    @property
    def sleep_stage(self) -> str:
        """How far the sleep or the wake-up in the cluster is; empty if nothing is asleep there."""
        return get_path(self.status, "sleep.stage") or ""

    @property
    def sleep_transition(self) -> str:
        """What its workloads are doing, as a text, while they are stopped or started; empty if neither."""
        if not self.can_sleep:
            return ""
        if self.sleep_type:
            return "" if self.sleep_stage == ASLEEP_STAGE else "falling asleep"
        return "waking up" if self.sleep_stage else ""

    @property
    def sleep_refused_at(self) -> int:
        """When it was found that it cannot sleep, in Unix seconds; 0 if it was not."""
        return get_path(self.status, "sleep.refusedAt") or 0

    @property
    def can_sleep(self) -> bool:
        """Whether this server has deployed something for it that can be stopped and started."""
        return bool(self.remote_namespace) and not self.is_deployed_elsewhere and not self.is_deleting

    @property
    def extra_access_rules(self) -> Sequence[Object]:
        return self.spec.get("extraAccessRules") or ()

    @property
    def is_imported(self) -> bool:
        """Whether `spec.config` names its kubeconfig."""
        return False

    @property
    def is_external(self) -> bool:
        """Whether it is deployed by another tool."""
        return False

    @property
    def has_agent(self) -> bool:
        """Whether an agent of its own reports its status."""
        return False

    @property
    def is_deployed_elsewhere(self) -> bool:
        """Whether nothing is deployed for it."""
        return self.is_imported or self.is_external or self.has_agent


@dataclass(frozen=True, slots=True)
class SpaceInstance(RemoteInstance):
    @property
    def rendered(self) -> Object:
        return self.status.get("space") or {}

    @property
    def space_template(self) -> Object:
        return self.rendered

    @property
    def virtual_cluster(self) -> str:
        """The virtual cluster that it names, which is not supported."""
        return self.cluster_ref.get("virtualCluster") or ""

    def is_usable(self, *, allow_unreachable: bool = False) -> bool:
        """Whether its namespace exists and belongs to it. Before that, it may belong to another owner.

        SpaceReady is Unknown while this server cannot reach the cluster. With `allow_unreachable`, the space is usable
        then: the agent of the cluster keeps serving it.
        """
        is_synced = self.is_true(SPACE_SYNCED) or (
            allow_unreachable and self.condition(SPACE_READY).get("status") == UNKNOWN
        )
        return bool(self.remote_namespace) and is_synced and not self.is_deleting


@dataclass(frozen=True, slots=True)
class VirtualClusterInstance(RemoteInstance):
    @property
    def rendered(self) -> Object:
        return self.status.get("virtualCluster") or {}

    @property
    def space_template(self) -> Object:
        return self.rendered.get("spaceTemplate") or {}

    @property
    def values(self) -> str:
        """The values of its chart."""
        return get_path(self.rendered, "helmRelease.values") or ""

    @property
    def release_name(self) -> str:
        return self.cluster_ref.get("virtualCluster") or ""

    @property
    def service_uid(self) -> str:
        """Does not change when it moves to another project. Empty until it is set."""
        return self.status.get("serviceUID") or ""

    @property
    def owner_uid(self) -> str:
        return self.service_uid or self.uid

    @property
    def is_imported(self) -> bool:
        return bool(get_path(self.spec, "config.secretName"))

    @property
    def is_external(self) -> bool:
        return bool(self.spec.get("external"))

    @property
    def has_agent(self) -> bool:
        return bool(self.spec.get("networkPeer"))

    @property
    def connection(self) -> Object:
        """How the server reached it last."""
        return self.status.get("connection") or {}

    @property
    def deploy_hash(self) -> str:
        """The hash of the release that was deployed last."""
        return self.status.get("deployHash") or ""

    @property
    def last_attempt(self) -> Object:
        """The last run of Helm for its release."""
        return self.status.get("lastAttempt") or {}

    @property
    def was_confined(self) -> bool:
        """Whether its chart was deployed with the permissions of its owner only."""
        return bool(self.status.get("deployedConfined"))


@dataclass(frozen=True, slots=True)
class AppInstance(TypedObject):
    @property
    def app_name(self) -> str:
        return get_path(self.spec, "appRef.name") or ""

    @property
    def parameters(self) -> str:
        return self.spec.get("parameters") or ""

    @property
    def release_name(self) -> str:
        return self.spec.get("releaseName") or ""

    @property
    def target(self) -> Object:
        """With one field: `cluster`, `spaceInstance` or `virtualClusterInstance`."""
        return self.spec.get("target") or {}

    @property
    def target_field(self) -> str:
        return next((field for field, value in self.target.items() if value), "")

    @property
    def target_name(self) -> str:
        return get_path(self.target, f"{self.target_field}.name") or ""

    @property
    def target_namespace(self) -> str:
        """The namespace that it names in its target."""
        return get_path(self.target, f"{self.target_field}.namespace") or ""

    @property
    def is_deployed_as_wanted(self) -> bool:
        """Whether its last deployment was that of the current generation, and has succeeded."""
        ready = self.condition("Ready")
        return ready.get("status") == TRUE and ready.get("observedGeneration") == self.generation

    @property
    def target_uid(self) -> str:
        """The uid of the target that it was deployed to."""
        return self.status.get("targetUID") or ""

    @property
    def namespace_in_cluster(self) -> Object:
        """The namespace that the space or virtual cluster has in a connected cluster: `cluster`, `namespace` and the
        `uid` in its labels. Empty for a cluster, and for a virtual cluster that this server has not deployed."""
        recorded: Object = self.status.get("namespaceInCluster") or {}
        if not recorded and self.target_field == "spaceInstance" and self.release.get("cluster"):
            # deployed by a version that did not record it
            return {"cluster": self.release["cluster"], "namespace": self.release["namespace"], "uid": self.target_uid}
        return recorded

    @property
    def deploy_hash(self) -> str:
        """The hash of the release that was deployed last."""
        return self.status.get("deployHash") or ""

    @property
    def last_attempt(self) -> Object:
        """The last run of Helm for its release."""
        return self.status.get("lastAttempt") or {}

    @property
    def was_confined(self) -> bool:
        """Whether it was deployed with permissions in its namespace only."""
        return bool(self.status.get("deployedConfined"))

    @property
    def release(self) -> Object:
        """What was deployed."""
        return self.status.get("release") or {}

    @property
    def history(self) -> Sequence[Object]:
        return self.status.get("history") or ()

    @property
    def drift(self) -> Object:
        """What others have changed last."""
        return self.status.get("drift") or {}


@dataclass(frozen=True, slots=True)
class App(TypedObject):
    @property
    def waits(self) -> bool:
        """Whether Helm waits until the deployed objects are ready."""
        return bool(self.spec.get("wait"))

    @property
    def timeout(self) -> str:
        """The timeout of a deployment; empty: the default one."""
        return self.spec.get("timeout") or ""

    @property
    def clusters(self) -> Sequence[str]:
        """The clusters that it is for; empty: all."""
        return self.spec.get("clusters") or ()

    @property
    def default_namespace(self) -> str:
        return self.spec.get("defaultNamespace") or ""


@dataclass(frozen=True, slots=True)
class Project(TypedObject):
    @property
    def relevant_state(self) -> object:
        """The state that its instances depend on."""
        return self.uid, self.generation

    @property
    def members(self) -> Sequence[Object]:
        return self.spec.get("members") or ()

    @property
    def namespace_patterns(self) -> Mapping[str, str]:
        """How the namespaces of a `space` and of a `virtualCluster` are named."""
        return self.spec.get("namespacePattern") or {}


@dataclass(frozen=True, slots=True)
class Cluster(TypedObject):
    @property
    def has_transport(self) -> bool:
        """Whether this server reaches it, with a kubeconfig or through its agent, instead of just storing what others
        report. It probes a cluster that dials out once it expects an agent of it."""
        is_agent_expected = self.spec.get("networkPeer") and self.condition("Connected")
        return bool(get_path(self.spec, "config.secretName") or is_agent_expected)

    @property
    def has_agent(self) -> bool:
        return bool(self.spec.get("networkPeer") or self.spec.get("local"))

    @property
    def is_unusable(self) -> bool:
        """Whether it accepts no new instances."""
        return bool(self.spec.get("unusable"))

    @property
    def is_online(self) -> bool | None:
        """None if that was never probed."""
        return self.status.get("online")

    @property
    def phase(self) -> str:
        return self.status.get("phase") or ""

    @property
    def ingress_suffix(self) -> str:
        """The domain below which its ingress controller is reached; empty if that is not known."""
        return (self.meta.get("annotations") or {}).get(INGRESS_SUFFIX_ANNOTATION) or ""

    @property
    def relevant_state(self) -> object:
        """The state that what is deployed into it depends on: reachability, identity and addresses."""
        status = self.status
        reachability = status.get("online"), status.get("phase"), status.get("clusterUID")
        return self.uid, self.generation, reachability, self.ingress_suffix
