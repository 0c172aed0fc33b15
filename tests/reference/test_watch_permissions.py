"""A credential that can create objects in a real cluster but not watch them works, and what is missing is named."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.eventually import wait_until
from tests.harness.gateways import M, connect_cluster, create_resource, is_online
from tests.harness.server_process import running_server
from tests.reference.connected_cluster import ConnectedCluster, find_condition
from tests.reference.control_plane import ALICE_TOKEN, ControlPlane

ALL_VERBS = ["get", "list", "watch", "create", "patch", "delete"]
RBAC = "rbac.authorization.k8s.io"
RULES = [
    {"apiGroups": [""], "resources": ["users", "groups"], "verbs": ["impersonate"]},
    {"apiGroups": ["authentication.k8s.io"], "resources": ["uids", "userextras/*"], "verbs": ["impersonate"]},
    {"apiGroups": [""], "resources": ["namespaces"], "verbs": ALL_VERBS},
    {"apiGroups": [RBAC], "resources": ["rolebindings"], "verbs": ALL_VERBS},
    {"apiGroups": [RBAC], "resources": ["clusterroles"], "verbs": ["bind"]},
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create", "patch", "delete"]},
]
OBJECTS = "{apiVersion: v1, kind: ConfigMap, metadata: {name: greeting}, data: {hello: world}}"
PROJECT = "unwatched"
SPACE = f"{M}/namespaces/service-p-{PROJECT}/spaceinstances/one"


@pytest.fixture
def limited(plane: ControlPlane, tmp_path: Path) -> Iterator[ConnectedCluster]:
    """A Fairlead with the cluster connected by a credential that cannot list or watch ConfigMaps."""
    with running_server(tmp_path / "data") as server:
        connected = ConnectedCluster(server, plane, plane.binaries / "kubectl", tmp_path)
        role = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": "limited"}, "rules": RULES}
        connected.direct_kubectl()("apply", "-f", "-", body=json.dumps(role))
        connected.direct_kubectl()("create", "clusterrolebinding", "limited", "--clusterrole=limited", "--user=alice")
        with server.client() as admin:
            connect_cluster(admin, "limited", plane.kubeconfig(ALICE_TOKEN).encode())
            wait_until(lambda: is_online(admin, "limited"), 30, "the cluster is online")
        yield connected
        connected.direct_kubectl()("delete", "clusterrolebinding,clusterrole", "limited")
        connected.direct_kubectl()("delete", "namespace", f"{PROJECT}-one", "--ignore-not-found")


def test_resources_that_cannot_be_watched_are_named_and_the_others_are_watched(limited: ConnectedCluster) -> None:
    with limited.server.client() as admin:
        create_resource(admin, "projects", "Project", PROJECT, owner={"user": "admin"})
        spec = {"owner": {"user": "admin"}, "clusterRef": {"cluster": "limited"}, "template": {"objects": OBJECTS}}
        create_resource(admin, f"namespaces/service-p-{PROJECT}/spaceinstances", "SpaceInstance", "one", **spec)

        def read_message() -> str:
            return str(find_condition(admin.get(SPACE).json(), "SpaceSynced").get("message"))

        wait_until(
            lambda: "may not list and watch configmaps in all namespaces" in read_message(), 30, "the message is shown"
        )
        assert find_condition(admin.get(SPACE).json(), "Ready")["status"] == "True"
        binding = ("-n", f"{PROJECT}-one", "rolebinding", "service.sh:admin")
        limited.direct_kubectl()("delete", *binding)
        wait_until(lambda: limited.direct_kubectl().run("get", *binding).returncode == 0, 20, "it is back")
