"""A runner that the server deploys: the command of its container is run as a process here, with its mounted files."""

import os
import shutil
import signal
import subprocess
import sys
from base64 import b64decode
from pathlib import Path
from typing import Any

import httpx

from tests.fake_cluster.exchange import CannedResponse, RecordedRequest
from tests.fake_cluster.kube import FakeKube, build_kube_responder
from tests.fake_cluster.server import ACCESS_REVIEWS_PATH, FakeCluster
from tests.harness.eventually import wait_until
from tests.harness.free_ports import free_port
from tests.harness.gateways import connect_cluster
from tests.harness.server_process import ROOT, running_server, server_environment
from tests.live.workspace_setup import M, create_object

NAME = "fairlead-runner-deployed"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAME}/deployments/{NAME}"
SECRET = f"/api/v1/namespaces/{NAME}/secrets/{NAME}"
PROBED = ("/version", "/readyz", "/api/v1/nodes", "/api/v1/namespaces/kube-system", ACCESS_REVIEWS_PATH)
SERVICE_ACCOUNT_TOKEN = "token-of-the-service-account"


def build_cluster(kube: FakeKube) -> FakeCluster:
    respond_as_kube = build_kube_responder(kube)

    def respond(request: RecordedRequest) -> CannedResponse | None:
        return None if request.path in PROBED else respond_as_kube(request)

    return FakeCluster(respond)


def mount_volumes(kube: FakeKube, cluster: FakeCluster, folder: Path) -> dict[str, Path]:
    """Does what a node does with the volumes of the Pod. Returns the folders by their paths in the container."""
    pod = kube.objects[DEPLOYMENT]["spec"]["template"]["spec"]
    volumes = {each["name"]: each for each in pod["volumes"]}
    mounted = {}
    for mount in pod["containers"][0]["volumeMounts"]:
        volume, place = volumes[mount["name"]], folder / mount["name"]
        place.mkdir()
        mounted[mount["mountPath"]] = place
        if "secret" in volume:
            assert volume["secret"]["secretName"] == NAME
            for name, content in kube.objects[SECRET]["data"].items():
                (place / name).write_bytes(b64decode(content))
        for source in volume.get("projected", {}).get("sources", ()):
            if "serviceAccountToken" in source:
                (place / source["serviceAccountToken"]["path"]).write_text(SERVICE_ACCOUNT_TOKEN)
            else:
                (item,) = source["configMap"]["items"]
                (place / item["path"]).write_text(cluster.ca_pem)
    return mounted


def replace_paths(text: str, mounted: dict[str, Path]) -> str:
    """In the place of the paths in the container, those of the folders here, which are in /tmp themselves."""
    for path in mounted.keys() - {"/tmp"}:
        text = text.replace(path, str(mounted[path]))
    return text


def get_conditions(admin: httpx.Client) -> dict[str, Any]:
    runner = admin.get(f"{M}/runners/deployed").json()
    return {each["type"]: each for each in (runner.get("status") or {}).get("conditions") or ()}


def test_the_command_of_the_container_starts_the_runner(tmp_path: Path) -> None:
    kube, port = FakeKube(), free_port()
    settings: dict[str, str | int] = {
        "port": port,
        "public_url": f"https://127.0.0.1:{port}",
        "runner_image": "registry.example.com/f:1",
    }
    with (
        running_server(tmp_path / "data", **settings) as server,
        build_cluster(kube) as cluster,
        server.client() as admin,
    ):
        connect_cluster(admin, "berlin", cluster.build_kubeconfig(token="stored-token"))
        create_object(admin, f"{M}/runners", "Runner", "deployed", clusterRef={"cluster": "berlin"})
        wait_until(lambda: DEPLOYMENT in kube.objects, what="the runner is deployed")
        mounted = mount_volumes(kube, cluster, tmp_path)
        kubeconfig = mounted["/run/fairlead-runner/credentials"] / "kubeconfig"
        text = kubeconfig.read_text().replace("https://kubernetes.default.svc", cluster.url)
        kubeconfig.write_text(replace_paths(text, mounted))
        command = kube.objects[DEPLOYMENT]["spec"]["template"]["spec"]["containers"][0]["command"]
        program = shutil.which(command[0], path=str(Path(sys.executable).parent))
        assert program is not None
        arguments = [replace_paths(each, mounted) for each in command[1:]]
        environment = {**server_environment(), "HOME": str(mounted["/tmp"]), "PATH": os.environ["PATH"]}
        with (tmp_path / "runner.log").open("wb") as log:
            process = subprocess.Popen([program, *arguments], cwd=ROOT, env=environment, stdout=log, stderr=log)
        try:
            wait_until(
                lambda: admin.get(f"{M}/runners/deployed").json()["status"]["phase"] == "Initialized",
                what="the runner has reported",
            )
            wait_until(lambda: get_conditions(admin)["Ready"]["status"] == "True", what="the runner is ready")
            assert get_conditions(admin)["Deployed"]["reason"] == "Progressing"
            tokens = {each.header("authorization") for each in cluster.requests}
            assert f"Bearer {SERVICE_ACCOUNT_TOKEN}" in tokens
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, (tmp_path / "runner.log").read_text()
        key = (mounted["/run/fairlead-runner/credentials"] / "key").read_text()
        assert admin.get(f"{M}/runners/deployed/accesskey").json()["accessKey"] == key
        assert admin.delete(f"{M}/runners/deployed").status_code == 200
        wait_until(lambda: admin.get(f"{M}/runners/deployed").status_code == 404, what="the runner is deleted")
        assert [path for path in kube.objects if NAME in path] == []
        server.stop()
        logs = server.log.read_text() + (tmp_path / "data" / "audit.log").read_text()
        logs += (tmp_path / "runner.log").read_text()
    assert "Traceback" not in logs
    assert key not in logs
    assert "stored-token" not in logs
