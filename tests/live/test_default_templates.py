"""A new installation has templates from which members of a project can create instances at once."""

from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.harness.eventually import wait_until
from tests.harness.server_process import MANAGEMENT, Server, running_server

API = f"{MANAGEMENT}/apis/management.service.sh/v1"
INSTANCES = {
    "spaceinstances": ("SpaceInstance", "NoClusterChosen"),
    "virtualclusterinstances": ("VirtualClusterInstance", "NoClusterChosen"),
    "devpodworkspaceinstances": ("DevPodWorkspaceInstance", "NoRunner"),
}
"""By plural: the kind, and why an instance of it is pending on a server without clusters and runners."""
EXAMPLES = Path(__file__).parents[2] / "examples"
TEMPLATES = ("spacetemplates", "virtualclustertemplates", "devpodworkspacetemplates")


def create(client: httpx.Client, path: str, kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    body = {"apiVersion": "management.service.sh/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    response = client.post(f"{API}/{path}", json=body)
    assert response.status_code == 201, response.text
    created: dict[str, Any] = response.json()
    return created


def create_member(server: Server) -> str:
    """Creates a project with a member, and returns the member's key."""
    with server.client() as client:
        create(client, "users", "User", "ada", {})
        create(
            client, "projects", "Project", "demo", {"members": [{"kind": "User", "name": "ada", "clusterRole": "user"}]}
        )
        return str(create(client, "ownedaccesskeys", "OwnedAccessKey", "adas", {"user": "ada"})["spec"]["key"])


def test_a_new_member_of_a_project_can_create_each_kind_of_instance(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as server, server.client(create_member(server)) as ada:
        offered = ada.get(f"{API}/projects/demo/templates").raise_for_status().json()
        fields = ("spaceTemplates", "virtualClusterTemplates", "devPodWorkspaceTemplates")
        assert [[each["metadata"]["name"] for each in offered[field]] for field in fields] == [["default"]] * 3
        for plural, (kind, reason) in INSTANCES.items():
            path = f"namespaces/service-p-demo/{plural}"
            create(ada, path, kind, "mine", {"templateRef": {"name": "default"}})
            wait_for_reason(ada, path, reason)
            assert get_status(ada, path)["phase"] == "Pending"
            assert "fairlead" in get_status(ada, path)["message"]


def wait_for_reason(client: httpx.Client, path: str, reason: str) -> None:
    wait_until(lambda: get_status(client, path).get("reason") == reason, what=reason)


def get_status(client: httpx.Client, path: str) -> dict[str, Any]:
    return client.get(f"{API}/{path}/mine").raise_for_status().json().get("status") or {}


def test_deleted_default_templates_are_not_created_again(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as server, server.client() as client:
        for plural in TEMPLATES:
            assert client.delete(f"{API}/{plural}/default").status_code == 200
        assert server.stop() == 0
    with running_server(tmp_path / "data") as server, server.client() as client:
        assert [client.get(f"{API}/{plural}").json()["items"] for plural in TEMPLATES] == [[], [], []]


def test_an_interrupted_first_start_is_completed(tmp_path: Path) -> None:
    system_namespace = f"{MANAGEMENT}/api/v1/namespaces/service-system"
    with running_server(tmp_path / "data") as server, server.client() as client:
        client.delete(f"{API}/spacetemplates/default").raise_for_status()
        headers = {"content-type": "application/merge-patch+json"}
        pending = {"metadata": {"annotations": {"service.sh/default-templates": "pending"}}}
        client.patch(system_namespace, json=pending, headers=headers).raise_for_status()
        assert server.stop() == 0
    with running_server(tmp_path / "data") as server, server.client() as client:
        assert client.get(f"{API}/spacetemplates/default").status_code == 200
        recorded = client.get(system_namespace).json()["metadata"]["annotations"]
        assert recorded["service.sh/default-templates"] == "created"


def test_the_default_template_of_virtual_clusters_is_the_example(tmp_path: Path) -> None:
    example = yaml.safe_load((EXAMPLES / "virtualclustertemplate.yaml").read_text())
    with running_server(tmp_path / "data") as server, server.client() as client:
        found = client.get(f"{API}/virtualclustertemplates/default").raise_for_status().json()
        assert found["spec"]["parameters"] == example["spec"]["parameters"]
        assert found["spec"]["template"]["instanceTemplate"] == example["spec"]["template"]["instanceTemplate"]
        release = found["spec"]["template"]["helmRelease"]
        expected = example["spec"]["template"]["helmRelease"]
        assert release["chart"] == expected["chart"]
        filled = [text.replace("{{ parameters.storage }}", "5Gi") for text in (release["values"], expected["values"])]
        assert yaml.safe_load(filled[0]) == yaml.safe_load(filled[1])
        # With a cluster, it is accepted; another template without a chart is rejected at once.
        create(client, "projects", "Project", "demo", {})
        create(client, "clusters", "Cluster", "c", {"config": {"secretName": "none"}})
        create(client, "virtualclustertemplates", "VirtualClusterTemplate", "empty", {"template": {}})
        path = "namespaces/service-p-demo/virtualclusterinstances"
        place = {"clusterRef": {"cluster": "c"}}
        create(client, path, "VirtualClusterInstance", "mine", {**place, "templateRef": {"name": "default"}})
        wait_until(lambda: get_status(client, path).get("virtualCluster"), what="the rendered template")
        rendered = get_status(client, path)["virtualCluster"]["helmRelease"]
        assert rendered["chart"]["version"] == example["spec"]["parameters"][0]["defaultValue"]
        assert "size: 5Gi" in rendered["values"]
        annotations = get_status(client, path)["virtualCluster"]["instanceTemplate"]["metadata"]["annotations"]
        assert annotations == {"sleepmode.service.sh/sleep-after": ""}
        body = {"kind": "VirtualClusterInstance", "metadata": {"name": "two"}, "spec": place}
        body["spec"] = {**place, "templateRef": {"name": "empty"}}
        rejected = client.post(f"{API}/{path}", json={"apiVersion": "management.service.sh/v1", **body})
        assert rejected.status_code == 422 and "names no chart in helmRelease.chart" in rejected.text
