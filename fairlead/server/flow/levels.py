"""The priority levels: their shares, seats and queues.

A share is a percentage of the event loop's time while the server is saturated; levels may use what others leave. Seats
bound the concurrency of work that runs outside the event loop, such as writes to the store.
"""

from dataclasses import dataclass, field

from fairlead.server.flow.fair_queue import FairQueue, Flow, QueueLimits

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
