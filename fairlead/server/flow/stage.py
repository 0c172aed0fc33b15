"""The flow control stage of the pipeline. It runs after authentication and before authorization.

`admit` gives a request its `Permit`, mostly at once; `finish` charges what it has cost, and releases its seats.
A write is admitted twice: when it arrives, and again with seats once its body was read. So a slow upload holds no seats
(`server/http/unsent.py` bounds the memory of incoming bodies). Requests to a remote cluster hold no seats, nor do
watches and other streams once they have started.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial

from msgspec import Struct

from fairlead.core.call import Call, Reply, RequestInfo
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
from fairlead.server.flow.fair_queue import EXEMPT, Ticket, seats_for_cost
from fairlead.server.flow.streams import Pacer, StreamLimits

READ_VERBS = frozenset({"get", "list", "watch"})
MIN_CHARGED_COST = 10.0
"""In units. Such requests are charged even while nothing is queued, so that their client, not another one, waits
next."""
BYTES_PER_UNIT = 100_000
MAX_PROBES_PER_RESET = 16
"""Health checks that bypass the queues before the budget is reset. More are treated as ordinary requests."""


@dataclass(frozen=True, slots=True)
class FlowDependencies:
    """What the stage needs to know about requests. `writes_to_store` returns whether a write changes a stored object.
    `reauthenticate` repeats authentication after a request was queued."""

    costs: CostEstimator
    writes_to_store: Callable[[RequestInfo], bool]
    reauthenticate: Callable[[Call], None]
    streams: StreamLimits


class Permit(Struct, eq=False):  # one for every request: a Struct is created much faster than a dataclass
    """An admitted request: its lane, and its ticket if it had to be queued.

    `started` and `busy_before` are the time that the request waited before it was admitted, and the time that it had
    used. They are 0 if it was admitted at once.
    """

    lane: Lane
    ticket: Ticket | None
    write: "_WriteAdmission | None"
    started: float = 0.0
    busy_before: float = 0.0


class FlowStage:
    def __init__(self, control: FlowControl, clients: ClientCache, deps: FlowDependencies) -> None:
        self._control = control
        self._clients = clients
        self._deps = deps
        self._estimate_read = deps.costs.estimate_read
        self._spend = control.spend
        self._probe_metrics = clients.metrics.setdefault((EXEMPT, PROBES), FlowMetrics(EXEMPT, PROBES))
        self._probes_since_reset = 0
        self._probe_reset_count = -1

    def with_authentication(self, reauthenticate: Callable[[Call], None]) -> "FlowStage":
        """The stage of another pipeline: the same queues and limits, for requests with other credentials."""
        dependencies = replace(self._deps, reauthenticate=reauthenticate)
        return FlowStage(self._control, self._clients, dependencies)

    def admit(self, call: Call) -> Awaitable[None] | None:
        """The stage that admits a request: at once, or when the awaitable is done."""
        control, target = self._control, call.target
        client = self._clients.for_call(call)
        if client is not control.last_client:
            control.record_client_change(client)
        lane, cost, write = client.regular_lane, 1.0, None
        if target.resource and target.gateway is None and call.user is not None:
            if target.verb in READ_VERBS:
                cost = self._estimate_read(call)
                if cost > MAX_SEATLESS_COST:
                    return self._admit_from_queue(call, *_assign_seats(client, cost))
            elif self._deps.writes_to_store(target):
                write = _WriteAdmission(self, lane, target.verb, call.read_body)
                call.read_body = write.read
        elif target.gateway is not None:
            if call.user is not None and _is_long_running(call):
                return self._admit_stream(call, call.user, lane)
        elif call.user is None and target.path.startswith(HEALTH_PATHS) and self._admit_probe():
            return None
        if lane.level.queue.length or control.spent >= control.budget:
            return self._admit_from_queue(call, lane, Ticket(lane.flow, cost), write)
        control.spent += REQUEST_OVERHEAD_SECONDS  # the pipeline calls `spend` at the end of the step
        self._start(call, Permit(lane, None, write))
        return None

    def find_free_lane(self, user: User) -> Lane | None:
        """The lane of a user whose cheap reads are admitted at once. None if they have to wait."""
        control, client = self._control, self._clients.for_user(user)
        if client is not control.last_client:
            control.record_client_change(client)
        lane = client.regular_lane
        return None if lane.level.queue.length or control.spent >= control.budget else lane

    def charge_read(self, lane: Lane, seconds: float) -> None:
        """Accounts for a cheap read that was served in one step, without `admit` and `finish`."""
        metrics = lane.metrics
        metrics.dispatched += 1
        metrics.execution_seconds.observe(seconds)
        self._control.spend(REQUEST_OVERHEAD_SECONDS)
        self.charge_attempt(lane, seconds)

    def charge_attempt(self, lane: Lane, seconds: float) -> None:
        """Accounts for time in which nothing was served. The request itself is accounted for when it is admitted."""
        self._control.spend(seconds)
        if (cost := seconds / UNIT_SECONDS) > MIN_CHARGED_COST:
            self._control.charge(lane.level, lane.flow, cost)

    async def _admit_stream(self, call: Call, user: User, lane: Lane) -> None:
        """Admits a long-running gateway request, unless its user has too many open streams."""
        await self._deps.streams.require_room(user)
        await self._admit_from_queue(call, lane, Ticket(lane.flow, 1.0))

    def _admit_probe(self) -> bool:
        """Whether a health check bypasses the queues."""
        if self._probe_reset_count != self._control.reset_count:
            self._probe_reset_count, self._probes_since_reset = self._control.reset_count, 0
        self._probes_since_reset += 1
        self._control.spend(REQUEST_OVERHEAD_SECONDS)
        if self._probes_since_reset > MAX_PROBES_PER_RESET:
            return False
        self._probe_metrics.dispatched += 1
        return True

    async def _admit_from_queue(
        self, call: Call, lane: Lane, ticket: Ticket, write: "_WriteAdmission | None" = None
    ) -> None:
        control = self._control
        admission = control.admit(lane.level, ticket)
        if admission is None:
            control.spend(REQUEST_OVERHEAD_SECONDS)
            self._start(call, Permit(lane, ticket, write))
        else:
            await self._await_admission(lane, ticket, admission)
            timer = call.step_timer
            self._start(call, Permit(lane, ticket, write, timer.elapsed_seconds(), timer.busy_seconds()))
            self._deps.reauthenticate(call)

    def _start(self, call: Call, permit: Permit) -> None:
        lane = permit.lane
        metrics = lane.metrics
        metrics.dispatched += 1
        metrics.executing += 1
        call.step_timer.on_step = self._spend
        CURRENT_ACCOUNT.set(lane.account)
        call.permit = permit

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

    def finish(self, call: Call, reply: Reply) -> None:
        """The stage that ends a request. A stream through a gateway stays open, and is charged for its bytes."""
        permit = call.permit
        if not isinstance(permit, Permit):
            return
        self._end(call, permit)
        if len(reply.body) > BYTES_PER_UNIT:
            self._charge_bytes(permit.lane, reply.body)
        elif call.target.gateway is not None and call.user is not None:
            self._track_stream(reply, call.user, permit.lane)

    def abort(self, call: Call) -> None:
        """Ends a request without a reply."""
        if isinstance(call.permit, Permit):
            self._end(call, call.permit)

    def _end(self, call: Call, permit: "Permit") -> None:
        """Releases the seats, and charges the time of the request as far as it was not charged on admission."""
        lane, timer, ticket, paid = permit.lane, call.step_timer, permit.ticket, 0.0
        metrics, account = lane.metrics, lane.account
        metrics.executing -= 1
        metrics.execution_seconds.observe((call.seconds or timer.elapsed_seconds()) - permit.started)
        if ticket is not None:
            paid = ticket.cost
            if ticket.seats:
                self._control.release_seats(lane.level, ticket)
        if permit.write is not None:
            paid += permit.write.release_seats()
        seconds = timer.busy_seconds() - permit.busy_before
        if account.cpu_seconds:
            seconds += account.collect_cpu_seconds()
        cost = seconds / UNIT_SECONDS
        if cost > (paid + 1 if paid else MIN_CHARGED_COST):
            self._control.charge(lane.level, lane.flow, cost - paid)

    def _charge_bytes(self, lane: Lane, content: bytes) -> None:
        self._control.charge(lane.level, lane.flow, len(content) / BYTES_PER_UNIT)

    def _track_stream(self, reply: Reply, user: User, lane: Lane) -> None:
        """Counts a stream or WebSocket through a gateway while it is open."""
        if reply.stream is None and reply.upgrade is None:
            return
        reply.on_close += (self._deps.streams.count_stream(user),)
        if reply.stream is not None:
            reply.on_chunk += (partial(self._charge_bytes, lane),)

    async def acquire_seats(self, lane: Lane, ticket: Ticket) -> None:
        """Waits until a request is admitted with its seats."""
        admission = self._control.admit(lane.level, ticket)
        if admission is not None:
            await self._await_admission(lane, ticket, admission)

    def release_seats(self, lane: Lane, ticket: Ticket) -> None:
        self._control.release_seats(lane.level, ticket)


def _is_long_running(call: Call) -> bool:
    """Whether a request through a gateway is expected to stay open."""
    target = call.target
    return call.is_websocket or target.verb == "watch" or "follow" in call.query or target.subresource == "proxy"


def _assign_seats(client: Client, cost: float) -> tuple[Lane, Ticket]:
    """The lane and ticket of an expensive read, with seats for its execution."""
    if cost > MIN_BULK_COST:
        return client.bulk_lane, Ticket(client.bulk_lane.flow, cost, 1)
    lane = client.regular_lane
    return lane, Ticket(lane.flow, cost, seats_for_cost(lane.level.config, int(cost)))


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


@dataclass(frozen=True, slots=True)
class FlowServices:
    """The stage of the pipeline, and its parts for metrics and watches."""

    stage: FlowStage
    control: FlowControl
    clients: ClientCache
    streams: StreamLimits
    pacer: Pacer
