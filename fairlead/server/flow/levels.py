"""The priority levels: their shares of the server, and what each has waiting and under way.

Shares are of the event loop's time while more is asked for than can be done; what a level does not use, others do.
Seats are for what goes on while the event loop does something else, such as a write on its way to the disk, and bound
how much of that there is at once.
"""

from dataclasses import dataclass, field

from fairlead.server.flow.fair_queue import FairQueue, Flow, QueueLimits

EXEMPT, SYSTEM, INTERACTIVE, BULK, STRANGERS = "exempt", "system", "interactive", "bulk", "strangers"

TOTAL_SEATS = 256
BULK_AT_ONCE = 2
"""Large answers that are worked out at the same time, in threads or on the event loop: one user has one of them."""


@dataclass(frozen=True, slots=True)
class Priority:
    """A level: its part of the time in percent, its seats, and how many requests may wait."""

    name: str
    share: int
    seats: int
    limits: QueueLimits = field(default_factory=QueueLimits)
    borrows: bool = True
    """Whether it takes seats that others leave unused."""


PRIORITIES = (
    Priority(SYSTEM, 20, TOTAL_SEATS * 20 // 100),
    Priority(INTERACTIVE, 50, TOTAL_SEATS * 50 // 100),
    Priority(BULK, 20, BULK_AT_ONCE, borrows=False),
    Priority(STRANGERS, 10, TOTAL_SEATS * 10 // 100, QueueLimits(total=200, per_flow=10)),
)


def held_at_most(priority: Priority, cost: int) -> int:
    """Seats for a request that expects this cost: no single one holds more than a small part of its level."""
    return max(1, min(cost, priority.seats * 15 // 100, priority.seats // 8))


class Seats:
    """All seats that are held, whatever the level."""

    __slots__ = ("held", "total")

    def __init__(self, total: int = TOTAL_SEATS) -> None:
        self.total = total
        self.held = 0


class Level:
    """A priority at work."""

    __slots__ = ("_seats", "executing", "held", "priority", "queue", "tag")

    def __init__(self, priority: Priority, seats: Seats) -> None:
        self.priority = priority
        self.queue = FairQueue(priority.limits)
        self.held = 0
        self.executing = 0
        self.tag = 0.0
        """What the level has been served, divided by its share."""
        self._seats = seats

    def has_seats(self, flow: Flow, seats: int) -> bool:
        """Whether the flow may have so many more seats.

        A level's own seats are never lent for good: it may always fill them. One flow may have as many as it leaves
        free, so that there is room for another however many there are; the first request of a flow only needs a seat.
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
