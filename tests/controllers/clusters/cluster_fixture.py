"""Fixtures for tests of the controller of clusters: fake upstreams on virtual time, and a running controller."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import orjson
import pytest

from fairlead.controllers.clusters.clusters import ClusterController
from fairlead.core.objects import Object
from fairlead.domain.cluster_identity import ClusterIdentityMapper
from fairlead.registry.kind import MANAGEMENT_GROUP
from fairlead.upstream.clusters import CLUSTERS, NotConnected, UpstreamRegistry
from fairlead.upstream.errors import FailureNotifier, UpstreamError
from fairlead.upstream.upstream import Request
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.registry import NAMESPACE, RegistryFixture

CONFIG = {"secretName": "s", "secretNamespace": NAMESPACE}
IDENTITY_MAPPER = ClusterIdentityMapper("fairlead:")


class FakeResponse:
    def __init__(self, status: int, body: Any) -> None:
        self.status = status
        self._body = orjson.dumps(body)

    async def read(self, limit: int) -> bytes:
        return self._body

    async def close(self) -> None:
        pass


class FakeUpstream:
    """The upstream of a cluster, on virtual time."""

    def __init__(self, uid: str = "u-1") -> None:
        self.error: UpstreamError | None = None
        self.new_connection_error: UpstreamError | None = None
        """The error of new connections; an existing connection keeps working."""
        self.is_silent = False
        self.delay = 0.0
        self._is_connected = False
        self.connect_times: list[float] = []
        self.bindings = 404
        self.requests: list[tuple[float, str]] = []
        self.sent: list[tuple[str, str, Any]] = []
        """Method, target and body of each request, in order."""
        self.responses_by_method: dict[tuple[str, str], tuple[int, Any]] = {}
        """Responses for a method and a target; they take precedence over `responses`."""
        self.responses: dict[str, tuple[int, Any]] = {
            "/version": (200, {"gitVersion": "v1.34.1"}),
            "/readyz": (200, None),
            "/api/v1/namespaces/kube-system": (200, {"metadata": {"uid": uid}}),
            "/api/v1/nodes?limit=1": (200, {"items": [{}], "metadata": {}}),
        }

    async def send(self, request: Request, *, seconds: float | None = None) -> FakeResponse:
        self.requests.append((asyncio.get_running_loop().time(), request.target))
        body = request.body if isinstance(request.body, bytes) else b""
        self.sent.append((request.method, request.target, orjson.loads(body) if body else None))
        if self.is_silent:
            await asyncio.sleep(1_000_000)
        await asyncio.sleep(self.delay)
        if not self._is_connected:
            self.connect_times.append(asyncio.get_running_loop().time())
        if self.error is not None or (self.new_connection_error is not None and not self._is_connected):
            self._is_connected = False
            raise self.error or cast(UpstreamError, self.new_connection_error)
        self._is_connected = True
        response = self.responses_by_method.get((request.method, request.target)) or self.responses.get(request.target)
        return FakeResponse(*(response or (404, None)))

    async def close(self) -> None:
        pass

    def close_idle(self) -> None:
        self._is_connected = False

    def probe_times(self) -> list[float]:
        return [time for time, target in self.requests if target == "/version"]


class FakeUpstreams:
    """Replaces UpstreamRegistry."""

    def __init__(self) -> None:
        self.by_name: dict[str, FakeUpstream | NotConnected] = {}
        self.failures = FailureNotifier()

    def health_upstream(self, name: str) -> FakeUpstream:
        upstream = self.by_name.get(name) or NotConnected("NotFound", "there is no such cluster")
        if isinstance(upstream, NotConnected):
            raise upstream
        return upstream

    cluster_upstream = open_cleanup_upstream = health_upstream

    def fail(self, name: str = "berlin") -> None:
        """Reports a request through a gateway that got no response."""
        self.failures.notify((MANAGEMENT_GROUP, CLUSTERS, "", name))


@pytest.fixture
def upstreams() -> FakeUpstreams:
    return FakeUpstreams()


@pytest.fixture
async def server(api: RegistryFixture, upstreams: FakeUpstreams) -> AsyncIterator[RegistryFixture]:
    controller = ClusterController(
        api.registry, MANAGEMENT_GROUP, NAMESPACE, cast(UpstreamRegistry, upstreams), IDENTITY_MAPPER
    )
    async with running_controllers(api, controller):
        yield api


def cluster_status(api: RegistryFixture, name: str = "berlin") -> Object:
    cluster = api.get("Cluster", name)
    assert cluster is not None
    return cluster.get("status") or {}


def condition_status(api: RegistryFixture, type: str, name: str = "berlin") -> tuple[str, str]:
    conditions = cluster_status(api, name).get("conditions") or ()
    return next(
        ((condition["status"], condition["reason"]) for condition in conditions if condition["type"] == type), ("", "")
    )


def list_events(api: RegistryFixture) -> list[tuple[str, str]]:
    entries = [api.resource("Event").get_cached("default", name) for name in api.list_names("Event")]
    return [(event["type"], event["reason"]) for event in (orjson.loads(entry.body) for entry in entries if entry)]


async def connect_cluster(
    api: RegistryFixture, upstreams: FakeUpstreams, name: str = "berlin", uid: str = "u-1"
) -> FakeUpstream:
    upstream = upstreams.by_name[name] = FakeUpstream(uid)
    await api.create("Cluster", name, spec={"config": CONFIG})
    await eventually(lambda: cluster_status(api, name).get("phase"))
    return upstream
