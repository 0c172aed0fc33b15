"""The manifest of the agent of a cluster that dials out, which `fairlead cluster add --agent` prints.

It is complete: the namespace, a service account with the permissions of `fairlead cluster role`, the join token, the CA
of the server, and a Deployment of two agents that share one identity. Applied again with a new token, the agents join
again.
"""

import hashlib
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from fairlead.cli.resources.cluster_role import AGENT_PARTS, RBAC, RolePart, build_objects
from fairlead.core.objects import Object

NAMESPACE, NAME = "fairlead-agent", "fairlead-agent"
JOIN_SECRET, IDENTITY_SECRET = "fairlead-agent-join", "fairlead-agent-identity"
REPLICAS = 2
USER_ID = 65532
FILES = "/etc/fairlead"


@dataclass(frozen=True, slots=True)
class AgentManifest:
    server: str
    token: str = field(repr=False)
    authority: str
    image: str
    parts: Sequence[RolePart]
    cluster_roles: Sequence[str]


def build_manifest(manifest: AgentManifest) -> list[Object]:
    roles = build_objects(manifest.parts, manifest.cluster_roles, NAME, NAMESPACE)
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        *(each for each in roles if each["kind"] != "Secret"),  # a pod gets tokens that are replaced
        *_identity_access(),
        _secret(JOIN_SECRET, {"token": manifest.token, "ca.crt": manifest.authority}),
        _secret(IDENTITY_SECRET, {}),
        _deployment(manifest),
    ]


def removal_commands() -> Iterator[str]:
    """Commands that delete all that a manifest has created, whatever its parts were."""
    roles = build_objects(AGENT_PARTS, (), NAME, NAMESPACE)
    names: dict[str, dict[str, None]] = {}  # of the roles, and of their bindings, which have the same
    for each in roles:
        names.setdefault(each["metadata"].get("namespace", ""), {})[each["metadata"]["name"]] = None
    for namespace, found in names.items():
        if namespace == NAMESPACE:
            continue
        kinds = f"-n {namespace} delete rolebinding,role" if namespace else "delete clusterrolebinding,clusterrole"
        yield f"kubectl --context CONTEXT {kinds} {' '.join(found)} --ignore-not-found"
    yield f"kubectl --context CONTEXT delete namespace {NAMESPACE} --ignore-not-found"


def _secret(name: str, texts: dict[str, str]) -> Object:
    data = {key: b64encode(text.encode()).decode() for key, text in texts.items() if text}
    secret: Object = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": NAMESPACE}}
    return {**secret, "data": data} if data else secret


def _identity_access() -> list[Object]:
    meta = {"name": f"{NAME}:identity", "namespace": NAMESPACE}
    rule = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [IDENTITY_SECRET], "verbs": ["get", "patch"]}
    return [
        {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": meta, "rules": [rule]},
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": meta["name"]},
            "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}],
        },
    ]


def _deployment(manifest: AgentManifest) -> Object:
    labels = {"app.kubernetes.io/name": NAME}
    arguments = [
        *("agent", "--in-cluster", "--server", manifest.server, "--token-file", f"{FILES}/token"),
        *("--identity-secret", IDENTITY_SECRET, "--state", "/state/agent"),
        *(("--ca-file", f"{FILES}/ca.crt") if manifest.authority else ()),
    ]
    container = {
        "name": "agent",
        "image": manifest.image,
        "args": arguments,
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "join", "mountPath": FILES, "readOnly": True},
            {"name": "state", "mountPath": "/state"},
        ],
    }
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": labels},
    }
    pod = {
        "serviceAccountName": NAME,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER_ID,
            "fsGroup": USER_ID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "topologySpreadConstraints": [spread],
        "terminationGracePeriodSeconds": 30,
        "containers": [container],
        "volumes": [
            {"name": "join", "secret": {"secretName": JOIN_SECRET}},
            {"name": "state", "emptyDir": {}},
        ],
    }
    # A new token starts new pods, which join with it.
    annotations = {"service.sh/join-token": hashlib.sha256(manifest.token.encode()).hexdigest()[:16]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": labels},
        "spec": {
            "replicas": REPLICAS,
            "selector": {"matchLabels": labels},
            "strategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": pod},
        },
    }
