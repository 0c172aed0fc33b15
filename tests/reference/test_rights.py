"""The roles that `fairlead cluster role` prints, on a real server: they suffice, and what is missing is named."""

import json
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.harness.eventually import wait_until
from tests.harness.gateways import (
    M,
    build_kubectl,
    connect_cluster,
    create_resource,
    gateway_path,
    merge_patch,
    post_object,
)
from tests.harness.kubectl import Kubectl
from tests.harness.server_process import running_server
from tests.reference.connected_cluster import World, condition
from tests.reference.control_plane import ControlPlane

TIER = "tenant.service.sh/tier"
SECONDS = 20.0
DRIFT_SECONDS = 90.0
"""How long it may take until what was changed in the cluster is put right, where that is only looked at in turn."""


@pytest.fixture(scope="module")
def lone(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A Fairlead that knows no cluster yet."""
    folder = tmp_path_factory.mktemp("rights")
    with running_server(folder / "data") as server:
        yield World(server, plane, plane.binaries / "kubectl", folder)


def printed(world: World, *arguments: str) -> list[dict[str, Any]]:
    ended = world.fairlead("cluster", "role", *arguments)
    assert ended.returncode == 0, ended.stderr
    return list(yaml.safe_load_all(ended.stdout))


@contextmanager
def connected(world: World, account: str, folder: Path, *parts: str) -> Iterator[str]:
    """A cluster that is connected with a service account of exactly the printed rights. Gives the cluster's name."""
    direct, objects = world.direct(), printed(world, *parts, "--account", account)
    path = folder / f"{account}.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    direct("apply", "-f", str(path))
    wait_until(lambda: token(direct, account) != "", SECONDS)
    try:
        with world.server.client() as admin:
            connect_cluster(admin, account, world.plane.kubeconfig(token(direct, account)).encode())
            wait_until(lambda: bool(condition(cluster(world, account), "Connected")), SECONDS)
        yield account
    finally:
        world.fairlead("cluster", "remove", account, "--yes")
        direct("delete", "-f", str(path), "--ignore-not-found")


def token(direct: Kubectl, account: str) -> str:
    found = direct.get_json("-n", "kube-system", "secret", account)
    return b64decode((found.get("data") or {}).get("token", "")).decode()


def cluster(world: World, name: str) -> dict[str, Any]:
    with world.server.client() as admin:
        found: dict[str, Any] = admin.get(f"{M}/clusters/{name}").json()
    return found


def ready(world: World, name: str) -> tuple[str, str]:
    found = condition(cluster(world, name), "Ready")
    return found.get("status", ""), found.get("reason", "")


def remove_right(direct: Kubectl, role: str, resource: str) -> None:
    """Takes one resource out of the rules of a role."""
    found = direct.get_json("clusterrole", role)
    for rule in found["rules"]:
        rule["resources"] = [each for each in rule.get("resources") or [] if each != resource]
    rules = [rule for rule in found["rules"] if rule["resources"] or rule.get("nonResourceURLs")]
    for rule in rules:
        if not rule["resources"]:
            del rule["resources"]
    direct("patch", "clusterrole", role, "--type=merge", "-p", json.dumps({"rules": rules}))


def test_the_role_for_gateways_suffices_to_use_a_cluster_and_each_missing_right_is_named(
    lone: World, tmp_path: Path
) -> None:
    direct = lone.direct()
    with connected(lone, "gates", tmp_path) as name:
        wait_until(lambda: ready(lone, name) == ("True", "Healthy"), SECONDS)
        found = cluster(lone, name)
        assert condition(found, "AdministratorsBound")["reason"] == "Forbidden"
        assert all(probe["ok"] for probe in found["status"]["probes"]), found["status"]["probes"]
        direct("create", "clusterrolebinding", "gates-admins", "--clusterrole=view", "--group=fairlead:service:admins")
        kubectl = lone.through_gateway(path=gateway_path(name))
        assert "kube-system" in kubectl.get_names("namespaces")
        remove_right(direct, "gates:gateways", "userextras/service.sh/impersonator")
        look_again(lone, name)
        wait_until(lambda: warned(lone, name) == ["impersonation-extra"], SECONDS)
        assert ready(lone, name) == ("True", "Healthy")
        remove_right(direct, "gates:gateways", "uids")
        look_again(lone, name)
        wait_until(lambda: ready(lone, name) == ("False", "ImpersonationForbidden"), SECONDS)
        assert "impersonate uids (authentication.k8s.io), so" in condition(cluster(lone, name), "Ready")["message"]
        assert condition(cluster(lone, name), "Connected")["status"] == "True"
        checked = lone.fairlead("cluster", "check", name)
        assert checked.returncode == 1 and "impersonate uids" in checked.stdout
        direct("apply", "-f", str(tmp_path / "gates.yaml"))
        wait_until(lambda: ready(lone, name) == ("True", "Healthy"), SECONDS)
        direct("delete", "clusterrolebinding", "gates-admins")


def look_again(world: World, name: str) -> None:
    """A Cluster that has changed is looked at in all parts at once; otherwise rights are asked for every minute."""
    with world.server.client() as admin:
        merge_patch(admin, f"{M}/clusters/{name}", {"spec": {"description": str(time.monotonic())}})


def warned(world: World, name: str) -> list[str]:
    return [each["name"] for each in cluster(world, name)["status"]["probes"] if not each["ok"]]


def test_the_role_for_spaces_suffices_to_make_share_repair_and_delete_one(lone: World, tmp_path: Path) -> None:
    direct = lone.direct()
    with connected(lone, "halls", tmp_path, "spaces") as name, lone.server.client() as admin:
        wait_until(lambda: ready(lone, name) == ("True", "Healthy"), SECONDS)
        create_resource(admin, "users", "User", "ada", username="ada")
        create_resource(admin, "projects", "Project", "demo", owner={"user": "admin"}, allowedClusters=[{"name": name}])
        spaces = f"{M}/namespaces/service-p-demo/spaceinstances"
        wait_until(lambda: admin.get(spaces).status_code == 200, SECONDS)
        spec = {
            "clusterRef": {"cluster": name},
            "template": {"metadata": {"labels": {"tenant.service.sh/tier": "small"}}},
        }
        kind = {"apiVersion": "management.service.sh/v1", "kind": "SpaceInstance"}
        post_object(admin, spaces, {**kind, "metadata": {"name": "one"}, "spec": spec})

        def space() -> dict[str, Any]:
            found: dict[str, Any] = admin.get(f"{spaces}/one").json()
            return found

        wait_until(lambda: condition(space(), "SpaceSynced").get("status") == "True", SECONDS)
        namespace = space()["spec"]["clusterRef"]["namespace"]
        assert direct.get_json("namespace", namespace)["metadata"]["labels"][TIER] == "small"
        merge_patch(admin, f"{spaces}/one", {"spec": {"extraAccessRules": [{"users": ["ada"], "clusterRole": "view"}]}})
        wait_until(lambda: "service.sh:view" in direct.get_names("-n", namespace, "rolebindings"), SECONDS)
        direct("-n", namespace, "delete", "rolebinding", "service.sh:view")
        direct("label", "namespace", namespace, f"{TIER}=large", "--overwrite")
        wait_until(lambda: "service.sh:view" in direct.get_names("-n", namespace, "rolebindings"), DRIFT_SECONDS)
        wait_until(
            lambda: direct.get_json("namespace", namespace)["metadata"]["labels"][TIER] == "small", DRIFT_SECONDS
        )
        create_resource(
            admin,
            "spacetemplates",
            "SpaceTemplate",
            "wide",
            template={"access": {"defaultClusterRole": "cluster-admin"}},
        )
        merge_patch(admin, f"{spaces}/one", {"spec": {"template": None, "templateRef": {"name": "wide"}}})
        wait_until(lambda: condition(space(), "SpaceSynced").get("reason") == "Forbidden", SECONDS)
        assert admin.delete(f"{spaces}/one").status_code == 200
        wait_until(lambda: admin.get(f"{spaces}/one").status_code == 404, SECONDS * 2)
        assert namespace not in direct.get_names("namespaces")


def test_the_role_for_virtual_clusters_suffices_for_what_charts_usually_make(lone: World, tmp_path: Path) -> None:
    direct = lone.direct()
    with connected(lone, "nests", tmp_path, "virtual-clusters"):
        acting = build_kubectl(lone.program, tmp_path / "acting", lone.plane.kubeconfig(token(direct, "nests")))
        acting("create", "namespace", "nest")
        role = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": "vc", "namespace": "nest"},
            "rules": [
                {
                    "apiGroups": [""],
                    "resources": ["configmaps", "secrets", "services", "pods", "pods/exec", "persistentvolumeclaims"],
                    "verbs": ["create", "delete", "patch", "update", "get", "list", "watch"],
                },
                {"apiGroups": ["apps"], "resources": ["statefulsets"], "verbs": ["get", "list", "watch"]},
            ],
        }
        (tmp_path / "role.yaml").write_text(yaml.safe_dump(role))
        acting("apply", "-f", str(tmp_path / "role.yaml"))
        acting("-n", "nest", "create", "rolebinding", "vc", "--role=vc", "--serviceaccount=nest:vc")
        acting("-n", "nest", "create", "serviceaccount", "vc")
        acting("-n", "nest", "create", "secret", "generic", "vc-one", "--from-literal=config=x")
        acting("-n", "nest", "create", "service", "clusterip", "one", "--tcp=443:8443")
        acting("-n", "nest", "create", "deployment", "one", "--image=none", "--replicas=0")
        more = acting.expect_failure("create", "clusterrolebinding", "more", "--clusterrole=cluster-admin", "--user=x")
        assert "forbidden" in more
        acting("delete", "namespace", "nest")
