"""Settings that change while the server runs: what the Config says holds from the next request on, and for good."""

from pathlib import Path
from typing import Any

import httpx

from tests.harness.server_process import MANAGEMENT, running

GROUP = "management.service.sh"
M = f"{MANAGEMENT}/apis/{GROUP}/v1"
CONFIG = f"{M}/configs/service-manager-config"


def settle(client: httpx.Client, raw: str) -> httpx.Response:
    merge = {"Content-Type": "application/merge-patch+json"}
    return client.patch(CONFIG, json={"spec": {"raw": raw}}, headers=merge)


def key(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": f"{GROUP}/v1", "kind": "OwnedAccessKey", "metadata": {"name": name}, "spec": spec}


def test_a_change_of_the_config_holds_at_once_and_for_good(tmp_path: Path) -> None:
    raw = "auth: {accessKeyMaxTTLSeconds: 60, password: {disabled: true}, customHttpHeaders: {X-Frame-Options: DENY}}"
    with running(tmp_path / "data") as server, server.client() as admin:
        assert admin.get(CONFIG).json()["spec"] == {"raw": ""}
        assert admin.post(f"{M}/ownedaccesskeys", json=key("before")).status_code == 201
        assert admin.get("/auth/methods").json()["methods"]["password"] == {"enabled": True}
        assert settle(admin, raw).json()["status"]["auth"]["accessKeyMaxTTLSeconds"] == 60
        refused = admin.post(f"{M}/ownedaccesskeys", json=key("long", ttl=61))
        assert (refused.status_code, refused.headers["x-frame-options"]) == (422, "DENY")
        assert admin.post(f"{M}/ownedaccesskeys", json=key("short", ttl=60)).status_code == 201
        assert admin.get("/auth/methods").json()["methods"]["password"] == {"enabled": False}
        server.stop()
    with running(tmp_path / "data") as server, server.client() as admin:
        assert admin.get(CONFIG).json()["spec"] == {"raw": raw}
        assert admin.post(f"{M}/ownedaccesskeys", json=key("long", ttl=61)).status_code == 422
        settle(admin, "")
        assert admin.post(f"{M}/ownedaccesskeys", json=key("long", ttl=61)).status_code == 201
        assert "x-frame-options" not in admin.get("/version").headers


def test_nonsense_changes_nothing(tmp_path: Path) -> None:
    with running(tmp_path / "data") as server, server.client() as admin:
        settle(admin, "auth: {accessKeyMaxTTLSeconds: 60}")
        refused = settle(admin, "auth: {accessKeyMaxTTL: 0}")
        assert refused.status_code == 422
        assert "did you mean auth.accessKeyMaxTTLSeconds?" in refused.json()["message"]
        assert admin.post(f"{M}/ownedaccesskeys", json=key("long", ttl=61)).status_code == 422


def test_the_config_is_one_and_for_administrators(tmp_path: Path) -> None:
    with running(tmp_path / "data") as server, server.client() as admin:
        body = {"apiVersion": f"{GROUP}/v1", "kind": "Config", "metadata": {"name": "second"}, "spec": {"raw": ""}}
        assert admin.post(f"{M}/configs", json=body).status_code == 405
        assert admin.delete(CONFIG).status_code == 405
        apply = {"Content-Type": "application/apply-patch+yaml"}
        assert admin.patch(f"{M}/configs/second?fieldManager=x", json=body, headers=apply).status_code == 422
        user = {"apiVersion": f"{GROUP}/v1", "kind": "User", "metadata": {"name": "ada"}, "spec": {}}
        admin.post(f"{M}/users", json=user).raise_for_status()
        hers = admin.post(f"{M}/ownedaccesskeys", json=key("hers", user="ada")).json()["spec"]["key"]
        with server.client(hers) as ada:
            assert ada.get(CONFIG).status_code == 403
            assert settle(ada, "").status_code == 403


def test_the_audit_level_can_be_raised(tmp_path: Path) -> None:
    log = tmp_path / "data" / "audit.log"
    with running(tmp_path / "data") as server, server.client() as admin:
        app = {
            "apiVersion": f"{GROUP}/v1",
            "kind": "App",
            "metadata": {"name": "quiet"},
            "spec": {"displayName": "first"},
        }
        admin.post(f"{M}/apps", json=app).raise_for_status()
        settle(admin, "audit: {level: Request}")
        app["metadata"], app["spec"] = {"name": "told"}, {"displayName": "second"}
        admin.post(f"{M}/apps", json=app).raise_for_status()
        server.stop()
    written = log.read_text()
    assert '"displayName":"second"' in written
    assert '"displayName":"first"' not in written
