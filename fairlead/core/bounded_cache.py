"""A dict for cached values, whose size is bounded because clients choose its keys."""

from collections.abc import Callable
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class BoundedCache(dict[K, V]):
    """A dict that drops all entries before it would exceed its limits. Store with `cache[key] = value` only.

    `max_weight` limits the sum of `weigh(value)`. A value that exceeds it alone is kept until the next one is stored.

    It subclasses dict so that a read costs as much as that of a dict: nearly all accesses are reads, on every request.
    Dropping everything needs no bookkeeping on reads. The hit rate is that of dropping the oldest entry: either way, an
    entry is lost once for each `max_entries` new ones.
    """

    __slots__ = ("_max_entries", "_max_weight", "_weigh", "_weight")

    def __init__(self, max_entries: int, max_weight: int = 0, weigh: Callable[[V], int] | None = None) -> None:
        super().__init__()
        self._max_entries = max_entries
        self._max_weight = max_weight
        self._weigh = weigh
        self._weight = 0

    def __setitem__(self, key: K, value: V) -> None:
        weight = self._weigh(value) if self._weigh is not None else 0
        if self._weigh is not None and key in self:
            self._weight -= self._weigh(self[key])
        is_full = len(self) >= self._max_entries and key not in self
        if is_full or self._weight + weight > self._max_weight:
            self.clear()
        super().__setitem__(key, value)
        self._weight += weight

    def clear(self) -> None:
        super().clear()
        self._weight = 0
