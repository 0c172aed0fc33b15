"""The scale of a run: FULL for real figures, QUICK only to check that the benchmark works."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scale:
    """`rounds` of so many `seconds` at each server; `objects` to begin with."""

    rounds: int
    seconds: int
    objects: int
    audiences: tuple[int, ...]
    """How many watches are open at once, one figure after the other."""
    changes_per_second: int
    """The pace of writes at which delays are measured."""
    few: int
    many: int
    """Growth: the rates with many objects are held against those with few. 0 where it is not measured."""
    workers: tuple[int, ...]
    """The numbers of workers of the servers that are compared with the first of them."""

    @property
    def quick(self) -> bool:
        return not self.many


FULL = Scale(
    rounds=3,
    seconds=3,
    objects=16_000,
    audiences=(200, 2_000),
    changes_per_second=500,
    few=1_000,
    many=1_000_000,
    workers=(1, 2, 4),
)
QUICK = Scale(
    rounds=1,
    seconds=1,
    objects=1_000,
    audiences=(20, 100),
    changes_per_second=50,
    few=0,
    many=0,
    workers=(1, 2),
)
