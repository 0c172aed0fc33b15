"""Replicas on one store: a write that one acknowledges is visible at all of them."""

import itertools
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.harness.eventually import BUSY_SECONDS, wait_until
from tests.harness.replicas import NAMESPACES, STORES, Replicas, new_secrets, running_replicas, store_address
from tests.harness.server_process import (
    MANAGEMENT,
    ROOT,
    TIMEOUT_SECONDS,
    Server,
    configmap,
    running_server,
    server_command,
    server_environment,
)

M = f"{MANAGEMENT}/apis/management.service.sh/v1"
REVOCATION_SECONDS = 1.0
"""Within this time, a key that was revoked at one replica is rejected by all."""


@pytest.fixture(scope="module", params=STORES)
def group(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    with running_replicas(request.param, tmp_path_factory.mktemp(request.param), 2) as group:
        yield group


@pytest.fixture
def clients(group: Replicas) -> Iterator[list[httpx.Client]]:
    with ExitStack() as stack:
        yield [stack.enter_context(server.client()) for server in group.servers]


@pytest.fixture
def configmaps_path(clients: list[httpx.Client]) -> str:
    """The path of the config maps of a new namespace."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "test-"}}
    name = clients[0].post(NAMESPACES, json=body).json()["metadata"]["name"]
    return f"{NAMESPACES}/{name}/configmaps"


def test_a_write_is_visible_at_other_replicas_at_once(clients: list[httpx.Client], configmaps_path: str) -> None:
    for number, (writer, reader) in zip(range(60), itertools.cycle(itertools.permutations(clients, 2)), strict=False):
        created = writer.post(configmaps_path, json=configmap(f"c{number}"))
        assert created.status_code == 201, created.text
        assert reader.get(f"{configmaps_path}/c{number}").json() == created.json()
        assert len(reader.get(configmaps_path).json()["items"]) == number + 1
    for number, (writer, reader) in zip(range(60), itertools.cycle(itertools.permutations(clients, 2)), strict=False):
        assert writer.delete(f"{configmaps_path}/c{number}").status_code == 200
        assert reader.get(f"{configmaps_path}/c{number}").status_code == 404


def test_reads_never_return_an_older_state(group: Replicas, clients: list[httpx.Client], configmaps_path: str) -> None:
    """A read after an acknowledged write returns it or something newer, at every replica."""
    clients[0].post(configmaps_path, json=configmap("counter", count="0")).raise_for_status()
    acknowledged, stop = [0], threading.Event()

    def read(server: Server) -> int:
        seen = 0
        with server.client() as client:
            while not stop.is_set():
                minimum = acknowledged[0]
                found = int(client.get(f"{configmaps_path}/counter").json()["data"]["count"])
                assert found >= minimum and found >= seen
                seen = found
        return seen

    with ThreadPoolExecutor(4) as pool:
        reading = [pool.submit(read, server) for server in group.servers * 2]
        try:
            for count, writer in zip(range(1, 101), itertools.cycle(clients), strict=False):
                writer.put(f"{configmaps_path}/counter", json=configmap("counter", count=str(count))).raise_for_status()
                acknowledged[0] = count
        finally:
            stop.set()
        for each in reading:
            assert each.result() <= 100


def test_of_concurrent_updates_at_different_replicas_exactly_one_succeeds(
    group: Replicas, configmaps_path: str
) -> None:
    with group.servers[0].client() as client:
        body = client.post(configmaps_path, json=configmap("prize")).json()

    def attempt(number: int) -> int:
        with group.servers[number % 2].client() as client:
            return client.put(f"{configmaps_path}/prize", json={**body, "data": {"winner": str(number)}}).status_code

    with ThreadPoolExecutor(6) as pool:
        outcomes = list(pool.map(attempt, range(6)))
    assert sorted(outcomes) == [200] + 5 * [409]


def test_a_watch_continues_at_another_replica_without_gap_or_repetition(
    clients: list[httpx.Client], configmaps_path: str
) -> None:
    since = clients[0].get(configmaps_path).json()["metadata"]["resourceVersion"]
    versions: list[str] = []
    done = threading.Event()

    def write() -> None:
        for number, client in zip(range(150), itertools.cycle(clients), strict=False):
            versions.append(
                client.post(configmaps_path, json=configmap(f"w{number}")).json()["metadata"]["resourceVersion"]
            )
        done.set()

    seen: list[str] = []
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        for reader in itertools.cycle(clients):
            if len(seen) >= 150:
                break
            with open_watch(reader, configmaps_path, resourceVersion=seen[-1] if seen else since) as events:
                for event in itertools.islice(events, min(11, 150 - len(seen))):
                    assert event["type"] == "ADDED"
                    seen.append(event["object"]["metadata"]["resourceVersion"])
        writing.result()
    assert seen == versions


@contextmanager
def open_watch(client: httpx.Client, configmaps_path: str, **query: str) -> Iterator[Iterator[Any]]:
    with client.stream("GET", configmaps_path, params={"watch": "1", **query}) as response:
        assert response.status_code == 200, response.read()
        yield map(json.loads, response.iter_lines())


def test_a_key_revoked_at_one_replica_is_rejected_by_all(group: Replicas, clients: list[httpx.Client]) -> None:
    for number in range(5):
        name = f"revoked{number}"
        spec = {"user": "admin"}
        body = {"apiVersion": "management.service.sh/v1", "kind": "OwnedAccessKey", "metadata": {"name": name}}
        key = clients[0].post(f"{M}/ownedaccesskeys", json={**body, "spec": spec}).json()["spec"]["key"]
        with group.servers[1].client(key) as revoked_client:
            wait_for_status(revoked_client, 200)
            clients[0].delete(f"{M}/ownedaccesskeys/{name}").raise_for_status()
            revoked = time.monotonic()
            wait_for_status(revoked_client, 401)
            assert time.monotonic() - revoked < REVOCATION_SECONDS + BUSY_SECONDS


def wait_for_status(client: httpx.Client, code: int) -> None:
    wait_until(lambda: client.get(f"{M}/apps").status_code == code)


def test_a_secret_encrypted_by_one_replica_is_decrypted_by_another(
    clients: list[httpx.Client], configmaps_path: str
) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"word": "canary"}}
    secrets = configmaps_path.replace("configmaps", "secrets")
    clients[0].post(secrets, json=secret).raise_for_status()
    assert clients[1].get(f"{secrets}/s").json()["data"] == {"word": "Y2FuYXJ5"}


# --- shared secrets ------------------------------------------------------------------------------------------------


def expect_startup_error(folder: Path, **variables: str) -> str:
    """Returns the error output of a server that does not start."""
    result = subprocess.run(
        server_command(folder, "--json"),
        cwd=ROOT,
        env=server_environment(**variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=2 * TIMEOUT_SECONDS,
        check=False,
    )
    assert result.returncode != 0, result.stdout
    assert "Traceback" not in result.stderr, result.stderr
    return result.stderr


def test_a_replica_with_another_pepper_does_not_start_and_names_the_file_to_copy(
    group: Replicas, tmp_path: Path
) -> None:
    variables = {"store": group.store, "encryption_keys": group.secrets["encryption_keys"]}
    assert "copy it from another server" in expect_startup_error(tmp_path / "none", **variables)
    assert not (tmp_path / "none" / "pepper.key").exists()
    (tmp_path / "other").mkdir(mode=0o700)
    pepper = tmp_path / "other" / "pepper.key"
    pepper.write_bytes(b"x" * 32)
    pepper.chmod(0o600)
    assert "copy theirs over it" in expect_startup_error(tmp_path / "other", **variables)


def test_a_replica_without_the_encryption_key_does_not_start_and_names_the_key(group: Replicas, tmp_path: Path) -> None:
    variables = {"store": group.store, "pepper": group.secrets["pepper"]}
    error = expect_startup_error(tmp_path / "none", **variables)
    assert "encryption.keys: missing" in error and not (tmp_path / "none" / "encryption.keys").exists()
    error = expect_startup_error(tmp_path / "other", **variables, encryption_keys=new_secrets()["encryption_keys"])
    assert group.secrets["encryption_keys"].split()[0] in error


@pytest.mark.parametrize("kind", STORES)
def test_two_replicas_that_start_on_an_empty_store_create_one_administrator(kind: str, tmp_path: Path) -> None:
    store, secrets = store_address(kind, tmp_path), new_secrets()
    with ExitStack() as stack, ThreadPoolExecutor(2) as pool:
        starting = [
            pool.submit(stack.enter_context, running_server(tmp_path / name, store=store, **secrets))
            for name in ("a", "b")
        ]
        servers = [each.result() for each in starting]
        keys = [server.key for server in servers if server.key]
        assert len(keys) == 1
        for server in servers:
            with server.client(keys[0]) as client:
                assert client.get(f"{M}/users").json()["items"][0]["metadata"]["name"] == "admin"


def test_of_two_replicas_with_different_secrets_only_one_starts(tmp_path: Path) -> None:
    store = store_address("postgres", tmp_path)
    processes = [
        subprocess.Popen(
            server_command(tmp_path / name, "--json"),
            cwd=ROOT,
            env=server_environment(store=store),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in ("a", "b")
    ]
    try:
        wait_until(lambda: any(process.poll() is not None for process in processes), 120)
        loser, winner = sorted(processes, key=lambda process: process.poll() is None)
        assert "copy" in loser.communicate()[1]
        assert winner.stdout is not None and json.loads(winner.stdout.readline())["accessKey"]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
