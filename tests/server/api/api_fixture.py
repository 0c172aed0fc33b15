"""The verbs of the API over a registry in memory, without HTTP."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson

from fairlead.core.call import Call, ObjectFilter, Reply
from fairlead.core.objects import Object
from fairlead.core.user import User
from fairlead.registry.kind import Catalog
from fairlead.server.api.actions import Actions
from fairlead.server.api.routing import RouteConfig, Router, routing_stage
from fairlead.server.api.verbs import Verbs
from fairlead.server.api.watch import WatchLimits, WatchService
from fairlead.server.flow.streams import StreamLimiter
from fairlead.server.pipeline import Pipeline
from tests.harness.calls import ADMIN, call
from tests.harness.registry import RegistryFixture, open_registry

GROUP = "/apis/management.service.sh/v1"

GADGETS = f"{GROUP}/gadgets"

CONFIGMAPS = "/api/v1/namespaces/demo/configmaps"

JSON, YAML = "application/json", "application/yaml"

MERGE = "application/merge-patch+json"

NO_ACTIONS = Actions(Catalog(()), {})


class ApiFixture:
    """Sends requests of one user to the verbs."""

    def __init__(
        self, fixture: RegistryFixture, user: User | None = ADMIN, watches: WatchService | None = None
    ) -> None:
        def as_user(call: Call) -> None:
            call.user, call.object_filter, call.hides_owners = user, self.object_filter, self.hides_owners

        self.object_filter: ObjectFilter | None = None
        self.hides_owners = False
        self.fixture = fixture
        watches = watches or WatchService(WatchLimits(1800, 100), fixture.clock, StreamLimiter(10, 10))
        verbs = Verbs(fixture.registry, watches, NO_ACTIONS)
        self._run = Pipeline((routing_stage(Router(RouteConfig(""))), as_user), verbs)

    async def __call__(self, method: str, path: str, body: Any = None, query: str = "", **headers: str) -> Reply:
        content = body if isinstance(body, bytes) else b"" if body is None else orjson.dumps(body)
        header_values = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self._run(call(path, query, method=method, headers=header_values, body=content))


@asynccontextmanager
async def open_api(user: User | None = ADMIN) -> AsyncIterator[ApiFixture]:
    async with open_registry() as fixture:
        yield ApiFixture(fixture, user)


def build_gadget(name: str, **labels: str) -> Object:
    metadata = {"name": name, "labels": labels} if labels else {"name": name}
    return {"apiVersion": "management.service.sh/v1", "kind": "Gadget", "metadata": metadata, "spec": {"size": 1}}


def build_configmap(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}}


def load_body(reply: Reply, status: int = 200) -> Any:
    assert reply.status == status, reply.body
    return orjson.loads(reply.body)


WRITES = [
    ("POST", GADGETS, build_gadget("new"), JSON),
    ("PUT", f"{GADGETS}/a", build_gadget("a"), JSON),
    ("PATCH", f"{GADGETS}/a", {"spec": {"size": 9}}, MERGE),
    ("DELETE", f"{GADGETS}/a", None, JSON),
    ("DELETE", GADGETS, None, JSON),
]
