"""A cluster with an agent, for live tests of the direct endpoint."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.fake_cluster.server import FakeCluster
from tests.harness.server_process import (
    MANAGEMENT,
    TIMEOUT_SECONDS,
    Server,
    build_tls_context,
    running_agent,
)

M = f"{MANAGEMENT}/apis/management.service.sh/v1"


def create_object(client: httpx.Client, plural: str, kind: str, name: str, **spec: Any) -> dict[str, Any]:
    body = {"apiVersion": "management.service.sh/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    response = client.post(f"{M}/{plural}", json=body)
    assert response.status_code == 201, response.text
    created: dict[str, Any] = response.json()
    return created


def create_token(server: Server, key: str, **spec: Any) -> str:
    with server.client(key) as client:
        response = client.post(f"{M}/directclusterendpointtokens", json={"spec": {"ttl": 600, **spec}})
        assert response.status_code == 201, response.text
        token: str = response.json()["status"]["token"]
        return token


def create_cluster_and_user(admin: httpx.Client) -> str:
    """Creates the cluster `berlin` and the user `ada`, who may use it; returns a key of ada."""
    access = [{"name": "users", "users": ["ada"], "verbs": ["get", "use"]}]
    create_object(admin, "clusters", "Cluster", "berlin", access=access)
    create_object(admin, "users", "User", "ada", username="ada")
    key = create_object(admin, "ownedaccesskeys", "OwnedAccessKey", "adas", user="ada")["spec"]["key"]
    return str(key)


@contextmanager
def run_agent(folder: Path, server: Server) -> Iterator[httpx.Client]:
    """Runs the agent of `berlin` with the files in the folder; yields a client of its endpoint."""
    with (
        running_agent(folder, server, "berlin") as ready,
        httpx.Client(
            base_url=ready["url"], verify=build_tls_context(ready["caFile"]), timeout=TIMEOUT_SECONDS
        ) as client,
    ):
        yield client


def prepare_agent(folder: Path, server: Server, cluster: FakeCluster) -> None:
    """Writes the files of the agent: the cluster's kubeconfig, and the key from the server."""
    with server.client() as admin:
        response = admin.get(f"{M}/clusters/berlin/accesskey").json()
    assert response["caCert"] == Path(server.ca_file).read_text() and response["insecure"] is False
    assert response["serviceHost"] == server.url
    folder.mkdir()
    (folder / "key").write_text(response["accessKey"])
    (folder / "kubeconfig").write_bytes(cluster.build_kubeconfig(token="clusters-own"))
