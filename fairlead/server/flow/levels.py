"""The priority levels: their shares, seats and queues.

A share is a percentage of the event loop's time while the server is saturated; levels may use what others leave. Seats
bound the concurrency of work that runs outside the event loop, such as writes to the store.
"""

from dataclasses import dataclass, field

from fairlead.server.flow.fair_queue import FairQueue, Flow, QueueLimits

EXEMPT, SYSTEM, INTERACTIVE, BULK, STRANGERS = "exempt", "system", "interactive", "bulk", "strangers"

TOTAL_SEATS = 256
BULK_AT_ONCE = 2
"""Bulk requests that run concurrently, in threads or on the event loop. One user can have one of them."""


@dataclass(frozen=True, slots=True)
class Priority:
    """The configuration of a priority level: its share in percent, its seats, and its queue limits."""

    name: str
    share: int
    seats: int
    limits: QueueLimits = field(default_factory=QueueLimits)
    borrows: bool = True
    """Whether it may use free seats of other levels."""


PRIORITIES = (
    Priority(SYSTEM, 20, TOTAL_SEATS * 20 // 100),
    Priority(INTERACTIVE, 50, TOTAL_SEATS * 50 // 100),
    Priority(BULK, 20, BULK_AT_ONCE, borrows=False),
    Priority(STRANGERS, 10, TOTAL_SEATS * 10 // 100, QueueLimits(total=200, per_flow=10)),
)


def held_at_most(priority: Priority, cost: int) -> int:
    """Seats for a request of this estimated cost: at most an eighth of its level."""
    return max(1, min(cost, priority.seats * 15 // 100, priority.seats // 8))


class Seats:
    """Counts the seats in use over all levels."""

    __slots__ = ("held", "total")

    def __init__(self, total: int = TOTAL_SEATS) -> None:
        self.total = total
        self.held = 0


class Level:
    """The state of a priority level."""

    __slots__ = ("_seats", "executing", "held", "priority", "queue", "tag")

    def __init__(self, priority: Priority, seats: Seats) -> None:
        self.priority = priority
        self.queue = FairQueue(priority.limits)
        self.held = 0
        self.executing = 0
        self.tag = 0.0
        """The cost that the level was served, divided by its share."""
        self._seats = seats

    def has_seats(self, flow: Flow, seats: int) -> bool:
        """Whether the flow may acquire this many more seats.

        A level can always use all of its own seats, even if others have borrowed some. A flow may have at most as many
        seats as it leaves free, so there is always room for another flow. Its first request only needs one free seat.
        """
        free = self.priority.seats - self.held
        if self.priority.borrows:
            free = max(free, self._seats.total - self._seats.held)
        return free > 0 if not flow.held else flow.held + seats <= free

    def take_seats(self, flow: Flow, seats: int) -> None:
        flow.held += seats
        self.held += seats
        self._seats.held += seats

    def give_back_seats(self, flow: Flow, seats: int) -> None:
        self.take_seats(flow, -seats)
        self.queue.unpark()
