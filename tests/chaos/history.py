"""What clients did and what they were told: the values that `verdict` judges. Nothing here talks to anybody.

Times are of one monotonic clock, since all clients live in one process. Every write carries a value of its own, so
whoever sees a value knows which write it was.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

CREATE, UPDATE, DELETE, GET = "create", "update", "delete", "get"

DONE = "done"
REFUSED = "refused"
"""By the state of the object: it exists already, or it is not at the expected revision."""
MISSING = "missing"
"""There is no such object."""
UNKNOWN = "unknown"
"""No answer, or one that leaves open whether it was done: it may have been, or may still be."""

NEVER = math.inf


@dataclass(frozen=True, slots=True)
class Operation:
    """On one object. `revision` is what the server told, 0 if it told none, as for a deletion."""

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
    """What an object was at a revision."""

    revision: int
    value: str


@dataclass(frozen=True, slots=True)
class Listing:
    start: float
    end: float
    revision: int
    items: Mapping[str, State]


@dataclass(frozen=True, slots=True)
class Seen:
    """A line of a watch."""

    type: str
    name: str
    revision: int
    value: str = ""


BOOKMARK, ADDED, MODIFIED, DELETED = "BOOKMARK", "ADDED", "MODIFIED", "DELETED"


@dataclass(slots=True)
class Chain:
    """A watch from `since` on and everything that continued it where it had ended, on whichever replica."""

    since: int
    seen: list[Seen] = field(default_factory=list)

    @property
    def position(self) -> int:
        """Where it goes on; everything up to here has been told."""
        return self.seen[-1].revision if self.seen else self.since

    @property
    def events(self) -> list[Seen]:
        return [each for each in self.seen if each.type != BOOKMARK]


@dataclass(slots=True)
class History:
    operations: list[Operation] = field(default_factory=list)
    listings: list[Listing] = field(default_factory=list)
    chains: list[Chain] = field(default_factory=list)
