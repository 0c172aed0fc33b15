"""The objects of one resource: as they are now, in order and by label; as they were; and who watches them.

Kept by the View, one for each resource. Its ranges of keys are half-open, from `low` to before `high`.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import NamedTuple

from fairlead.storage.contract import Key
from fairlead.storage.entry import Entry
from fairlead.storage.index import Index
from fairlead.storage.runs import Kept, Runs, Stretch
from fairlead.storage.watchers import Transition, Watchers

WORTH = 4
"""How much smaller than all must what an index finds be: it has to be sorted, and the rest would come in order."""


class Wanted(NamedTuple):
    """A condition that an index can narrow a list down by: one of some values, or (None) any value at all."""

    sort: str
    """`labels`, or `selectable` for fields."""
    name: str
    values: frozenset[str] | None


class Collection:
    __slots__ = ("_indexes", "_order", "entries", "history", "watchers")

    def __init__(self, kept: Kept, entries: Sequence[Entry] = ()) -> None:
        """`entries` are there from the start, and in order."""
        self.entries: dict[Key, Entry] = {entry.key: entry for entry in entries}
        self._order = Runs(kept, entries)
        self._indexes = {sort: Index(attrgetter(sort)) for sort in ("labels", "selectable")}
        self.history: deque[Transition[Entry]] = deque()
        self.watchers: Watchers[Entry] = Watchers()

    def put(self, entry: Entry) -> Entry | None:
        previous = self.entries.get(entry.key)
        self.entries[entry.key] = entry
        self._order.put(entry)
        self._move(entry.key, previous, entry)
        return previous

    def drop(self, key: Key) -> Entry | None:
        previous = self.entries.pop(key, None)
        if previous is not None:
            self._order.drop(key)
            self._move(key, previous, None)
        return previous

    def _move(self, key: Key, previous: Entry | None, current: Entry | None) -> None:
        for index in self._indexes.values():
            index.move(key, previous, current)

    def count(self, low: Key, high: Key) -> int:
        return self._order.count(low, high)

    def now(self, low: Key, high: Key, limit: int) -> tuple[Stretch, int]:
        """At most `limit` objects (0 = all), and how many more there are."""
        found = self._order.stretch(low, high, limit)
        return found, (self._order.count(low, high) - len(found) if limit else 0)

    def then(self, low: Key, high: Key, limit: int, revision: int) -> tuple[list[Entry], int]:
        """The same at an earlier revision: what changed since, undone."""
        undone = self._undone(low, high, revision)
        # As many of today's may have to go as have changed, and then there still are enough.
        today = self._order.stretch(low, high, limit + len(undone) if limit else 0)
        found = {entry.key: entry for entry in today if entry.key not in undone}
        there = self._order.count(low, high) - sum([key in self.entries for key in undone])
        old = [entry for entry in undone.values() if entry is not None]
        found.update({entry.key: entry for entry in old})
        chosen = [found[key] for key in sorted(found)]
        return (chosen[:limit], there + len(old) - min(limit, len(chosen))) if limit else (chosen, 0)

    async def prepare(self, wanted: Iterable[Wanted]) -> None:
        """Builds the indexes that `candidates` can use, with pauses."""
        for sort, name, _ in wanted:
            await self._indexes[sort].build(name, self.entries)

    def candidates(self, low: Key, high: Key, wanted: Iterable[Wanted], revision: int | None) -> list[Entry]:
        """The objects in order, now (None) or then; of those that fail one of the conditions, only some."""
        keys = self._narrowed(wanted)
        if keys is None or len(keys) * WORTH > len(self.entries):
            if revision is None:
                return self._order.stretch(low, high).entries()
            return self.then(low, high, 0, revision)[0]
        undone = self._undone(low, high, revision) if revision is not None else {}
        found = {key: self.entries[key] for key in keys if low <= key < high and key not in undone}
        found.update({key: entry for key, entry in undone.items() if entry is not None})
        return [found[key] for key in sorted(found)]

    def _narrowed(self, wanted: Iterable[Wanted]) -> set[Key] | None:
        """What the most telling of the conditions leaves over."""
        least: list[set[Key]] | None = None
        for sort, name, values in wanted:
            sets = self._indexes[sort].find(name, values, self.entries.values())
            if sets is None:
                continue
            if least is None or sum(map(len, sets)) < sum(map(len, least)):
                least = sets
        if least is None:
            return None
        return least[0] if len(least) == 1 else set().union(*least)

    def _undone(self, low: Key, high: Key, revision: int) -> dict[Key, Entry | None]:
        """What stood at a revision wherever something has changed since."""
        undone: dict[Key, Entry | None] = {}
        for transition in reversed(self.history):
            if transition.revision <= revision:
                break
            if low <= transition.key < high:
                undone[transition.key] = transition.previous
        return undone

    def since(self, revision: int) -> list[Transition[Entry]]:
        """What happened after a revision, oldest first."""
        found: list[Transition[Entry]] = []
        for transition in reversed(self.history):
            if transition.revision <= revision:
                break
            found.append(transition)
        found.reverse()
        return found
