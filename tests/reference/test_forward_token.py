"""A virtual cluster whose real kube-apiserver authenticates the tokens of Fairlead, by TokenReview.

The control plane stands in for one that Fairlead has deployed: an administrator writes the part of its status that says
so. The rest is real: gateway, kube-apiserver, and the webhook to Fairlead.
"""

from base64 import b64encode
from pathlib import Path

import httpx
import yaml

from tests.harness.eventually import wait_until
from tests.harness.gateways import (
    M,
    build_kubeconfig,
    build_kubectl,
    create_key,
    create_resource,
    gateway_kubeconfig,
    merge_patch,
    post_object,
)
from tests.harness.server_process import MANAGEMENT, running_server
from tests.reference.control_plane import ControlPlane

NAMESPACE = "service-p-demo"
INSTANCES = f"{M}/namespaces/{NAMESPACE}/virtualclusterinstances"
GATEWAY = "/kubernetes/project/demo/virtualcluster/dev"
TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"


def create_virtual_cluster(admin: httpx.Client, kubeconfig: str) -> None:
    template = {"template": {"forwardToken": True}}
    create_resource(admin, "virtualclustertemplates", "VirtualClusterTemplate", "own", **template)
    create_resource(
        admin, "projects", "Project", "demo", members=[{"kind": "User", "name": "ada", "clusterRole": "user"}]
    )
    spec = {"templateRef": {"name": "own"}, "owner": {"user": "ada"}, "clusterRef": {"cluster": "elsewhere"}}
    body = {"apiVersion": "management.service.sh/v1", "kind": "VirtualClusterInstance"}
    made = post_object(admin, INSTANCES, {**body, "metadata": {"name": "dev"}, "spec": spec})
    owner = {**body, "name": "dev", "uid": made["metadata"]["uid"]}
    meta = {
        "name": "vc-dev-kubeconfig",
        "ownerReferences": [owner],
        "labels": {"service.sh/managed": "fairlead"},
    }
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": meta}
    data = {"config": b64encode(kubeconfig.encode()).decode()}
    post_object(admin, f"{MANAGEMENT}/api/v1/namespaces/{NAMESPACE}/secrets", {**secret, "data": data})
    path = f"{INSTANCES}/dev"
    wait_until(lambda: "virtualCluster" in (admin.get(path).json().get("status") or {}), 60)
    merge_patch(admin, f"{path}/status", {"status": {"templateApplied": "Trusted"}})


def test_a_token_of_fairlead_is_authenticated_by_the_virtual_cluster(binaries: Path, tmp_path: Path) -> None:
    folder = tmp_path / "plane"
    folder.mkdir()
    webhook = folder / "webhook.kubeconfig"
    flags = [f"--authentication-token-webhook-config-file={webhook}", "--authentication-token-webhook-version=v1"]
    with running_server(tmp_path / "data", cluster_networks="127.0.0.0/8") as server, server.client() as admin:
        address = f"{server.url}{MANAGEMENT}{TOKEN_REVIEWS}"
        webhook.write_text(build_kubeconfig(address, Path(server.ca_file), server.key))
        create_resource(admin, "users", "User", "ada", username="ada")
        key = create_key(admin, "ada", "ada")
        with ControlPlane(binaries, folder, flags) as plane:
            create_virtual_cluster(admin, plane.kubeconfig())
            program = binaries / "kubectl"
            member = build_kubectl(program, tmp_path / "member", gateway_kubeconfig(server, GATEWAY, key))
            review = yaml.safe_load(member("auth", "whoami", "-o", "yaml"))["status"]["userInfo"]
            assert review["username"] == "ada", (
                "the name that the TokenReview says, without the prefix of impersonation"
            )
            assert review["uid"] == admin.get(f"{M}/users/ada").json()["metadata"]["uid"]
            refused = member.run("get", "namespaces")
            assert 'User "ada" cannot list resource "namespaces"' in refused.stderr
            direct = build_kubectl(program, tmp_path / "direct", plane.kubeconfig())
            direct("create", "clusterrolebinding", "ada", "--clusterrole=view", "--user=ada")
            wait_until(lambda: member.run("get", "namespaces").returncode == 0, 30)
            direct("create", "configmap", "one")
            with member.watching("get", "configmaps", "-n", "default", "-w", "-o", "name") as watch:
                assert watch.stdout is not None
                assert watch.stdout.readline().startswith("configmap/")
            scoped = create_key(
                admin, "ada", "scoped", scope={"virtualClusters": [{"project": "demo", "virtualCluster": "*"}]}
            )
            narrow = build_kubectl(program, tmp_path / "narrow", gateway_kubeconfig(server, GATEWAY, scoped))
            assert "does not accept your token" in narrow.run("get", "namespaces").stderr
