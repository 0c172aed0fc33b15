"""A member creates a workspace from a preset, with an environment, on a server as it is installed."""

import json
from pathlib import Path
from typing import Any

import httpx

from tests.harness.eventually import wait_until
from tests.harness.server_process import running_server
from tests.live.workspace_setup import M, create_object

WORKSPACES = f"{M}/namespaces/service-p-web/devpodworkspaceinstances"
APPLY = {"Content-Type": "application/apply-patch+yaml"}
MERGE_PATCH = "application/merge-patch+json"
TEXT = '{"image": "debian:12"} // tools'


def build_manifest(preset: str) -> dict[str, Any]:
    return {
        "apiVersion": "management.service.sh/v1",
        "kind": "DevPodWorkspaceInstance",
        "metadata": {"name": "desk"},
        "spec": {"presetRef": {"name": preset}},
    }


def create(client: httpx.Client, preset: str) -> httpx.Response:
    return client.post(f"{WORKSPACES}?fieldManager=test", json=build_manifest(preset))


def apply(client: httpx.Client, preset: str) -> httpx.Response:
    content = json.dumps(build_manifest(preset))
    return client.patch(f"{WORKSPACES}/desk?fieldManager=test&force=true", content=content, headers=APPLY)


def create_member(admin: httpx.Client, name: str) -> str:
    """A user with an access key, which is returned."""
    create_object(admin, f"{M}/users", "User", name)
    return str(create_object(admin, f"{M}/ownedaccesskeys", "OwnedAccessKey", name, user=name)["spec"]["key"])


def test_a_project_that_requires_a_preset_refuses_members_without_one(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as server, server.client() as admin:
        keys = {name: create_member(admin, name) for name in ("ada", "bob")}
        members = [
            {"kind": "User", "name": "ada", "clusterRole": "user"},
            {"kind": "User", "name": "bob", "clusterRole": "admin"},
        ]
        project = create_object(admin, f"{M}/projects", "Project", "web", members=members, requirePreset={})
        assert project["spec"]["requirePreset"] == {}, "an empty object is stored: it is what requires a preset"
        source = {"image": "debian:12"}
        template = {"name": "default"}
        create_object(
            admin, f"{M}/devpodworkspacepresets", "DevPodWorkspacePreset", "shop", source=source, templateRef=template
        )
        plain = build_manifest("shop") | {"spec": {"templateRef": template}}
        with server.client(keys["ada"]) as ada, server.client(keys["bob"]) as bob:
            refused = ada.post(WORKSPACES, json=plain)
            assert refused.status_code == 403
            message = refused.json()["message"]
            assert 'project "web" requires a preset (spec.requirePreset), and the workspace names none' in message
            assert create(ada, "shop").status_code == 201
            removed = ada.patch(
                f"{WORKSPACES}/desk", json={"spec": {"presetRef": None}}, headers={"Content-Type": MERGE_PATCH}
            )
            assert (removed.status_code, "the change removes spec.presetRef" in removed.text) == (403, True)
            ada.delete(f"{WORKSPACES}/desk").raise_for_status()
            assert bob.post(WORKSPACES, json=plain).status_code == 201, "an administrator of the project"


def test_a_member_creates_a_workspace_from_a_preset(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as server, server.client() as admin:
        key = create_member(admin, "ada")
        members = [{"kind": "User", "name": "ada", "clusterRole": "user"}]
        create_object(admin, f"{M}/projects", "Project", "web", members=members)
        template = {"provider": {"name": "devcontainer", "options": {"memory": {"value": "{{ parameters.memory }}"}}}}
        create_object(
            admin,
            f"{M}/devpodworkspacetemplates",
            "DevPodWorkspaceTemplate",
            "small",
            template=template,
            parameters=[{"variable": "memory", "defaultValue": "1Gi"}],
        )
        create_object(
            admin, f"{M}/devpodenvironmenttemplates", "DevPodEnvironmentTemplate", "tools", template={"inline": TEXT}
        )
        create_object(
            admin,
            f"{M}/devpodworkspacepresets",
            "DevPodWorkspacePreset",
            "shop",
            source={"git": "https://example.com/shop.git"},
            templateRef={"name": "small"},
            environmentRef={"name": "tools"},
            parameters="memory: 2Gi",
        )
        with server.client(key) as ada:
            own = {"apiVersion": "management.service.sh/v1", "metadata": {"name": "own"}, "spec": {}}
            for plural, kind in (
                ("devpodworkspacepresets", "DevPodWorkspacePreset"),
                ("devpodenvironmenttemplates", "DevPodEnvironmentTemplate"),
            ):
                assert ada.post(f"{M}/{plural}", json={**own, "kind": kind}).status_code == 403
            refused = create(ada, "gone")
            assert refused.status_code == 403
            assert 'the preset "gone" does not exist, or gives no template' in refused.json()["message"]
            missing = create(admin, "gone")
            assert missing.status_code == 201, missing.text
            assert "there is no preset" in missing.headers["warning"]
            admin.delete(f"{WORKSPACES}/desk").raise_for_status()
            for send in (create, apply, apply):  # the manifest leaves out what the server copied
                applied = send(ada, "shop")
                assert applied.status_code in (200, 201), applied.text
                assert "warning" not in applied.headers
                spec = applied.json()["spec"]
                assert (spec["templateRef"]["name"], spec["environmentRef"]) == ("small", {"name": "tools"})
                assert spec["parameters"] == "memory: 2Gi"
                annotations = applied.json()["metadata"]["annotations"]
                assert annotations["service.sh/workspace-source"] == "git:https://example.com/shop.git"

            def get_status() -> dict[str, Any]:
                return ada.get(f"{WORKSPACES}/desk").json().get("status") or {}

            wait_until(lambda: "environment" in get_status(), what="the environment is resolved")
            assert get_status()["environment"] == {"name": "tools", "version": "", "inline": TEXT}
            assert get_status()["instance"]["provider"]["options"]["memory"] == {"value": "2Gi"}
            in_use = admin.delete(f"{M}/devpodworkspacepresets/shop")
            assert (in_use.status_code, "is using it" in in_use.text) == (409, True)
