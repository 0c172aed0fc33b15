"""Clusters that dial out, with real processes: a server with two workers, agents, and a cluster only they reach."""

import signal
from base64 import b64encode
from contextlib import ExitStack
from pathlib import Path

import httpx
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from tests.fake_cluster.server import FakeCluster
from tests.harness.eventually import wait_until
from tests.harness.gateways import SYSTEM_SECRETS, M, gateway_path, is_online, post_object
from tests.harness.joined_agents import create_join_token, joined_agent
from tests.harness.server_process import (
    TIMEOUT_SECONDS,
    Server,
    build_tls_context,
    running_server,
)

PODS = f"{gateway_path('berlin')}/api/v1/namespaces/demo/pods"


def create_cluster(admin: httpx.Client, decoy: FakeCluster) -> None:
    """A Cluster whose agent dials out. It also names a kubeconfig, which must never be used."""
    secret = {
        **{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "cluster-berlin"}},
        "data": {"config": b64encode(decoy.build_kubeconfig()).decode()},
    }
    post_object(admin, SYSTEM_SECRETS, secret)
    config = {"secretName": "cluster-berlin", "secretNamespace": "service-system"}
    body = {
        **{"apiVersion": "management.service.sh/v1", "kind": "Cluster", "metadata": {"name": "berlin"}},
        "spec": {"networkPeer": True, "config": config},
    }
    post_object(admin, f"{M}/clusters", body)


def exec_cat(server: Server, admin: httpx.Client) -> str | bytes:
    """The output of `cat` in a pod with the input `hello`, through a WebSocket as kubectl opens it."""
    url = f"{server.url.replace('https://', 'wss://')}{PODS}/p/exec?stdin=true&command=cat"
    headers = {"Authorization": admin.headers["authorization"]}
    protocols = [Subprotocol("v5.channel.k8s.io")]
    ssl_context = build_tls_context(server.ca_file)
    with connect(url, ssl=ssl_context, subprotocols=protocols, additional_headers=headers, proxy=None) as socket:
        socket.send(b"\x00hello")
        return socket.recv(TIMEOUT_SECONDS)


def test_a_cluster_that_dials_out_is_reached_through_its_agents_only(tmp_path: Path) -> None:
    with (
        FakeCluster() as cluster,
        FakeCluster() as decoy,
        running_server(tmp_path / "data", workers=2) as server,
        server.client() as admin,
        ExitStack() as agents,
    ):
        create_cluster(admin, decoy)
        refused = admin.get(PODS)
        assert refused.status_code == 503
        assert "has not joined yet" in refused.json()["message"]

        token, kubeconfig = create_join_token(admin), cluster.build_kubeconfig(token="clusters-own")
        first = agents.enter_context(joined_agent(tmp_path / "one", server, kubeconfig, token))
        wait_until(lambda: is_online(admin, "berlin"), what="the cluster is online")
        replayed = admin.post(f"{server.url}/agents/join", json={"token": token})
        assert replayed.status_code in (400, 401)

        (tmp_path / "two" / "state").mkdir(parents=True, mode=0o700)
        identity = (tmp_path / "one" / "state" / "identity.json").read_bytes()
        (tmp_path / "two" / "state" / "identity.json").write_bytes(identity)
        authority = (tmp_path / "one" / "state" / "server-ca.crt").read_bytes()
        (tmp_path / "two" / "state" / "server-ca.crt").write_bytes(authority)
        second = agents.enter_context(joined_agent(tmp_path / "two", server, kubeconfig, ""))

        for _ in range(20):  # each connection reaches another worker
            with server.client() as client:
                assert client.get(PODS).status_code == 200
        assert cluster.requests[-1].header("impersonate-user")
        assert cluster.requests[-1].header("authorization") == "Bearer clusters-own"
        assert exec_cat(server, admin) == b"\x01hello"

        first.send_signal(signal.SIGKILL)
        wait_until(lambda: admin.get(PODS).status_code == 200, what="the other agent has taken over")
        assert exec_cat(server, admin) == b"\x01hello"

        second.send_signal(signal.SIGKILL)
        wait_until(lambda: admin.get(PODS).status_code == 503, what="no agent is left")
        assert "no agent of the cluster is connected" in admin.get(PODS).json()["message"]
        wait_until(lambda: not is_online(admin, "berlin"), what="the cluster is reported offline")

        agents.enter_context(joined_agent(tmp_path / "one", server, kubeconfig, ""))
        wait_until(lambda: is_online(admin, "berlin"), what="the cluster is online again")
        assert admin.get(PODS).status_code == 200
        assert decoy.requests == []
    for log in (tmp_path / "one" / "agent.log", tmp_path / "two" / "agent.log"):
        assert token not in log.read_text()
