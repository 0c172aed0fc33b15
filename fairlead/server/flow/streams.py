"""Long-running requests: how many may be open, and when they may work.

Limits (`StreamLimiter`). Watches, WebSockets and streams through gateways hold no seats, because an idle stream costs
next to nothing. But each needs memory and a connection, and the cost of an event grows with the number of watches.
So they are limited per user, over all access keys, sessions and impersonated identities. A user may not have more
streams than are left for others, so there is always room for another user. A tenth is reserved for administrators and
platform components.

Slots (`Pacer`). The work of a watch after its response has started, such as its initial events, is scheduled like a
request. A stream produces its output in chunks and waits for a slot before each. Only one stream of a user is served
at a time, in the user's bulk lane, so opening more streams does not speed them up. The time of each chunk is charged to
the user. A slot is never rejected, as the response has already started; the limits above bound how many streams wait.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from fairlead.core.errors import Details, TooManyRequests
from fairlead.core.user import User
from fairlead.server.flow.classify import Client, Clients
from fairlead.server.flow.control import OVERHEAD_SECONDS, UNIT_SECONDS, FlowControl
from fairlead.server.flow.fair_queue import Ticket

RESERVED = 10
"""One in this many streams is reserved for administrators and platform components."""
RETRY_SECONDS = 5

IsComponent = Callable[[User], bool]


class Streams:
    """Counts open streams, and enforces the limits."""

    def __init__(self, total: int, per_user: int, is_component: IsComponent = lambda user: False) -> None:
        self._total = total
        self._per_user = per_user
        self._is_component = is_component
        self._open: Counter[str] = Counter()
        self._count = 0

    def require_room(self, user: User) -> None:
        """Raises TooManyRequests if the user may not open another stream."""
        real = user.impersonator or user
        is_privileged = real.is_admin or self._is_component(real)
        total = self._total if is_privileged else self._total - self._total // RESERVED
        own, free = self._open[user.payer], total - self._count
        if own >= self._per_user:
            raise _refusal(f"you have {self._per_user} watches and other streams open, which is the limit per user")
        if free <= 0:
            raise _refusal(f"{self._count} watches and other streams are open, which is the limit of the server")
        if own >= free:
            raise _refusal(f"you have {own} watches and other streams open, and only {free} are left for all users")

    @contextmanager
    def counted(self, user: User) -> Iterator[None]:
        """Counts a stream while the context is open."""
        name = user.payer
        self._open[name] += 1
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1
            self._open[name] -= 1
            if not self._open[name]:
                del self._open[name]

    @contextmanager
    def admitted(self, user: User) -> Iterator[None]:
        """Checks the limits again, then counts the stream: many may have passed `require_room` at the same time."""
        self.require_room(user)
        with self.counted(user):
            yield


def _refusal(why: str) -> TooManyRequests:
    message = f"{why}; close streams that you do not need, or try again later"
    return TooManyRequests(message, Details(retry_after=RETRY_SECONDS))


PIECE_COST = 10.0
"""The estimated cost of a chunk, in units."""
AGAIN_SECONDS = 0.05
"""Delay before a stream asks for a slot again after flow control has rejected it."""


class Pace(Protocol):
    """The slots of one stream."""

    async def wait_for_turn(self) -> None:
        """Waits until the next chunk may be produced."""

    def end_turn(self) -> None:
        """Ends the slot, and charges its time. There must be no await since `wait_for_slot` returned."""


class NoPace:
    """For streams that are not subject to flow control."""

    async def wait_for_turn(self) -> None:
        pass

    def end_turn(self) -> None:
        pass


class Pacer:
    """Schedules the streams of all users."""

    def __init__(self, control: FlowControl, clients: Clients) -> None:
        self._control = control
        self._clients = clients

    def pace_for(self, user: User) -> Pace:
        return _UserPace(self._control, self._clients.of_user(user))


class _UserPace:
    __slots__ = ("_began", "_client", "_control")

    def __init__(self, control: FlowControl, client: Client) -> None:
        self._control = control
        self._client = client
        self._began: float | None = None

    async def wait_for_turn(self) -> None:
        control, lane = self._control, self._client.bulk
        async with self._client.stream_turns:
            while True:
                ticket = Ticket(lane.flow, PIECE_COST)
                admission = control.ask(lane.level, ticket)
                if admission is None:
                    break
                try:
                    reject_reason = await admission
                except BaseException:
                    control.give_up(lane.level, ticket, admission)
                    raise
                if not reject_reason:
                    break
                await asyncio.sleep(AGAIN_SECONDS)
        self._began = control.now()

    def end_turn(self) -> None:
        if self._began is None:
            return
        control, lane = self._control, self._client.bulk
        took, self._began = control.now() - self._began + OVERHEAD_SECONDS, None
        control.spend(took)
        if took > PIECE_COST * UNIT_SECONDS:
            control.charge(lane.level, lane.flow, took / UNIT_SECONDS - PIECE_COST)
