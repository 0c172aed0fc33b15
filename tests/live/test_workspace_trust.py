"""A project admin tries to give a workspace permissions and a place, on a server as it is installed, with a runner."""

from pathlib import Path
from typing import Any

import httpx

from tests.harness.eventually import wait_until
from tests.harness.server_process import running_server
from tests.live.runner_process import PROCESS_ENGINE, running_runner
from tests.live.workspace_setup import M, create_object

WORKSPACES = f"{M}/namespaces/service-p-web/devpodworkspaceinstances"
MERGE = {"Content-Type": "application/merge-patch+json"}


def send(client: httpx.Client, name: str, spec: dict[str, Any]) -> httpx.Response:
    annotations = {"service.sh/workspace-source": "image:x", "service.sh/workspace-up": "1"}
    meta = {"name": name, "annotations": annotations}
    body = {"apiVersion": "management.service.sh/v1", "kind": "DevPodWorkspaceInstance", "metadata": meta, "spec": spec}
    return client.post(WORKSPACES, json=body)


def test_a_project_admin_gets_neither_permissions_nor_a_place(tmp_path: Path) -> None:
    with (
        running_server(tmp_path / "data") as server,
        server.client() as admin,
        running_runner(server, admin, tmp_path / "runner", PROCESS_ENGINE),
    ):
        create_object(admin, f"{M}/users", "User", "mallory")
        members = [{"kind": "User", "name": "mallory", "clusterRole": "admin"}]
        admin.patch(f"{M}/projects/web", json={"spec": {"members": members}}, headers=MERGE).raise_for_status()
        key = create_object(admin, f"{M}/ownedaccesskeys", "OwnedAccessKey", "k", user="mallory")["spec"]["key"]
        options = {"allow": {"value": "privileged"}}
        template = {"provider": {"name": "process", "options": options}}
        create_object(admin, f"{M}/devpodworkspacetemplates", "DevPodWorkspaceTemplate", "strong", template=template)
        with server.client(str(key)) as mallory:
            refused = send(mallory, "inline", {"template": template})
            assert refused.status_code == 422 and "provider.options[allow]" in refused.text
            created = send(mallory, "inline", {"template": {"provider": {"name": "process"}}})
            assert created.status_code == 201, created.text
            later = mallory.patch(f"{WORKSPACES}/inline", json={"spec": {"template": template}}, headers=MERGE)
            assert later.status_code == 422
            forged = {"status": {"templateTrust": "Trusted", "instance": template}}
            assert mallory.patch(f"{WORKSPACES}/inline/status", json=forged, headers=MERGE).status_code == 403
            own: dict[str, Any] = {"kind": "DevPodWorkspaceTemplate", "metadata": {"name": "own"}}
            own |= {"apiVersion": "management.service.sh/v1", "spec": {"template": template}}
            assert mallory.post(f"{M}/devpodworkspacetemplates", json=own).status_code == 403
        assert send(admin, "strong", {"templateRef": {"name": "strong"}}).status_code == 201

        def get_status() -> dict[str, Any]:
            return admin.get(f"{WORKSPACES}/strong").json().get("status") or {}

        wait_until(lambda: "PolicyViolation" in str(get_status()), what="the runner refuses the permission")
        assert get_status()["templateTrust"] == "Trusted" and "--allow privileged" in str(get_status())
