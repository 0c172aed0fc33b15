"""A registry with a project and a connected cluster, which is a Kubernetes API in memory."""

from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fairlead.controllers.instances.prerequisites import InstanceConfig
from fairlead.core.objects import Object
from fairlead.domain.cluster_identity import ClusterIdentityMapper
from fairlead.registry.conditions import find_condition
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.write_options import server_write_options
from fairlead.upstream.access import ClusterEndpoint
from fairlead.upstream.errors import Unreachable, UpstreamError
from fairlead.upstream.tunnel_pods import PodTarget
from tests.fake_cluster.kube import FakeKube, InMemoryClusterApi
from tests.fake_cluster.kube_watch import InMemoryUpstream
from tests.harness.registry import NAMESPACE, RegistryFixture

INSTANCE_CONFIG = InstanceConfig(GROUP, "", ClusterIdentityMapper("fairlead:"))
"""Without a prefix: the project `demo` has the namespace `demo`."""
PROJECT = NAMESPACE
TRUSTED = {"annotations": {"service.sh/trusted": "true"}}
"""Metadata of a template that an administrator has marked as trusted."""


class FakeAccess:
    """Access to the fake clusters of a test; with `down` set, it raises that error."""

    def __init__(self) -> None:
        self.kube = FakeKube()
        self.virtual = FakeKube()
        self.sender = InMemoryUpstream(self.kube)
        self._down: UpstreamError | None = None
        self.virtual_down: UpstreamError | None = Unreachable("connection refused")
        self.closed: set[tuple[str, str]] = set()
        self.version_requests = 0
        self.virtual_target: PodTarget | None = None

    @property
    def down(self) -> UpstreamError | None:
        return self._down

    @down.setter
    def down(self, error: UpstreamError | None) -> None:
        self._down = error
        if error is not None:
            self.sender.end_streams()

    def cluster_api(self, name: str, acting_as: str = "") -> InMemoryClusterApi:
        assert name == "c"
        return InMemoryClusterApi(self.kube, self.down, acting_as)

    def watch_sender(self, name: str) -> InMemoryUpstream:
        assert name == "c"
        if self.down is not None:
            raise self.down
        return self.sender

    def virtual_cluster_api(self, namespace: str, name: str) -> InMemoryClusterApi:
        return InMemoryClusterApi(self.virtual, self.virtual_down)

    @asynccontextmanager
    async def virtual_cluster_cleanup_api(self, namespace: str, name: str) -> AsyncIterator[InMemoryClusterApi]:
        yield InMemoryClusterApi(self.virtual, self.virtual_down)

    async def virtual_cluster_version(self, namespace: str, name: str, *, is_new_connection: bool) -> Object:
        self.version_requests += 1
        return await self.virtual_cluster_api(namespace, name).get("/version")

    def close_virtual_cluster(self, namespace: str, name: str) -> None:
        self.closed.add((namespace, name))

    def virtual_cluster_target(self, namespace: str, name: str) -> PodTarget | None:
        return self.virtual_target

    @asynccontextmanager
    async def open_cluster_endpoint(self, cluster: str) -> AsyncIterator[ClusterEndpoint]:
        yield ClusterEndpoint("192.0.2.1", 6443, "", "kube.example", "", "cluster-token")

    @asynccontextmanager
    async def open_virtual_cluster_endpoint(self, namespace: str, name: str) -> AsyncIterator[ClusterEndpoint]:
        yield ClusterEndpoint("192.0.2.3", 6443, "", "virtual.example", "", "virtual-token")


async def create_cluster(api: RegistryFixture, **project: Any) -> None:
    """Creates the project, the cluster, and the user who owns them."""
    await api.create("User", "ada", spec={})
    await api.create("Project", PROJECT, spec={"owner": {"user": "ada"}, **project})
    await api.create("Cluster", "c", spec={"config": {"secretName": "kubeconfig", "secretNamespace": "vault"}})
    await set_online(api, True)


async def set_online(api: RegistryFixture, online: bool, name: str = "c") -> None:
    """Sets the status of a cluster as the cluster controller does."""
    status = {"online": online, "phase": "Initialized" if online else "", "reason": "" if online else "Offline"}
    await api.patch("Cluster", name, lambda each: each.update(status=status), server_write_options("status"))


def condition_status(api: RegistryFixture, kind: str, type: str, name: str = "one") -> tuple[Any, Any]:
    """Status and reason of a condition."""
    found = find_condition((api.get(kind, name) or {}).get("status"), type) or {}
    return found.get("status"), found.get("reason")


def condition_message(api: RegistryFixture, kind: str, type: str, name: str = "one") -> str:
    found = find_condition((api.get(kind, name) or {}).get("status"), type) or {}
    return str(found.get("message"))


def encode_base64(content: bytes) -> str:
    return b64encode(content).decode()


def get_labels(obj: Object) -> Object:
    return obj["metadata"].get("labels") or {}
