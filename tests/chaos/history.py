"""Recorded histories: the operations of clients and their results, which `checker` checks.

Times are of one monotonic clock, since all clients run in one process. Every write has a unique value, so
a value identifies its write.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

CREATE, UPDATE, DELETE, GET = "create", "update", "delete", "get"

DONE = "done"
REJECTED = "refused"
"""Because of the state of the object: it exists already, or is not at the expected revision."""
MISSING = "missing"
"""There is no such object."""
UNKNOWN = "unknown"
"""No response, or one that leaves open whether the write was applied. It may still be applied later."""

NEVER = math.inf


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation on one object. `revision` is that of the response, 0 if it has none, as for a deletion."""

    verb: str
    name: str
    start: float
    end: float
    outcome: str
    value: str = ""
    expected: int = 0
    revision: int = 0


@dataclass(frozen=True, slots=True)
class State:
    """The value of an object at a revision."""

    revision: int
    value: str


@dataclass(frozen=True, slots=True)
class Listing:
    start: float
    end: float
    revision: int
    items: Mapping[str, State]


@dataclass(frozen=True, slots=True)
class WatchLine:
    """A line of a watch."""

    type: str
    name: str
    revision: int
    value: str = ""


BOOKMARK, ADDED, MODIFIED, DELETED = "BOOKMARK", "ADDED", "MODIFIED", "DELETED"


@dataclass(slots=True)
class WatchChain:
    """A watch from `since` on with all watches that resumed it, on any replica."""

    since: int
    lines: list[WatchLine] = field(default_factory=list)

    @property
    def position(self) -> int:
        """The revision to resume at; all events up to it were received."""
        return self.lines[-1].revision if self.lines else self.since

    @property
    def events(self) -> list[WatchLine]:
        return [each for each in self.lines if each.type != BOOKMARK]


@dataclass(slots=True)
class History:
    operations: list[Operation] = field(default_factory=list)
    listings: list[Listing] = field(default_factory=list)
    chains: list[WatchChain] = field(default_factory=list)
