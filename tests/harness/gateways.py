"""Clusters, people and keys for the tests of gateways: what an administrator would make before anybody goes through.

Everything is made through the API of a running server, and nothing is looked up behind its back.
"""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.harness.kubectl import Kubectl
from tests.harness.server_process import MANAGEMENT, Server

M = f"{MANAGEMENT}/apis/management.service.sh/v1"
RBAC = f"{MANAGEMENT}/apis/rbac.authorization.k8s.io/v1"
SYSTEM_SECRETS = f"{MANAGEMENT}/api/v1/namespaces/service-system/secrets"


def gateway_path(cluster: str) -> str:
    return f"/kubernetes/cluster/{cluster}"


def post_object(client: httpx.Client, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = client.post(path, json=body)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def create_resource(client: httpx.Client, plural: str, kind: str, name: str, **spec: Any) -> dict[str, Any]:
    body = {"apiVersion": "management.service.sh/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    return post_object(client, f"{M}/{plural}", body)


def merge_patch(client: httpx.Client, path: str, patch: dict[str, Any]) -> None:
    answer = client.patch(path, json=patch, headers={"Content-Type": "application/merge-patch+json"})
    assert answer.status_code == 200, answer.text


def bind_role(client: httpx.Client, name: str, user: str, rules: Sequence[dict[str, Any]]) -> None:
    """A ClusterRole of these rules for one user."""
    version = "rbac.authorization.k8s.io/v1"
    role = {"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": name}, "rules": list(rules)}
    post_object(client, f"{RBAC}/clusterroles", role)
    binding = {
        **{"apiVersion": version, "kind": "ClusterRoleBinding", "metadata": {"name": name}},
        "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"kind": "ClusterRole", "name": name, "apiGroup": "rbac.authorization.k8s.io"},
    }
    post_object(client, f"{RBAC}/clusterrolebindings", binding)


def cluster_rule(cluster: str, *verbs: str) -> dict[str, Any]:
    """A rule about one cluster."""
    return {
        **{"apiGroups": ["management.service.sh"], "resources": ["clusters"]},
        **{"resourceNames": [cluster], "verbs": list(verbs)},
    }


def connect_cluster(admin: httpx.Client, name: str, kubeconfig: bytes) -> None:
    """A Cluster with its Secret, as `fairlead cluster add --no-wait` makes them."""
    secret = {
        **{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": f"cluster-{name}"}},
        "data": {"config": b64encode(kubeconfig).decode()},
    }
    post_object(admin, SYSTEM_SECRETS, secret)
    config = {"secretName": f"cluster-{name}", "secretNamespace": "service-system"}
    create_resource(admin, "clusters", "Cluster", name, config=config)


def cluster_status(admin: httpx.Client, cluster: str) -> dict[str, Any]:
    found: dict[str, Any] = admin.get(f"{M}/clusters/{cluster}").json().get("status") or {}
    return found


def is_online(admin: httpx.Client, cluster: str) -> bool:
    return cluster_status(admin, cluster).get("online") is True


def share_identity(admin: httpx.Client, cluster: str) -> None:
    """Declares that the users of another server, which was connected to the same cluster before, are the same."""
    other = (cluster_status(admin, cluster).get("identity") or {}).get("otherInstallation")
    if other:
        annotations = {"service.sh/shared-identity": other}
        merge_patch(admin, f"{M}/clusters/{cluster}", {"metadata": {"annotations": annotations}})


def create_key(admin: httpx.Client, user: str, name: str, **spec: Any) -> str:
    made: str = create_resource(admin, "ownedaccesskeys", "OwnedAccessKey", name, user=user, **spec)["spec"]["key"]
    return made


@dataclass(frozen=True, slots=True)
class GatewayUser:
    """A user and a key of the same name, cut down to one cluster."""

    name: str
    key: str

    @property
    def key_path(self) -> str:
        return f"{M}/ownedaccesskeys/{self.name}"

    @property
    def user_path(self) -> str:
        return f"{M}/users/{self.name}"

    @property
    def binding_path(self) -> str:
        return f"{RBAC}/clusterrolebindings/{self.name}"


def create_user(admin: httpx.Client, name: str, cluster: str, *verbs: str) -> GatewayUser:
    """Somebody who has these verbs on the cluster, and a key whose scope is that cluster."""
    create_resource(admin, "users", "User", name, username=name)
    if verbs:
        bind_role(admin, name, name, [cluster_rule(cluster, *verbs)])
    return GatewayUser(name, create_key(admin, name, name, scope={"clusters": [{"cluster": cluster}]}))


def gateway_kubeconfig(server: Server, path: str, key: str) -> str:
    """What leads kubectl to a path of the server."""
    return build_kubeconfig(server.url + path, Path(server.ca_file), key)


def build_kubeconfig(url: str, authority: Path, token: str) -> str:
    cluster = {"server": url, "certificate-authority-data": b64encode(authority.read_bytes()).decode()}
    content = {
        **{"apiVersion": "v1", "kind": "Config", "current-context": "it"},
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it", "namespace": "default"}}],
        "clusters": [{"name": "it", "cluster": cluster}],
        "users": [{"name": "it", "user": {"token": token}}],
    }
    return yaml.safe_dump(content)


def build_kubectl(program: Path, folder: Path, content: str) -> Kubectl:
    """kubectl with a kubeconfig and a home of its own in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config").write_text(content)
    return Kubectl(program, folder / "config", folder)
