"""Start-time fair queueing: of all flows with queued requests, the one that was served least goes first.

Each flow has a virtual time: the cost it was served so far, in units. The virtual clock of the queue is the virtual
time of the flow that was served last. A flow that becomes active starts at the clock: idle flows accumulate no credit,
and new flows do not wait for what others were served before. The actual cost of a request is charged afterwards.

Kubernetes bounds the number of queues with shuffle sharding. Here the number of queued requests bounds the flows, so
flows never share a queue. This module knows neither time nor the event loop; `control.py` does.

Each priority level has a queue. Its share is a percentage of the event loop's time while the server is saturated;
levels may use what others leave. Seats bound the concurrency of work that runs outside the event loop, such as writes
to the store.
"""

from collections import deque
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

MAX_DEBT = 100_000.0
"""How many units a flow can owe at most: five seconds of work."""

MAX_STALE_ENTRIES = 64
"""Stale heap entries that are tolerated before the heap is rebuilt."""


class Flow:
    """The queued and running requests of one user in one priority level."""

    __slots__ = ("heap_entry", "is_parked", "name", "seats_in_use", "virtual_time", "waiting")

    def __init__(self, name: str) -> None:
        self.name = name
        self.virtual_time = 0.0
        self.waiting: deque[Ticket] = deque()
        self.seats_in_use = 0
        """Seats of its running requests."""
        self.is_parked = False
        """Whether it waits for a seat, and is not eligible for dispatch."""
        self.heap_entry = 0
        """The number of its current heap entry; older entries are ignored."""

    @property
    def is_idle(self) -> bool:
        return not self.waiting and not self.seats_in_use


class Ticket:
    """A queued or admitted request. `cost` is in units."""

    __slots__ = ("body_bytes", "cost", "flow", "queued_at", "seats", "waiter")

    def __init__(self, flow: Flow, cost: float, seats: int = 0, body_bytes: int = 0) -> None:
        self.flow = flow
        self.cost = cost
        self.seats = seats
        self.body_bytes = body_bytes
        self.queued_at = 0.0
        self.waiter: object = None
        """Opaque to the queue. `control.py` stores the future of the request here."""


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """How many requests may be queued: in total, and the minimum that one flow is entitled to."""

    total: int = 1000
    per_flow: int = 50


class FairQueue:
    """The flows of one priority level."""

    def __init__(self, limits: QueueLimits) -> None:
        self._limits = limits
        self._heap: list[tuple[float, int, Flow]] = []
        self._last_entry = 0
        self._flows_by_length: list[dict[Flow, None]] = [{} for _ in range(limits.total + 1)]
        self._max_length = 0
        self._parked: dict[Flow, None] = {}
        self._flows_waiting = 0
        self.virtual_clock = 0.0
        self.length = 0
        """The number of queued requests."""

    def push(self, ticket: Ticket) -> Ticket | None:
        """Queues a request. Returns the request that is dropped for it, if any; that may be the request itself.

        A full queue drops the newest request of the longest flow. One flow may queue its fair share: the capacity
        divided by the number of flows with queued requests.
        """
        flow = ticket.flow
        fair_share = self._limits.total // (self._flows_waiting + (not flow.waiting) + 1)
        if len(flow.waiting) >= max(self._limits.per_flow, fair_share):
            return ticket
        victim = None
        if self.length >= self._limits.total:
            longest = self._longest_flow()
            if longest is None or len(longest.waiting) <= len(flow.waiting) + 1:
                return ticket
            victim = longest.waiting[-1]
            self.remove(victim)
        if not flow.waiting:
            flow.virtual_time = max(flow.virtual_time, self.virtual_clock)
            self._flows_waiting += 1
        flow.waiting.append(ticket)
        self.length += 1
        self._update_length_index(flow, len(flow.waiting) - 1)
        if len(flow.waiting) == 1:
            self._push_to_heap(flow)
        return victim

    def peek(self) -> Ticket | None:
        """The request to dispatch next."""
        flow = self._first_flow()
        return flow.waiting[0] if flow is not None else None

    def pop(self) -> Ticket:
        """Removes the request to dispatch next, and charges its flow the estimated cost."""
        flow = self._first_flow()
        if flow is None:
            raise IndexError("no flow is eligible for dispatch")
        heappop(self._heap)
        flow.heap_entry = 0
        ticket = flow.waiting.popleft()
        self._after_removal(flow)
        self.start(flow, ticket.cost)
        if flow.waiting:
            self._push_to_heap(flow)
        return ticket

    def start(self, flow: Flow, cost: float) -> None:
        """Charges the estimated cost of a request that starts now, queued before or not."""
        begins = max(flow.virtual_time, self.virtual_clock)
        self.virtual_clock = begins
        flow.virtual_time = begins + cost

    def charge(self, flow: Flow, cost: float) -> None:
        """Corrects the cost that a flow was served: adds what the estimate missed, or refunds the excess."""
        before = flow.virtual_time
        flow.virtual_time = (
            min(max(before, self.virtual_clock) + cost, self.virtual_clock + MAX_DEBT) if cost > 0 else before + cost
        )
        if flow.waiting and not flow.is_parked and flow.virtual_time != before:
            self._push_to_heap(flow)

    def park(self) -> None:
        """Makes the next flow ineligible, because there are no seats for it. `unpark` reverts this."""
        flow = self._first_flow()
        if flow is not None:
            heappop(self._heap)
            flow.heap_entry, flow.is_parked = 0, True
            self._parked[flow] = None

    def unpark(self) -> None:
        """Makes all parked flows eligible again."""
        parked, self._parked = self._parked, {}
        for flow in parked:
            flow.is_parked = False
            if flow.waiting:
                self._push_to_heap(flow)

    def remove(self, ticket: Ticket) -> bool:
        """Removes a request from the queue. False if it was not queued."""
        flow = ticket.flow
        was_first = bool(flow.waiting) and flow.waiting[0] is ticket
        if flow.waiting and flow.waiting[-1] is ticket:
            flow.waiting.pop()
        else:
            try:
                flow.waiting.remove(ticket)
            except ValueError:
                return False
        self._after_removal(flow)
        if was_first and not flow.waiting:
            flow.heap_entry = 0
            self._parked.pop(flow, None)
            flow.is_parked = False
        return True

    def _after_removal(self, flow: Flow) -> None:
        self.length -= 1
        if not flow.waiting:
            self._flows_waiting -= 1
        self._update_length_index(flow, len(flow.waiting) + 1)

    def _push_to_heap(self, flow: Flow) -> None:
        """Adds a flow to the heap of eligible flows, in order of virtual time, then of arrival."""
        if flow.is_parked:
            return
        self._last_entry += 1
        flow.heap_entry = self._last_entry
        heappush(self._heap, (flow.virtual_time, self._last_entry, flow))
        if len(self._heap) > 4 * self._flows_waiting + MAX_STALE_ENTRIES:
            self._heap = [item for item in self._heap if item[2].heap_entry == item[1]]
            heapify(self._heap)

    def _first_flow(self) -> Flow | None:
        while self._heap:
            _, entry, flow = self._heap[0]
            if flow.heap_entry == entry:
                return flow
            heappop(self._heap)
        return None

    def _update_length_index(self, flow: Flow, before: int) -> None:
        """Maintains the index of flows by queue length, so that the longest is found without a search."""
        now = len(flow.waiting)
        if before:
            self._flows_by_length[before].pop(flow, None)
        if now:
            self._flows_by_length[now][flow] = None
            self._max_length = max(self._max_length, now)
        while self._max_length and not self._flows_by_length[self._max_length]:
            self._max_length -= 1

    def _longest_flow(self) -> Flow | None:
        return next(reversed(self._flows_by_length[self._max_length])) if self._max_length else None


EXEMPT, SYSTEM, INTERACTIVE, BULK, ANONYMOUS = "exempt", "system", "interactive", "bulk", "anonymous"

TOTAL_SEATS = 256
MAX_CONCURRENT_BULK = 2
"""Bulk requests that run concurrently, in threads or on the event loop. One user can have one of them."""


@dataclass(frozen=True, slots=True)
class LevelConfig:
    """The configuration of a priority level: its share in percent, its seats, and its queue limits."""

    name: str
    share: int
    seats: int
    limits: QueueLimits = field(default_factory=QueueLimits)
    can_borrow: bool = True
    """Whether it may use free seats of other levels."""


LEVEL_CONFIGS = (
    LevelConfig(SYSTEM, 20, TOTAL_SEATS * 20 // 100),
    LevelConfig(INTERACTIVE, 50, TOTAL_SEATS * 50 // 100),
    LevelConfig(BULK, 20, MAX_CONCURRENT_BULK, can_borrow=False),
    LevelConfig(ANONYMOUS, 10, TOTAL_SEATS * 10 // 100, QueueLimits(total=200, per_flow=10)),
)


def seats_for_cost(config: LevelConfig, cost: int) -> int:
    """Seats for a request of this estimated cost: at most an eighth of its level."""
    return max(1, min(cost, config.seats * 15 // 100, config.seats // 8))


class SeatPool:
    """Counts the seats in use over all levels."""

    __slots__ = ("in_use", "total")

    def __init__(self, total: int = TOTAL_SEATS) -> None:
        self.total = total
        self.in_use = 0


class PriorityLevel:
    """The state of a priority level."""

    __slots__ = ("_pool", "config", "executing", "queue", "seats_in_use", "virtual_time")

    def __init__(self, config: LevelConfig, pool: SeatPool) -> None:
        self.config = config
        self.queue = FairQueue(config.limits)
        self.seats_in_use = 0
        self.virtual_time = 0.0
        """The cost that the level was served, divided by its share."""
        self._pool = pool

    def has_seats(self, flow: Flow, seats: int) -> bool:
        """Whether the flow may acquire this many more seats.

        A level can always use all of its own seats, even if others have borrowed some. A flow may have at most as many
        seats as it leaves free, so there is always room for another flow. Its first request only needs one free seat.
        """
        free = self.config.seats - self.seats_in_use
        if self.config.can_borrow:
            free = max(free, self._pool.total - self._pool.in_use)
        return free > 0 if not flow.seats_in_use else flow.seats_in_use + seats <= free

    def acquire_seats(self, flow: Flow, seats: int) -> None:
        flow.seats_in_use += seats
        self.seats_in_use += seats
        self._pool.in_use += seats

    def release_seats(self, flow: Flow, seats: int) -> None:
        self.acquire_seats(flow, -seats)
        self.queue.unpark()
