"""The agent with a real server and a fake cluster: requests to the direct endpoint, also while the server is down."""

from pathlib import Path

import httpx
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from tests.fake_cluster.server import FakeCluster
from tests.harness.eventually import wait_until
from tests.harness.server_process import (
    MANAGEMENT,
    TIMEOUT_SECONDS,
    Server,
    build_tls_context,
    running_server,
)
from tests.live.agent_setup import M, create_cluster_and_user, create_object, create_token, prepare_agent, run_agent

PODS = "/kubernetes/cluster/api/v1/namespaces/demo/pods"


def build_headers(value: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {value}"}


def exec_cat(client: httpx.Client, value: str, ca_file: Path) -> str | bytes:
    """Returns the output of `cat` in a pod with the input `hello`, through a WebSocket as kubectl opens it."""
    url = str(client.base_url).rstrip("/").replace("https://", "wss://") + f"{PODS}/p/exec?stdin=true&command=cat"
    protocols = [Subprotocol("v5.channel.k8s.io")]
    ssl_context = build_tls_context(str(ca_file))
    with connect(
        url, ssl=ssl_context, subprotocols=protocols, additional_headers=build_headers(value), proxy=None
    ) as socket:
        assert socket.subprotocol == "v5.channel.k8s.io"
        socket.send(b"\x00hello")
        return socket.recv(TIMEOUT_SECONDS)


def test_users_reach_a_cluster_directly_also_while_the_server_is_down(tmp_path: Path) -> None:
    data, folder = tmp_path / "data", tmp_path / "agent"
    with FakeCluster() as cluster:
        with running_server(data) as server:
            with server.client() as admin:
                key = create_cluster_and_user(admin)
                create_object(admin, "clusters", "Cluster", "oslo", access=[{"users": ["ada"], "verbs": ["get"]}])
                create_object(admin, "users", "User", "eve", username="eve")
                eve_key = create_object(admin, "ownedaccesskeys", "OwnedAccessKey", "eves", user="eve")["spec"]["key"]
            prepare_agent(folder, server, cluster)
            ada_token = create_token(server, key)
            scoped_token = create_token(server, key, scope={"rules": [{"cluster": "berlin", "verbs": ["get", "list"]}]})
            other_cluster_token = create_token(server, key, scope={"clusters": [{"cluster": "oslo"}]})
            eve_token = create_token(server, eve_key)
            with run_agent(folder, server) as client:
                assert client.get(PODS, headers=build_headers(ada_token)).status_code == 200
                assert cluster.requests[-1].header("impersonate-user") == "fairlead:ada"
                assert cluster.requests[-1].header("authorization") == "Bearer clusters-own"
                assert client.get(PODS, headers=build_headers(scoped_token)).status_code == 200
                assert client.post(PODS, json={}, headers=build_headers(scoped_token)).status_code == 403
                assert client.get(PODS, headers=build_headers(other_cluster_token)).status_code == 403
                response = client.get(PODS, headers=build_headers(eve_token))
                assert response.status_code == 403 and 'the verb "use"' in response.json()["message"]
                assert client.get(PODS, headers=build_headers(create_token(server, server.key))).status_code == 200
                for invalid in (key, server.key, f"{ada_token}x", "x"):
                    assert client.get(PODS, headers=build_headers(invalid)).status_code == 401
                assert exec_cat(client, ada_token, folder / "state" / "tls" / "ca.crt") == b"\x01hello"
                wait_until(lambda: '"service.sh/agent":"berlin"' in (data / "audit.agents.log").read_text())
                check_agent_permissions(server, (folder / "key").read_text())
                assert server.stop() == 0
                assert client.get(PODS, headers=build_headers(ada_token)).status_code == 200
            check_no_secrets(folder, ada_token, key)
        with run_agent(folder, server) as client:  # with its stored configuration
            assert client.get(PODS, headers=build_headers(ada_token)).status_code == 200
            assert client.get("/readyz").status_code == 200


def check_agent_permissions(server: Server, key: str) -> None:
    """The agent's key may read three paths and its Cluster."""
    with server.client(key) as client:
        assert client.get(f"{M}/clusters/berlin").status_code == 200
        assert client.get(f"{M}/clusters/berlin/agentconfig").status_code == 200
        for path in ("clusters", "runners", "projects/web", "clusters/oslo", "clusters/oslo/accesskey"):
            assert client.get(f"{M}/{path}").status_code == 403, path
        for path in ("users", "ownedaccesskeys"):  # which list the user's own objects
            assert client.get(f"{M}/{path}").json()["items"] == []
        assert client.get(f"{MANAGEMENT}/api/v1/namespaces/service-system/secrets").status_code == 403


def check_no_secrets(folder: Path, *secrets: str) -> None:
    for file in (folder / "agent.log", folder / "state" / "audit.log", folder / "state" / "agent-config.json"):
        text = file.read_text()
        assert text and not any(each in text for each in (*secrets, "clusters-own"))
