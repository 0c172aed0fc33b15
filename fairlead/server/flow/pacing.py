"""Turns for streams: what a watch works out after its answer has begun waits for its turn like requests do.

A stream that has much to say makes it in pieces, and asks for a turn before each. Of all streams of a user one is
served at a time, in the user's lane for large requests, so opening many of them makes none of them faster, and the
event loop has one piece of work of that user in a round, however many there are. What each piece really took is
charged to the user.

A turn is never refused: the answer has begun, and there is nobody left to tell. How many streams may wait is bounded by
how many may be open.
"""

import asyncio
from typing import Protocol

from fairlead.core.user import User
from fairlead.server.flow.classify import Client, Clients
from fairlead.server.flow.control import OVERHEAD_SECONDS, UNIT_SECONDS, FlowControl
from fairlead.server.flow.fair_queue import Ticket

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
