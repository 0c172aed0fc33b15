"""Clusters on virtual time, and a controller that looks after them."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import orjson
import pytest

from fairlead.controllers.clusters.clusters import ClusterController
from fairlead.core.cluster_identity import ClusterIdentityMapper
from fairlead.core.objects import Object
from fairlead.registry.kind import MANAGEMENT_GROUP
from fairlead.upstream.clusters import CLUSTERS, NotConnected, UpstreamRegistry
from fairlead.upstream.errors import FailureNotifier, UpstreamError
from fairlead.upstream.upstream import Request
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.registry import NAMESPACE, RegistryFixture

CONFIG = {"secretName": "s", "secretNamespace": NAMESPACE}
NAMES = ClusterIdentityMapper("fairlead:")


class Answer:
    def __init__(self, status: int, body: Any) -> None:
        self.status = status
        self._body = orjson.dumps(body)

    async def read(self, limit: int) -> bytes:
        return self._body

    async def close(self) -> None:
        pass


class Far:
    """A cluster on virtual time."""

    def __init__(self, uid: str = "u-1") -> None:
        self.error: UpstreamError | None = None
        self.reloaded: UpstreamError | None = None
        """What a new connection meets, while the one that is kept goes on working."""
        self.silent = False
        self.delay = 0.0
        self._is_kept = False
        self.dialed: list[float] = []
        self.bindings = 404
        self.asked: list[tuple[float, str]] = []
        self.sent: list[tuple[str, str, Any]] = []
        """Methods, targets and bodies, in order."""
        self.by_method: dict[tuple[str, str], tuple[int, Any]] = {}
        """Answers for a method and a target, before those for the target alone."""
        self.answers: dict[str, tuple[int, Any]] = {
            "/version": (200, {"gitVersion": "v1.34.1"}),
            "/readyz": (200, None),
            "/api/v1/namespaces/kube-system": (200, {"metadata": {"uid": uid}}),
            "/api/v1/nodes?limit=1": (200, {"items": [{}], "metadata": {}}),
        }

    async def send(self, request: Request, *, seconds: float | None = None) -> Answer:
        self.asked.append((asyncio.get_running_loop().time(), request.target))
        body = request.body if isinstance(request.body, bytes) else b""
        self.sent.append((request.method, request.target, orjson.loads(body) if body else None))
        if self.silent:
            await asyncio.sleep(1_000_000)
        await asyncio.sleep(self.delay)
        if not self._is_kept:
            self.dialed.append(asyncio.get_running_loop().time())
        if self.error is not None or (self.reloaded is not None and not self._is_kept):
            self._is_kept = False
            raise self.error or cast(UpstreamError, self.reloaded)
        self._is_kept = True
        found = self.by_method.get((request.method, request.target)) or self.answers.get(request.target)
        return Answer(*(found or (404, None)))

    async def close(self) -> None:
        pass

    def close_idle(self) -> None:
        self._is_kept = False

    def looks(self) -> list[float]:
        return [at for at, target in self.asked if target == "/version"]


class Reach:
    """Stands for UpstreamRegistry."""

    def __init__(self) -> None:
        self.far: dict[str, Far | NotConnected] = {}
        self.failures = FailureNotifier()

    def health_upstream(self, name: str) -> Far:
        found = self.far.get(name) or NotConnected("NotFound", "nothing there")
        if isinstance(found, NotConnected):
            raise found
        return found

    cluster_upstream = open_cleanup_upstream = health_upstream

    def fail(self, name: str = "berlin") -> None:
        """A request through a gateway gets no answer."""
        self.failures.notify((MANAGEMENT_GROUP, CLUSTERS, "", name))


@pytest.fixture
def reach() -> Reach:
    return Reach()


@pytest.fixture
async def working(api: RegistryFixture, reach: Reach) -> AsyncIterator[RegistryFixture]:
    controller = ClusterController(api.registry, MANAGEMENT_GROUP, NAMESPACE, cast(UpstreamRegistry, reach), NAMES)
    async with running_controllers(api, controller):
        yield api


def status(api: RegistryFixture, name: str = "berlin") -> Object:
    found = api.see("Cluster", name)
    assert found is not None
    return found.get("status") or {}


def state(api: RegistryFixture, type: str, name: str = "berlin") -> tuple[str, str]:
    found = status(api, name).get("conditions") or ()
    return next(((each["status"], each["reason"]) for each in found if each["type"] == type), ("", ""))


def events(api: RegistryFixture) -> list[tuple[str, str]]:
    found = [api.of("Event").get_cached("default", name) for name in api.names("Event")]
    return [(each["type"], each["reason"]) for each in (orjson.loads(entry.body) for entry in found if entry)]


async def connect(api: RegistryFixture, reach: Reach, name: str = "berlin", uid: str = "u-1") -> Far:
    far = reach.far[name] = Far(uid)
    await api.create("Cluster", name, spec={"config": CONFIG})
    await eventually(lambda: status(api, name).get("phase"))
    return far
