"""What runs now, what waits, and what is refused.

Everything that Python does here it does in one thread, in turns of its event loop. Most requests are answered within
one step, so what crowds others out is not what is under way but what comes before them in the same turn. A turn has a
budget. While it lasts and nothing waits, requests run at once. After that they wait in their flows, and the next turn
lets as many of them go on as fit into it: first the level that has had least of its share, in it the flow that has had
least. In between, the event loop looks at the network.

Refused requests are answered at a bounded pace: to whoever asks again at once, being told so must not come cheaper
than being served.
"""

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Iterable

from fairlead.core.errors import Details, TooManyRequests
from fairlead.server.flow.classify import QUEUE_FULL, TIMED_OUT, TOO_LARGE
from fairlead.server.flow.fair_queue import Flow, Ticket
from fairlead.server.flow.levels import PRIORITIES, Level, Priority, Seats

UNIT_SECONDS = 50e-6
"""What one unit of cost is worth: the shortest request there is."""
TURN_SECONDS = 0.002
"""How long one turn of the event loop serves requests before it looks at the network again."""
ALONE_TURN_SECONDS = 0.008
"""The same while all requests are from one flow: it has nobody to be fair to, and waiting costs time itself."""
ALONE_SECONDS = 1.0
"""How long nobody else must have asked for that."""
OVERHEAD_SECONDS = 100e-6
"""What every request takes outside of what is measured: HTTP, the audit log, sending its answer."""
LONGEST_WAIT = 5.0
QUEUED_BYTES = 16 * 1024 * 1024
"""What the bodies of waiting requests may add up to."""
REFUSALS_PER_TURN = 2
REFUSALS = 2_000
"""How many may wait to be told that they are refused. Beyond that there is nothing left to lose by telling at once."""
RETRY_SECONDS = (1, 2, 3)

_WHY = {
    TIMED_OUT: "the server had no time for this request within {seconds:g} s",
    QUEUE_FULL: "too many requests of yours are waiting already",
    TOO_LARGE: "the bodies of the requests that are waiting take up all the room there is for them",
}


class Refused(TooManyRequests):
    """A request that was not let in. `why` is one of Kubernetes' reasons."""

    why = QUEUE_FULL


def refusal(why: str, seconds: float = LONGEST_WAIT) -> Refused:
    """What a request is told that was not let in, and may have waited for so many seconds."""
    told = _WHY[why].format(seconds=seconds)
    retry = random.choice(RETRY_SECONDS)
    refused = Refused(f"{told}; try again after {retry} s, and with fewer at a time", Details(retry_after=retry))
    refused.why = why
    return refused


class FlowControl:
    """The levels of one server and whose turn it is. `now` tells seconds that never go backwards."""

    def __init__(
        self,
        wait: float = LONGEST_WAIT,
        priorities: Iterable[Priority] = PRIORITIES,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.longest_wait = wait
        self.now = now
        self.seats = Seats()
        self.levels = {each.name: Level(each, self.seats) for each in priorities}
        self._waiting: dict[Ticket, Level] = {}
        self._refused: deque[tuple[asyncio.Future[str], str]] = deque()
        self._queued_bytes = 0
        self._clock = 0.0
        self._is_open = False
        self._timer: asyncio.TimerHandle | None = None
        self._alone_at = 0.0
        self.latest: object = None
        """Whoever has asked last."""
        self.budget = ALONE_TURN_SECONDS
        """Seconds that a turn has."""
        self.spent = 0.0
        """Seconds of this turn that are used up, or promised to requests that were let go on."""

    def spend(self, seconds: float) -> None:
        """Notes time that was used up in this turn."""
        self.spent += seconds
        if not self._is_open:
            self._open_turn()

    def note(self, client: object) -> None:
        """Notes that somebody else than before asks for something: from now on turns are short."""
        self.latest = client
        self.budget = TURN_SECONDS
        self._alone_at = self.now() + ALONE_SECONDS

    def can_start(self, level: Level, flow: Flow, seats: int) -> bool:
        """Whether a request need not wait at all."""
        return self.spent < self.budget and not level.queue.length and (not seats or level.has_seats(flow, seats))

    def ask(self, level: Level, ticket: Ticket) -> "asyncio.Future[str] | None":
        """None if a request can go on at once. Otherwise something to await, which is empty when it is the request's
        turn, and says why when it is refused: an error would hold on to whoever waits for it.

        Whoever is let in with seats gives them back with `leave`; whoever gives up calls `give_up`.
        """
        if self.can_start(level, ticket.flow, ticket.seats):
            self._begin(level, ticket)
            level.queue.start(ticket.flow, ticket.cost)
            return None
        turn: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        ticket.since, ticket.wake = self.now(), turn
        if ticket.size and self._queued_bytes + ticket.size > QUEUED_BYTES:
            self._refuse(turn, TOO_LARGE)
            return turn
        if not level.queue.length:
            level.tag = max(level.tag, self._clock)
        victim = level.queue.push(ticket)
        if victim is not ticket:
            self._waiting[ticket] = level
            self._queued_bytes += ticket.size
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(self.longest_wait, self._look_at_oldest)
        if victim is not None:
            self._send_away(victim, QUEUE_FULL)
        self._open_turn()
        return turn

    def give_up(self, level: Level, ticket: Ticket, turn: "asyncio.Future[str]") -> None:
        """Whoever has waited with a ticket does so no longer, because the request is over."""
        if turn.done() and not turn.cancelled() and not turn.result():
            self.leave(level, ticket)
        elif level.queue.remove(ticket):
            self._forget(ticket)

    def leave(self, level: Level, ticket: Ticket) -> None:
        """Gives back the seats of a request."""
        level.give_back_seats(ticket.flow, ticket.seats)
        ticket.seats = 0
        if level.queue.length:
            self._open_turn()

    def charge(self, level: Level, flow: Flow, cost: float) -> None:
        """Has a flow and its level pay for what a request cost beyond what was expected."""
        level.queue.charge(flow, cost)
        level.tag = max(level.tag, self._clock) + cost / level.priority.share

    def _open_turn(self) -> None:
        if not self._is_open:
            self._is_open = True
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        """The event loop has come round: there is a new budget, first of all for those who wait."""
        self._is_open = False
        self.spent = 0.0
        if self.budget == TURN_SECONDS and self.now() >= self._alone_at:
            self.budget = ALONE_TURN_SECONDS
        while self.spent < self.budget:
            level = self._next_level()
            if level is None:
                break
            ticket = level.queue.pop()
            self._begin(level, ticket)
            self._forget(ticket)
            self.spent += OVERHEAD_SECONDS + ticket.cost * UNIT_SECONDS
            _wake(ticket)
        for _ in range(min(REFUSALS_PER_TURN, len(self._refused))):
            turn, why = self._refused.popleft()
            if not turn.done():
                turn.set_result(why)
        if self._refused or self.spent >= self.budget:
            self._open_turn()

    def _next_level(self) -> Level | None:
        """The level whose turn it is: of those with a request that could go on, the one that has had least."""
        best: Level | None = None
        for level in self.levels.values():
            if level.queue.length and self._has_turn(level) and (best is None or level.tag < best.tag):
                best = level
        return best

    def _has_turn(self, level: Level) -> bool:
        """Whether there is a request with all the seats it needs. Those without are put aside until there are."""
        queue = level.queue
        while (ticket := queue.peek()) is not None:
            if not ticket.seats or level.has_seats(ticket.flow, ticket.seats):
                return True
            queue.park()
        return False

    def _begin(self, level: Level, ticket: Ticket) -> None:
        self._clock = max(self._clock, level.tag)
        level.tag = self._clock + ticket.cost / level.priority.share
        if ticket.seats:
            level.take_seats(ticket.flow, ticket.seats)

    def _forget(self, ticket: Ticket) -> None:
        if self._waiting.pop(ticket, None) is not None:
            self._queued_bytes -= ticket.size

    def _send_away(self, ticket: Ticket, why: str) -> None:
        self._forget(ticket)
        if isinstance(ticket.wake, asyncio.Future):
            self._refuse(ticket.wake, why)

    def _look_at_oldest(self) -> None:
        """Sends away who has waited for too long. All may wait equally long, so the oldest are at the front."""
        self._timer = None
        now = self.now()
        while self._waiting:
            ticket, level = next(iter(self._waiting.items()))
            left = ticket.since + self.longest_wait - now
            if left > 0:
                self._timer = asyncio.get_running_loop().call_later(left, self._look_at_oldest)
                return
            level.queue.remove(ticket)
            self._send_away(ticket, TIMED_OUT)

    def _refuse(self, turn: "asyncio.Future[str]", why: str) -> None:
        """Has a request told that it is refused: at its turn, unless there are too many of them already."""
        if len(self._refused) >= REFUSALS:
            turn.set_result(why)
        else:
            self._refused.append((turn, why))
            self._open_turn()


def _wake(ticket: Ticket) -> None:
    turn = ticket.wake
    if isinstance(turn, asyncio.Future) and not turn.done():
        turn.set_result("")
