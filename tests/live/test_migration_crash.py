"""Virtual clusters that migrate while the server is killed: each is in exactly one project, with all its dependents."""

import random
import threading
import time
from pathlib import Path
from typing import Any

import httpx

from tests.harness.server_process import MANAGEMENT, TIMEOUT_SECONDS, Server, running_server

GROUP = "management.service.sh/v1"
ROOT = f"{MANAGEMENT}/apis/{GROUP}"
PROJECTS = ("p-0", "p-1", "p-2", "p-3")
INSTANCES = [f"v-{number}" for number in range(10)]
MIGRATIONS = 200
KILLS = 5
CLIENTS = 5


def build_namespace(project: str) -> str:
    return f"service-p-{project}"


def build_configmaps_path(project: str) -> str:
    return f"{MANAGEMENT}/api/v1/namespaces/{build_namespace(project)}/configmaps"


def create_objects(client: httpx.Client) -> None:
    """Creates instances with one dependent each, which has a dependent, too."""
    for project in PROJECTS:
        spec = {"requireTemplate": {"disabled": True}}
        body = {"apiVersion": GROUP, "kind": "Project", "metadata": {"name": project}, "spec": spec}
        client.post(f"{ROOT}/projects", json=body).raise_for_status()
    for name in INSTANCES:
        body = {"apiVersion": GROUP, "kind": "VirtualClusterInstance", "metadata": {"name": name}}
        path = f"{ROOT}/namespaces/{build_namespace(PROJECTS[0])}/virtualclusterinstances"
        owner = client.post(path, json={**body, "spec": {"template": {}}}).raise_for_status().json()
        for dependent in (f"{name}-first", f"{name}-second"):
            reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"]}
            reference |= {part: owner["metadata"][part] for part in ("name", "uid")}
            meta = {"name": dependent, "ownerReferences": [reference], "finalizers": ["tests/stay"]}
            configmap = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}
            owner = client.post(build_configmaps_path(PROJECTS[0]), json=configmap).raise_for_status().json()


def list_items(client: httpx.Client, path: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = client.get(path).raise_for_status().json()["items"]
    return items


def locate_instances(client: httpx.Client) -> dict[str, list[str]]:
    """Returns the projects of each instance. Fails unless its dependents are there and refer to it."""
    found: dict[str, list[str]] = {name: [] for name in INSTANCES}
    for project in PROJECTS:
        instances = list_items(client, f"{ROOT}/namespaces/{build_namespace(project)}/virtualclusterinstances")
        maps = {
            each["metadata"]["name"]: each["metadata"] for each in list_items(client, build_configmaps_path(project))
        }
        for instance in instances:
            name, owner = instance["metadata"]["name"], instance["metadata"]
            found[name].append(project)
            for dependent in (f"{name}-first", f"{name}-second"):
                meta = maps.pop(dependent)
                assert "deletionTimestamp" not in meta
                assert [each["uid"] for each in meta["ownerReferences"]] == [owner["uid"]]
                owner = meta
        assert maps == {}, "a dependent was left behind"
    return found


class MigrationClients:
    """Clients that migrate random instances until the server is killed or they are stopped."""

    def __init__(self, server: Server, seed: int) -> None:
        self._server = server
        self._stop = threading.Event()
        self.completed = 0
        self.codes: set[int] = set()
        self._progress = threading.Condition()
        self._threads = [
            threading.Thread(target=self._migrate_randomly, args=(f"{seed}-{each}",)) for each in range(CLIENTS)
        ]
        for thread in self._threads:
            thread.start()

    def _migrate_randomly(self, seed: str) -> None:
        rng = random.Random(seed)
        with self._server.client() as client:
            while not self._stop.is_set():
                source, target = rng.sample(PROJECTS, 2)
                path = f"{ROOT}/namespaces/{build_namespace(source)}/virtualclusterinstances"
                try:
                    names = [each["metadata"]["name"] for each in list_items(client, path)]
                    if names:
                        self._count(migrate(client, rng.choice(names), source, target))
                except httpx.TransportError:
                    return

    def _count(self, code: int) -> None:
        with self._progress:
            self.completed += code == 201
            self.codes.add(code)
            self._progress.notify_all()

    def wait_for(self, count: int) -> None:
        with self._progress:
            assert self._progress.wait_for(lambda: self.completed >= count, TIMEOUT_SECONDS)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(TIMEOUT_SECONDS)


def migrate(client: httpx.Client, name: str, source: str, target: str) -> int:
    body = {
        "apiVersion": GROUP,
        "kind": "ProjectMigrateVirtualClusterInstance",
        "sourceVirtualClusterInstance": {"name": name, "namespace": build_namespace(source)},
    }
    return client.post(f"{ROOT}/projects/{target}/migratevirtualclusterinstance", json=body).status_code


def test_r8_after_a_kill_at_any_moment_every_instance_is_in_exactly_one_project(tmp_path: Path) -> None:
    rng, completed = random.Random(8), 0
    for number in range(KILLS):
        with running_server(tmp_path / "data") as server:
            with server.client() as client:
                if number == 0:
                    create_objects(client)
                assert {len(projects) for projects in locate_instances(client).values()} == {1}
            clients = MigrationClients(server, number)
            clients.wait_for(MIGRATIONS // KILLS)
            time.sleep(rng.uniform(0, 0.1))
            server.kill()
            clients.stop()
            completed += clients.completed
            assert clients.codes <= {201, 404, 409}
    with running_server(tmp_path / "data") as server, server.client() as client:
        assert {len(projects) for projects in locate_instances(client).values()} == {1}
        assert completed >= MIGRATIONS
