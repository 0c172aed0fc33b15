"""Fifty clients, a quota of ten, one moment: ten get through, on a real server over real connections."""

import asyncio
from collections import Counter
from pathlib import Path

import httpx

from tests.harness.server_process import MANAGEMENT, Server, running

GROUP = "management.service.sh"
M = f"{MANAGEMENT}/apis/{GROUP}/v1"
PLURAL = "devpodworkspaceinstances"
HOME = f"{M}/namespaces/service-p-race/{PLURAL}"
CLIENTS, LIMIT = 50, 10


def project(**quotas: dict[str, str]) -> dict[str, object]:
    meta = {"name": "race"}
    return {"apiVersion": f"{GROUP}/v1", "kind": "Project", "metadata": meta, "spec": {"quotas": quotas}}


def workspace(name: str, user: str) -> dict[str, object]:
    spec = {"owner": {"user": user}}
    return {"apiVersion": f"{GROUP}/v1", "kind": "DevPodWorkspaceInstance", "metadata": {"name": name}, "spec": spec}


async def raced(server: Server, owners: int) -> list[httpx.Response]:
    """Every client has a connection of its own, and all start together."""
    clients = [server.async_client() for _ in range(CLIENTS)]
    start = asyncio.Event()

    async def create(number: int) -> httpx.Response:
        client = clients[number]
        await client.get(f"{M}/projects/race")
        await start.wait()
        return await client.post(HOME, json=workspace(f"w-{number}", f"u-{number % owners}"))

    racing = [asyncio.create_task(create(number)) for number in range(CLIENTS)]
    await asyncio.sleep(0.5)
    start.set()
    answers = await asyncio.gather(*racing)
    await asyncio.gather(*(client.aclose() for client in clients))
    return answers


async def test_fifty_clients_race_for_a_quota_of_ten_and_exactly_ten_win(tmp_path: Path) -> None:
    with running(tmp_path / "data") as server, server.client() as admin:
        admin.post(f"{M}/projects", json=project(project={PLURAL: str(LIMIT)})).raise_for_status()
        answers = await raced(server, owners=CLIENTS)
        codes = Counter(answer.status_code for answer in answers)
        assert codes == {201: LIMIT, 403: CLIENTS - LIMIT}
        refused = next(answer.json() for answer in answers if answer.status_code == 403)
        used = f"requested: {PLURAL}=1, used: {PLURAL}={LIMIT}, limited: {PLURAL}={LIMIT}"
        assert f"exceeded quota: project race, {used}" in refused["message"]
        made = {item["metadata"]["name"] for item in admin.get(HOME).json()["items"]}
        assert made == {answer.json()["metadata"]["name"] for answer in answers if answer.status_code == 201}


async def test_each_of_five_owners_gets_exactly_its_two(tmp_path: Path) -> None:
    with running(tmp_path / "data") as server, server.client() as admin:
        admin.post(f"{M}/projects", json=project(user={PLURAL: "2"})).raise_for_status()
        await raced(server, owners=5)
        owners = Counter(item["spec"]["owner"]["user"] for item in admin.get(HOME).json()["items"])
        assert owners == {f"u-{number}": 2 for number in range(5)}
