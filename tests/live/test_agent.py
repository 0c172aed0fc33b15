"""A server, its agent and a cluster, each in a process or thread of its own: the direct endpoint as people use it."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from tests.fake_cluster.server import FakeCluster
from tests.harness.server_process import MANAGEMENT, TIMEOUT_SECONDS, Server, running, running_agent, trusting

M = f"{MANAGEMENT}/apis/management.service.sh/v1"
PODS = "/kubernetes/cluster/api/v1/namespaces/demo/pods"


def made(client: httpx.Client, plural: str, kind: str, name: str, **spec: Any) -> dict[str, Any]:
    body = {"apiVersion": "management.service.sh/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    answer = client.post(f"{M}/{plural}", json=body)
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


def token(server: Server, key: str, **spec: Any) -> str:
    with server.client(key) as client:
        answer = client.post(f"{M}/directclusterendpointtokens", json={"spec": {"ttl": 600, **spec}})
        assert answer.status_code == 201, answer.text
        minted: str = answer.json()["status"]["token"]
        return minted


def furnish(admin: httpx.Client) -> str:
    """Cluster `berlin`, and user `ada`, who may use it; the key of the latter."""
    access = [{"name": "people", "users": ["ada"], "verbs": ["get", "use"]}]
    made(admin, "clusters", "Cluster", "berlin", access=access)
    made(admin, "users", "User", "ada", username="ada")
    key = made(admin, "ownedaccesskeys", "OwnedAccessKey", "adas", user="ada")["spec"]["key"]
    return str(key)


@contextmanager
def agent(folder: Path, server: Server) -> Iterator[httpx.Client]:
    """The agent of `berlin`, as a client of its endpoint. Everything that it needs is in the folder."""
    with (
        running_agent(folder, server, "berlin") as told,
        httpx.Client(base_url=told["url"], verify=trusting(told["caFile"]), timeout=TIMEOUT_SECONDS) as client,
    ):
        yield client


def equip(folder: Path, server: Server, far: FakeCluster) -> None:
    """What whoever starts the agent has to have: the cluster's kubeconfig, and the key from the server."""
    with server.client() as admin:
        answer = admin.get(f"{M}/clusters/berlin/accesskey").json()
    assert answer["caCert"] == Path(server.ca_file).read_text() and answer["insecure"] is False
    assert answer["serviceHost"] == server.url
    folder.mkdir()
    (folder / "key").write_text(answer["accessKey"])
    (folder / "kubeconfig").write_bytes(far.build_kubeconfig(token="clusters-own"))


def until(found: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not found():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.1)


def bearer(value: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {value}"}


def echoed(client: httpx.Client, value: str, ca_file: Path) -> str | bytes:
    """What a command in a pod prints that is told `hello`, through a WebSocket as kubectl opens it."""
    url = str(client.base_url).rstrip("/").replace("https://", "wss://") + f"{PODS}/p/exec?stdin=true&command=cat"
    protocols = [Subprotocol("v5.channel.k8s.io")]
    trust = trusting(str(ca_file))
    with connect(url, ssl=trust, subprotocols=protocols, additional_headers=bearer(value), proxy=None) as socket:
        assert socket.subprotocol == "v5.channel.k8s.io"
        socket.send(b"\x00hello")
        return socket.recv(TIMEOUT_SECONDS)


def test_people_reach_a_cluster_directly_also_while_the_server_is_down(tmp_path: Path) -> None:
    data, folder = tmp_path / "data", tmp_path / "agent"
    with FakeCluster() as far:
        with running(data) as server:
            with server.client() as admin:
                key = furnish(admin)
                made(admin, "users", "User", "eve", username="eve")
                strangers_key = made(admin, "ownedaccesskeys", "OwnedAccessKey", "eves", user="eve")["spec"]["key"]
            equip(folder, server, far)
            good = token(server, key)
            scoped = token(server, key, scope={"rules": [{"cluster": "berlin", "verbs": ["get", "list"]}]})
            elsewhere = token(server, key, scope={"clusters": [{"cluster": "oslo"}]})
            stranger = token(server, strangers_key)
            with agent(folder, server) as client:
                assert client.get(PODS, headers=bearer(good)).status_code == 200
                assert far.requests[-1].header("impersonate-user") == "fairlead:ada"
                assert far.requests[-1].header("authorization") == "Bearer clusters-own"
                assert client.get(PODS, headers=bearer(scoped)).status_code == 200
                assert client.post(PODS, json={}, headers=bearer(scoped)).status_code == 403
                assert client.get(PODS, headers=bearer(elsewhere)).status_code == 403
                refused = client.get(PODS, headers=bearer(stranger))
                assert refused.status_code == 403 and 'the verb "use"' in refused.json()["message"]
                assert client.get(PODS, headers=bearer(token(server, server.key))).status_code == 200
                for bad in (key, server.key, f"{good}x", "x"):
                    assert client.get(PODS, headers=bearer(bad)).status_code == 401
                assert echoed(client, good, folder / "state" / "tls" / "ca.crt") == b"\x01hello"
                until(lambda: '"service.sh/agent":"berlin"' in (data / "audit.agents.log").read_text())
                assert_only_its_own(server, (folder / "key").read_text())
                assert server.stop() == 0
                assert client.get(PODS, headers=bearer(good)).status_code == 200
            assert_no_secret(folder, good, key)
        with agent(folder, server) as client:  # from what it knew
            assert client.get(PODS, headers=bearer(good)).status_code == 200
            assert client.get("/readyz").status_code == 200


def assert_only_its_own(server: Server, key: str) -> None:
    """The agent's key opens three paths and its Cluster."""
    with server.client(key) as client:
        assert client.get(f"{M}/clusters/berlin").status_code == 200
        assert client.get(f"{M}/clusters/berlin/agentconfig").status_code == 200
        for path in ("clusters", "runners", "projects/web", "clusters/oslo", "clusters/oslo/accesskey"):
            assert client.get(f"{M}/{path}").status_code == 403, path
        for path in ("users", "ownedaccesskeys"):  # of which everybody sees one's own
            assert client.get(f"{M}/{path}").json()["items"] == []
        assert client.get(f"{MANAGEMENT}/api/v1/namespaces/service-system/secrets").status_code == 403


def assert_no_secret(folder: Path, *secrets: str) -> None:
    for file in (folder / "agent.log", folder / "state" / "audit.log", folder / "state" / "agent-config.json"):
        text = file.read_text()
        assert text and not any(each in text for each in (*secrets, "clusters-own"))
