"""Long-running requests: how many may be open, and when they may work.

Limits (`StreamLimits`). Watches, WebSockets and streams through gateways hold no seats, because an idle stream costs
next to nothing. But each needs memory and a connection, and the cost of an event grows with the number of watches.
So they are limited per user, over all access keys, sessions and impersonated identities. A user may not have more
streams than are left for others, so there is always room for another user. A tenth is reserved for administrators and
platform components. `StreamLimiter` counts the streams of this process. With several worker processes, they are counted
by one of them for all (`server/workers/`).

Slots (`Pacer`). The work of a watch after its response has started, such as its initial events, is scheduled like a
request. A stream produces its output in chunks and waits for a slot before each. Only one stream of a user is served
at a time, in the user's bulk lane, so opening more streams does not speed them up. The time of each chunk is charged to
the user. A slot is never rejected, as the response has already started; the limits above bound how many streams wait.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from fairlead.core.errors import Details, TooManyRequests
from fairlead.core.user import User
from fairlead.server.flow.classify import Client, ClientCache
from fairlead.server.flow.control import REQUEST_OVERHEAD_SECONDS, UNIT_SECONDS, FlowControl
from fairlead.server.flow.fair_queue import Ticket

RESERVED_DIVISOR = 10
"""One in this many streams is reserved for administrators and platform components."""
RETRY_AFTER_SECONDS = 5

IsComponent = Callable[[User], bool]


@dataclass(frozen=True, slots=True)
class StreamOwner:
    """Whose stream it is: the flow that it counts for, and whether it may use the reserve."""

    flow: str
    is_privileged: bool

    @staticmethod
    def of(user: User, is_component: IsComponent) -> "StreamOwner":
        real = user.impersonator or user
        return StreamOwner(user.flow_distinguisher, real.is_admin or is_component(real))


class StreamCounts:
    """The open streams of all flows, and their limits."""

    def __init__(self, total: int, per_user: int) -> None:
        self._total = total
        self._per_user = per_user
        self._open_by_flow: Counter[str] = Counter()
        self._open_total = 0

    def require_room(self, owner: StreamOwner) -> None:
        """Raises TooManyRequests if there may not be another stream of this owner."""
        total = self._total if owner.is_privileged else self._total - self._total // RESERVED_DIVISOR
        own, free = self._open_by_flow[owner.flow], total - self._open_total
        if own >= self._per_user:
            raise _too_many_streams(
                f"you have {self._per_user} watches and other streams open, which is the limit per user"
            )
        if free <= 0:
            raise _too_many_streams(
                f"{self._open_total} watches and other streams are open, which is the limit of the server"
            )
        if own >= free:
            raise _too_many_streams(
                f"you have {own} watches and other streams open, and only {free} are left for all users"
            )

    def add(self, flow: str) -> None:
        self._open_by_flow[flow] += 1
        self._open_total += 1

    def remove(self, flow: str) -> None:
        self._open_total -= 1
        self._open_by_flow[flow] -= 1
        if not self._open_by_flow[flow]:
            del self._open_by_flow[flow]


class StreamLimits(Protocol):
    """Counts open streams, and enforces the limits."""

    async def require_room(self, user: User) -> None:
        """Raises TooManyRequests if the user may not open another stream."""

    def count_stream(self, user: User) -> Callable[[], None]:
        """Counts an open stream. Returns the function to call when it is closed."""

    def admit(self, user: User) -> AbstractAsyncContextManager[None]:
        """Checks the limits again, then counts the stream: many may have passed `require_room` at the same time."""


class StreamLimiter:
    """The limits of a server with one process."""

    def __init__(self, total: int, per_user: int, is_component: IsComponent = lambda user: False) -> None:
        self._counts = StreamCounts(total, per_user)
        self._is_component = is_component

    async def require_room(self, user: User) -> None:
        self._counts.require_room(StreamOwner.of(user, self._is_component))

    def count_stream(self, user: User) -> Callable[[], None]:
        flow = user.flow_distinguisher
        self._counts.add(flow)
        return partial(self._counts.remove, flow)

    @asynccontextmanager
    async def admit(self, user: User) -> AsyncIterator[None]:
        self._counts.require_room(StreamOwner.of(user, self._is_component))
        close = self.count_stream(user)
        try:
            yield
        finally:
            close()


def _too_many_streams(reason: str) -> TooManyRequests:
    message = f"{reason}; close streams that you do not need, or try again later"
    return TooManyRequests(message, Details(retry_after=RETRY_AFTER_SECONDS))


CHUNK_COST = 10.0
"""The estimated cost of a chunk, in units."""
SLOT_RETRY_SECONDS = 0.05
"""Delay before a stream asks for a slot again after flow control has rejected it."""


class Pace(Protocol):
    """The slots of one stream."""

    async def wait_for_slot(self) -> None:
        """Waits until the next chunk may be produced."""

    def release_slot(self) -> None:
        """Ends the slot, and charges its time. There must be no await since `wait_for_slot` returned."""


class NoPace:
    """For streams that are not subject to flow control."""

    async def wait_for_slot(self) -> None:
        pass

    def release_slot(self) -> None:
        pass


class Pacer:
    """Schedules the streams of all users."""

    def __init__(self, control: FlowControl, clients: ClientCache) -> None:
        self._control = control
        self._clients = clients

    def pace_for(self, user: User) -> Pace:
        return _UserPace(self._control, self._clients.for_user(user))


class _UserPace:
    __slots__ = ("_client", "_control", "_slot_start")

    def __init__(self, control: FlowControl, client: Client) -> None:
        self._control = control
        self._client = client
        self._slot_start: float | None = None

    async def wait_for_slot(self) -> None:
        control, lane = self._control, self._client.bulk_lane
        async with self._client.stream_lock:
            while True:
                ticket = Ticket(lane.flow, CHUNK_COST)
                admission = control.admit(lane.level, ticket)
                if admission is None:
                    break
                try:
                    reject_reason = await admission
                except BaseException:
                    control.cancel(lane.level, ticket, admission)
                    raise
                if not reject_reason:
                    break
                await asyncio.sleep(SLOT_RETRY_SECONDS)
        self._slot_start = control.now()

    def release_slot(self) -> None:
        if self._slot_start is None:
            return
        control, lane = self._control, self._client.bulk_lane
        took, self._slot_start = control.now() - self._slot_start + REQUEST_OVERHEAD_SECONDS, None
        control.spend(took)
        if took > CHUNK_COST * UNIT_SECONDS:
            control.charge(lane.level, lane.flow, took / UNIT_SECONDS - CHUNK_COST)
