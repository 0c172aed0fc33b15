"""How many long-running requests may be open: watches, WebSockets, and what goes on through gateways.

They hold no seats, because they hardly cost anything while nothing happens. But each is memory and a connection, and
each event costs as many times as there are watches. So they are counted by user, with all keys, sessions and
impersonated identities, whatever sort they are.

Nobody has more of them than are left for others, so that there is always room for one more user. The last part is for
administrators and for components of the platform: whoever has to look after the server must be able to.
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
"""One out of so many is for administrators and components alone."""
RETRY_SECONDS = 5

IsComponent = Callable[[User], bool]


class Streams:
    """All long-running requests that are open."""

    def __init__(self, total: int, per_user: int, is_component: IsComponent = lambda user: False) -> None:
        self._total = total
        self._per_user = per_user
        self._is_component = is_component
        self._open: Counter[str] = Counter()
        self._count = 0

    def require_room(self, user: User) -> None:
        """Raises TooManyRequests where the user may not have another one."""
        real = user.impersonator or user
        is_privileged = real.is_admin or self._is_component(real)
        total = self._total if is_privileged else self._total - self._total // RESERVED
        own, free = self._open[user.payer], total - self._count
        if own >= self._per_user:
            raise _refusal(f"you have {self._per_user} watches and other streams open, which is the limit")
        if free <= 0:
            raise _refusal(f"{self._count} watches and other streams are open, as many as there may be")
        if own >= free:
            raise _refusal(f"you have {own} watches and other streams open, and others have hardly any room left")

    @contextmanager
    def counted(self, user: User) -> Iterator[None]:
        """Counts one for as long as it lasts."""
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
        """The same, and asks again whether there is room: many may have been told so at the same time."""
        self.require_room(user)
        with self.counted(user):
            yield


def _refusal(why: str) -> TooManyRequests:
    message = f"{why}; close some that you do not need, or try again later"
    return TooManyRequests(message, Details(retry_after=RETRY_SECONDS))


# DOC-MERGED server/flow/pacing
# Turns for streams: what a watch works out after its answer has begun waits for its turn like requests do.
#
# A stream that has much to say makes it in pieces, and asks for a turn before each. Of all streams of a user one is
# served at a time, in the user's lane for large requests, so opening many of them makes none of them faster, and the
# event loop has one piece of work of that user in a round, however many there are. What each piece really took is
# charged to the user.
#
# A turn is never refused: the answer has begun, and there is nobody left to tell. How many streams may wait is bounded by
# how many may be open.


PIECE_COST = 10.0
"""What a piece is expected to cost, in units."""
AGAIN_SECONDS = 0.05
"""How long a stream waits whose turn has not come while requests of its kind were refused."""


class Pace(Protocol):
    """The turns of one stream."""

    async def wait_for_turn(self) -> None:
        """Returns when the next piece may be made."""

    def end_turn(self) -> None:
        """Says that the piece is made. Nothing may have been awaited since its turn came."""


class NoPace:
    """For streams that nobody else waits for."""

    async def wait_for_turn(self) -> None:
        pass

    def end_turn(self) -> None:
        pass


class Pacer:
    """Has the streams of all users take turns."""

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
                turn = control.ask(lane.level, ticket)
                if turn is None:
                    break
                try:
                    why = await turn
                except BaseException:
                    control.give_up(lane.level, ticket, turn)
                    raise
                if not why:
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
