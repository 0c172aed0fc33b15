"""A server that is killed while virtual clusters move: each is in exactly one project, with all that depends on it."""

import random
import threading
import time
from pathlib import Path
from typing import Any

import httpx

from tests.harness.server_process import MANAGEMENT, TIMEOUT_SECONDS, Server, running

GROUP = "management.service.sh/v1"
ROOT = f"{MANAGEMENT}/apis/{GROUP}"
PROJECTS = ("p-0", "p-1", "p-2", "p-3")
INSTANCES = [f"v-{number}" for number in range(10)]
MIGRATIONS = 200
KILLS = 5
MOVERS = 5


def namespace(project: str) -> str:
    return f"service-p-{project}"


def configmaps(project: str) -> str:
    return f"{MANAGEMENT}/api/v1/namespaces/{namespace(project)}/configmaps"


def furnish(client: httpx.Client) -> None:
    """Every instance has a dependant, which has one itself."""
    for project in PROJECTS:
        spec = {"requireTemplate": {"disabled": True}}
        body = {"apiVersion": GROUP, "kind": "Project", "metadata": {"name": project}, "spec": spec}
        client.post(f"{ROOT}/projects", json=body).raise_for_status()
    for name in INSTANCES:
        body = {"apiVersion": GROUP, "kind": "VirtualClusterInstance", "metadata": {"name": name}}
        path = f"{ROOT}/namespaces/{namespace(PROJECTS[0])}/virtualclusterinstances"
        owner = client.post(path, json={**body, "spec": {"template": {}}}).raise_for_status().json()
        for dependant in (f"{name}-first", f"{name}-second"):
            reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"]}
            reference |= {part: owner["metadata"][part] for part in ("name", "uid")}
            meta = {"name": dependant, "ownerReferences": [reference], "finalizers": ["tests/stay"]}
            made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}
            owner = client.post(configmaps(PROJECTS[0]), json=made).raise_for_status().json()


def listed(client: httpx.Client, path: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = client.get(path).raise_for_status().json()["items"]
    return items


def homes(client: httpx.Client) -> dict[str, list[str]]:
    """In which projects each instance is. Fails unless its dependants are there and refer to it."""
    found: dict[str, list[str]] = {name: [] for name in INSTANCES}
    for project in PROJECTS:
        instances = listed(client, f"{ROOT}/namespaces/{namespace(project)}/virtualclusterinstances")
        maps = {each["metadata"]["name"]: each["metadata"] for each in listed(client, configmaps(project))}
        for instance in instances:
            name, owner = instance["metadata"]["name"], instance["metadata"]
            found[name].append(project)
            for dependant in (f"{name}-first", f"{name}-second"):
                meta = maps.pop(dependant)
                assert "deletionTimestamp" not in meta
                assert [each["uid"] for each in meta["ownerReferences"]] == [owner["uid"]]
                owner = meta
        assert maps == {}, "somebody was left behind"
    return found


class Movers:
    """Clients that move instances from wherever they were seen last, until the server is gone or they are stopped."""

    def __init__(self, server: Server, seed: int) -> None:
        self._server = server
        self._enough = threading.Event()
        self.answered = 0
        self.codes: set[int] = set()
        self._progress = threading.Condition()
        self._threads = [threading.Thread(target=self._move, args=(f"{seed}-{each}",)) for each in range(MOVERS)]
        for thread in self._threads:
            thread.start()

    def _move(self, seed: str) -> None:
        dice = random.Random(seed)
        with self._server.client() as client:
            while not self._enough.is_set():
                source, target = dice.sample(PROJECTS, 2)
                path = f"{ROOT}/namespaces/{namespace(source)}/virtualclusterinstances"
                try:
                    there = [each["metadata"]["name"] for each in listed(client, path)]
                    if there:
                        self._count(migrate(client, dice.choice(there), source, target))
                except httpx.TransportError:
                    return

    def _count(self, code: int) -> None:
        with self._progress:
            self.answered += code == 201
            self.codes.add(code)
            self._progress.notify_all()

    def wait_for(self, count: int) -> None:
        with self._progress:
            assert self._progress.wait_for(lambda: self.answered >= count, TIMEOUT_SECONDS)

    def stop(self) -> None:
        self._enough.set()
        for thread in self._threads:
            thread.join(TIMEOUT_SECONDS)


def migrate(client: httpx.Client, name: str, source: str, target: str) -> int:
    body = {
        "apiVersion": GROUP,
        "kind": "ProjectMigrateVirtualClusterInstance",
        "sourceVirtualClusterInstance": {"name": name, "namespace": namespace(source)},
    }
    return client.post(f"{ROOT}/projects/{target}/migratevirtualclusterinstance", json=body).status_code


def test_r8_killed_at_any_moment_every_instance_is_in_exactly_one_project(tmp_path: Path) -> None:
    dice, done = random.Random(8), 0
    for number in range(KILLS):
        with running(tmp_path / "data") as server:
            with server.client() as client:
                if number == 0:
                    furnish(client)
                assert {len(places) for places in homes(client).values()} == {1}
            movers = Movers(server, number)
            movers.wait_for(MIGRATIONS // KILLS)
            time.sleep(dice.uniform(0, 0.1))
            server.kill()
            movers.stop()
            done += movers.answered
            assert movers.codes <= {201, 404, 409}
    with running(tmp_path / "data") as server, server.client() as client:
        assert {len(places) for places in homes(client).values()} == {1}
        assert done >= MIGRATIONS
