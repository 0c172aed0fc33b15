"""A namespace of the real cluster for workspaces: volumes, an image with git, a repository, and a credential.

There is no registry and no way out of the cluster. So the image is that of the tests with podman, and a Pod serves the
repository, from a folder of this machine.
"""

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.harness.gateways import create_user, gateway_kubeconfig, gateway_path
from tests.harness.kubectl import Kubectl
from tests.reference.connected_cluster import CLUSTER, IMAGE, ConnectedCluster
from tests.reference.node import import_image
from tests.runner.harness.podman import TOOLS

NAMESPACE = "workspaces"
USER = "workspace-runner"
WORKSPACE_IMAGE = "localhost/workspace:1"
ROLE = Path(__file__).parents[2] / "examples" / "kubernetes" / "runner-role.yaml"
IDENTITY = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com")
CONFIGURATION = {
    "image": WORKSPACE_IMAGE,
    "remoteUser": "dev",
    "onCreateCommand": "echo created by $(id -un); sleep 1; touch created",
}


@dataclass(frozen=True, slots=True)
class WorkspaceCluster:
    connected: ConnectedCluster
    kubectl: Kubectl
    folder: Path
    repository: str
    kubeconfig: Path
    """Leads through the gateway, with a key whose scope is this cluster, and a Role in the namespace."""

    @property
    def options(self) -> dict[str, str]:
        return {
            "namespace": NAMESPACE,
            "image": WORKSPACE_IMAGE,
            "imagePullPolicy": "Never",
            "storageClass": "local",
            "storage": "1Gi",
        }

    def add_volume(self, name: str) -> None:
        """Local volumes are not reused: each workspace of a test needs a new one."""
        folder = self.folder / name
        folder.mkdir()
        folder.chmod(0o777)
        self.apply(build_local_volume(name, folder))

    def apply(self, obj: Mapping[str, Any]) -> None:
        path = self.folder / "object.json"
        path.write_text(json.dumps(obj))
        self.kubectl("apply", "-f", str(path))

    def list_objects(self) -> list[str]:
        kinds = "pods,persistentvolumeclaims,secrets,networkpolicies"
        return self.kubectl("get", kinds, "-n", NAMESPACE, "-o", "name").split()


def build_local_volume(name: str, folder: Path) -> dict[str, Any]:
    """A PersistentVolume of class `local` on the node."""
    term = {"matchExpressions": [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}]}
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": "local",
        "local": {"path": str(folder)},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}


@contextmanager
def open_workspace_cluster(
    connected: ConnectedCluster, admin: httpx.Client, folder: Path
) -> Iterator[WorkspaceCluster]:
    kubectl = connected.direct_kubectl()
    import_image(connected.plane, WORKSPACE_IMAGE, (TOOLS / "workspace-image.tar").read_bytes())
    kubectl("create", "namespace", NAMESPACE)
    kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=baseline")
    try:
        kubectl("apply", "-n", NAMESPACE, "-f", str(ROLE))
        kubectl("create", "rolebinding", "runner", "-n", NAMESPACE, "--role=fairlead-runner", f"--user=fairlead:{USER}")
        user = create_user(admin, USER, CLUSTER, "use")
        kubeconfig = folder / "kubeconfig"
        content = yaml.safe_load(gateway_kubeconfig(connected.server, gateway_path(CLUSTER), user.key))
        content["contexts"][0]["context"]["namespace"] = NAMESPACE
        kubeconfig.write_text(yaml.safe_dump(content))
        repository = _serve_repository(kubectl, folder)
        yield WorkspaceCluster(connected, kubectl, folder, repository, kubeconfig)
    finally:
        kubectl("delete", "namespace", NAMESPACE, "--wait=false")
        kubectl("delete", "pod", "git", "--now")


def _serve_repository(kubectl: Kubectl, folder: Path) -> str:
    source, bare = folder / "source", folder / "served" / "demo.git"
    (source / ".devcontainer").mkdir(parents=True)
    (source / ".devcontainer/devcontainer.json").write_text(json.dumps(CONFIGURATION))
    (source / "README").write_text("hello\n")
    for command in (
        ("-C", str(source), "init", "-q", "-b", "main"),
        ("-C", str(source), "add", "-A"),
        ("-C", str(source), *IDENTITY, "commit", "-qm", "First"),
        ("clone", "-q", "--bare", str(source), str(bare)),
        ("-C", str(bare), "update-server-info"),
    ):
        subprocess.run(["git", *command], check=True, capture_output=True)
    server = {
        **{"name": "git", "image": IMAGE, "imagePullPolicy": "Never"},
        "command": ["/bin/httpd", "-f", "-p", "8080", "-h", "/served"],
        "volumeMounts": [{"name": "served", "mountPath": "/served"}],
    }
    volume = {"name": "served", "hostPath": {"path": str(folder / "served")}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "git"},
        "spec": {"containers": [server], "volumes": [volume]},
    }
    (folder / "git.json").write_text(json.dumps(pod))
    kubectl("apply", "-f", str(folder / "git.json"))
    kubectl("wait", "--for=condition=Ready", "pod/git", "--timeout=60s")
    return f"http://{kubectl('get', 'pod', 'git', '-o', 'jsonpath={.status.podIP}').strip()}:8080/demo.git"
