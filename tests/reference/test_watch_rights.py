"""A credential that may make things in a real cluster and not watch them: it works, and says what it lacks."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.eventually import wait_until
from tests.harness.gateways import M, connect_cluster, create_resource, is_online
from tests.harness.server_process import running_server
from tests.reference.connected_cluster import World, condition
from tests.reference.control_plane import ALICE_TOKEN, ControlPlane

ALL = ["get", "list", "watch", "create", "patch", "delete"]
RBAC = "rbac.authorization.k8s.io"
RULES = [
    {"apiGroups": [""], "resources": ["users", "groups"], "verbs": ["impersonate"]},
    {"apiGroups": ["authentication.k8s.io"], "resources": ["uids", "userextras/*"], "verbs": ["impersonate"]},
    {"apiGroups": [""], "resources": ["namespaces"], "verbs": ALL},
    {"apiGroups": [RBAC], "resources": ["rolebindings"], "verbs": ALL},
    {"apiGroups": [RBAC], "resources": ["clusterroles"], "verbs": ["bind"]},
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create", "patch", "delete"]},
]
OBJECTS = "{apiVersion: v1, kind: ConfigMap, metadata: {name: greeting}, data: {hello: world}}"
PROJECT = "unwatched"
SPACE = f"{M}/namespaces/service-p-{PROJECT}/spaceinstances/one"


@pytest.fixture
def limited(plane: ControlPlane, tmp_path: Path) -> Iterator[World]:
    """A Fairlead with the cluster connected by a credential that may not list or watch ConfigMaps."""
    with running_server(tmp_path / "data") as server:
        world = World(server, plane, plane.binaries / "kubectl", tmp_path)
        role = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": "limited"}, "rules": RULES}
        world.direct()("apply", "-f", "-", body=json.dumps(role))
        world.direct()("create", "clusterrolebinding", "limited", "--clusterrole=limited", "--user=alice")
        with server.client() as admin:
            connect_cluster(admin, "limited", plane.kubeconfig(ALICE_TOKEN).encode())
            wait_until(lambda: is_online(admin, "limited"), 30, "the cluster is online")
        yield world
        world.direct()("delete", "clusterrolebinding,clusterrole", "limited")
        world.direct()("delete", "namespace", f"{PROJECT}-one", "--ignore-not-found")


def test_what_cannot_be_watched_is_named_and_the_rest_is_watched(limited: World) -> None:
    with limited.server.client() as admin:
        create_resource(admin, "projects", "Project", PROJECT, owner={"user": "admin"})
        spec = {"owner": {"user": "admin"}, "clusterRef": {"cluster": "limited"}, "template": {"objects": OBJECTS}}
        create_resource(admin, f"namespaces/service-p-{PROJECT}/spaceinstances", "SpaceInstance", "one", **spec)

        def message() -> str:
            return str(condition(admin.get(SPACE).json(), "SpaceSynced").get("message"))

        wait_until(lambda: "may not list and watch configmaps in all namespaces" in message(), 30, "it is said")
        assert condition(admin.get(SPACE).json(), "Ready")["status"] == "True"
        binding = ("-n", f"{PROJECT}-one", "rolebinding", "service.sh:admin")
        limited.direct()("delete", *binding)
        wait_until(lambda: limited.direct().run("get", *binding).returncode == 0, 20, "it is back")
