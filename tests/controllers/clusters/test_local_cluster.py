"""Tests of `fairlead.controllers.clusters.local_cluster`: the cluster that the server runs in connects itself."""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from fairlead.controllers.clusters.local_cluster import INTERVAL_SECONDS, ForeignCluster, LocalClusterConnector
from fairlead.core.crypto.certificates import ensure_certificates
from fairlead.core.files import FileProblem
from fairlead.core.objects import Object
from fairlead.upstream.access import ClusterEndpoint
from fairlead.upstream.kubeconfig import parse_kubeconfig
from tests.controllers.clusters.cluster_fixture import server, upstreams
from tests.harness.registry import NAMESPACE, RegistryFixture

__all__ = ["server", "upstreams"]

GROUP = "management.service.sh"
FOREIGN = 'the Cluster "home" is another one; delete it, or change the setting local_cluster'


class Pod:
    """The files and variables of a pod."""

    def __init__(self, ca_pem: str) -> None:
        self.endpoint = ClusterEndpoint("10.0.0.1", 443, "", "10.0.0.1", ca_pem, "token-1")

        self.problem: FileProblem | None = None

    def __call__(self) -> ClusterEndpoint:
        if self.problem is not None:
            raise self.problem
        return self.endpoint

    def rotate(self, token: str) -> None:
        self.endpoint = replace(self.endpoint, token=token)


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    file = ensure_certificates(tmp_path).ca_file
    assert file is not None
    return Pod(file.read_text())


def connector(server: RegistryFixture, pod: Pod) -> LocalClusterConnector:
    return LocalClusterConnector(server.registry, GROUP, "home", NAMESPACE, pod)


@asynccontextmanager
async def running(local: LocalClusterConnector) -> AsyncIterator[Callable[[], list[str]]]:
    """Runs it, and yields a function that returns the reasons of its warnings."""
    with capture_logs() as logs:
        task = asyncio.create_task(local.run())
        try:
            yield lambda: [each["reason"] for each in logs if each["event"] == "the local cluster is not connected"]
            assert not task.done()
        finally:
            task.cancel()


def stored(server: RegistryFixture, kind: str, name: str) -> Object:
    found = server.get(kind, name)
    assert found is not None
    return found


def stored_endpoint(server: RegistryFixture) -> ClusterEndpoint:
    secret = stored(server, "Secret", "local-cluster")
    return parse_kubeconfig(base64.b64decode(secret["data"]["config"]))


async def test_the_cluster_is_created_with_the_credential_of_the_pod(server: RegistryFixture, pod: Pod) -> None:
    await connector(server, pod).connect()
    spec = stored(server, "Cluster", "home")["spec"]
    assert spec["local"] is True
    assert spec["config"] == {"secretName": "local-cluster", "secretNamespace": NAMESPACE}
    assert stored_endpoint(server) == pod.endpoint


async def test_a_rotated_token_replaces_the_stored_one_and_nothing_else_is_written(
    server: RegistryFixture, pod: Pod
) -> None:
    local = connector(server, pod)
    await local.connect()
    revision = await server.store.revision()
    await local.connect()
    assert await server.store.revision() == revision
    pod.rotate("token-2")
    await local.connect()
    assert stored_endpoint(server).token == "token-2"
    assert await server.store.revision() == revision + 1


@pytest.mark.parametrize(
    "spec",
    [
        {"displayName": "Home"},
        {"local": True, "config": {"secretName": "another", "secretNamespace": NAMESPACE}},
        {"local": True, "config": {"secretName": "local-cluster", "secretNamespace": "another"}},
        {"local": False, "config": {"secretName": "local-cluster", "secretNamespace": NAMESPACE}},
    ],
)
async def test_a_foreign_cluster_of_that_name_is_left_alone(
    server: RegistryFixture, pod: Pod, spec: dict[str, Any]
) -> None:
    await server.create("Cluster", "home", spec=spec)
    with pytest.raises(ForeignCluster, match='"home" is another one'):
        await connector(server, pod).connect()
    assert stored(server, "Cluster", "home")["spec"] == spec
    assert server.get("Secret", "local-cluster") is None


async def test_a_foreign_cluster_is_reported_once_until_it_is_gone(server: RegistryFixture, pod: Pod) -> None:
    await server.create("Cluster", "home", spec={"displayName": "Home"})
    async with running(connector(server, pod)) as warnings:
        await asyncio.sleep(INTERVAL_SECONDS * 5)
        assert warnings() == [FOREIGN]
        await server.delete("Cluster", "home")
        await asyncio.sleep(INTERVAL_SECONDS * 2)
        assert stored(server, "Cluster", "home")["spec"]["local"] is True
        await server.delete("Cluster", "home")
        await server.create("Cluster", "home", spec={"displayName": "Home"})
        await asyncio.sleep(INTERVAL_SECONDS * 5)
        assert warnings() == [FOREIGN, FOREIGN]


async def test_files_that_cannot_be_read_are_reported_once_and_read_again(server: RegistryFixture, pod: Pod) -> None:
    pod.problem = FileProblem("the token is missing")
    async with running(connector(server, pod)) as warnings:
        await asyncio.sleep(INTERVAL_SECONDS * 5)
        assert warnings() == ["the token is missing"] and server.get("Cluster", "home") is None
        pod.problem = None
        await asyncio.sleep(INTERVAL_SECONDS * 2)
        assert stored_endpoint(server) == pod.endpoint


async def test_a_deleted_cluster_is_connected_again(server: RegistryFixture, pod: Pod) -> None:
    local = connector(server, pod)
    await local.connect()
    await server.delete("Cluster", "home")
    await local.connect()
    assert stored(server, "Cluster", "home")["spec"]["local"] is True


async def test_a_server_outside_of_a_pod_writes_nothing(server: RegistryFixture) -> None:
    def outside() -> ClusterEndpoint:
        raise FileProblem("not running in a pod; remove the setting")

    revision = await server.store.revision()
    with pytest.raises(FileProblem, match="not running in a pod"):
        await LocalClusterConnector(server.registry, GROUP, "home", NAMESPACE, outside).connect()
    assert await server.store.revision() == revision
