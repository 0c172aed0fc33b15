"""The flow control stage of the pipeline. It runs after authentication and before authorization.

Most requests only run `__call__`. A write is admitted twice: when it arrives, and again with seats once its body was
read. So a slow upload holds no seats (`server/http/unsent.py` bounds the memory of incoming bodies). Requests to a
remote cluster hold no seats, nor do watches and other streams once they have started.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from fairlead.core.call import Call, Reply, RequestInfo, Upgrade, WebSocket
from fairlead.core.concurrency import CURRENT_ACCOUNT
from fairlead.core.user import User
from fairlead.server.discovery.health import HEALTH_PATHS
from fairlead.server.flow.classify import (
    CANCELLED,
    MAX_SEATLESS_COST,
    MIN_BULK_COST,
    PROBES,
    Client,
    ClientCache,
    CostEstimator,
    FlowMetrics,
    Lane,
    write_cost,
)
from fairlead.server.flow.control import REQUEST_OVERHEAD_SECONDS, UNIT_SECONDS, FlowControl, build_rejection
from fairlead.server.flow.fair_queue import Ticket
from fairlead.server.flow.levels import EXEMPT, seats_for_cost
from fairlead.server.flow.streams import StreamLimiter
from fairlead.server.http.pipeline import Handler

READ_VERBS = frozenset({"get", "list", "watch"})
MIN_CHARGED_SECONDS = 0.0005
"""Longer steps are charged even while nothing is queued, so that their client, not another one, waits next."""
BYTES_PER_UNIT = 100_000
MAX_PROBES_PER_ITERATION = 16
"""Health checks that bypass the queues in one iteration. More than that are treated as ordinary requests."""


@dataclass(frozen=True, slots=True)
class FlowDependencies:
    """What the stage needs to know about requests. `writes_to_store` returns whether a write changes a stored object.
    `reauthenticate` repeats authentication after a request was queued."""

    costs: CostEstimator
    writes_to_store: Callable[[RequestInfo], bool]
    reauthenticate: Callable[[Call], None]
    streams: StreamLimiter


class FlowStage:
    def __init__(self, control: FlowControl, clients: ClientCache, deps: FlowDependencies) -> None:
        self._control = control
        self._clients = clients
        self._deps = deps
        self._estimate_read = deps.costs.estimate_read
        self._probe_metrics = clients.metrics.setdefault((EXEMPT, PROBES), FlowMetrics(EXEMPT, PROBES))
        self._probes_in_iteration = 0

    def __call__(self, call: Call, proceed: Handler) -> Awaitable[Reply]:
        control, target = self._control, call.target
        client = self._clients.for_call(call)
        if client is not control.last_client:
            control.record_client_change(client)
        lane, cost, write = client.regular_lane, 1.0, None
        if target.resource and target.gateway is None and call.user is not None:
            if target.verb in READ_VERBS:
                cost = self._estimate_read(call)
                if cost > MAX_SEATLESS_COST:
                    return self._serve_when_admitted(call, proceed, *_assign_seats(client, cost))
            elif self._deps.writes_to_store(target):
                write = _WriteAdmission(self, lane, target.verb, call.read_body)
                call.read_body = write.read
        elif target.gateway is not None:
            self._require_stream_room(call)
        elif call.user is None and target.path.startswith(HEALTH_PATHS) and self._admit_probe():
            return proceed(call)
        level, metrics = lane.level, lane.metrics
        if level.queue.length or control.spent >= control.budget:
            return self._serve_when_admitted(call, proceed, lane, Ticket(lane.flow, cost), write)
        metrics.dispatched += 1
        began = control.now()
        try:
            answer = proceed(call)
        finally:
            took = control.now() - began
            control.spend(took + REQUEST_OVERHEAD_SECONDS)
            if took > MIN_CHARGED_SECONDS:
                control.charge(level, lane.flow, took / UNIT_SECONDS)
        if isinstance(answer, Reply):
            metrics.execution_seconds.observe(took)
            return answer
        return self._finish(call, lane, answer, write)

    def _admit_probe(self) -> bool:
        """Whether a health check bypasses the queues."""
        if not self._control.spent:
            self._probes_in_iteration = 0
        self._probes_in_iteration += 1
        self._control.spend(REQUEST_OVERHEAD_SECONDS)
        if self._probes_in_iteration > MAX_PROBES_PER_ITERATION:
            return False
        self._probe_metrics.dispatched += 1
        return True

    async def _serve_when_admitted(
        self, call: Call, proceed: Handler, lane: Lane, ticket: Ticket, write: "_WriteAdmission | None" = None
    ) -> Reply:
        """Serves a request once it is admitted. Its seats are released when it is done."""
        control = self._control
        admission = control.admit(lane.level, ticket)
        if admission is not None:
            await self._await_admission(lane, ticket, admission)
        else:
            control.spend(REQUEST_OVERHEAD_SECONDS)
        if call.step_timer is not None:
            call.step_timer.on_step = control.spend
        lane.metrics.dispatched += 1
        began, paid = control.now(), ticket.cost
        try:
            if admission is not None:
                self._deps.reauthenticate(call)
            try:
                answer = proceed(call)
            finally:
                took = control.now() - began
                if (cost := (took + REQUEST_OVERHEAD_SECONDS) / UNIT_SECONDS) > paid:
                    control.charge(lane.level, lane.flow, cost - paid)
                    paid = cost
            if isinstance(answer, Reply):
                lane.metrics.execution_seconds.observe(took)
                return answer
            return await self._finish(call, lane, answer, write, paid)
        finally:
            if ticket.seats:
                control.release_seats(lane.level, ticket)

    async def _await_admission(self, lane: Lane, ticket: Ticket, admission: "asyncio.Future[str]") -> None:
        """Waits until a request is dispatched, and records the wait. Raises `RequestRejected`."""
        metrics = lane.metrics
        metrics.waiting += 1
        try:
            reject_reason = await admission
        except BaseException:
            metrics.rejected[CANCELLED] += 1
            self._control.cancel(lane.level, ticket, admission)
            raise
        finally:
            metrics.waiting -= 1
        if reject_reason:
            metrics.rejected[reject_reason] += 1
            metrics.rejected_wait_seconds.observe(self._control.now() - ticket.queued_at)
            raise build_rejection(reject_reason, self._control.max_wait)
        metrics.wait_seconds.observe(self._control.now() - ticket.queued_at)

    async def _finish(
        self, call: Call, lane: Lane, answer: Awaitable[Reply], write: "_WriteAdmission | None", paid: float = 0.0
    ) -> Reply:
        """Awaits a request that takes more than one step, and charges the time of its steps."""
        control, metrics = self._control, lane.metrics
        CURRENT_ACCOUNT.set(lane.account)
        timer, before = call.step_timer, 0.0
        if timer is not None:
            timer.on_step, before = control.spend, timer.busy_seconds()
        metrics.executing += 1
        began = control.now()
        try:
            reply = await answer
        finally:
            metrics.executing -= 1
            metrics.execution_seconds.observe(control.now() - began)
            if write is not None:
                paid += write.release_seats()
            seconds = timer.busy_seconds() - before if timer is not None else 0.0
            cost = (seconds + lane.account.collect_cpu_seconds()) / UNIT_SECONDS
            if cost > paid + 1:
                control.charge(lane.level, lane.flow, cost - paid)
        if len(reply.body) > BYTES_PER_UNIT:
            control.charge(lane.level, lane.flow, len(reply.body) / BYTES_PER_UNIT)
        elif call.target.gateway is not None and call.user is not None:
            self._track_stream(reply, call.user, lane)
        return reply

    def _require_stream_room(self, call: Call) -> None:
        """Rejects long-running gateway requests of users with too many open streams."""
        target, query = call.target, call.query
        if call.user is not None and (
            call.is_websocket or target.verb == "watch" or "follow" in query or target.subresource == "proxy"
        ):
            self._deps.streams.require_room(call.user)

    def _track_stream(self, reply: Reply, user: User, lane: Lane) -> None:
        """Counts a stream or WebSocket through a gateway while it is open."""
        tracking = self._deps.streams.track(user)
        if reply.stream is not None:
            reply.stream = _charge_stream(reply.stream, lane, self._control, tracking)
        elif reply.upgrade is not None:
            reply.upgrade = _track_upgrade(reply.upgrade, tracking)

    async def acquire_seats(self, lane: Lane, ticket: Ticket) -> None:
        """Waits until a request is admitted with its seats."""
        admission = self._control.admit(lane.level, ticket)
        if admission is not None:
            await self._await_admission(lane, ticket, admission)

    def release_seats(self, lane: Lane, ticket: Ticket) -> None:
        self._control.release_seats(lane.level, ticket)


def _assign_seats(client: Client, cost: float) -> tuple[Lane, Ticket]:
    """The lane and ticket of an expensive read, with seats for its execution."""
    if cost > MIN_BULK_COST:
        return client.bulk_lane, Ticket(client.bulk_lane.flow, cost, 1)
    lane = client.regular_lane
    return lane, Ticket(lane.flow, cost, seats_for_cost(lane.level.config, int(cost)))


def _track_upgrade(upgrade: Upgrade, tracking: AbstractContextManager[None]) -> Upgrade:
    async def run(socket: WebSocket) -> None:
        with tracking:
            await upgrade.run(socket)

    return Upgrade(upgrade.subprotocol, run)


class _WriteAdmission:
    """The second admission of a write: acquires seats once the body was read, and releases them at the end.

    The call refers to this object, so it must not refer to the call: a cycle would live until the next collection.
    """

    __slots__ = ("_lane", "_read", "_stage", "_ticket", "_verb")

    def __init__(self, stage: FlowStage, lane: Lane, verb: str, read: Callable[[], Awaitable[bytes]]) -> None:
        self._stage = stage
        self._lane = lane
        self._verb = verb
        self._read = read
        self._ticket: Ticket | None = None

    async def read(self) -> bytes:
        body = await self._read()
        if self._ticket is None:
            lane, cost = self._lane, write_cost(self._verb, len(body))
            ticket = Ticket(lane.flow, cost, seats_for_cost(lane.level.config, int(cost)), len(body))
            await self._stage.acquire_seats(lane, ticket)
            self._ticket = ticket
        return body

    def release_seats(self) -> float:
        """Releases the seats. Returns the estimated cost, which was charged on admission."""
        ticket, self._ticket = self._ticket, None
        if ticket is None:
            return 0.0
        self._stage.release_seats(self._lane, ticket)
        return ticket.cost


async def _charge_stream(
    chunks: AsyncIterator[bytes], lane: Lane, control: FlowControl, tracking: AbstractContextManager[None]
) -> AsyncIterator[bytes]:
    """Charges the bytes of a gateway stream to the requester."""
    try:
        with tracking:
            async for chunk in chunks:
                control.charge(lane.level, lane.flow, len(chunk) / BYTES_PER_UNIT)
                yield chunk
    finally:
        if isinstance(chunks, AsyncGenerator):
            await chunks.aclose()
