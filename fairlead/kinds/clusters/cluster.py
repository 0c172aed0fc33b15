"""Cluster: a connected Kubernetes cluster, and the subresources for its agent.

The agent serves the direct endpoint next to the cluster. It authenticates as `service:agent:<cluster>` with a key that
is owned by the Cluster and deleted with it. `authz/component_access.py` authorizes it, `subresources/clusters.py`
implements its subresources: the key, the configuration for verifying tokens, and reports. The subresource `health` has
the recent probes (`subresources/clusters.py`).
"""

from collections.abc import Iterable

from fairlead.domain.probe_day import MAX_DAY_TEXT_LENGTH, MAX_QUARTERS
from fairlead.domain.probe_history import MAX_SAMPLES, MAX_TEXT_LENGTH
from fairlead.kinds.access.components import Component
from fairlead.kinds.answered import component_key_kind, create_only_kind, read_only_kind
from fairlead.kinds.fields import (
    CATEGORY,
    CONDITIONS,
    OBSERVED_GENERATION,
    owned_spec,
    owner_problems,
)
from fairlead.registry import limits
from fairlead.registry.kind import Action, Change, Column, Kind, Problem, Sensitivity
from fairlead.registry.schema import (
    array,
    array_map,
    boolean,
    enum,
    integer,
    obj,
    open_object,
    string,
    timestamp,
    without_effect,
)

AGENT = Component("clusters", "Cluster", "agent", "service.sh/agent", "service:agents")
"""Cluster agents as authenticating components."""

MAX_REPORT_EVENTS = 500
"""Maximum number of audit events in one report."""

CLUSTER_ACCESS_KEY = component_key_kind(
    "ClusterAccessKey",
    "The access key of a cluster's agent. It does not change until it is deleted. Every read is audited.",
    {
        "accessKey": string("The bearer token of the cluster's agent.", format="password"),
        "serviceHost": string("External address of this server."),
        "insecure": boolean("Whether the agent skips verification of this server's certificate. Always false."),
        "caCert": string(
            "PEM of the CA that signed this server's certificate; empty for a public CA.",
            max_length=limits.CERTIFICATES,
        ),
    },
)
"""Response body of `clusters/<name>/accesskey`."""

CLUSTER_AGENT_TOKEN = create_only_kind(
    "ClusterAgentToken",
    "A token with which the agent of a cluster joins once, within an hour. Earlier tokens of the cluster end.",
    {
        "status": obj(
            "Only in the response.",
            token=string("The token. It is shown once; the server stores a digest of it.", format="password"),
            serviceHost=string("External address of this server."),
            caCert=string(
                "PEM of the CA that signed this server's certificate; empty for a public CA.",
                max_length=limits.CERTIFICATES,
            ),
        ),
    },
    sensitive=("status.token",),
)
"""Response body of `clusters/<name>/agenttoken`."""

_USER = obj(
    uid=string("UID of the user. The user name is not included; the token contains it."),
    generation=integer("Direct tokens of an earlier generation are rejected."),
    groups=array(
        string(), "Current groups of the user, without those of every user.", max_items=limits.SERVER_WRITTEN_ITEMS
    ),
)

CLUSTER_AGENT_CONFIG = read_only_kind(
    "ClusterAgentConfig",
    "Configuration for a cluster's agent to verify direct tokens offline. Responses have an ETag.",
    {
        "cluster": string("Name of the Cluster."),
        "clusterUID": string("UID of the Cluster object, which scoped tokens are bound to."),
        "issuer": string("Issuer (`iss` claim) of direct tokens."),
        "jwks": open_object("Public keys for verifying direct tokens, as a JSON Web Key Set."),
        "apiGroup": string("API group of this server's kinds."),
        "projectNamespacePrefix": string("Prefix of the names of project namespaces."),
        "clusterIdentityPrefix": string("Prefix of the impersonated user names and groups in clusters."),
        "serviceHost": string("External address of this server."),
        "serviceInstanceID": string("ID of this installation."),
        "spaces": array(
            obj(
                project=string("Name of the project."),
                name=string("Name of the space."),
                uid=string("UID of the space."),
                namespace=string("Namespace of the space in the cluster."),
                allowed=array(
                    string(),
                    "UIDs of the users and teams that may use the space.",
                    max_items=limits.SERVER_WRITTEN_ITEMS,
                ),
            ),
            "The spaces in this cluster.",
            max_items=limits.SERVER_WRITTEN_ITEMS,
        ),
        "allowed": array(
            string(), "UIDs of the users and teams that may use this cluster.", max_items=limits.SERVER_WRITTEN_ITEMS
        ),
        "identities": obj(
            "Principals whose tokens are accepted. Disabled and deleted ones are not included.",
            users=array(_USER, "Users.", max_items=limits.SERVER_WRITTEN_ITEMS),
            teams=array(obj(uid=string("UID of the team.")), "Teams.", max_items=limits.SERVER_WRITTEN_ITEMS),
        ),
    },
)
"""Response body of `clusters/<name>/agentconfig`."""


def check_report(change: Change) -> Iterable[Problem]:
    count = len(change.spec.get("events") or ())
    if count > MAX_REPORT_EVENTS:
        yield Problem.invalid(
            "spec.events", count, f"must have at most {MAX_REPORT_EVENTS} items; send the rest in another report"
        )


CLUSTER_AGENT_REPORT = Kind(
    name="ClusterAgentReport",
    plural="clusteragentreports",
    namespaced=False,
    fields={
        "spec": obj(
            "Activity at the direct endpoint since the last report.",
            events=array(open_object(), f"Audit events in the format of audit.k8s.io, at most {MAX_REPORT_EVENTS}."),
            dropped=integer("Number of events dropped because the queue was full.", minimum=0),
            activity=array(
                obj(
                    user=string("Name of the user."),
                    token=string("ID of the direct token."),
                    lastUse=string("When the token was last used."),
                ),
                "Last use of each direct token.",
                max_items=limits.REPORTED_TOKENS,
            ),
        ),
        "status": obj("Only in the response.", recorded=integer("Number of events written to the audit log.")),
    },
    description="A report of a cluster's agent about its direct endpoint.",
    verbs=("create",),
    persisted=False,
    builtin=True,
    check=check_report,
    sensitivity=Sensitivity.NORMAL,
)
"""Request and response body of `clusters/<name>/agentreport`."""


SPEC = owned_spec(
    "Connection to the cluster, and access to it.",
    config=obj(
        "The secret with the kubeconfig. The requester must be allowed to read the secret.",
        secretName=string("Name of the secret that contains a kubeconfig."),
        secretNamespace=string("Namespace of that secret. Empty means `service-system`."),
        key=string("Key of the kubeconfig within the secret. Defaults to `config`."),
    ),
    local=boolean("This is the cluster that the server runs in. At most one cluster can be local. Defaults to false."),
    networkPeer=boolean(
        "The cluster's agent connects to the server, which never dials the cluster then: `config` has no effect. "
        "Defaults to false."
    ),
    managementNamespace=without_effect(
        string("Namespace of the agent within the cluster."), "has no effect: the agent can be in any namespace"
    ),
    unusable=boolean("No new instances are scheduled here; existing ones stay. Defaults to false."),
    metrics=without_effect(open_object("Settings of the metrics integration.")),
    opencost=without_effect(open_object("Settings of the cost integration.")),
    argoCD=without_effect(open_object("Settings of the Argo CD integration.")),
)

CREDENTIAL_STATE_FIELD, CREDENTIAL_END_FIELD = (
    "status.credentialExpiry.state",
    "status.credentialExpiry.expirationTimestamp",
)
CREDENTIAL_STATES = ("Unlimited", "Valid", "Expiring", "Expired")

CLUSTER_HEALTH = read_only_kind(
    "ClusterHealth",
    "The recent probes of a cluster.",
    {
        "online": boolean("Whether the last probe reached the cluster."),
        "version": string("Kubernetes version of the cluster."),
        "latencyMilliseconds": integer("Time until the response to the last probe. Absent if there was none."),
        "lastProbeTime": timestamp("Time of the last probe that was recorded."),
        "samples": array(
            obj(
                required=("time", "ok"),
                time=timestamp("Time of the probe."),
                latencyMilliseconds=integer("Time until the response. Absent if there was none."),
                ok=boolean("Whether the cluster was reachable and ready."),
                reason=string("Why it was not, such as `TimedOut` or `NotReady`."),
            ),
            "The last probes, oldest first. Recorded about every five minutes, and at once when the status changes.",
            max_items=MAX_SAMPLES,
        ),
        "day": array(
            obj(
                required=("time", "probes", "failed"),
                time=timestamp("Start of a quarter of an hour."),
                probes=integer("Number of probes."),
                failed=integer("How many of them found the cluster unreachable or not ready."),
                latencyMilliseconds=integer("Mean time until the response. Absent if there was none."),
                maxLatencyMilliseconds=integer("Longest time until the response. Absent if there was none."),
            ),
            "The probes of the last day by quarters of an hour, oldest first. Quarters without probes are left out.",
            max_items=MAX_QUARTERS,
        ),
    },
)

STATUS = obj(
    "Result of the last probe of the cluster. Written by the server.",
    phase=enum("Empty while the cluster is being set up or is offline.", "", "Initialized", "Failed"),
    reason=string("Machine-readable reason for the phase, such as `Offline` or `HealthCheckCluster`."),
    message=string("Human-readable reason for the phase.", max_length=limits.MESSAGE),
    conditions=CONDITIONS,
    observedGeneration=OBSERVED_GENERATION,
    online=boolean("Whether the last probe reached the cluster."),
    version=string("Kubernetes version of the cluster."),
    clusterUID=string(
        "UID of the namespace `kube-system` in the cluster. Identifies a cluster that is connected twice."
    ),
    administratorsGroup=string(
        "Group that the server bound to `cluster-admin` in the cluster. Absent while AdministratorsBound is not True."
    ),
    identity=obj(
        "Another installation of Fairlead that uses the same prefix of user names in the cluster, if there is one.",
        prefix=string("The prefix that both use."),
        otherInstallation=string("Id of the other installation: the uid of its system namespace."),
        otherURL=string("URL of the other installation, if it has one."),
    ),
    credentialExpiry=obj(
        "The stored credential of a cluster that is dialled: facts about it, never itself.",
        type=enum("What it is.", "token", "certificate"),
        state=enum(
            "`Unlimited` if it does not say when it expires, `Expiring` if a person has to act before it expires.",
            *CREDENTIAL_STATES,
        ),
        expirationTimestamp=timestamp("When it expires. Absent if it does not say that."),
        renewalTimestamp=timestamp("When the server renews it: at half of its life. Absent if it does not."),
    ),
    nodes=integer("Number of nodes, if the credential may list them."),
    lastProbeTime=timestamp("Time of the last probe. Without other changes, updated only every five minutes."),
    latencyMilliseconds=integer("Time until the response to the last probe. Absent if there was none."),
    probeHistory=string(
        "The recent probes in a compact form, which may change. Read them with the subresource `health`.",
        max_length=MAX_TEXT_LENGTH,
    ),
    probeDay=string(
        "The probes of the last day in a compact form, which may change. Read them with the subresource `health`.",
        max_length=MAX_DAY_TEXT_LENGTH,
    ),
    probes=array_map(
        ("name",),
        obj(
            required=("name", "ok"),
            name=string("Name of the probe, such as `connection` or `readyz`."),
            ok=boolean("Whether the probe succeeded."),
            message=string("Result of the probe, and what to do about a failure.", max_length=limits.MESSAGE),
            severity=string("`Warning` if the cluster is ready although this probe failed."),
            time=timestamp("When the result was obtained."),
        ),
        "Results of the individual probes, in order. `fairlead cluster check` shows them.",
        max_items=limits.CONDITIONS,
    ),
)


def warn_missing_namespace(change: Change) -> None:
    """Warns about a secret reference without a namespace. It is stored as sent, since the namespace may follow."""
    config = change.spec.get("config") or {}
    if not change.subresource and config.get("secretName") and not config.get("secretNamespace"):
        change.warnings.append(
            "spec.config.secretNamespace is empty: the secret is read from the namespace service-system"
        )


def check(change: Change) -> Iterable[Problem]:
    return owner_problems(change.spec)


CLUSTER = Kind(
    name="Cluster",
    plural="clusters",
    namespaced=False,
    fields={"spec": SPEC, "status": STATUS},
    description="A connected cluster. With the verb `use` it can be accessed, and spaces and virtual clusters created.",
    categories=(CATEGORY,),
    status_subresource=True,
    columns=(
        Column("Phase", "status.phase", description="Initialized, Failed, or empty while it is being set up."),
        Column("Online", "status.online", type="boolean", description="Whether the last probe reached it."),
        Column("Version", "status.version", description="Kubernetes version of the cluster."),
        Column("Reason", "status.reason", description="Reason for the phase.", wide=True),
        Column(
            "Credential Expires",
            "status.credentialExpiry.expirationTimestamp",
            description="When the stored credential expires, if it does.",
            wide=True,
        ),
        Column("Display Name", "spec.displayName", description="Human-readable name.", wide=True),
    ),
    has_access_entries=True,
    has_protected_status=True,
    is_in_cli_scope=True,
    selectable=(
        "spec.networkPeer",
        "spec.owner.user",
        "status.phase",
        CREDENTIAL_STATE_FIELD,
        CREDENTIAL_END_FIELD,
    ),
    actions=(
        Action("accesskey", ("get",), CLUSTER_ACCESS_KEY),
        Action("agenttoken", ("create",), CLUSTER_AGENT_TOKEN),
        Action("health", ("get",), CLUSTER_HEALTH, object_verb="get"),
        Action("agentconfig", ("get",), CLUSTER_AGENT_CONFIG),
        Action("agentreport", ("create",), CLUSTER_AGENT_REPORT),
    ),
    default=warn_missing_namespace,
    check=check,
    sensitivity=Sensitivity.NORMAL,
)
