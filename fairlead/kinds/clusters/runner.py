"""Runner: executes workspaces. Its subresources are the access key, the key rotation, and the runner's configuration.

A runner authenticates as `service:runner:<name>` with a key that is owned by its Runner and deleted with it.
`authn/component_keys.py` issues these keys, `authz/component_access.py` authorizes the runner.
"""

from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import urlsplit

from fairlead.core.deployed_runners import DEPLOYMENT_FINALIZER
from fairlead.core.objects import Object, get_path, has_finalizer, name_of
from fairlead.core.workspaces import runner_status
from fairlead.kinds.access.access_key import rotation_spec
from fairlead.kinds.access.components import Component
from fairlead.kinds.answered import component_key_kind, create_only_kind, read_only_kind
from fairlead.kinds.fields import (
    CATEGORY,
    CONDITIONS,
    OBSERVED_GENERATION,
    STRING_MAP,
    owned_spec,
    owner_problems,
)
from fairlead.registry import limits
from fairlead.registry.kind import Action, Change, Column, Kind, Problem, Sensitivity
from fairlead.registry.names import dns_label_errors
from fairlead.registry.schema import (
    Schema,
    array,
    boolean,
    enum,
    obj,
    open_object,
    string,
    with_description,
    without_effect,
)

RUNNERS = "runners"
RUNNER_COMPONENT = Component(RUNNERS, "Runner", "runner", "service.sh/runner", "service:runners")
"""Runners as authenticating components."""

LEASES_GROUP, LEASES = "coordination.k8s.io", "leases"
HEARTBEAT_NAMESPACE = "service-system"
HEARTBEAT_PREFIX = "runner-"
"""A runner renews the Lease `runner-<name>` in this namespace while it runs."""

MAX_ENGINES = 16
MAX_DEPLOYED_NAME = 47
"""Objects in the cluster, and the namespace, are named `fairlead-runner-NAME`, in at most 63 characters."""
SYSTEM_NAMESPACES = "kube-"
RESERVED_VOLUMES = "fairlead-"
"""Prefixes of the namespaces that the runner never uses, and of the names of the server's own volumes."""

_METADATA = obj(
    "Labels and annotations of the created object.",
    labels=with_description(STRING_MAP, "Labels to set."),
    annotations=with_description(STRING_MAP, "Annotations to set."),
)


def _open_list(description: str) -> Schema:
    return array(open_object(), description)


_POD = obj(
    "The runner's pod.",
    metadata=_METADATA,
    spec=obj(
        "Overrides for the default pod. The fields have the types of a Kubernetes PodSpec.",
        image=string("Image of the runner. Defaults to the server's setting `runner_image`."),
        resource=open_object("Resource requests and limits of the runner's container."),
        env=_open_list("Environment variables of the runner."),
        envFrom=_open_list("Sources of additional environment variables."),
        nodeSelector=with_description(STRING_MAP, "Node selector of the pod."),
        affinity=open_object("Scheduling constraints of the pod."),
        tolerations=_open_list("Tolerations of the pod."),
        volumes=_open_list("Additional volumes of the pod."),
        volumeMounts=_open_list("Volume mounts of the runner's container."),
        initContainers=_open_list("Init containers of the pod."),
        hostAliases=_open_list("Additional entries for the pod's hosts file."),
    ),
)

SPEC = owned_spec(
    "Location of the runner, and access to it.",
    clusterRef=obj(
        "The connected cluster that the server deploys the runner into. Omitted for a runner that is started "
        "elsewhere. Only administrators set and change it.",
        cluster=string("Name of the connected cluster. Immutable while the runner is deployed."),
        namespace=string(
            "Namespace within that cluster, for the runner and its workspaces. Defaults to `fairlead-runner-NAME`. It "
            "is created if it does not exist, and then deleted with the Runner. Immutable while the runner is deployed."
        ),
        persistentVolumeClaimTemplate=obj(
            "The persistent volume claim for the runner's state.",
            metadata=_METADATA,
            spec=obj(
                "Spec of the claim.",
                accessModes=array(string(), "Access modes of the volume. Defaults to `ReadWriteOnce`."),
                storageClassName=string("Storage class. Empty means the cluster's default."),
                storageSize=string("Size of the volume. Defaults to `1Gi`."),
            ),
        ),
        podTemplate=_POD,
        serviceTemplate=without_effect(
            obj(
                "The service in front of the runner.",
                metadata=_METADATA,
                spec=obj("Spec of the service.", type=string("Type of the service. Empty means `ClusterIP`.")),
            ),
            "has no effect: the runner connects to this server, and nothing connects to the runner",
        ),
    ),
    networkPeerName=without_effect(string("Name of the runner in the peer network, if it is in one.")),
    endpoint=string(
        "Address for direct connections of clients: `host`, `host:port` or `https://host:port`. "
        "It is copied to workspaces as the annotation `service.sh/runner-endpoint`."
    ),
    unusable=boolean("No new workspaces are scheduled here; existing ones stay. Defaults to false."),
)

STATUS = obj(
    "Observed state of the runner. Written by the server and the runner.",
    phase=enum("Empty until the first report of the runner.", "", "Initialized", "Failed"),
    reason=string("Machine-readable reason for the phase."),
    message=string("Human-readable reason for the phase.", max_length=limits.MESSAGE),
    engines=array(
        obj(
            "An engine of the runner.",
            required=("name",),
            name=string("The provider of templates that selects it."),
            problem=string("Why it cannot run workspaces; empty if it can.", max_length=limits.MESSAGE),
            capacity=with_description(STRING_MAP, "What its machine has: `cpus`, `memory` and `disk`, as quantities."),
        ),
        "How the runner can run workspaces; the first engine is for templates without a provider. Reported by the "
        "runner.",
        max_items=MAX_ENGINES,
    ),
    labels=with_description(
        STRING_MAP, "What kind of machine it has. Reported by the runner; `metadata.labels` take precedence."
    ),
    conditions=CONDITIONS,
    observedGeneration=OBSERVED_GENERATION,
)

RUNNER_ACCESS_KEY = component_key_kind(
    "RunnerAccessKey",
    "The access key of a runner. It does not change until it is rotated. Every read is audited.",
    {"accessKey": string("The bearer token of the runner.", format="password")},
)
"""Response body of `runners/<name>/accesskey`."""

RUNNER_KEY_ROTATION = create_only_kind(
    "RunnerKeyRotation",
    "Rotates the access key of a runner.",
    {
        "spec": rotation_spec("the old key"),
        "accessKey": string("The new key. Only in the response.", format="password"),
    },
    sensitive=("accessKey",),
)
"""Request and response body of `runners/<name>/rotatekey`."""

RUNNER_CONFIG = read_only_kind(
    "RunnerConfig",
    "Configuration for a runner.",
    {
        "tokenCaCert": string(
            "PEM for verifying this server's tokens offline. Empty if the server signs none.",
            max_length=limits.CERTIFICATES,
        ),
        "serviceHost": string("External address of this server."),
        "projectNamespacePrefix": string("Prefix of the names of project namespaces."),
        "serviceInstanceID": string("ID of this installation."),
    },
)
"""Response body of `runners/<name>/config`."""

RUNNER_LINK = read_only_kind(
    "RunnerLinkOptions",
    "The WebSocket over which the server reaches a runner. Only the runner itself may open it.",
    {},
)
"""Kind of `runners/<name>/link`, which has no body."""


def check(change: Change) -> Iterable[Problem]:
    yield from owner_problems(change.spec)
    yield from _cluster_ref_problems(change)
    endpoint = change.spec.get("endpoint")
    if endpoint and not _is_endpoint(endpoint):
        reason = "must be a host with an optional port and an optional https://, such as runner.example.com:8443"
        yield Problem.invalid("spec.endpoint", endpoint, reason)


def _cluster_ref_problems(change: Change) -> Iterator[Problem]:
    ref = change.spec.get("clusterRef") or {}
    if ref == (get_path(change.old, "spec.clusterRef") or {}):
        return  # what was stored by an earlier version stays valid
    if ref.get("cluster") and len(name_of(change.obj)) > MAX_DEPLOYED_NAME:
        reason = (
            f"must have at most {MAX_DEPLOYED_NAME} characters if spec.clusterRef.cluster is set: its objects in the "
            "cluster are named fairlead-runner-NAME"
        )
        yield Problem.invalid("metadata.name", name_of(change.obj), reason)
    namespace = ref.get("namespace") or ""
    for fault in dns_label_errors(namespace) if namespace else ():
        yield Problem.invalid("spec.clusterRef.namespace", namespace, fault)
    if namespace.startswith(SYSTEM_NAMESPACES):
        reason = f"must not begin with {SYSTEM_NAMESPACES}: workspaces would run among the system's own Pods"
        yield Problem.invalid("spec.clusterRef.namespace", namespace, reason)
    for index, volume in enumerate(get_path(ref, "podTemplate.spec.volumes") or ()):
        if str(volume.get("name") or "").startswith(RESERVED_VOLUMES):
            path = f"spec.clusterRef.podTemplate.spec.volumes[{index}].name"
            yield Problem.invalid(path, volume["name"], f"must not begin with {RESERVED_VOLUMES}, which is reserved")
    if change.old is None or not has_finalizer(change.old, DEPLOYMENT_FINALIZER):
        return
    for field in ("cluster", "namespace"):
        before = get_path(change.old, f"spec.clusterRef.{field}") or ""
        if before != (ref.get(field) or ""):
            reason = "is immutable while the runner is deployed; delete this Runner, and create another one"
            yield Problem.invalid(f"spec.clusterRef.{field}", ref.get(field) or "", reason)


def _is_endpoint(text: str) -> bool:
    """Whether clients can connect to it over TLS. Rejects addresses with user info, path, query or fragment."""
    try:
        parts = urlsplit(text if "://" in text else f"https://{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        return False
    beyond = parts.path or parts.query or parts.fragment or "@" in parts.netloc or text.endswith(("?", "#"))
    return parts.scheme == "https" and bool(host) and port != 0 and not beyond and not set(text) & set(" \\\t\r\n")


def heartbeat_lease(runner: str) -> str:
    """The name of the Lease that the runner renews."""
    return f"{HEARTBEAT_PREFIX}{runner}"


def is_unusable(runner: Object) -> Any:
    """Whether spec.unusable is set, for tables and the scheduler."""
    return bool(get_path(runner, "spec.unusable"))


def describe_engines(runner: Object) -> Any:
    """Those that can run workspaces, for tables."""
    engines = get_path(runner, "status.engines") or ()
    return ",".join(str(each.get("name") or "") for each in engines if not each.get("problem"))


RUNNER = Kind(
    name="Runner",
    plural=RUNNERS,
    namespaced=False,
    fields={"spec": SPEC, "status": STATUS},
    description="A runner, which executes the workspaces that are scheduled to it.",
    categories=(CATEGORY,),
    status_subresource=True,
    name_is_label=True,
    columns=(
        Column("Phase", "status.phase", description="Initialized, Failed, or empty until the first report."),
        Column("Status", runner_status, description="Ready, NotReady, Silent, or empty until the first report."),
        Column("Endpoint", "spec.endpoint", description="Address for direct connections."),
        Column("Unusable", is_unusable, type="boolean", description="Whether scheduling to it is disabled."),
        Column("Engines", describe_engines, description="How it can run workspaces."),
        Column("Cluster", "spec.clusterRef.cluster", description="Cluster that it is deployed into.", wide=True),
        Column("Reason", "status.reason", description="Reason for the phase.", wide=True),
        Column("Display Name", "spec.displayName", description="Human-readable name.", wide=True),
    ),
    selectable=("spec.clusterRef.cluster", "spec.owner.user", "status.phase"),
    has_access_entries=True,
    actions=(
        Action("accesskey", ("get",), RUNNER_ACCESS_KEY),
        Action("config", ("get",), RUNNER_CONFIG),
        Action("rotatekey", ("create",), RUNNER_KEY_ROTATION),
        Action("link", ("get",), RUNNER_LINK),
    ),
    check=check,
    sensitivity=Sensitivity.NORMAL,
)
