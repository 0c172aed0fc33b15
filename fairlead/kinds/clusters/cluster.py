"""Cluster: a connected cluster that people reach through Fairlead."""

from collections.abc import Iterable

from fairlead.kinds.access.components import Component
from fairlead.kinds.fields import (
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
from fairlead.registry.schema import array, array_map, boolean, enum, free, integer, obj, string, timestamp

# DOC-MERGED kinds/agent
# What stands below a Cluster's path for its agent, which serves the direct endpoint beside the cluster: the key that
# it signs in with, everything that it needs to verify tokens by itself, and what it has to report.
#
# An agent signs in as `service:agent:<cluster>`, with a key that belongs to the Cluster and goes with it.
# `authz/component_access.py` says what such an identity may do, `subresources/cluster_agents.py` answers.


AGENT = Component("clusters", "Cluster", "agent", "service.sh/agent", "service:agents")
"""Agents of clusters, as components that sign in."""

MAX_EVENTS = 500
"""Audit events in one report."""

CLUSTER_ACCESS_KEY = Kind(
    name="ClusterAccessKey",
    plural="clusteraccesskeys",
    namespaced=False,
    fields={
        "accessKey": string("The key that the cluster's agent signs in with, as a bearer token.", format="password"),
        "serviceHost": string("Address of this server as its users know it."),
        "insecure": boolean("Whether the agent may skip the check of this server's certificate. Always false."),
        "caCert": string(
            "PEM of the authority that signed this server's certificate; empty for a public one.",
            longest=limits.CERTIFICATES,
        ),
    },
    description="The access key of a cluster's agent. It stays the same until it is deleted. Every read is audited.",
    verbs=("get",),
    secret=("accessKey",),
    stored=False,
)
"""What `clusters/<name>/accesskey` answers with."""

_USER = obj(
    uid=string("Uid of the user. Names are not told: whoever comes with a token brings its own."),
    generation=integer("Direct tokens of an earlier generation are no longer accepted."),
    groups=array(string(), "Groups that the user is in now, beside those that every user is in.", most=limits.ANSWERED),
)

CLUSTER_AGENT_CONFIG = Kind(
    name="ClusterAgentConfig",
    plural="clusteragentconfigs",
    namespaced=False,
    fields={
        "cluster": string("Name of the Cluster."),
        "clusterUID": string("Uid of the Cluster object, which scoped tokens are bound to."),
        "issuer": string("Who issues direct tokens, as they say it."),
        "jwks": free("The public keys that direct tokens are verified with, as a JSON Web Key Set."),
        "apiGroup": string("API group of this server's kinds."),
        "projectNamespacePrefix": string("What the names of projects' namespaces begin with."),
        "clusterIdentityPrefix": string("What user names and groups have in front at clusters."),
        "serviceHost": string("Address of this server as its users know it."),
        "serviceInstanceID": string("Names this installation."),
        "spaces": array(
            obj(
                project=string("Name of the project."),
                name=string("Name of the space."),
                uid=string("Uid of the space."),
                namespace=string("The space's namespace in the cluster."),
                allowed=array(string(), "Uids of the users and teams who may use the space.", most=limits.ANSWERED),
            ),
            "The spaces in this cluster.",
            most=limits.ANSWERED,
        ),
        "allowed": array(string(), "Uids of the users and teams who may use this cluster.", most=limits.ANSWERED),
        "identities": obj(
            "Everybody whose tokens may be accepted. Who is disabled or deleted is not here.",
            users=array(_USER, "Users.", most=limits.ANSWERED),
            teams=array(obj(uid=string("Uid of the team.")), "Teams.", most=limits.ANSWERED),
        ),
    },
    description="What a cluster's agent needs to know to verify direct tokens without asking. It has an ETag.",
    verbs=("get",),
    stored=False,
)
"""What `clusters/<name>/agentconfig` answers with."""


def check_report(change: Change) -> Iterable[Problem]:
    count = len(change.spec.get("events") or ())
    if count > MAX_EVENTS:
        yield Problem.invalid("spec.events", count, f"must have at most {MAX_EVENTS} items; send the rest afterwards")


CLUSTER_AGENT_REPORT = Kind(
    name="ClusterAgentReport",
    plural="clusteragentreports",
    namespaced=False,
    fields={
        "spec": obj(
            "What has happened at the direct endpoint since the last report.",
            events=array(free(), f"Audit events as Kubernetes has them, at most {MAX_EVENTS}."),
            dropped=integer("Events that are lost because too many came.", minimum=0),
            activity=array(
                obj(
                    user=string("Name of the user."),
                    token=string("Id of the direct token."),
                    lastUse=string("When the token was last used."),
                ),
                "Who has used the direct endpoint.",
                most=limits.REPORTED_TOKENS,
            ),
        ),
        "status": obj("In the answer only.", recorded=integer("Events that are in the audit log now.")),
    },
    description="What a cluster's agent reports of its direct endpoint.",
    verbs=("create",),
    stored=False,
    builtin=True,
    check=check_report,
)
"""What `clusters/<name>/agentreport` takes and answers with."""


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
