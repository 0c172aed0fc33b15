"""A pipeline with the real audit stages, an audit log in memory, and any handler."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import orjson

from fairlead.core.call import Call, Decision, Handler, Reply
from fairlead.core.clock import SystemClock
from fairlead.core.errors import Unauthorized
from fairlead.core.user import User
from fairlead.kinds import KINDS
from fairlead.registry.kind import Catalog, Kind
from fairlead.server.api.routing import RouteConfig, Router, routing_stage
from fairlead.server.audit.intake import AuditLogs
from fairlead.server.audit.log_writer import AuditLogWriter
from fairlead.server.audit.policy import METADATA, RECEIVED, REQUEST_RESPONSE, Policy, PolicyRule
from fairlead.server.audit.stage import AuditStage
from fairlead.server.pipeline import Pipeline
from tests.harness.calls import call

MOUNT = "/kubernetes/management"
ALICE = User("alice", ("developers", "system:authenticated"), "uid-of-alice", "laptop")
CATALOG = Catalog(KINDS)

EVERYTHING = Policy((PolicyRule(REQUEST_RESPONSE, omit_stages=frozenset({RECEIVED})),))
BASICS = Policy((PolicyRule(METADATA, omit_stages=frozenset({RECEIVED})),))

Event = dict[str, Any]


class MemoryLog:
    """A sink in memory."""

    def __init__(self) -> None:
        self.data = b""

    def prepare_write(self, size: int) -> None:
        return None

    def write(self, data: memoryview) -> int:
        self.data += bytes(data)
        return len(data)

    def end_write(self) -> None:
        return None

    def close(self) -> None:
        return None

    @property
    def events(self) -> list[Event]:
        return [orjson.loads(line) for line in self.data.splitlines()]


@dataclass(slots=True)
class AuditFixture:
    """Sends requests. All events are in the log once `open_audit` has ended."""

    run: Handler
    audit: AuditStage
    writer: AuditLogWriter
    log: MemoryLog

    async def __call__(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: str = "",
        headers: Mapping[str, str] | None = None,
        read: Callable[[], Awaitable[bytes]] | None = None,
    ) -> Reply:
        sent = body if isinstance(body, bytes) else b"" if body is None else orjson.dumps(body)
        all_headers = {"user-agent": "tests/1.0", "content-length": str(len(sent)), **(headers or {})}
        request = call(path, query, method=method, headers=all_headers, body=sent)
        request.client = "192.0.2.7:4711"
        if read is not None:
            request.read_body = read
        return await self.run(request)

    @property
    def events(self) -> list[Event]:
        return self.log.events

    def completed_events(self) -> list[Event]:
        return [event for event in self.events if event["stage"] == "ResponseComplete"]


def authenticate_as(user: User | None) -> Callable[[Call], None]:
    def stage(call: Call) -> None:
        if call.deferred_error is not None:
            raise call.pop_deferred_error()
        if user is None:
            raise Unauthorized
        call.user = user
        call.decision = Decision(True, "because")

    return stage


def build_audited_pipeline(audit: AuditStage, authorize: Callable[[Call], None], serve: Handler) -> Pipeline:
    """A pipeline with the audit stages, routing and one more stage."""
    before = (audit.begin, routing_stage(Router(RouteConfig(MOUNT))), authorize, audit.require_auditable)
    return Pipeline(before, serve, (audit.record,), (audit.record_aborted,))


@asynccontextmanager
async def open_audit(
    serve: Handler,
    policy: Policy = BASICS,
    *,
    user: User | None = ALICE,
    catalog: Catalog = CATALOG,
    sink: MemoryLog | None = None,
    events: int = 1_000,
) -> AsyncIterator[AuditFixture]:
    log = sink or MemoryLog()
    writer = AuditLogWriter(log, events)
    audit = AuditStage(policy, AuditLogs.single(writer), catalog, SystemClock(), MOUNT)
    try:
        yield AuditFixture(build_audited_pipeline(audit, authenticate_as(user), serve), audit, writer, log)
    finally:
        audit.finish()
        await writer.close()


def object_path(kind: Kind, name: str = "", subresource: str = "") -> str:
    """Returns the path of a kind's collection, or of one object."""
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    inside = "/namespaces/demo" if kind.namespaced else ""
    return "/".join(filter(None, (f"{MOUNT}{root}{inside}/{kind.plural}", name, subresource)))


def reply_with(status: int, body: Any, content_type: str = "application/json") -> Handler:
    async def serve(call: Call) -> Reply:
        await call.read_body()
        return Reply(status, body if isinstance(body, bytes) else orjson.dumps(body), content_type)

    return serve


OK = reply_with(200, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"})
