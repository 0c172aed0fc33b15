"""The objects of a runner that the server deploys into a cluster. Pure; applied by `runner_deployments.py`.

They are a service account with the permissions of the engine `kubernetes` in one namespace, a Secret with the key of
the runner and its kubeconfig, a claim for its state, and a Deployment with one Pod. The token of the service account is
mounted into the container of the runner only, and the kubeconfig refers to it, because the cluster renews it.
"""

import hashlib
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from fairlead.controllers.instances.remote_namespace import RUNNER_LABEL, UID_LABEL
from fairlead.core import yaml
from fairlead.core.deployed_runners import deployed_runner_name
from fairlead.core.objects import Object, get_path, metadata, name_of
from fairlead.kinds.clusters.runner import RESERVED_VOLUMES
from fairlead.registry.kind import MANAGEMENT_GROUP

RBAC: Final = "rbac.authorization.k8s.io"
ROLE_RULES: Final[tuple[Object, ...]] = (
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "create", "delete"]},
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["pods/exec", "pods/portforward"], "verbs": ["get", "create"]},
    {"apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": ["get", "list", "create", "delete"]},
    {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "create", "patch", "delete"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["list"]},
    {
        "apiGroups": ["networking.k8s.io"],
        "resources": ["networkpolicies"],
        "verbs": ["get", "list", "create", "delete"],
    },
)
"""What the engine `kubernetes` needs in the namespace of its workspaces, as in examples/kubernetes/runner-role.yaml."""

CREDENTIALS_FOLDER: Final = "/run/fairlead-runner/credentials"
TOKEN_FOLDER: Final = "/run/fairlead-runner/token"
STATE_FOLDER: Final = "/var/lib/fairlead-runner"
KEY_FILE, KUBECONFIG_FILE, CA_FILE = "key", "kubeconfig", "ca.crt"
TOKEN_FILE, CLUSTER_CA_FILE = "token", "ca.crt"
CLUSTER_CA_CONFIG_MAP = "kube-root-ca.crt"
"""Every namespace of a cluster has it."""
API_SERVER: Final = "https://kubernetes.default.svc"
CONTEXT: Final = "cluster"
CONTAINER: Final = "runner"
USER_ID: Final = 65532
"""The user of the project's own image."""
TOKEN_SECONDS: Final = 3600
MIN_FREE_DISK_MIB: Final = 64
"""The claim holds a journal only: workspaces have claims of their own."""
DEFAULT_STORAGE: Final = "1Gi"
DEFAULT_RESOURCES: Final[Object] = {"requests": {"cpu": "50m", "memory": "128Mi"}}
AUTHORITY_ANNOTATION: Final = "service.sh/server-ca-hash"
"""Of the Pod: the runner reads the CA of the server when it starts, so another one replaces the Pod."""

_POD_FIELDS = ("nodeSelector", "affinity", "tolerations", "initContainers", "hostAliases")
_HARDENED: Final[Object] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}


@dataclass(frozen=True, slots=True)
class RunnerInputs:
    """What the objects are made of, besides the Runner. `authority` is the PEM of the server's CA; empty if clients
    trust its certificate anyway."""

    namespace: str
    image: str
    server: str
    authority: str = ""
    api_group: str = MANAGEMENT_GROUP
    key: str = field(default="", repr=False)


def build_runner_objects(runner: Object, inputs: RunnerInputs) -> list[Object]:
    """All objects, in the order in which they are applied. Labels of ownership are added by who applies them."""
    name = deployed_runner_name(name_of(runner))
    role = {"apiGroup": RBAC, "kind": "Role", "name": name}
    subject = {"kind": "ServiceAccount", "name": name, "namespace": inputs.namespace}
    files = {KEY_FILE: inputs.key, KUBECONFIG_FILE: _build_kubeconfig(inputs), CA_FILE: inputs.authority}
    data = {path: b64encode(text.encode()).decode() for path, text in files.items() if text}
    return [
        _build_object("v1", "ServiceAccount", name, automountServiceAccountToken=False),
        _build_object(f"{RBAC}/v1", "Role", name, rules=list(ROLE_RULES)),
        _build_object(f"{RBAC}/v1", "RoleBinding", name, roleRef=role, subjects=[subject]),
        _build_object("v1", "Secret", name, type="Opaque", data=data),
        _build_claim(runner, name),
        _build_deployment(runner, inputs, name),
    ]


def list_runner_objects(runner: Object) -> list[Object]:
    """The identities of all objects, in the order in which they are deleted: first what uses the others."""
    name = deployed_runner_name(name_of(runner))
    return [
        _build_object("apps/v1", "Deployment", name),
        _build_object("v1", "Secret", name),
        _build_object(f"{RBAC}/v1", "RoleBinding", name),
        _build_object(f"{RBAC}/v1", "Role", name),
        _build_object("v1", "ServiceAccount", name),
        _build_object("v1", "PersistentVolumeClaim", name),
    ]


def _build_object(version: str, kind: str, name: str, **fields: Any) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **fields}


def _build_kubeconfig(inputs: RunnerInputs) -> str:
    cluster = {"server": API_SERVER, "certificate-authority": f"{TOKEN_FOLDER}/{CLUSTER_CA_FILE}"}
    context = {"cluster": CONTEXT, "user": CONTEXT, "namespace": inputs.namespace}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": CONTEXT,
        "contexts": [{"name": CONTEXT, "context": context}],
        "clusters": [{"name": CONTEXT, "cluster": cluster}],
        "users": [{"name": CONTEXT, "user": {"tokenFile": f"{TOKEN_FOLDER}/{TOKEN_FILE}"}}],
    }
    return yaml.encode(config).decode()


def _build_claim(runner: Object, name: str) -> Object:
    template = get_path(runner, "spec.clusterRef.persistentVolumeClaimTemplate") or {}
    wanted = template.get("spec") or {}
    spec: Object = {
        "accessModes": wanted.get("accessModes") or ["ReadWriteOnce"],
        "resources": {"requests": {"storage": wanted.get("storageSize") or DEFAULT_STORAGE}},
    }
    if wanted.get("storageClassName"):
        spec["storageClassName"] = wanted["storageClassName"]
    claim = _build_object("v1", "PersistentVolumeClaim", name, spec=spec)
    claim["metadata"] |= _chosen_metadata(template)
    return claim


def _chosen_metadata(template: Object) -> Object:
    meta = template.get("metadata") or {}
    return {part: dict(meta[part]) for part in ("labels", "annotations") if meta.get(part)}


def _build_deployment(runner: Object, inputs: RunnerInputs, name: str) -> Object:
    selector = pod_labels(runner)
    template = get_path(runner, "spec.clusterRef.podTemplate") or {}
    chosen = _chosen_metadata(template)
    digest = hashlib.sha256(inputs.authority.encode()).hexdigest()[:16]
    pod: Object = {
        "metadata": {
            "labels": {**chosen.get("labels", {}), **selector},
            "annotations": {**chosen.get("annotations", {}), AUTHORITY_ANNOTATION: digest},
        },
        "spec": _build_pod_spec(runner, inputs, name, template.get("spec") or {}),
    }
    spec = {
        "replicas": 1,
        # Two processes must not use one state folder, and most volumes are mounted on one node only.
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": selector},
        "template": pod,
    }
    return _build_object("apps/v1", "Deployment", name, spec=spec)


def pod_labels(runner: Object) -> Mapping[str, str]:
    """The labels that the Deployment selects its Pod by. They never change."""
    return {RUNNER_LABEL: name_of(runner), UID_LABEL: metadata(runner)["uid"]}


def _build_pod_spec(runner: Object, inputs: RunnerInputs, name: str, chosen: Object) -> Object:
    container: Object = {
        "name": CONTAINER,
        "image": inputs.image,
        "command": build_command(runner, inputs),
        # The root file system is read-only.
        "env": [{"name": "HOME", "value": "/tmp"}, *(chosen.get("env") or ())],
        "resources": chosen.get("resource") or DEFAULT_RESOURCES,
        "securityContext": _HARDENED,
        "volumeMounts": [
            {"name": f"{RESERVED_VOLUMES}credentials", "mountPath": CREDENTIALS_FOLDER, "readOnly": True},
            {"name": f"{RESERVED_VOLUMES}token", "mountPath": TOKEN_FOLDER, "readOnly": True},
            {"name": f"{RESERVED_VOLUMES}state", "mountPath": STATE_FOLDER},
            {"name": f"{RESERVED_VOLUMES}tmp", "mountPath": "/tmp"},
            *(chosen.get("volumeMounts") or ()),
        ],
    }
    if chosen.get("envFrom"):
        container["envFrom"] = chosen["envFrom"]
    return {
        "serviceAccountName": name,
        # The token is a volume instead, which init containers and others do not mount.
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER_ID,
            "runAsGroup": USER_ID,
            "fsGroup": USER_ID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [*_build_volumes(name), *(chosen.get("volumes") or ())],
        **{part: chosen[part] for part in _POD_FIELDS if chosen.get(part)},
    }


def _build_volumes(name: str) -> list[Object]:
    token = {"path": TOKEN_FILE, "expirationSeconds": TOKEN_SECONDS}
    authority = {"name": CLUSTER_CA_CONFIG_MAP, "items": [{"key": "ca.crt", "path": CLUSTER_CA_FILE}]}
    sources = [{"serviceAccountToken": token}, {"configMap": authority}]
    return [
        {"name": f"{RESERVED_VOLUMES}credentials", "secret": {"secretName": name, "defaultMode": 0o440}},
        {"name": f"{RESERVED_VOLUMES}token", "projected": {"sources": sources, "defaultMode": 0o440}},
        {"name": f"{RESERVED_VOLUMES}state", "persistentVolumeClaim": {"claimName": name}},
        {"name": f"{RESERVED_VOLUMES}tmp", "emptyDir": {}},
    ]


def build_command(runner: Object, inputs: RunnerInputs) -> list[str]:
    """The command line of the container."""
    authority = ("--ca-file", f"{CREDENTIALS_FOLDER}/{CA_FILE}") if inputs.authority else ()
    group = ("--api-group", inputs.api_group) if inputs.api_group != MANAGEMENT_GROUP else ()
    return [
        *("fairlead", "runner", "start", name_of(runner), "--server", inputs.server),
        *("--key-file", f"{CREDENTIALS_FOLDER}/{KEY_FILE}", *authority, *group),
        *("--engine", "kubernetes", "--kubeconfig", f"{CREDENTIALS_FOLDER}/{KUBECONFIG_FILE}"),
        # A folder of its own: that of the volume belongs to root.
        *("--state", f"{STATE_FOLDER}/state", "--min-free-disk", str(MIN_FREE_DISK_MIB)),
    ]
