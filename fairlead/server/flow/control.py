"""Dispatches, queues and rejects requests.

All Python code of the server runs in one thread, in iterations of its event loop. Most requests finish within one step.
So the scarce resource is not concurrency but the time of an iteration, and each iteration has a time budget. While it
lasts and nothing is queued, requests run immediately. After that they are queued by flow. The next iteration dispatches
as many as fit its budget: first the priority level that has received the least of its share, and in it the flow that
has received the least. Between iterations, the event loop polls the network.

Rejections are sent at a bounded rate: for a client that retries immediately, a rejection must not be cheaper than being
served.
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
"""The time of one unit of cost: that of the cheapest request."""
TURN_SECONDS = 0.002
"""How long one iteration of the event loop serves requests before it polls the network."""
ALONE_TURN_SECONDS = 0.008
"""The same while there is only one client: fairness does not matter then, and queueing has a cost."""
ALONE_SECONDS = 1.0
"""How long there must have been no other client for that."""
OVERHEAD_SECONDS = 100e-6
"""The time of a request that is not measured: HTTP parsing, the audit log, sending the response."""
LONGEST_WAIT = 5.0
QUEUED_BYTES = 16 * 1024 * 1024
"""The total size of the bodies of queued requests."""
REFUSALS_PER_TURN = 2
REFUSALS = 2_000
"""Rejections that may be delayed. Further ones are sent immediately."""
RETRY_SECONDS = (1, 2, 3)

_WHY = {
    TIMED_OUT: "the server was too busy to start this request within {seconds:g} s",
    QUEUE_FULL: "too many of your requests are already queued",
    TOO_LARGE: "the bodies of queued requests have reached the memory limit",
}


class Refused(TooManyRequests):
    """A request that was rejected by flow control. `reject_reason` is one of `REJECT_REASONS`."""

    why = QUEUE_FULL


def refusal(why: str, seconds: float = LONGEST_WAIT) -> Refused:
    """The error for a rejected request, which was queued for `waited_seconds` if it timed out."""
    problem = _WHY[why].format(seconds=seconds)
    retry = random.choice(RETRY_SECONDS)
    error = Refused(f"{problem}; retry after {retry} s, with fewer concurrent requests", Details(retry_after=retry))
    error.why = why
    return error


class FlowControl:
    """Schedules the requests of one server. `now` is a monotonic clock."""

    def __init__(
        self,
        wait: float = LONGEST_WAIT,
        priorities: Iterable[Priority] = PRIORITIES,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.longest_wait = wait
        self.now = now
        self.seats = Seats()
        self.levels = {config.name: Level(config, self.seats) for config in priorities}
        self._waiting: dict[Ticket, Level] = {}
        self._refused: deque[tuple[asyncio.Future[str], str]] = deque()
        self._queued_bytes = 0
        self._clock = 0.0
        self._is_open = False
        self._timer: asyncio.TimerHandle | None = None
        self._alone_at = 0.0
        self.latest: object = None
        """The client of the latest request."""
        self.budget = ALONE_TURN_SECONDS
        """Seconds per iteration."""
        self.spent = 0.0
        """Seconds of this iteration that are used, or committed to dispatched requests."""

    def spend(self, seconds: float) -> None:
        """Adds time that was used in this iteration."""
        self.spent += seconds
        if not self._is_open:
            self._open_turn()

    def note(self, client: object) -> None:
        """Records a request of another client than the latest: iterations are short from now on."""
        self.latest = client
        self.budget = TURN_SECONDS
        self._alone_at = self.now() + ALONE_SECONDS

    def can_start(self, level: Level, flow: Flow, seats: int) -> bool:
        """Whether a request can run immediately."""
        return self.spent < self.budget and not level.queue.length and (not seats or level.has_seats(flow, seats))

    def ask(self, level: Level, ticket: Ticket) -> "asyncio.Future[str] | None":
        """Returns None if the request can run now. Otherwise a future: its result is empty once the request is
        dispatched, and the reject reason if it is rejected. (An exception would keep its waiter alive.)

        An admitted request with seats must call `release_seats`; one that stops waiting must call `cancel`.
        """
        if self.can_start(level, ticket.flow, ticket.seats):
            self._begin(level, ticket)
            level.queue.start(ticket.flow, ticket.cost)
            return None
        admission: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        ticket.since, ticket.wake = self.now(), admission
        if ticket.size and self._queued_bytes + ticket.size > QUEUED_BYTES:
            self._refuse(admission, TOO_LARGE)
            return admission
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
        return admission

    def give_up(self, level: Level, ticket: Ticket, turn: "asyncio.Future[str]") -> None:
        """Withdraws a request that no longer waits, for example because the client disconnected."""
        if turn.done() and not turn.cancelled() and not turn.result():
            self.leave(level, ticket)
        elif level.queue.remove(ticket):
            self._forget(ticket)

    def leave(self, level: Level, ticket: Ticket) -> None:
        """Releases the seats of a request."""
        level.give_back_seats(ticket.flow, ticket.seats)
        ticket.seats = 0
        if level.queue.length:
            self._open_turn()

    def charge(self, level: Level, flow: Flow, cost: float) -> None:
        """Charges a flow and its level for the cost of a request beyond the estimate."""
        level.queue.charge(flow, cost)
        level.tag = max(level.tag, self._clock) + cost / level.priority.share

    def _open_turn(self) -> None:
        if not self._is_open:
            self._is_open = True
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        """Runs once per iteration of the event loop: resets the budget and dispatches queued requests."""
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
            admission, reject_reason = self._refused.popleft()
            if not admission.done():
                admission.set_result(reject_reason)
        if self._refused or self.spent >= self.budget:
            self._open_turn()

    def _next_level(self) -> Level | None:
        """The level to serve next: of those with a dispatchable request, the one that was served least."""
        best: Level | None = None
        for level in self.levels.values():
            if level.queue.length and self._has_turn(level) and (best is None or level.tag < best.tag):
                best = level
        return best

    def _has_turn(self, level: Level) -> bool:
        """Whether there is a request with enough seats. Flows without are parked until seats are released."""
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
        """Rejects requests that were queued too long. All have the same limit, so the oldest are in front."""
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
        """Rejects a request: in a later iteration, or immediately if too many rejections are pending."""
        if len(self._refused) >= REFUSALS:
            turn.set_result(why)
        else:
            self._refused.append((turn, why))
            self._open_turn()


def _wake(ticket: Ticket) -> None:
    waiter = ticket.wake
    if isinstance(waiter, asyncio.Future) and not waiter.done():
        waiter.set_result("")
