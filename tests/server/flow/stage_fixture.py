"""A flow control stage with fake dependencies, and requests for it."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from fairlead.core.call import MANAGEMENT, Call, Handler, Reply, RequestInfo
from fairlead.core.user import User
from fairlead.server.flow.classify import ClientCache, CostEstimator
from fairlead.server.flow.control import ITERATION_BUDGET_SECONDS, FlowControl
from fairlead.server.flow.fair_queue import INTERACTIVE
from fairlead.server.flow.stage import FlowDependencies, FlowStage
from fairlead.server.flow.streams import StreamLimiter
from fairlead.server.http.request import RequestHeaders
from fairlead.server.pipeline import Pipeline, PipelineOptions
from tests.harness.calls import call, raise_for_status

ADA, BEN = User("ada", ("system:authenticated",)), User("ben", ("system:authenticated",))
AGENT = User("service:agent:east", ("service:agent:east",))
GET = RequestInfo("get", "/api/v1/namespaces/n/configmaps/c", MANAGEMENT, "", "v1", "configmaps", "", "n", "c")
LIST = RequestInfo("list", "/api/v1/configmaps", MANAGEMENT, "", "v1", "configmaps")
CREATE = RequestInfo("create", "/api/v1/namespaces/n/configmaps", MANAGEMENT, "", "v1", "configmaps", "", "n")
GATEWAY = RequestInfo(
    "get", "/api/v1/pods", "cluster", "", "v1", "pods", gateway=RequestInfo("use", "/", "cluster", name="east")
)
HEALTH = RequestInfo("get", "/readyz")
DONE = Reply(200, b"done")


class FlowFixture:
    """A flow control stage with fake dependencies. There are `rows` objects of every resource."""

    def __init__(self, rows: int = 10, size: int = 100) -> None:
        self.control = FlowControl()
        self.clients = ClientCache(self.control.levels, (("service:agent:", "agents"),))
        self.reauthenticated: list[Call] = []
        self.streams = StreamLimiter(total=10, per_user=2)
        costs = CostEstimator(
            lambda *resource: rows, lambda *resource: size, lambda accept: ("yaml" in accept, "Table" in accept)
        )
        dependencies = FlowDependencies(costs, lambda target: True, self.reauthenticated.append, self.streams)
        self.stage = FlowStage(self.control, self.clients, dependencies)

    async def send(self, request: Call, serve: Handler | None = None) -> Reply:
        """Serves a request; raises the error if it fails."""
        options = PipelineOptions(None, [0, 0], clock=self.control.now)
        stage = self.stage
        pipeline = Pipeline((stage.admit,), serve or (lambda request: DONE), (stage.finish,), (stage.abort,), options)
        return raise_for_status(await pipeline(request))

    def use_up_budget(self) -> None:
        """Uses up the budget of this iteration of the event loop, with a second client present."""
        self.control.record_client_change("another client")
        self.control.spend(ITERATION_BUDGET_SECONDS)

    def seats_in_use(self, level: str = INTERACTIVE) -> int:
        return self.control.levels[level].seats_in_use

    def count_dispatched(self, level: str, schema: str) -> int:
        return self.clients.metrics[level, schema].dispatched


def build_request(
    target: RequestInfo, user: User | None = ADA, *, client: str = "192.0.2.7:4000", **headers: str
) -> Call:
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    request = call(target=target)
    request.headers, request.user, request.client = RequestHeaders(pairs), user, client
    return request


def start_request(response: Coroutine[Any, Any, Reply]) -> "asyncio.Task[Reply]":
    return asyncio.create_task(response)
