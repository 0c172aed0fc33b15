"""What one member of a project can store, over real connections: with default settings, and with a small limit."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import httpx

from tests.harness.server_process import MANAGEMENT, Server, running_server

GROUP = "management.service.sh"
M = f"{MANAGEMENT}/apis/{GROUP}/v1"
CONFIG_MAPS = f"{MANAGEMENT}/api/v1/namespaces/service-p-race/configmaps"


def create_member(admin: httpx.Client) -> str:
    """Creates a project with one member, and returns a key of that member."""
    members = [{"kind": "User", "name": "ada", "clusterRole": "admin"}]
    create_object(admin, "users", "User", "ada", username="ada")
    create_object(admin, "projects", "Project", "race", members=members)
    return str(create_object(admin, "ownedaccesskeys", "OwnedAccessKey", "ada-key", user="ada")["spec"]["key"])


def create_object(admin: httpx.Client, plural: str, kind: str, name: str, **spec: object) -> dict[str, Any]:
    body = {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    found: dict[str, Any] = admin.post(f"{M}/{plural}", json=body).raise_for_status().json()
    return found


def build_config_map(name: str, size: int = 0) -> dict[str, object]:
    return {"metadata": {"name": name, "annotations": {"text": "x" * size}}}


async def create_concurrently(server: Server, key: str, count: int, size: int) -> list[httpx.Response]:
    """Through two connections, which the workers share."""
    headers = {"authorization": f"Bearer {key}"}
    async with server.async_client() as one, server.async_client() as two:
        bodies = [build_config_map(f"c-{number}", size) for number in range(count)]
        clients = [(one, two)[number % 2] for number in range(count)]
        posts = [each.post(CONFIG_MAPS, json=body, headers=headers) for each, body in zip(clients, bodies, strict=True)]
        return await asyncio.gather(*posts)


async def test_a_member_cannot_fill_the_memory_with_large_annotations(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as server, server.client() as admin:
        key = create_member(admin)
        with server.client(key) as member:
            codes = Counter[int]()
            for number in range(80):
                response = member.post(CONFIG_MAPS, json=build_config_map(f"c-{number}", 250_000))
                codes[response.status_code] += 1
            assert set(codes) == {201, 403}
            assert codes[201] <= 16 * 1024 * 1024 // 250_000
            assert "exceeded quota: storage of the user ada, requested: bytes=" in response.json()["message"]
            used = member.get(f"{M}/projects/race/usage").json()["requester"]["used"]
            assert used["bytes"] <= 16 * 1024 * 1024
            assert admin.post(CONFIG_MAPS, json=build_config_map("of-admin", 250_000)).status_code == 201
            assert member.delete(f"{CONFIG_MAPS}/c-0").status_code == 200
            assert member.post(CONFIG_MAPS, json=build_config_map("again", 250_000)).status_code == 201


async def test_concurrent_creates_stop_exactly_at_the_limit(tmp_path: Path) -> None:
    with running_server(tmp_path / "data", stored_objects_per_user=10) as server, server.client() as admin:
        key = create_member(admin)
        responses = await create_concurrently(server, key, 40, 10)
        assert Counter(response.status_code for response in responses) == {201: 10, 403: 30}
        assert len(admin.get(CONFIG_MAPS).json()["items"]) == 10
