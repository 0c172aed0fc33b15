"""The Config object: settings that change at run time apply from the next request, and after a restart."""

from pathlib import Path
from typing import Any

import httpx

from tests.harness.server_process import MANAGEMENT, running_server

GROUP = "management.service.sh"
M = f"{MANAGEMENT}/apis/{GROUP}/v1"
CONFIG = f"{M}/configs/service-manager-config"


def set_config(client: httpx.Client, raw: str) -> httpx.Response:
    merge = {"Content-Type": "application/merge-patch+json"}
    return client.patch(CONFIG, json={"spec": {"raw": raw}}, headers=merge)


def build_key(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": f"{GROUP}/v1", "kind": "OwnedAccessKey", "metadata": {"name": name}, "spec": spec}


def test_a_config_change_applies_at_once_and_after_a_restart(tmp_path: Path) -> None:
    raw = "auth: {accessKeyMaxTTLSeconds: 60, password: {disabled: true}, customHttpHeaders: {X-Frame-Options: DENY}}"
    with running_server(tmp_path / "data") as server, server.client() as admin:
        assert admin.get(CONFIG).json()["spec"] == {}
        assert admin.post(f"{M}/ownedaccesskeys", json=build_key("before")).status_code == 201
        assert admin.get("/auth/methods").json()["methods"]["password"]["enabled"] is True
        assert set_config(admin, raw).json()["status"]["auth"]["accessKeyMaxTTLSeconds"] == 60
        response = admin.post(f"{M}/ownedaccesskeys", json=build_key("long", ttl=61))
        assert (response.status_code, response.headers["x-frame-options"]) == (422, "DENY")
        assert admin.post(f"{M}/ownedaccesskeys", json=build_key("short", ttl=60)).status_code == 201
        assert admin.get("/auth/methods").json()["methods"]["password"]["enabled"] is False
        server.stop()
    with running_server(tmp_path / "data") as server, server.client() as admin:
        assert admin.get(CONFIG).json()["spec"] == {"raw": raw}
        assert admin.post(f"{M}/ownedaccesskeys", json=build_key("long", ttl=61)).status_code == 422
        set_config(admin, "")
        assert admin.post(f"{M}/ownedaccesskeys", json=build_key("long", ttl=61)).status_code == 201
        assert "x-frame-options" not in admin.get("/version").headers


def apply_config(client: httpx.Client, raw: str) -> httpx.Response:
    body = {"apiVersion": f"{GROUP}/v1", "kind": "Config", "metadata": {"name": "service-manager-config"}}
    apply = {"Content-Type": "application/apply-patch+yaml"}
    return client.patch(CONFIG, json={**body, "spec": {"raw": raw}}, params={"fieldManager": "gitops"}, headers=apply)


def test_the_config_of_a_new_server_can_be_applied_without_a_conflict(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as server, server.client() as admin:
        response = apply_config(admin, "audit: {level: Request}")
        assert (response.status_code, response.json()["status"]) == (200, {"audit": {"level": "Request"}})


def test_a_config_that_an_earlier_version_created_is_released_at_the_next_start(tmp_path: Path) -> None:
    merge = {"Content-Type": "application/merge-patch+json"}
    with running_server(tmp_path / "data") as server, server.client() as admin:
        as_server = {"fieldManager": "fairlead"}
        admin.patch(CONFIG, json={"spec": {"raw": ""}}, params=as_server, headers=merge).raise_for_status()
        assert "fairlead" in apply_config(admin, "audit: {level: Request}").json()["message"]
        server.stop()
    with running_server(tmp_path / "data") as server, server.client() as admin:
        assert apply_config(admin, "audit: {level: Request}").status_code == 200
        server.stop()
    with running_server(tmp_path / "data") as server, server.client() as admin:
        assert admin.get(CONFIG).json()["spec"] == {"raw": "audit: {level: Request}"}


def test_an_invalid_config_changes_nothing(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as server, server.client() as admin:
        set_config(admin, "auth: {accessKeyMaxTTLSeconds: 60}")
        response = set_config(admin, "auth: {accessKeyMaxTTL: 0}")
        assert response.status_code == 422
        assert "did you mean auth.accessKeyMaxTTLSeconds?" in response.json()["message"]
        assert admin.post(f"{M}/ownedaccesskeys", json=build_key("long", ttl=61)).status_code == 422


def test_there_is_one_config_and_only_administrators_may_use_it(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as server, server.client() as admin:
        body = {"apiVersion": f"{GROUP}/v1", "kind": "Config", "metadata": {"name": "second"}, "spec": {"raw": ""}}
        assert admin.post(f"{M}/configs", json=body).status_code == 405
        assert admin.delete(CONFIG).status_code == 405
        apply = {"Content-Type": "application/apply-patch+yaml"}
        assert admin.patch(f"{M}/configs/second?fieldManager=x", json=body, headers=apply).status_code == 422
        user = {"apiVersion": f"{GROUP}/v1", "kind": "User", "metadata": {"name": "ada"}, "spec": {}}
        admin.post(f"{M}/users", json=user).raise_for_status()
        ada_key = admin.post(f"{M}/ownedaccesskeys", json=build_key("ada", user="ada")).json()["spec"]["key"]
        with server.client(ada_key) as ada:
            assert ada.get(CONFIG).status_code == 403
            assert set_config(ada, "").status_code == 403


def test_the_audit_level_can_be_raised(tmp_path: Path) -> None:
    log = tmp_path / "data" / "audit.log"
    with running_server(tmp_path / "data") as server, server.client() as admin:
        app = {
            "apiVersion": f"{GROUP}/v1",
            "kind": "App",
            "metadata": {"name": "first"},
            "spec": {"displayName": "first"},
        }
        admin.post(f"{M}/apps", json=app).raise_for_status()
        set_config(admin, "audit: {level: Request}")
        app["metadata"], app["spec"] = {"name": "second"}, {"displayName": "second"}
        admin.post(f"{M}/apps", json=app).raise_for_status()
        server.stop()
    log_text = log.read_text()
    assert '"displayName":"second"' in log_text
    assert '"displayName":"first"' not in log_text
