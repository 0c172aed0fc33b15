"""The roles that `fairlead cluster role` prints are sufficient on a real server, and missing permissions are named."""

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
    share_identity,
)
from tests.harness.kubectl import Kubectl
from tests.harness.server_process import running_server
from tests.reference.connected_cluster import ConnectedCluster, find_condition
from tests.reference.control_plane import ControlPlane

TIER = "tenant.service.sh/tier"
SECONDS = 20.0
DRIFT_SECONDS = 90.0
"""How long repairs of changes in the cluster may take where they are only checked periodically."""


@pytest.fixture(scope="module")
def unconnected(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectedCluster]:
    """A Fairlead without clusters."""
    folder = tmp_path_factory.mktemp("rights")
    with running_server(folder / "data") as server:
        yield ConnectedCluster(server, plane, plane.binaries / "kubectl", folder)


def print_roles(connected: ConnectedCluster, *arguments: str) -> list[dict[str, Any]]:
    result = connected.run_cli("cluster", "role", *arguments)
    assert result.returncode == 0, result.stderr
    return list(yaml.safe_load_all(result.stdout))


@contextmanager
def connect_with_roles(connected: ConnectedCluster, account: str, folder: Path, *parts: str) -> Iterator[str]:
    """Connects the cluster with a service account with exactly the printed permissions. Yields the cluster's name."""
    direct, objects = connected.direct_kubectl(), print_roles(connected, *parts, "--account", account)
    path = folder / f"{account}.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    direct("apply", "-f", str(path))
    wait_until(lambda: read_token(direct, account) != "", SECONDS)
    try:
        with connected.server.client() as admin:
            connect_cluster(admin, account, connected.plane.kubeconfig(read_token(direct, account)).encode())
            wait_until(lambda: bool(find_condition(get_cluster(connected, account), "Connected")), SECONDS)
            share_identity(admin, account)
        yield account
    finally:
        connected.run_cli("cluster", "remove", account, "--yes")
        direct("delete", "-f", str(path), "--ignore-not-found")


def read_token(direct: Kubectl, account: str) -> str:
    found = direct.get_json("-n", "kube-system", "secret", account)
    return b64decode((found.get("data") or {}).get("token", "")).decode()


def get_cluster(connected: ConnectedCluster, name: str) -> dict[str, Any]:
    with connected.server.client() as admin:
        found: dict[str, Any] = admin.get(f"{M}/clusters/{name}").json()
    return found


def get_ready_condition(connected: ConnectedCluster, name: str) -> tuple[str, str]:
    found = find_condition(get_cluster(connected, name), "Ready")
    return found.get("status", ""), found.get("reason", "")


def remove_permission(direct: Kubectl, role: str, resource: str) -> None:
    """Removes one resource from the rules of a role."""
    found = direct.get_json("clusterrole", role)
    for rule in found["rules"]:
        rule["resources"] = [each for each in rule.get("resources") or [] if each != resource]
    rules = [rule for rule in found["rules"] if rule["resources"] or rule.get("nonResourceURLs")]
    for rule in rules:
        if not rule["resources"]:
            del rule["resources"]
    direct("patch", "clusterrole", role, "--type=merge", "-p", json.dumps({"rules": rules}))


def test_the_role_for_gateways_is_sufficient_and_missing_permissions_are_named(
    unconnected: ConnectedCluster, tmp_path: Path
) -> None:
    direct = unconnected.direct_kubectl()
    with connect_with_roles(unconnected, "gates", tmp_path) as name:
        wait_until(lambda: get_ready_condition(unconnected, name) == ("True", "Healthy"), SECONDS)
        found = get_cluster(unconnected, name)
        assert find_condition(found, "AdministratorsBound")["reason"] == "Forbidden"
        assert all(probe["ok"] for probe in found["status"]["probes"]), found["status"]["probes"]
        direct("create", "clusterrolebinding", "gates-admins", "--clusterrole=view", "--group=fairlead:service:admins")
        kubectl = unconnected.gateway_kubectl(path=gateway_path(name))
        assert "kube-system" in kubectl.get_names("namespaces")
        remove_permission(direct, "gates:gateways", "userextras/service.sh/impersonator")
        trigger_probe(unconnected, name)
        wait_until(lambda: list_failed_probes(unconnected, name) == ["impersonation-extra"], SECONDS)
        assert get_ready_condition(unconnected, name) == ("True", "Healthy")
        remove_permission(direct, "gates:gateways", "uids")
        trigger_probe(unconnected, name)
        wait_until(lambda: get_ready_condition(unconnected, name) == ("False", "ImpersonationForbidden"), SECONDS)
        assert (
            "impersonate uids (authentication.k8s.io), so"
            in find_condition(get_cluster(unconnected, name), "Ready")["message"]
        )
        assert find_condition(get_cluster(unconnected, name), "Connected")["status"] == "True"
        checked = unconnected.run_cli("cluster", "check", name)
        assert checked.returncode == 1 and "impersonate uids" in checked.stdout
        direct("apply", "-f", str(tmp_path / "gates.yaml"))
        wait_until(lambda: get_ready_condition(unconnected, name) == ("True", "Healthy"), SECONDS)
        direct("delete", "clusterrolebinding", "gates-admins")


def trigger_probe(connected: ConnectedCluster, name: str) -> None:
    """Changes the Cluster, so that it is fully probed at once. Otherwise permissions are checked every minute."""
    with connected.server.client() as admin:
        merge_patch(admin, f"{M}/clusters/{name}", {"spec": {"description": str(time.monotonic())}})


def list_failed_probes(connected: ConnectedCluster, name: str) -> list[str]:
    return [each["name"] for each in get_cluster(connected, name)["status"]["probes"] if not each["ok"]]


def test_the_role_for_spaces_is_sufficient_for_all_operations_on_a_space(
    unconnected: ConnectedCluster, tmp_path: Path
) -> None:
    direct = unconnected.direct_kubectl()
    with connect_with_roles(unconnected, "halls", tmp_path, "spaces") as name, unconnected.server.client() as admin:
        wait_until(lambda: get_ready_condition(unconnected, name) == ("True", "Healthy"), SECONDS)
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

        wait_until(lambda: find_condition(space(), "SpaceSynced").get("status") == "True", SECONDS)
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
        wait_until(lambda: find_condition(space(), "SpaceSynced").get("reason") == "Forbidden", SECONDS)
        assert admin.delete(f"{spaces}/one").status_code == 200
        wait_until(lambda: admin.get(f"{spaces}/one").status_code == 404, SECONDS * 2)
        assert namespace not in direct.get_names("namespaces")


def test_the_role_for_virtual_clusters_is_sufficient_for_typical_charts(
    unconnected: ConnectedCluster, tmp_path: Path
) -> None:
    direct = unconnected.direct_kubectl()
    with connect_with_roles(unconnected, "nests", tmp_path, "virtual-clusters"):
        account_kubectl = build_kubectl(
            unconnected.program, tmp_path / "acting", unconnected.plane.kubeconfig(read_token(direct, "nests"))
        )
        account_kubectl("create", "namespace", "nest")
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
        account_kubectl("apply", "-f", str(tmp_path / "role.yaml"))
        account_kubectl("-n", "nest", "create", "rolebinding", "vc", "--role=vc", "--serviceaccount=nest:vc")
        account_kubectl("-n", "nest", "create", "serviceaccount", "vc")
        account_kubectl("-n", "nest", "create", "secret", "generic", "vc-one", "--from-literal=config=x")
        account_kubectl("-n", "nest", "create", "service", "clusterip", "one", "--tcp=443:8443")
        account_kubectl("-n", "nest", "create", "deployment", "one", "--image=none", "--replicas=0")
        error = account_kubectl.expect_failure(
            "create", "clusterrolebinding", "more", "--clusterrole=cluster-admin", "--user=x"
        )
        assert "forbidden" in error
        account_kubectl("delete", "namespace", "nest")
