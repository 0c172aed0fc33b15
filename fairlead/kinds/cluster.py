"""Cluster: a connected cluster that people reach through Fairlead."""

from collections.abc import Iterable

from fairlead.kinds.agent import CLUSTER_ACCESS_KEY, CLUSTER_AGENT_CONFIG, CLUSTER_AGENT_REPORT
from fairlead.kinds.shared import (
    ACCESS,
    CATEGORY,
    CONDITIONS,
    DESCRIPTION,
    DISPLAY_NAME,
    OBSERVED_GENERATION,
    OWNER,
    owner_problems,
)
from fairlead.registry import limits
from fairlead.registry.kind import Action, Change, Column, Kind, Problem
from fairlead.registry.schema import array_map, boolean, enum, free, integer, obj, string, timestamp

SPEC = obj(
    "How the cluster is reached and who may use it.",
    displayName=DISPLAY_NAME,
    description=DESCRIPTION,
    owner=OWNER,
    access=ACCESS,
    config=obj(
        "The secret with the connection configuration. Whoever names a secret must be allowed to read it.",
        secretName=string("Name of the secret that holds a kubeconfig."),
        secretNamespace=string("Namespace of that secret. Empty means `service-system`."),
        key=string("Key of the kubeconfig within the secret. Defaults to `config`."),
    ),
    local=boolean("This is the cluster that the server itself runs in. Only one cluster can be. Defaults to false."),
    networkPeer=boolean("The cluster's agent dials in, so that no secret is needed. Defaults to false."),
    managementNamespace=string("Namespace of the agent within the cluster. Defaults to `service-system`."),
    unusable=boolean("Nothing new is scheduled here; what is here stays. Defaults to false."),
    metrics=free("Settings of the metrics integration."),
    opencost=free("Settings of the cost integration."),
    argoCD=free("Settings of the Argo CD integration."),
)

STATUS = obj(
    "What the last look at the cluster found. Written by the server.",
    phase=enum("Empty while the cluster is being set up or is offline.", "", "Initialized", "Failed"),
    reason=string("Why the phase is what it is, as one word, such as `Offline` or `HealthCheckCluster`."),
    message=string("The same for people.", longest=limits.MESSAGE),
    conditions=CONDITIONS,
    observedGeneration=OBSERVED_GENERATION,
    online=boolean("Whether the last look reached the cluster."),
    version=string("Kubernetes version of the cluster."),
    clusterUID=string(
        "Uid of the namespace `kube-system` in the cluster: the same cluster connected twice shows in it."
    ),
    administratorsGroup=string(
        "Group that the server has bound to `cluster-admin` there. Left out while AdministratorsBound is not True."
    ),
    nodes=integer("How many nodes it has, where the credential may see them."),
    lastProbeTime=timestamp("When the server last looked. Written again only every half minute if nothing is new."),
    probes=array_map(
        ("name",),
        obj(
            required=("name", "ok"),
            name=string("What was looked at, such as `connection` or `readyz`."),
            ok=boolean("Whether it was as it should be."),
            message=string("What was found, and what to do about it.", longest=limits.MESSAGE),
            severity=string("`Warning` where a part that is not as it should be leaves the cluster ready."),
            time=timestamp("When this was found."),
        ),
        "What each part of the last look found, in order. `fairlead cluster check` shows it.",
        most=limits.CONDITIONS,
    ),
)


def warn(change: Change) -> None:
    """Half a reference is kept as sent, since the other half may follow."""
    config = change.spec.get("config") or {}
    if not change.subresource and config.get("secretName") and not config.get("secretNamespace"):
        change.warnings.append(
            "spec.config.secretNamespace is empty: the secret is looked for in the namespace service-system"
        )


def check(change: Change) -> Iterable[Problem]:
    return owner_problems(change.spec)


CLUSTER = Kind(
    name="Cluster",
    plural="clusters",
    namespaced=False,
    fields={"spec": SPEC, "status": STATUS},
    description="A connected cluster. Those who may use it can reach it and make spaces and virtual clusters in it.",
    categories=(CATEGORY,),
    status_subresource=True,
    columns=(
        Column("Phase", "status.phase", description="Initialized, Failed, or empty while it is being set up."),
        Column("Online", "status.online", type="boolean", description="Whether the last look reached it."),
        Column("Version", "status.version", description="Kubernetes version of the cluster."),
        Column("Reason", "status.reason", description="Why the phase is what it is.", wide=True),
        Column("Display Name", "spec.displayName", description="Name shown to people.", wide=True),
    ),
    shared=True,
    selectable=("spec.networkPeer", "spec.owner.user", "status.phase"),
    actions=(
        Action("accesskey", ("get",), CLUSTER_ACCESS_KEY),
        Action("agentconfig", ("get",), CLUSTER_AGENT_CONFIG),
        Action("agentreport", ("create",), CLUSTER_AGENT_REPORT),
    ),
    prepare=warn,
    check=check,
)
