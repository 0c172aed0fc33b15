"""What `fairlead cluster export` prints, used as Argo CD and the consumers of ClusterProfiles use it: with kubectl, on
the gateway of a cluster."""

import base64
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fake_cluster.exchange import CannedResponse, RecordedRequest
from tests.fake_cluster.kube import FakeKube, build_kube_responder
from tests.fake_cluster.server import ClusterOptions, FakeCluster
from tests.harness.eventually import wait_until
from tests.harness.gateways import (
    M,
    bind_role,
    build_kubectl,
    cluster_rule,
    connect_cluster,
    create_resource,
    gateway_kubeconfig,
    is_online,
    merge_patch,
)
from tests.harness.kubectl import Kubectl
from tests.harness.server_process import MANAGEMENT, ROOT, Server, running_server, server_environment

EXPORT_SECONDS = 120.0
"""How long the controller may take on a busy machine: it tries a cluster that has failed again after 30."""
RULES = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]
PERMISSION_TO_CREATE_KEYS = {
    **{"verbs": ["create"], "requestTargets": ["Management"]},
    "resources": [{"group": "management.service.sh", "resources": ["ownedaccesskeys"]}],
}


@dataclass(frozen=True, slots=True)
class Fleet:
    """A server with the clusters berlin, which is another server, and oslo. The user gitops may use both."""

    server: Server
    program: Path
    folder: Path

    def fairlead(self, *arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "fairlead", *arguments],
            cwd=ROOT,
            env=self.environment() | variables,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def environment(self) -> dict[str, str]:
        return server_environment() | {"HOME": str(self.folder), "XDG_CONFIG_HOME": str(self.folder / "config")}

    def export(self, *arguments: str) -> list[dict[str, Any]]:
        result = self.fairlead("cluster", "export", *arguments)
        assert result.returncode == 0, result.stderr
        return list(yaml.safe_load_all(result.stdout))

    def kubectl(self, name: str, user: dict[str, Any], cluster: dict[str, Any]) -> Kubectl:
        content = {
            **{"apiVersion": "v1", "kind": "Config", "current-context": "it"},
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it", "namespace": "default"}}],
            "clusters": [{"name": "it", "cluster": cluster}],
            "users": [{"name": "it", "user": user}],
        }
        return build_kubectl(self.program, self.folder / name, yaml.safe_dump(content))


@pytest.fixture(scope="module")
def fleet(component: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder, program = tmp_path_factory.mktemp("export"), component("kubectl")
    with (
        running_server(folder / "server") as server,
        running_server(folder / "remote") as remote,
        FakeCluster() as oslo,
        server.client() as admin,
        remote.client() as remote_admin,
    ):
        connect_cluster(admin, "berlin", gateway_kubeconfig(remote, MANAGEMENT, remote.key).encode())
        connect_cluster(admin, "oslo", oslo.build_kubeconfig(token="stored-token-of-oslo"))
        create_resource(admin, "users", "User", "gitops", username="gitops")
        bind_role(admin, "gitops", "gitops", [cluster_rule(each, "use", "get") for each in ("berlin", "oslo")])
        bind_role(remote_admin, "gitops", "fairlead:gitops", RULES)
        wait_until(lambda: is_online(admin, "berlin") and is_online(admin, "oslo"))
        found = Fleet(server, program, folder)
        login = found.fairlead("login", server.url, "--key", server.key, "--ca-file", server.ca_file)
        assert login.returncode == 0, login.stderr
        yield found


def as_argo_cd_does(fleet: Fleet, secret: dict[str, Any], name: str = "argo") -> Kubectl:
    """kubectl with what Argo CD takes from a cluster Secret."""
    data = {key: base64.b64decode(value).decode() for key, value in secret["data"].items()}
    config = json.loads(data["config"])
    cluster = {
        "server": data["server"].rstrip("/"),
        "certificate-authority-data": config["tlsClientConfig"]["caData"],
    }
    return fleet.kubectl(name, {"token": config["bearerToken"]}, cluster)


def token_of(secret: dict[str, Any]) -> str:
    token: str = json.loads(base64.b64decode(secret["data"]["config"]))["bearerToken"]
    return token


def test_the_secret_reaches_its_cluster_and_nothing_else(fleet: Fleet) -> None:
    (secret,) = fleet.export("argocd", "berlin", "--user", "gitops", "--for", "reach")
    kubectl = as_argo_cd_does(fleet, secret, "reach")
    assert kubectl("create", "configmap", "deployed") == "configmap/deployed created\n"
    assert kubectl("get", "configmap", "deployed", "-o", "name") == "configmap/deployed\n"
    with fleet.server.client(token_of(secret)) as client:
        assert client.get("/kubernetes/cluster/berlin/api/v1/namespaces/default/configmaps").status_code == 200
        other = client.get("/kubernetes/cluster/oslo/api/v1/namespaces/default/pods")
        assert (other.status_code, "scope" in other.text) == (403, True)
        for path in (
            f"{M}/clusters/berlin",
            f"{M}/clusters",
            f"{M}/ownedaccesskeys",
            f"{MANAGEMENT}/api/v1/namespaces/service-system/secrets",
        ):
            assert client.get(path).status_code == 403, path
        assert client.post(f"{M}/ownedaccesskeys", json={"kind": "OwnedAccessKey"}).status_code in (400, 403)


def test_a_revoked_key_is_refused(fleet: Fleet) -> None:
    (secret,) = fleet.export("argocd", "berlin", "--user", "gitops", "--for", "revoked")
    kubectl = as_argo_cd_does(fleet, secret, "revoked")
    kubectl("get", "configmaps")
    with fleet.server.client() as admin:
        selector = {"labelSelector": "service.sh/export-for=revoked,service.sh/export-cluster=berlin"}
        (key,) = admin.get(f"{M}/ownedaccesskeys", params=selector).json()["items"]
        assert key["metadata"]["name"] == secret["metadata"]["annotations"]["service.sh/access-key"]
        assert admin.delete(f"{M}/ownedaccesskeys/{key['metadata']['name']}").status_code == 200
    kubectl.expect_failure("get", "configmaps")
    with fleet.server.client(token_of(secret)) as client:
        assert client.get("/kubernetes/cluster/berlin/api/v1/namespaces/default/configmaps").status_code == 401


def test_the_export_can_be_repeated(fleet: Fleet) -> None:
    arguments = ("argocd", "berlin", "--user", "gitops", "--for", "again")
    (first,) = fleet.export(*arguments)
    assert fleet.export(*arguments) == []
    time.sleep(1.1)  # times of creation have seconds
    (second,) = fleet.export(*arguments, "--rotate")
    assert token_of(first) != token_of(second)
    for secret in (first, second):
        with fleet.server.client(token_of(secret)) as client:
            assert client.get("/kubernetes/cluster/berlin/api/v1/namespaces/default/configmaps").status_code == 200
    name = first["metadata"]["annotations"]["service.sh/access-key"]
    with fleet.server.client() as admin:

        def ends_soon() -> bool:
            assert fleet.export(*arguments, "--overlap", "1h") == []
            ttl: int = admin.get(f"{M}/ownedaccesskeys/{name}").json()["spec"]["ttl"]
            return ttl < 4000

        wait_until(ends_soon, what="the former key ends, since the newer one was seen in use")
    assert {name: first[name] for name in ("kind", "type")} == {name: second[name] for name in ("kind", "type")}
    assert first["metadata"]["labels"] == second["metadata"]["labels"]


def test_the_plugin_of_a_profile_reaches_the_cluster(fleet: Fleet) -> None:
    (profile,) = fleet.export("clusterprofile", "berlin")
    assert profile["status"]["conditions"][0]["status"] == "True"
    (provider,) = profile["status"]["accessProviders"]
    # As client-go calls it: with the cluster, and the extension of the profile as its config.
    plugin = {
        **{"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never", "provideClusterInfo": True},
        **{"command": sys.executable, "args": ["-m", "fairlead", "credential", "--cluster-info"]},
        "env": [{"name": name, "value": value} for name, value in fleet.environment().items()]
        + [{"name": "PYTHONPATH", "value": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))}],
    }
    kubectl = fleet.kubectl("profile", {"exec": plugin}, provider["cluster"])
    kubectl("create", "configmap", "from-a-profile")
    assert kubectl("get", "configmap", "from-a-profile", "-o", "name") == "configmap/from-a-profile\n"


def test_a_login_that_may_only_create_keys_for_gateways_is_enough_for_the_plugin(fleet: Fleet) -> None:
    scope = {"rules": [PERMISSION_TO_CREATE_KEYS, {"requestTargets": ["Cluster"]}]}
    with fleet.server.client() as admin:
        narrow = create_resource(
            admin, "ownedaccesskeys", "OwnedAccessKey", "plugin", user="gitops", ttl=86400, scope=scope
        )["spec"]["key"]
    server = f"{fleet.server.url}/kubernetes/cluster/berlin"
    info = {"apiVersion": "client.authentication.k8s.io/v1", "spec": {"cluster": {"server": server}}}
    login = {
        **{"FAIRLEAD_URL": fleet.server.url, "FAIRLEAD_KEY": narrow, "FAIRLEAD_CA_FILE": fleet.server.ca_file},
        "KUBERNETES_EXEC_INFO": json.dumps(info),
    }
    result = fleet.fairlead("credential", "--cluster-info", **login)
    assert result.returncode == 0, result.stderr
    token = json.loads(result.stdout)["status"]["token"]
    assert token != narrow
    with fleet.server.client(token) as client:
        assert client.get("/kubernetes/cluster/berlin/api/v1/namespaces/default/configmaps").status_code == 200
        assert client.get("/kubernetes/cluster/oslo/api/v1/namespaces/default/pods").status_code == 403
        body = {"apiVersion": "management.service.sh/v1", "kind": "OwnedAccessKey", "metadata": {"name": "more"}}
        assert client.post(f"{M}/ownedaccesskeys", json={**body, "spec": {}}).status_code == 403


def test_the_server_keeps_the_secrets_in_the_cluster_of_argo_cd(fleet: Fleet) -> None:
    kube = FakeKube()
    kube.add_object("/api/v1/namespaces/argocd")
    path = "/api/v1/namespaces/argocd/secrets/fairlead-berlin"
    respond_as_kube = build_kube_responder(kube)

    def respond(request: RecordedRequest) -> CannedResponse | None:
        return respond_as_kube(request) if "/namespaces/argocd" in request.path else None

    options = ClusterOptions(uid="00000000-0000-4000-8000-00000000fa14")
    with FakeCluster(respond, options) as hub, fleet.server.client() as admin:
        connect_cluster(admin, "hub", hub.build_kubeconfig(token="stored-token-of-hub"))
        annotations = {"service.sh/export-argocd": "argocd", "service.sh/export-user": "gitops"}
        wait_until(lambda: is_online(admin, "hub"))
        merge_patch(admin, f"{M}/clusters/hub", {"metadata": {"annotations": annotations}})
        wait_until(lambda: path in kube.objects, EXPORT_SECONDS)
        kubectl = as_argo_cd_does(fleet, kube.objects[path], "hub")
        assert kubectl("create", "configmap", "from-hub") == "configmap/from-hub created\n"
        name = kube.objects[path]["metadata"]["annotations"]["service.sh/access-key"]
        assert admin.delete(f"{M}/clusters/hub").status_code in (200, 202)
        wait_until(lambda: admin.get(f"{M}/ownedaccesskeys/{name}").status_code == 404, EXPORT_SECONDS)
