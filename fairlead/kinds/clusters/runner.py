"""Runner: what executes workspaces. With it, what stands below its path: the key that it signs in with, what it needs
to know of the server, and a new value for the key.

A runner signs in as `service:runner:<name>`, with a key that belongs to its Runner and goes with it.
`authn/component_keys.py` makes and keeps these keys, `authz/component_access.py` says what such an identity may do.
"""

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from fairlead.core.objects import Object, dig
from fairlead.kinds.access.access_key import MAX_OVERLAP
from fairlead.kinds.access.components import Component
from fairlead.kinds.fields import (
    ACCESS,
    CATEGORY,
    CONDITIONS,
    DESCRIPTION,
    DISPLAY_NAME,
    OBSERVED_GENERATION,
    OWNER,
    TEXT_MAP,
    owner_problems,
)
from fairlead.registry import limits
from fairlead.registry.kind import Action, Change, Column, Kind, Problem
from fairlead.registry.schema import Schema, array, boolean, described, enum, free, integer, obj, string

RUNNERS = "runners"
RUNNER_COMPONENT = Component(RUNNERS, "Runner", "runner", "service.sh/runner", "service:runners")
"""Runners, as components that sign in."""


_METADATA = obj(
    "Labels and annotations for what is made.",
    labels=described(TEXT_MAP, "Labels to set."),
    annotations=described(TEXT_MAP, "Annotations to set."),
)


def _parts(description: str) -> Schema:
    return array(free(), description)


_POD = obj(
    "The runner's pod.",
    metadata=_METADATA,
    spec=obj(
        "What differs from the pod that the server would make. Each part is as Kubernetes has it.",
        image=string("Image of the runner. Empty means the one of this server's version."),
        resource=free("Requests and limits of the runner's container."),
        env=_parts("Environment variables of the runner."),
        envFrom=_parts("Sources of further environment variables."),
        nodeSelector=described(TEXT_MAP, "Labels of the nodes that it may run on."),
        affinity=free("Which nodes it prefers or needs."),
        tolerations=_parts("Taints of nodes that it puts up with."),
        volumes=_parts("Further volumes of the pod."),
        volumeMounts=_parts("Where the runner's container mounts them."),
        initContainers=_parts("Containers that run before the runner."),
        hostAliases=_parts("Further entries for the pod's hosts file."),
    ),
)

SPEC = obj(
    "Where the runner is and who may use it.",
    displayName=DISPLAY_NAME,
    description=DESCRIPTION,
    owner=OWNER,
    access=ACCESS,
    clusterRef=obj(
        "The connected cluster that the runner is deployed into. Left out for a runner that is started elsewhere.",
        cluster=string("Name of the connected cluster."),
        namespace=string("Namespace within that cluster."),
        persistentVolumeClaimTemplate=obj(
            "The volume that the runner keeps its state on.",
            metadata=_METADATA,
            spec=obj(
                "What is claimed.",
                accessModes=array(string(), "How the volume can be mounted, such as `ReadWriteOnce`."),
                storageClassName=string("Class of the storage. Empty means the cluster's default."),
                storageSize=string("Size of the volume, such as `10Gi`."),
            ),
        ),
        podTemplate=_POD,
        serviceTemplate=obj(
            "The service in front of the runner.",
            metadata=_METADATA,
            spec=obj("What differs.", type=string("Type of the service. Empty means `ClusterIP`.")),
        ),
    ),
    networkPeerName=string("Name of the runner in the peer network, if it is reached through that."),
    endpoint=string(
        "Where clients reach the runner directly: `host`, `host:port` or `https://host:port`. "
        "Its workspaces carry it as the annotation `service.sh/runner-endpoint`."
    ),
    unusable=boolean("No further workspace is scheduled here; those that are here stay. Defaults to false."),
)

STATUS = obj(
    "How the runner is doing. Written by the server and by the runner itself.",
    phase=enum("Empty until the runner has reported for the first time.", "", "Initialized", "Failed"),
    reason=string("Why the phase is what it is, as one word."),
    message=string("The same for people.", longest=limits.MESSAGE),
    conditions=CONDITIONS,
    observedGeneration=OBSERVED_GENERATION,
)

RUNNER_ACCESS_KEY = Kind(
    name="RunnerAccessKey",
    plural="runneraccesskeys",
    namespaced=False,
    fields={"accessKey": string("The key that the runner signs in with, as a bearer token.", format="password")},
    description="The access key of a runner. It stays the same until it is rotated. Every read is audited.",
    verbs=("get",),
    secret=("accessKey",),
    stored=False,
)
"""What `runners/<name>/accesskey` answers with."""

RUNNER_KEY_ROTATION = Kind(
    name="RunnerKeyRotation",
    plural="runnerkeyrotations",
    namespaced=False,
    fields={
        "spec": obj(
            "How to change over.",
            overlapSeconds=integer(
                f"Seconds that the old key goes on working, at most {MAX_OVERLAP}. Defaults to 0: it ends at once.",
                minimum=0,
            ),
        ),
        "accessKey": string("The new key. In the answer only.", format="password"),
    },
    description="Gives a runner a new access key.",
    verbs=("create",),
    secret=("accessKey",),
    stored=False,
    builtin=True,
)
"""What `runners/<name>/rotatekey` takes and answers with."""

RUNNER_CONFIG = Kind(
    name="RunnerConfig",
    plural="runnerconfigs",
    namespaced=False,
    fields={
        "tokenCaCert": string(
            "PEM with what this server's tokens are verified with, so that a runner can do so by itself. "
            "Empty where the server signs none.",
            longest=limits.CERTIFICATES,
        ),
        "serviceHost": string("Address of this server as its users know it."),
        "projectNamespacePrefix": string("What the names of projects' namespaces begin with."),
        "serviceInstanceID": string("Names this installation."),
    },
    description="What a runner needs to know of this server.",
    verbs=("get",),
    stored=False,
)
"""What `runners/<name>/config` answers with."""


def check(change: Change) -> Iterable[Problem]:
    yield from owner_problems(change.spec)
    endpoint = change.spec.get("endpoint")
    if endpoint and not _is_address(endpoint):
        why = "must be a host, with a port if it needs one, such as runner.example.com:8443; https:// may stand before"
        yield Problem.invalid("spec.endpoint", endpoint, why)


def _is_address(text: str) -> bool:
    """A host that clients can dial over TLS, and nothing that could carry a credential or a path along."""
    try:
        parts = urlsplit(text if "://" in text else f"https://{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        return False
    beyond = parts.path or parts.query or parts.fragment or "@" in parts.netloc or text.endswith(("?", "#"))
    return parts.scheme == "https" and bool(host) and port != 0 and not beyond and not set(text) & set(" \\\t\r\n")


def is_unusable(runner: Object) -> Any:
    """For tables and the scheduler: absent means that it can be used."""
    return bool(dig(runner, "spec.unusable"))


RUNNER = Kind(
    name="Runner",
    plural=RUNNERS,
    namespaced=False,
    fields={"spec": SPEC, "status": STATUS},
    description="A runner: it executes the workspaces that are scheduled to it.",
    categories=(CATEGORY,),
    status_subresource=True,
    name_is_label=True,
    columns=(
        Column("Phase", "status.phase", description="Initialized, Failed, or empty until the runner has reported."),
        Column("Endpoint", "spec.endpoint", description="Where clients reach the runner directly."),
        Column("Unusable", is_unusable, type="boolean", description="Whether nothing more is scheduled here."),
        Column("Cluster", "spec.clusterRef.cluster", description="Cluster that it is deployed into.", wide=True),
        Column("Reason", "status.reason", description="Why the phase is what it is.", wide=True),
        Column("Display Name", "spec.displayName", description="Name shown to people.", wide=True),
    ),
    selectable=("spec.owner.user", "status.phase"),
    shared=True,
    actions=(
        Action("accesskey", ("get",), RUNNER_ACCESS_KEY),
        Action("config", ("get",), RUNNER_CONFIG),
        Action("rotatekey", ("create",), RUNNER_KEY_ROTATION),
    ),
    check=check,
)
