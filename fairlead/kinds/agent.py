"""What stands below a Cluster's path for its agent, which serves the direct endpoint beside the cluster: the key that
it signs in with, everything that it needs to verify tokens by itself, and what it has to report.

An agent signs in as `service:agent:<cluster>`, with a key that belongs to the Cluster and goes with it.
`authz/agents.py` says what such an identity may do, `server/agents.py` answers.
"""

from collections.abc import Iterable

from fairlead.kinds.components import Component
from fairlead.registry import limits
from fairlead.registry.kind import Change, Kind, Problem
from fairlead.registry.schema import array, boolean, free, integer, obj, string

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
