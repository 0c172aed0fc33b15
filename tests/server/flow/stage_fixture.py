"""The stage of flow control with everything around it made up, and requests for it."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from fairlead.core.call import MANAGEMENT, Call, Handler, Reply, RequestInfo
from fairlead.core.user import User
from fairlead.server.flow.classify import AGENTS, ClientCache, CostEstimator
from fairlead.server.flow.control import ITERATION_BUDGET_SECONDS, FlowControl
from fairlead.server.flow.levels import INTERACTIVE
from fairlead.server.flow.stage import FlowDependencies, FlowStage
from fairlead.server.flow.streams import StreamLimiter
from fairlead.server.http.request import RequestHeaders
from fairlead.server.pipeline import Pipeline, PipelineOptions
from tests.harness.calls import call as made
from tests.harness.calls import raise_for_status

ADA, BEN = User("ada", ("system:authenticated",)), User("ben", ("system:authenticated",))
AGENT = User("service:agent:east", ("service:agent:east",))
GET = RequestInfo("get", "/api/v1/namespaces/n/configmaps/c", MANAGEMENT, "", "v1", "configmaps", "", "n", "c")
LIST = RequestInfo("list", "/api/v1/configmaps", MANAGEMENT, "", "v1", "configmaps")
CREATE = RequestInfo("create", "/api/v1/namespaces/n/configmaps", MANAGEMENT, "", "v1", "configmaps", "", "n")
THROUGH = RequestInfo(
    "get", "/api/v1/pods", "cluster", "", "v1", "pods", gateway=RequestInfo("use", "/", "cluster", name="east")
)
HEALTH = RequestInfo("get", "/readyz")
DONE = Reply(200, b"done")


class Wire:
    """A stage with everything around it made up. There are `rows` objects of every resource."""

    def __init__(self, rows: int = 10, size: int = 100) -> None:
        self.control = FlowControl()
        self.clients = ClientCache(self.control.levels, (("service:agent:", AGENTS),))
        self.renewed: list[Call] = []
        self.streams = StreamLimiter(total=10, per_user=2)
        costs = CostEstimator(lambda *of: rows, lambda *of: size, lambda accept: ("yaml" in accept, "Table" in accept))
        judgement = FlowDependencies(costs, lambda target: True, self.renewed.append, self.streams)
        self.stage = FlowStage(self.control, self.clients, judgement)

    async def ask(self, call: Call, serve: Handler | None = None) -> Reply:
        """Serves a request; raises the error if it fails."""
        options = PipelineOptions(None, [0, 0], clock=self.control.now)
        stage = self.stage
        pipeline = Pipeline((stage.admit,), serve or (lambda call: DONE), (stage.finish,), (stage.abort,), options)
        return raise_for_status(await pipeline(call))

    def use_up_turn(self) -> None:
        """Others are there, too."""
        self.control.record_client_change("another client")
        self.control.spend(ITERATION_BUDGET_SECONDS)

    def held(self, level: str = INTERACTIVE) -> int:
        return self.control.levels[level].seats_in_use

    def counted(self, level: str, schema: str) -> int:
        return self.clients.metrics[level, schema].dispatched


def request(target: RequestInfo, user: User | None = ADA, *, client: str = "192.0.2.7:4000", **headers: str) -> Call:
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    asked = made(target=target)
    asked.headers, asked.user, asked.client = RequestHeaders(pairs), user, client
    return asked


def started(answer: Coroutine[Any, Any, Reply]) -> "asyncio.Task[Reply]":
    return asyncio.create_task(answer)
