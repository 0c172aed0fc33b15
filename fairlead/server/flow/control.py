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
from fairlead.server.flow.classify import CONCURRENCY_LIMIT, QUEUE_FULL, TIMED_OUT
from fairlead.server.flow.fair_queue import LEVEL_CONFIGS, Flow, LevelConfig, PriorityLevel, SeatPool, Ticket

UNIT_SECONDS = 50e-6
"""The time of one unit of cost: that of the cheapest request."""
ITERATION_BUDGET_SECONDS = 0.002
"""How long one iteration of the event loop serves requests before it polls the network."""
SINGLE_CLIENT_BUDGET_SECONDS = 0.008
"""The same while there is only one client: fairness does not matter then, and queueing has a cost."""
SINGLE_CLIENT_AFTER_SECONDS = 1.0
"""How long there must have been no other client for that."""
REQUEST_OVERHEAD_SECONDS = 100e-6
"""The time of a request that is not measured: HTTP parsing, the audit log, sending the response."""
MIN_RESET_SECONDS = 0.001
"""How much must be spent before the next iteration resets the budget. To notice the next iteration costs an iteration,
a tenth of a cheap request. So an iteration may begin with up to this much of its budget spent in earlier ones."""
MAX_WAIT_SECONDS = 5.0
MAX_QUEUED_BYTES = 16 * 1024 * 1024
"""The total size of the bodies of queued requests."""
REJECTIONS_PER_ITERATION = 2
MAX_PENDING_REJECTIONS = 2_000
"""Rejections that may be delayed. Further ones are sent immediately."""
RETRY_AFTER_SECONDS = (1, 2, 3)

_REJECT_MESSAGES = {
    TIMED_OUT: "the server was too busy to start this request within {seconds:g} s",
    QUEUE_FULL: "too many of your requests are already queued",
    CONCURRENCY_LIMIT: "the bodies of queued requests have reached the memory limit",
}


class RequestRejected(TooManyRequests):
    """A request that was rejected by flow control. `reject_reason` is one of `REJECT_REASONS`."""

    reject_reason = QUEUE_FULL


def build_rejection(reject_reason: str, waited_seconds: float = MAX_WAIT_SECONDS) -> RequestRejected:
    """The error for a rejected request, which was queued for `waited_seconds` if it timed out."""
    problem = _REJECT_MESSAGES[reject_reason].format(seconds=waited_seconds)
    retry = random.choice(RETRY_AFTER_SECONDS)
    error = RequestRejected(
        f"{problem}; retry after {retry} s, with fewer concurrent requests", Details(retry_after=retry)
    )
    error.reject_reason = reject_reason
    return error


class FlowControl:
    """Schedules the requests of one server. `now` is a monotonic clock."""

    def __init__(
        self,
        max_wait: float = MAX_WAIT_SECONDS,
        level_configs: Iterable[LevelConfig] = LEVEL_CONFIGS,
        now: Callable[[], float] = time.perf_counter,
        max_queued_bytes: int = MAX_QUEUED_BYTES,
    ) -> None:
        self.max_wait = max_wait
        self._max_queued_bytes = max_queued_bytes
        self.now = now
        self.seats = SeatPool()
        self.levels = {config.name: PriorityLevel(config, self.seats) for config in level_configs}
        self._queued: dict[Ticket, PriorityLevel] = {}
        self._pending_rejections: deque[tuple[asyncio.Future[str], str]] = deque()
        self._queued_bytes = 0
        self._virtual_clock = 0.0
        self._is_dispatch_scheduled = False
        self._timeout_timer: asyncio.TimerHandle | None = None
        self._single_client_at = 0.0
        self.last_client: object = None
        """The client of the latest request."""
        self.budget = SINGLE_CLIENT_BUDGET_SECONDS
        """Seconds per iteration."""
        self.spent = 0.0
        """Seconds that are used, or committed to dispatched requests, since the budget was last reset."""
        self.reset_count = 0
        """How often the budget was reset."""

    def spend(self, seconds: float) -> None:
        """Adds time that was used in this iteration."""
        self.spent += seconds
        if self.spent >= MIN_RESET_SECONDS and not self._is_dispatch_scheduled:
            self._schedule_dispatch()

    def record_client_change(self, client: object) -> None:
        """Records a request of another client than the latest: iterations are short from now on."""
        self.last_client = client
        self.budget = ITERATION_BUDGET_SECONDS
        self._single_client_at = self.now() + SINGLE_CLIENT_AFTER_SECONDS

    def can_start(self, level: PriorityLevel, flow: Flow, seats: int) -> bool:
        """Whether a request can run immediately."""
        return self.spent < self.budget and not level.queue.length and (not seats or level.has_seats(flow, seats))

    def admit(self, level: PriorityLevel, ticket: Ticket) -> "asyncio.Future[str] | None":
        """Returns None if the request can run now. Otherwise a future: its result is empty once the request is
        dispatched, and the reject reason if it is rejected. (An exception would keep its waiter alive.)

        An admitted request with seats must call `release_seats`; one that stops waiting must call `cancel`.
        """
        if self.can_start(level, ticket.flow, ticket.seats):
            self._start(level, ticket)
            level.queue.start(ticket.flow, ticket.cost)
            return None
        admission: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        ticket.queued_at, ticket.waiter = self.now(), admission
        if ticket.body_bytes and self._queued_bytes + ticket.body_bytes > self._max_queued_bytes:
            self._reject(admission, CONCURRENCY_LIMIT)
            return admission
        if not level.queue.length:
            level.virtual_time = max(level.virtual_time, self._virtual_clock)
        victim = level.queue.push(ticket)
        if victim is not ticket:
            self._queued[ticket] = level
            self._queued_bytes += ticket.body_bytes
            if self._timeout_timer is None:
                self._timeout_timer = asyncio.get_running_loop().call_later(self.max_wait, self._reject_timed_out)
        if victim is not None:
            self._reject_queued(victim, QUEUE_FULL)
        self._schedule_dispatch()
        return admission

    def cancel(self, level: PriorityLevel, ticket: Ticket, admission: "asyncio.Future[str]") -> None:
        """Withdraws a request that no longer waits, for example because the client disconnected."""
        if admission.done() and not admission.cancelled() and not admission.result():
            self.release_seats(level, ticket)
        elif level.queue.remove(ticket):
            self._drop_queued(ticket)

    def release_seats(self, level: PriorityLevel, ticket: Ticket) -> None:
        """Releases the seats of a request."""
        level.release_seats(ticket.flow, ticket.seats)
        ticket.seats = 0
        if level.queue.length:
            self._schedule_dispatch()

    def charge(self, level: PriorityLevel, flow: Flow, cost: float) -> None:
        """Charges a flow and its level for the cost of a request beyond the estimate."""
        level.queue.charge(flow, cost)
        level.virtual_time = max(level.virtual_time, self._virtual_clock) + cost / level.config.share

    def _schedule_dispatch(self) -> None:
        if not self._is_dispatch_scheduled:
            self._is_dispatch_scheduled = True
            asyncio.get_running_loop().call_soon(self._dispatch)

    def _dispatch(self) -> None:
        """Runs once per iteration of the event loop: resets the budget and dispatches queued requests."""
        self._is_dispatch_scheduled = False
        self.spent = 0.0
        self.reset_count += 1
        if self.budget == ITERATION_BUDGET_SECONDS and self.now() >= self._single_client_at:
            self.budget = SINGLE_CLIENT_BUDGET_SECONDS
        while self.spent < self.budget:
            level = self._next_level()
            if level is None:
                break
            ticket = level.queue.pop()
            self._start(level, ticket)
            self._drop_queued(ticket)
            self.spent += REQUEST_OVERHEAD_SECONDS + ticket.cost * UNIT_SECONDS
            _wake_waiter(ticket)
        for _ in range(min(REJECTIONS_PER_ITERATION, len(self._pending_rejections))):
            admission, reject_reason = self._pending_rejections.popleft()
            if not admission.done():
                admission.set_result(reject_reason)
        if self._pending_rejections or self.spent >= self.budget:
            self._schedule_dispatch()

    def _next_level(self) -> PriorityLevel | None:
        """The level to serve next: of those with a dispatchable request, the one that was served least."""
        best: PriorityLevel | None = None
        for level in self.levels.values():
            if (
                level.queue.length
                and self._has_dispatchable_request(level)
                and (best is None or level.virtual_time < best.virtual_time)
            ):
                best = level
        return best

    def _has_dispatchable_request(self, level: PriorityLevel) -> bool:
        """Whether there is a request with enough seats. Flows without are parked until seats are released."""
        queue = level.queue
        while (ticket := queue.peek()) is not None:
            if not ticket.seats or level.has_seats(ticket.flow, ticket.seats):
                return True
            queue.park()
        return False

    def _start(self, level: PriorityLevel, ticket: Ticket) -> None:
        self._virtual_clock = max(self._virtual_clock, level.virtual_time)
        level.virtual_time = self._virtual_clock + ticket.cost / level.config.share
        if ticket.seats:
            level.acquire_seats(ticket.flow, ticket.seats)

    def _drop_queued(self, ticket: Ticket) -> None:
        if self._queued.pop(ticket, None) is not None:
            self._queued_bytes -= ticket.body_bytes

    def _reject_queued(self, ticket: Ticket, reject_reason: str) -> None:
        self._drop_queued(ticket)
        if isinstance(ticket.waiter, asyncio.Future):
            self._reject(ticket.waiter, reject_reason)

    def _reject_timed_out(self) -> None:
        """Rejects requests that were queued too long. All have the same limit, so the oldest are in front."""
        self._timeout_timer = None
        now = self.now()
        while self._queued:
            ticket, level = next(iter(self._queued.items()))
            left = ticket.queued_at + self.max_wait - now
            if left > 0:
                self._timeout_timer = asyncio.get_running_loop().call_later(left, self._reject_timed_out)
                return
            level.queue.remove(ticket)
            self._reject_queued(ticket, TIMED_OUT)

    def _reject(self, admission: "asyncio.Future[str]", reject_reason: str) -> None:
        """Rejects a request: in a later iteration, or immediately if too many rejections are pending."""
        if len(self._pending_rejections) >= MAX_PENDING_REJECTIONS:
            admission.set_result(reject_reason)
        else:
            self._pending_rejections.append((admission, reject_reason))
            self._schedule_dispatch()


def _wake_waiter(ticket: Ticket) -> None:
    waiter = ticket.waiter
    if isinstance(waiter, asyncio.Future) and not waiter.done():
        waiter.set_result("")
