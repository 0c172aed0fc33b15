"""Start-time fair queueing: of all flows that wait, the one goes first that has had the least.

Each flow has a tag, its virtual time: what it has been served so far, in units of cost. The queue's own virtual clock
is the tag of whoever was served last. A flow that was idle begins at the clock: nobody saves up turns by asking for
nothing, and nobody who has just come has to wait for what others were served before. What a request really cost is
known afterwards, and is charged then.

The number of flows is not bounded by a table of hashed queues, as in Kubernetes, but by what may wait in all. So flows
never share a queue. Nothing here knows time or the event loop: `control.py` does.
"""

from collections import deque
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

MAX_DEBT = 100_000.0
"""How many units a flow can be behind the clock: five seconds of work. Nothing is held against anybody for longer."""

SPARE_ENTRIES = 64
"""How many entries of the heap may be outdated before it is tidied up."""


class Flow:
    """What one user has waiting and under way in one priority level."""

    __slots__ = ("entry", "held", "is_parked", "name", "tag", "waiting")

    def __init__(self, name: str) -> None:
        self.name = name
        self.tag = 0.0
        self.waiting: deque[Ticket] = deque()
        self.held = 0
        """Seats that its requests hold."""
        self.is_parked = False
        """Whether it waits for a seat, and so not for its turn."""
        self.entry = 0
        """Which of its entries in the heap counts; older ones are passed over."""

    @property
    def is_idle(self) -> bool:
        return not self.waiting and not self.held


class Ticket:
    """A request that waits, or was let in. `cost` is in units, `size` in bytes of its body."""

    __slots__ = ("cost", "flow", "seats", "since", "size", "wake")

    def __init__(self, flow: Flow, cost: float, seats: int = 0, size: int = 0) -> None:
        self.flow = flow
        self.cost = cost
        self.seats = seats
        self.size = size
        self.since = 0.0
        self.wake: object = None
        """Whatever the owner of the queue wants to find again."""


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """How many requests may wait: in all, and of one flow even when all others wait, too."""

    total: int = 1000
    per_flow: int = 50


class FairQueue:
    """The flows of one level."""

    def __init__(self, limits: QueueLimits) -> None:
        self._limits = limits
        self._heap: list[tuple[float, int, Flow]] = []
        self._entries = 0
        self._by_length: list[dict[Flow, None]] = [{} for _ in range(limits.total + 1)]
        self._longest = 0
        self._parked: dict[Flow, None] = {}
        self._flows_waiting = 0
        self.clock = 0.0
        self.length = 0
        """How many requests wait."""

    @property
    def has_candidates(self) -> bool:
        """Whether any flow waits for its turn, and not only for a seat."""
        return self.length > 0 and self._first() is not None

    def push(self, ticket: Ticket) -> Ticket | None:
        """Has a request wait. Returns the one that has to go for it, which may be itself.

        A full queue loses the youngest request of whoever has most waiting. One flow may have as many waiting as if
        every flow with something in the queue had the same part of it.
        """
        flow = ticket.flow
        fair_part = self._limits.total // (self._flows_waiting + (not flow.waiting) + 1)
        if len(flow.waiting) >= max(self._limits.per_flow, fair_part):
            return ticket
        victim = None
        if self.length >= self._limits.total:
            longest = self._longest_flow()
            if longest is None or len(longest.waiting) <= len(flow.waiting) + 1:
                return ticket
            victim = longest.waiting[-1]
            self.remove(victim)
        if not flow.waiting:
            flow.tag = max(flow.tag, self.clock)
            self._flows_waiting += 1
        flow.waiting.append(ticket)
        self.length += 1
        self._note_length(flow, len(flow.waiting) - 1)
        if len(flow.waiting) == 1:
            self._enter(flow)
        return victim

    def peek(self) -> Ticket | None:
        """The request whose turn it is."""
        flow = self._first()
        return flow.waiting[0] if flow is not None else None

    def pop(self) -> Ticket:
        """Takes out the request whose turn it is, and charges its flow the expected cost."""
        flow = self._first()
        if flow is None:
            raise IndexError("no flow has a turn")
        heappop(self._heap)
        flow.entry = 0
        ticket = flow.waiting.popleft()
        self._left(flow)
        self.start(flow, ticket.cost)
        if flow.waiting:
            self._enter(flow)
        return ticket

    def start(self, flow: Flow, cost: float) -> None:
        """Notes that a request is served, which did not have to wait or has just been taken out."""
        begins = max(flow.tag, self.clock)
        self.clock = begins
        flow.tag = begins + cost

    def charge(self, flow: Flow, cost: float) -> None:
        """Adds to what a flow has been served, or takes away what was expected too much."""
        before = flow.tag
        flow.tag = min(max(before, self.clock) + cost, self.clock + MAX_DEBT) if cost > 0 else before + cost
        if flow.waiting and not flow.is_parked and flow.tag != before:
            self._enter(flow)

    def park(self) -> None:
        """Puts the flow aside whose turn it is, because there is no seat for it. `unpark` takes it back."""
        flow = self._first()
        if flow is not None:
            heappop(self._heap)
            flow.entry, flow.is_parked = 0, True
            self._parked[flow] = None

    def unpark(self) -> None:
        """Lets all that wait for seats take part again."""
        parked, self._parked = self._parked, {}
        for flow in parked:
            flow.is_parked = False
            if flow.waiting:
                self._enter(flow)

    def remove(self, ticket: Ticket) -> bool:
        """Takes out a request that waits no longer. False if it was not waiting."""
        flow = ticket.flow
        was_first = bool(flow.waiting) and flow.waiting[0] is ticket
        if flow.waiting and flow.waiting[-1] is ticket:
            flow.waiting.pop()
        else:
            try:
                flow.waiting.remove(ticket)
            except ValueError:
                return False
        self._left(flow)
        if was_first and not flow.waiting:
            flow.entry = 0
            self._parked.pop(flow, None)
            flow.is_parked = False
        return True

    def _left(self, flow: Flow) -> None:
        self.length -= 1
        if not flow.waiting:
            self._flows_waiting -= 1
        self._note_length(flow, len(flow.waiting) + 1)

    def _enter(self, flow: Flow) -> None:
        """Gives a flow its place among those that wait for a turn. Among equals, who came first is first."""
        if flow.is_parked:
            return
        self._entries += 1
        flow.entry = self._entries
        heappush(self._heap, (flow.tag, self._entries, flow))
        if len(self._heap) > 4 * self._flows_waiting + SPARE_ENTRIES:
            self._heap = [each for each in self._heap if each[2].entry == each[1]]
            heapify(self._heap)

    def _first(self) -> Flow | None:
        while self._heap:
            _, entry, flow = self._heap[0]
            if flow.entry == entry:
                return flow
            heappop(self._heap)
        return None

    def _note_length(self, flow: Flow, before: int) -> None:
        """Keeps flows by how many requests they have waiting, so that the longest is found without a search."""
        now = len(flow.waiting)
        if before:
            self._by_length[before].pop(flow, None)
        if now:
            self._by_length[now][flow] = None
            self._longest = max(self._longest, now)
        while self._longest and not self._by_length[self._longest]:
            self._longest -= 1

    def _longest_flow(self) -> Flow | None:
        return next(reversed(self._by_length[self._longest])) if self._longest else None
