"""On a real node: the objects of a template inside a virtual cluster, and one that is imported by its chart's Secret.

The kubeconfig that the chart writes names `localhost`, so both are reached by port-forward through the cluster only.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.eventually import wait_until
from tests.harness.gateways import M, create_resource, post_object
from tests.harness.server_process import MANAGEMENT
from tests.reference.conftest import REFERENCE
from tests.reference.connected_cluster import is_root, seconds_since
from tests.reference.control_plane import ControlPlane, Network
from tests.reference.node import running_node
from tests.reference.virtual_cluster_chart import NAME, offer_own_chart
from tests.reference.virtual_node import CLUSTER, MEMBER, READY_SECONDS, VirtualNode, open_virtual_node

pytestmark = pytest.mark.timeout(900)
PROJECT, IMPORTING = "made", "importing"
KIND = {"apiVersion": "management.service.sh/v1", "kind": "VirtualClusterInstance"}
OBJECTS = """
apiVersion: v1
kind: Namespace
metadata:
  name: team
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: about
  namespace: team
data:
  text: {{ name }} of {{ owner }} in {{ project }} at {{ namespace }}
"""


@pytest.fixture(scope="module")
def virtual_node(binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VirtualNode]:
    assert is_root(), f"REFERENCE={REFERENCE}: a node needs root"
    folder = tmp_path_factory.mktemp("virtual")
    with (
        ControlPlane(binaries, folder / "plane", network=Network()) as plane,
        running_node(plane),
        open_virtual_node(plane, folder / "fairlead", offer_own_chart(plane)) as node,
    ):
        chart = {"helmRelease": {"chart": {"name": NAME, "repo": node.repository.url}}, "objects": OBJECTS}
        create_resource(node.admin, "virtualclustertemplates", "VirtualClusterTemplate", "filled", template=chart)
        for project in (PROJECT, IMPORTING):
            create_resource(node.admin, "projects", "Project", project, owner={"user": MEMBER})
        yield node


def create_instance(node: VirtualNode, project: str, name: str, spec: dict[str, Any], **annotations: str) -> None:
    path = f"{M}/namespaces/service-p-{project}/virtualclusterinstances"
    named = {key.replace("_", "-"): value for key, value in annotations.items()}
    metadata = {"name": name, "annotations": {f"service.sh/{key}": value for key, value in named.items()}}
    wait_until(lambda: node.admin.get(path).is_success)
    post_object(node.admin, path, {**KIND, "metadata": metadata, "spec": spec})


def wait_until_ready(node: VirtualNode, project: str, name: str) -> dict[str, Any]:
    def status() -> dict[str, Any]:
        found: dict[str, Any] = node.get_instance(name, project).get("status") or {}
        return found

    wait_until(lambda: status().get("phase") == "Ready", READY_SECONDS, f"{name} is ready")
    return status()


def test_objects_of_the_template_are_inside(virtual_node: VirtualNode) -> None:
    spec = {"clusterRef": {"cluster": CLUSTER}, "templateRef": {"name": "filled"}, "owner": {"user": MEMBER}}
    create_instance(virtual_node, PROJECT, "dev", spec)
    wait_until_ready(virtual_node, PROJECT, "dev")
    kubectl = virtual_node.member_kubectl("dev", PROJECT)
    about = kubectl.get_json("configmaps", "-n", "team", "about")
    assert about["data"]["text"] == f"dev of {MEMBER} in {PROJECT} at {PROJECT}-v-dev"
    assert "team" not in virtual_node.host.get_names("namespaces")


def test_a_virtual_cluster_is_imported_by_the_secret_of_its_chart(
    virtual_node: VirtualNode, record_figure: Callable[[str], None]
) -> None:
    """That of another project stands in for one that was installed by hand."""
    admin = virtual_node.admin
    written = virtual_node.host.get_json("secrets", "-n", f"{PROJECT}-v-dev", "vc-dev")
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "vcluster-theirs"}}
    secrets = f"{MANAGEMENT}/api/v1/namespaces/service-p-{IMPORTING}/secrets"
    post_object(admin, secrets, {**secret, "data": {"config": written["data"]["config"]}})
    spec = {"config": {"secretName": "vcluster-theirs"}, "owner": {"user": MEMBER}}
    start = time.monotonic()
    create_instance(virtual_node, IMPORTING, "theirs", spec, import_source=f"{CLUSTER}/{PROJECT}-v-dev/dev")
    status = wait_until_ready(virtual_node, IMPORTING, "theirs")
    record_figure(f"imported by its Secret: Ready after {seconds_since(start):.1f} s")
    assert status["importedFrom"]["name"] == "dev" and status["connection"]["mode"] == "Tunnel"
    assert virtual_node.member_kubectl("theirs", IMPORTING).get_names("namespaces", "team") == ["team"]
    # Without the source, the same kubeconfig leads nowhere: its address is that of the server itself.
    create_instance(virtual_node, IMPORTING, "unproven", spec)
    wait_until(lambda: "online" in (virtual_node.get_instance("unproven", IMPORTING).get("status") or {}), 60)
    answer = admin.get(f"/kubernetes/project/{IMPORTING}/virtualcluster/unproven/api/v1/namespaces")
    assert answer.status_code in (502, 503), answer.text  # whatever listens there is not this virtual cluster
    for name in ("theirs", "unproven"):
        admin.delete(f"{M}/namespaces/service-p-{IMPORTING}/virtualclusterinstances/{name}")
        virtual_node.wait_until_gone(name, IMPORTING)
    assert virtual_node.member_kubectl("dev", PROJECT).get_names("namespaces", "team") == ["team"]


def test_a_member_needs_no_flags(virtual_node: VirtualNode, record_figure: Callable[[str], None]) -> None:
    """The project has one cluster and one template."""
    start = time.monotonic()
    created = virtual_node.run_cli("vcluster", "create", "plain", "--project", "demo", "--wait")
    assert created.returncode == 0, created.stdout + created.stderr
    record_figure(f"`vcluster create plain --project demo --wait`: {seconds_since(start):.0f} s")
    assert f"in the cluster {CLUSTER}, the only one of the project demo" in created.stderr
    connected = virtual_node.run_cli("vcluster", "connect", "plain", "--project", "demo", "-o", "-")
    assert connected.returncode == 0 and "/kubernetes/project/demo/virtualcluster/plain" in connected.stdout
    assert "default" in virtual_node.member_kubectl("plain").get_names("namespaces")
