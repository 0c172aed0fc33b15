"""The flow control stage of the pipeline. It runs after authentication and before authorization.

Most requests only run `__call__`. A write is admitted twice: when it arrives, and again with seats once its body was
read. So a slow upload holds no seats (`server/http/unsent.py` bounds the memory of incoming bodies). Requests to a
remote cluster hold no seats, nor do watches and other streams once they have started.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from fairlead.core.call import Call, Reply, Socket, Target, Upgrade
from fairlead.core.concurrency import ACCOUNT
from fairlead.core.user import User
from fairlead.server.discovery.health import HEALTH_PATHS
from fairlead.server.flow.classify import (
    BULK_COST,
    CANCELLED,
    PROBES,
    SEATLESS_COST,
    Client,
    Clients,
    Costs,
    Lane,
    Tally,
    write_cost,
)
from fairlead.server.flow.control import OVERHEAD_SECONDS, UNIT_SECONDS, FlowControl, refusal
from fairlead.server.flow.fair_queue import Ticket
from fairlead.server.flow.levels import EXEMPT, held_at_most
from fairlead.server.flow.streams import Streams
from fairlead.server.http.pipeline import Proceed

READS = frozenset({"get", "list", "watch"})
SLOW_SECONDS = 0.0005
"""Longer steps are charged even while nothing is queued, so that their client, not another one, waits next."""
BYTES_PER_UNIT = 100_000
PROBES_PER_TURN = 16
"""Health checks that bypass the queues in one iteration. More than that are treated as ordinary requests."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the stage needs to know about requests. `writes_to_store` returns whether a write changes a stored object.
    `reauthenticate` repeats authentication after a request was queued."""

    costs: Costs
    changes_store: Callable[[Target], bool]
    renew: Callable[[Call], None]
    streams: Streams


class FlowStage:
    def __init__(self, control: FlowControl, clients: Clients, judgement: Judgement) -> None:
        self._control = control
        self._clients = clients
        self._judgement = judgement
        self._of_read = judgement.costs.of_read
        self._probes = clients.tallies.setdefault((EXEMPT, PROBES), Tally(EXEMPT, PROBES))
        self._probed = 0

    def __call__(self, call: Call, proceed: Proceed) -> Awaitable[Reply]:
        control, target = self._control, call.target
        client = self._clients.of(call)
        if client is not control.latest:
            control.note(client)
        lane, cost, write = client.small, 1.0, None
        if target.resource and target.via is None and call.user is not None:
            if target.verb in READS:
                cost = self._of_read(call)
                if cost > SEATLESS_COST:
                    return self._wait(call, proceed, *_with_seats(client, cost))
            elif self._judgement.changes_store(target):
                write = _Change(self, lane, target.verb, call.read_body)
                call.read_body = write.read
        elif target.via is not None:
            self._require_stream(call)
        elif call.user is None and target.path.startswith(HEALTH_PATHS) and self._is_probe():
            return proceed(call)
        level, metrics = lane.level, lane.tally
        if level.queue.length or control.spent >= control.budget:
            return self._wait(call, proceed, lane, Ticket(lane.flow, cost), write)
        metrics.dispatched += 1
        began = control.now()
        try:
            answer = proceed(call)
        finally:
            took = control.now() - began
            control.spend(took + OVERHEAD_SECONDS)
            if took > SLOW_SECONDS:
                control.charge(level, lane.flow, took / UNIT_SECONDS)
        if isinstance(answer, Reply):
            metrics.took.observe(took)
            return answer
        return self._finish(call, lane, answer, write)

    def _is_probe(self) -> bool:
        """Whether a health check bypasses the queues."""
        if not self._control.spent:
            self._probed = 0
        self._probed += 1
        self._control.spend(OVERHEAD_SECONDS)
        if self._probed > PROBES_PER_TURN:
            return False
        self._probes.dispatched += 1
        return True

    async def _wait(
        self, call: Call, proceed: Proceed, lane: Lane, ticket: Ticket, change: "_Change | None" = None
    ) -> Reply:
        """Serves a request once it is admitted. Its seats are released when it is done."""
        control = self._control
        admission = control.ask(lane.level, ticket)
        if admission is not None:
            await self._turn(lane, ticket, admission)
        else:
            control.spend(OVERHEAD_SECONDS)
        if call.steps is not None:
            call.steps.spend = control.spend
        lane.tally.dispatched += 1
        began, paid = control.now(), ticket.cost
        try:
            if admission is not None:
                self._judgement.renew(call)
            try:
                answer = proceed(call)
            finally:
                took = control.now() - began
                if (cost := (took + OVERHEAD_SECONDS) / UNIT_SECONDS) > paid:
                    control.charge(lane.level, lane.flow, cost - paid)
                    paid = cost
            if isinstance(answer, Reply):
                lane.tally.took.observe(took)
                return answer
            return await self._finish(call, lane, answer, change, paid)
        finally:
            if ticket.seats:
                control.leave(lane.level, ticket)

    async def _turn(self, lane: Lane, ticket: Ticket, turn: "asyncio.Future[str]") -> None:
        """Waits until a request is dispatched, and records the wait. Raises `RequestRejected`."""
        metrics = lane.tally
        metrics.waiting += 1
        try:
            reject_reason = await turn
        except BaseException:
            metrics.rejected[CANCELLED] += 1
            self._control.give_up(lane.level, ticket, turn)
            raise
        finally:
            metrics.waiting -= 1
        if reject_reason:
            metrics.rejected[reject_reason] += 1
            metrics.waited_in_vain.observe(self._control.now() - ticket.since)
            raise refusal(reject_reason, self._control.longest_wait)
        metrics.waited.observe(self._control.now() - ticket.since)

    async def _finish(
        self, call: Call, lane: Lane, answer: Awaitable[Reply], change: "_Change | None", paid: float = 0.0
    ) -> Reply:
        """Awaits a request that takes more than one step, and charges the time of its steps."""
        control, metrics = self._control, lane.tally
        ACCOUNT.set(lane.account)
        timer, before = call.steps, 0.0
        if timer is not None:
            timer.spend, before = control.spend, timer.seconds()
        metrics.executing += 1
        began = control.now()
        try:
            reply = await answer
        finally:
            metrics.executing -= 1
            metrics.took.observe(control.now() - began)
            if change is not None:
                paid += change.leave()
            seconds = timer.seconds() - before if timer is not None else 0.0
            cost = (seconds + lane.account.take_seconds()) / UNIT_SECONDS
            if cost > paid + 1:
                control.charge(lane.level, lane.flow, cost - paid)
        if len(reply.body) > BYTES_PER_UNIT:
            control.charge(lane.level, lane.flow, len(reply.body) / BYTES_PER_UNIT)
        elif call.target.via is not None and call.user is not None:
            self._follow(reply, call.user, lane)
        return reply

    def _require_stream(self, call: Call) -> None:
        """Rejects long-running gateway requests of users with too many open streams."""
        target, query = call.target, call.query
        if call.user is not None and (
            call.wants_socket or target.verb == "watch" or "follow" in query or target.subresource == "proxy"
        ):
            self._judgement.streams.require_room(call.user)

    def _follow(self, reply: Reply, user: User, lane: Lane) -> None:
        """Counts a stream or WebSocket through a gateway while it is open."""
        tracking = self._judgement.streams.counted(user)
        if reply.stream is not None:
            reply.stream = _charged(reply.stream, lane, self._control, tracking)
        elif reply.upgrade is not None:
            reply.upgrade = _accompanied(reply.upgrade, tracking)

    async def take_seats(self, lane: Lane, ticket: Ticket) -> None:
        """Waits until a request is admitted with its seats."""
        admission = self._control.ask(lane.level, ticket)
        if admission is not None:
            await self._turn(lane, ticket, admission)

    def leave(self, lane: Lane, ticket: Ticket) -> None:
        self._control.leave(lane.level, ticket)


def _with_seats(client: Client, cost: float) -> tuple[Lane, Ticket]:
    """The lane and ticket of an expensive read, with seats for its execution."""
    if cost > BULK_COST:
        return client.bulk, Ticket(client.bulk.flow, cost, 1)
    lane = client.small
    return lane, Ticket(lane.flow, cost, held_at_most(lane.level.priority, int(cost)))


def _accompanied(upgrade: Upgrade, counted: AbstractContextManager[None]) -> Upgrade:
    async def run(socket: Socket) -> None:
        with counted:
            await upgrade.run(socket)

    return Upgrade(upgrade.protocol, run)


class _Change:
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
            ticket = Ticket(lane.flow, cost, held_at_most(lane.level.priority, int(cost)), len(body))
            await self._stage.take_seats(lane, ticket)
            self._ticket = ticket
        return body

    def leave(self) -> float:
        """Releases the seats. Returns the estimated cost, which was charged on admission."""
        ticket, self._ticket = self._ticket, None
        if ticket is None:
            return 0.0
        self._stage.leave(self._lane, ticket)
        return ticket.cost


async def _charged(
    chunks: AsyncIterator[bytes], lane: Lane, control: FlowControl, counted: AbstractContextManager[None]
) -> AsyncIterator[bytes]:
    """Charges the bytes of a gateway stream to the requester."""
    try:
        with counted:
            async for chunk in chunks:
                control.charge(lane.level, lane.flow, len(chunk) / BYTES_PER_UNIT)
                yield chunk
    finally:
        if isinstance(chunks, AsyncGenerator):
            await chunks.aclose()
