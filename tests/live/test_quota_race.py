"""Fifty concurrent clients and a quota of ten, over real connections: exactly ten requests succeed."""

import asyncio
from collections import Counter
from pathlib import Path

import httpx

from tests.harness.eventually import TIMEOUT_SECONDS, eventually
from tests.harness.server_process import MANAGEMENT, Server, running_server

GROUP = "management.service.sh"
M = f"{MANAGEMENT}/apis/{GROUP}/v1"
PLURAL = "devpodworkspaceinstances"
WORKSPACES = f"{M}/namespaces/service-p-race/{PLURAL}"
CLIENTS, LIMIT = 50, 10


def build_project(**quotas: dict[str, str]) -> dict[str, object]:
    meta = {"name": "race"}
    return {"apiVersion": f"{GROUP}/v1", "kind": "Project", "metadata": meta, "spec": {"quotas": quotas}}


def build_workspace(name: str, user: str) -> dict[str, object]:
    spec = {"owner": {"user": user}}
    return {"apiVersion": f"{GROUP}/v1", "kind": "DevPodWorkspaceInstance", "metadata": {"name": name}, "spec": spec}


async def create_concurrently(server: Server, owners: int) -> list[httpx.Response]:
    """Creates workspaces with one connection per client, all at the same time."""
    clients = [server.async_client() for _ in range(CLIENTS)]
    start, connected = asyncio.Event(), list[int]()

    async def create(number: int) -> httpx.Response:
        client = clients[number]
        await client.get(f"{M}/projects/race")
        connected.append(number)
        await start.wait()
        return await client.post(WORKSPACES, json=build_workspace(f"w-{number}", f"u-{number % owners}"))

    tasks = [asyncio.create_task(create(number)) for number in range(CLIENTS)]
    await eventually(lambda: len(connected) == CLIENTS, TIMEOUT_SECONDS)
    start.set()
    responses = await asyncio.gather(*tasks)
    await asyncio.gather(*(client.aclose() for client in clients))
    return responses


async def test_of_fifty_concurrent_creates_with_a_quota_of_ten_exactly_ten_succeed(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as server, server.client() as admin:
        admin.post(f"{M}/projects", json=build_project(project={PLURAL: str(LIMIT)})).raise_for_status()
        responses = await create_concurrently(server, owners=CLIENTS)
        codes = Counter(response.status_code for response in responses)
        assert codes == {201: LIMIT, 403: CLIENTS - LIMIT}
        error = next(response.json() for response in responses if response.status_code == 403)
        used = f"requested: {PLURAL}=1, used: {PLURAL}={LIMIT}, limited: {PLURAL}={LIMIT}"
        assert f"exceeded quota: project race, {used}" in error["message"]
        names = {item["metadata"]["name"] for item in admin.get(WORKSPACES).json()["items"]}
        assert names == {response.json()["metadata"]["name"] for response in responses if response.status_code == 201}


async def test_each_of_five_owners_gets_exactly_its_quota_of_two(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as server, server.client() as admin:
        admin.post(f"{M}/projects", json=build_project(user={PLURAL: "2"})).raise_for_status()
        await create_concurrently(server, owners=5)
        owners = Counter(item["spec"]["owner"]["user"] for item in admin.get(WORKSPACES).json()["items"])
        assert owners == {f"u-{number}": 2 for number in range(5)}
