"""Replicas on one store are one server to their clients: what one of them acknowledges, all of them show."""

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

from tests.harness.replicas import NAMESPACES, STORES, Replicas, eventually, new_secrets, replicas, store_for
from tests.harness.server_process import (
    MANAGEMENT,
    ROOT,
    TIMEOUT_SECONDS,
    Server,
    command,
    configmap,
    environment,
    running,
)

M = f"{MANAGEMENT}/apis/management.service.sh/v1"
PROMISED = 1.0
"""Seconds within which a key that was revoked at one replica is refused by all."""


@pytest.fixture(scope="module", params=STORES)
def group(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    with replicas(request.param, tmp_path_factory.mktemp(request.param), 2) as made:
        yield made


@pytest.fixture
def clients(group: Replicas) -> Iterator[list[httpx.Client]]:
    with ExitStack() as stack:
        yield [stack.enter_context(server.client()) for server in group.servers]


@pytest.fixture
def place(clients: list[httpx.Client]) -> str:
    """The path of the config maps of a namespace that nothing else lives in."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "test-"}}
    name = clients[0].post(NAMESPACES, json=body).json()["metadata"]["name"]
    return f"{NAMESPACES}/{name}/configmaps"


def test_what_one_replica_acknowledges_the_others_show_at_once(clients: list[httpx.Client], place: str) -> None:
    for number, (writer, reader) in zip(range(60), itertools.cycle(itertools.permutations(clients, 2)), strict=False):
        made = writer.post(place, json=configmap(f"c{number}"))
        assert made.status_code == 201, made.text
        assert reader.get(f"{place}/c{number}").json() == made.json()
        assert len(reader.get(place).json()["items"]) == number + 1
    for number, (writer, reader) in zip(range(60), itertools.cycle(itertools.permutations(clients, 2)), strict=False):
        assert writer.delete(f"{place}/c{number}").status_code == 200
        assert reader.get(f"{place}/c{number}").status_code == 404


def test_reads_of_many_clients_never_go_back_in_time(group: Replicas, clients: list[httpx.Client], place: str) -> None:
    """Whoever reads after an acknowledged write sees it or something newer, at whichever replica."""
    clients[0].post(place, json=configmap("counter", count="0")).raise_for_status()
    acknowledged, stop = [0], threading.Event()

    def read(server: Server) -> int:
        seen = 0
        with server.client() as client:
            while not stop.is_set():
                least = acknowledged[0]
                found = int(client.get(f"{place}/counter").json()["data"]["count"])
                assert found >= least and found >= seen
                seen = found
        return seen

    with ThreadPoolExecutor(4) as pool:
        reading = [pool.submit(read, server) for server in group.servers * 2]
        try:
            for count, writer in zip(range(1, 101), itertools.cycle(clients), strict=False):
                writer.put(f"{place}/counter", json=configmap("counter", count=str(count))).raise_for_status()
                acknowledged[0] = count
        finally:
            stop.set()
        for each in reading:
            assert each.result() <= 100


def test_of_those_who_write_at_different_replicas_exactly_one_wins(group: Replicas, place: str) -> None:
    with group.servers[0].client() as client:
        body = client.post(place, json=configmap("prize")).json()

    def attempt(number: int) -> int:
        with group.servers[number % 2].client() as client:
            return client.put(f"{place}/prize", json={**body, "data": {"winner": str(number)}}).status_code

    with ThreadPoolExecutor(6) as pool:
        outcomes = list(pool.map(attempt, range(6)))
    assert sorted(outcomes) == [200] + 5 * [409]


def test_a_watch_goes_on_at_another_replica_without_gap_or_repetition(clients: list[httpx.Client], place: str) -> None:
    since = clients[0].get(place).json()["metadata"]["resourceVersion"]
    versions: list[str] = []
    done = threading.Event()

    def write() -> None:
        for number, client in zip(range(150), itertools.cycle(clients), strict=False):
            versions.append(client.post(place, json=configmap(f"w{number}")).json()["metadata"]["resourceVersion"])
        done.set()

    seen: list[str] = []
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        for reader in itertools.cycle(clients):
            if len(seen) >= 150:
                break
            with watching(reader, place, resourceVersion=seen[-1] if seen else since) as events:
                for event in itertools.islice(events, min(11, 150 - len(seen))):
                    assert event["type"] == "ADDED"
                    seen.append(event["object"]["metadata"]["resourceVersion"])
        writing.result()
    assert seen == versions


@contextmanager
def watching(client: httpx.Client, place: str, **query: str) -> Iterator[Iterator[Any]]:
    with client.stream("GET", place, params={"watch": "1", **query}) as answer:
        assert answer.status_code == 200, answer.read()
        yield map(json.loads, answer.iter_lines())


def test_a_key_that_is_revoked_at_one_replica_is_refused_by_all(group: Replicas, clients: list[httpx.Client]) -> None:
    for number in range(5):
        name = f"leaver{number}"
        spec = {"user": "admin"}
        body = {"apiVersion": "management.service.sh/v1", "kind": "OwnedAccessKey", "metadata": {"name": name}}
        key = clients[0].post(f"{M}/ownedaccesskeys", json={**body, "spec": spec}).json()["spec"]["key"]
        with group.servers[1].client(key) as leaver:
            await_answer(leaver, 200)
            clients[0].delete(f"{M}/ownedaccesskeys/{name}").raise_for_status()
            revoked = time.monotonic()
            await_answer(leaver, 401)
            assert time.monotonic() - revoked < PROMISED


def await_answer(client: httpx.Client, code: int) -> None:
    eventually(lambda: client.get(f"{M}/apps").status_code == code)


def test_what_one_replica_seals_another_one_opens(clients: list[httpx.Client], place: str) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"word": "canary"}}
    secrets = place.replace("configmaps", "secrets")
    clients[0].post(secrets, json=secret).raise_for_status()
    assert clients[1].get(f"{secrets}/s").json()["data"] == {"word": "Y2FuYXJ5"}


# --- secrets that all of them must share ---------------------------------------------------------------------------


def refusal(folder: Path, **variables: str) -> str:
    """What a server says that does not start."""
    done = subprocess.run(
        command(folder, "--json"),
        cwd=ROOT,
        env=environment(**variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=2 * TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode != 0, done.stdout
    assert "Traceback" not in done.stderr, done.stderr
    return done.stderr


def test_a_replica_with_another_pepper_does_not_start_and_says_what_to_copy(group: Replicas, tmp_path: Path) -> None:
    variables = {"store": group.store, "encryption_keys": group.secrets["encryption_keys"]}
    assert "copy it from another server" in refusal(tmp_path / "none", **variables)
    assert not (tmp_path / "none" / "pepper.key").exists()
    (tmp_path / "other").mkdir(mode=0o700)
    pepper = tmp_path / "other" / "pepper.key"
    pepper.write_bytes(b"x" * 32)
    pepper.chmod(0o600)
    assert "copy theirs over it" in refusal(tmp_path / "other", **variables)


def test_a_replica_without_the_key_for_sealing_does_not_start_and_says_what_to_copy(
    group: Replicas, tmp_path: Path
) -> None:
    variables = {"store": group.store, "pepper": group.secrets["pepper"]}
    said = refusal(tmp_path / "none", **variables)
    assert "encryption.keys: missing" in said and not (tmp_path / "none" / "encryption.keys").exists()
    said = refusal(tmp_path / "other", **variables, encryption_keys=new_secrets()["encryption_keys"])
    assert group.secrets["encryption_keys"].split()[0] in said


@pytest.mark.parametrize("kind", STORES)
def test_two_that_start_on_an_empty_store_at_the_same_moment_end_with_one_administrator(
    kind: str, tmp_path: Path
) -> None:
    store, secrets = store_for(kind, tmp_path), new_secrets()
    with ExitStack() as stack, ThreadPoolExecutor(2) as pool:
        starting = [
            pool.submit(stack.enter_context, running(tmp_path / name, store=store, **secrets)) for name in ("a", "b")
        ]
        servers = [each.result() for each in starting]
        keys = [server.key for server in servers if server.key]
        assert len(keys) == 1
        for server in servers:
            with server.client(keys[0]) as client:
                assert client.get(f"{M}/users").json()["items"][0]["metadata"]["name"] == "admin"


def test_of_two_that_start_at_once_with_secrets_of_their_own_one_refuses(tmp_path: Path) -> None:
    store = store_for("postgres", tmp_path)
    processes = [
        subprocess.Popen(
            command(tmp_path / name, "--json"),
            cwd=ROOT,
            env=environment(store=store),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in ("a", "b")
    ]
    try:
        eventually(lambda: any(process.poll() is not None for process in processes))
        loser, winner = sorted(processes, key=lambda process: process.poll() is None)
        assert "copy" in loser.communicate()[1]
        assert winner.stdout is not None and json.loads(winner.stdout.readline())["accessKey"]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
