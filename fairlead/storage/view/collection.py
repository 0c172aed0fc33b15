"""The objects of one resource in the View: sorted, indexed by label and field, with history and watchers.

Key ranges are half-open, from `low` to before `high`.

An index maps the values of one label or selectable field to objects. It is built when a name is first queried and
updated from then on, so unused names cost nothing. A lookup may return more objects than match; the caller still
checks each. For many objects it is built in steps that yield to the event loop; queries before it is complete do
without.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Collection as AbstractCollection
from operator import attrgetter
from typing import NamedTuple

from fairlead.storage.contract import Key
from fairlead.storage.view.entry import Entry
from fairlead.storage.view.fan_out import Transition, WatchHub
from fairlead.storage.view.sorted_chunks import ChunkedSortedList, ChunkSlice, JoinedBytesCache

MAX_INDEXED_NAMES = 16
"""Clients can query any label, so the number of indexes is limited; the least recently used is dropped."""

MAX_ENTRIES_PER_STEP = 2_000
"""Objects to process without yielding to the event loop: some milliseconds if none of them was parsed before."""

ReadValues = Callable[[Entry], Mapping[str, str]]


class Index:
    __slots__ = ("_building", "_by_name", "_read")

    def __init__(self, read: ReadValues) -> None:
        self._read = read
        self._by_name: dict[str, dict[str, set[Key]]] = {}
        self._building: dict[str, dict[str, set[Key]]] = {}

    async def build(self, name: str, entries: Mapping[Key, Entry]) -> None:
        """Build the index of a name in steps, if there are too many objects for `lookup` to do so. `entries` are all
        objects."""
        if len(entries) <= MAX_ENTRIES_PER_STEP or name in self._by_name or name in self._building:
            return
        found = self._building[name] = {}
        try:
            keys = list(entries)
            for start in range(0, len(keys), MAX_ENTRIES_PER_STEP):
                some = [entries[key] for key in keys[start : start + MAX_ENTRIES_PER_STEP] if key in entries]
                self._add(found, name, some)
                await asyncio.sleep(0)
        finally:
            del self._building[name]
        self._store(name, found)

    def lookup(
        self, name: str, values: AbstractCollection[str] | None, entries: AbstractCollection[Entry]
    ) -> list[set[Key]] | None:
        """Sets of the keys of objects with any of the values, or (None) with any value at all.

        None if there is no index for the name, and too many objects to build it now. The sets are disjoint.
        """
        found = self._by_name.pop(name, None)
        if found is None:
            if len(entries) > MAX_ENTRIES_PER_STEP:
                return None
            found = {}
            self._add(found, name, entries)
        self._store(name, found)
        return list(found.values()) if values is None else [found[value] for value in values if value in found]

    def update(self, key: Key, previous: Entry | None, current: Entry | None) -> None:
        """Update the indexes for a change of one object."""
        if not self._by_name and not self._building:
            return
        before = self._read(previous) if previous is not None else {}
        after = self._read(current) if current is not None else {}
        for name, found in (*self._by_name.items(), *self._building.items()):
            old = before.get(name)
            new = after.get(name)
            if old == new:
                continue
            if old is not None and old in found:  # an index that is being built may not contain it yet
                found[old].discard(key)
                if not found[old]:
                    del found[old]
            if new is not None:
                found.setdefault(new, set()).add(key)

    def _store(self, name: str, found: dict[str, set[Key]]) -> None:
        if len(self._by_name) >= MAX_INDEXED_NAMES:
            del self._by_name[next(iter(self._by_name))]
        self._by_name[name] = found  # dicts are ordered: this is now the most recently used

    def _add(self, found: dict[str, set[Key]], name: str, entries: Iterable[Entry]) -> None:
        for entry in entries:
            value = self._read(entry).get(name)
            if value is not None:
                found.setdefault(value, set()).add(entry.key)


MIN_INDEX_GAIN = 4
"""An index is used only if it reduces the objects by this factor, because its result must be sorted."""


class IndexQuery(NamedTuple):
    """A condition that an index can answer: one of some values, or (None) any value at all."""

    source: str
    """`labels`, or `selectable` for fields."""
    name: str
    values: frozenset[str] | None


class Collection:
    __slots__ = ("_indexes", "_order", "changed_at", "entries", "history", "watchers")

    def __init__(self, joined_cache: JoinedBytesCache, entries: Sequence[Entry] = (), changed_at: int = 0) -> None:
        """`entries` are the initial objects, sorted by key."""
        self.changed_at = changed_at
        """The revision of the last change."""
        self.entries: dict[Key, Entry] = {entry.key: entry for entry in entries}
        self._order = ChunkedSortedList(joined_cache, entries)
        self._indexes = {source: Index(attrgetter(source)) for source in ("labels", "selectable")}
        self.history: deque[Transition[Entry]] = deque()
        self.watchers: WatchHub[Entry] = WatchHub()

    def put(self, entry: Entry) -> Entry | None:
        previous = self.entries.get(entry.key)
        self.entries[entry.key] = entry
        self._order.put(entry)
        self._update_indexes(entry.key, previous, entry)
        return previous

    def remove(self, key: Key) -> Entry | None:
        previous = self.entries.pop(key, None)
        if previous is not None:
            self._order.remove(key)
            self._update_indexes(key, previous, None)
        return previous

    def _update_indexes(self, key: Key, previous: Entry | None, current: Entry | None) -> None:
        for index in self._indexes.values():
            index.update(key, previous, current)

    def count(self, low: Key, high: Key) -> int:
        return self._order.count(low, high)

    def latest(self, low: Key, high: Key, limit: int) -> tuple[ChunkSlice, int]:
        """At most `limit` objects (0 = all), and how many more there are."""
        found = self._order.slice(low, high, limit)
        return found, (self._order.count(low, high) - len(found) if limit else 0)

    def at_revision(self, low: Key, high: Key, limit: int, revision: int) -> tuple[list[Entry], int]:
        """The same at an earlier revision, by reverting the changes since then."""
        reverted = self._reverted(low, high, revision)
        # Each reverted object may remove one from the result, so read that many more.
        today = self._order.slice(low, high, limit + len(reverted) if limit else 0)
        found = {entry.key: entry for entry in today if entry.key not in reverted}
        there = self._order.count(low, high) - sum([key in self.entries for key in reverted])
        old = [entry for entry in reverted.values() if entry is not None]
        found.update({entry.key: entry for entry in old})
        chosen = [found[key] for key in sorted(found)]
        return (chosen[:limit], there + len(old) - min(limit, len(chosen))) if limit else (chosen, 0)

    async def build_indexes(self, queries: Iterable[IndexQuery]) -> None:
        """Build the indexes that `index_scan` can use, yielding to the event loop."""
        for source, name, _ in queries:
            await self._indexes[source].build(name, self.entries)

    def index_scan(self, low: Key, high: Key, queries: Iterable[IndexQuery], revision: int | None) -> list[Entry]:
        """The objects in order at a revision (None = now). Contains all that meet the conditions, and possibly
        others."""
        keys = self._narrow(queries)
        if keys is None or len(keys) * MIN_INDEX_GAIN > len(self.entries):
            if revision is None:
                return self._order.slice(low, high).entries()
            return self.at_revision(low, high, 0, revision)[0]
        reverted = self._reverted(low, high, revision) if revision is not None else {}
        found = {key: self.entries[key] for key in keys if low <= key < high and key not in reverted}
        found.update({key: entry for key, entry in reverted.items() if entry is not None})
        return [found[key] for key in sorted(found)]

    def _narrow(self, queries: Iterable[IndexQuery]) -> set[Key] | None:
        """The keys that match the most selective condition."""
        least: list[set[Key]] | None = None
        for source, name, values in queries:
            sets = self._indexes[source].lookup(name, values, self.entries.values())
            if sets is None:
                continue
            if least is None or sum(map(len, sets)) < sum(map(len, least)):
                least = sets
        if least is None:
            return None
        return least[0] if len(least) == 1 else set().union(*least)

    def _reverted(self, low: Key, high: Key, revision: int) -> dict[Key, Entry | None]:
        """The states at a revision of all objects that have changed since; None for those that did not exist."""
        reverted: dict[Key, Entry | None] = {}
        for transition in reversed(self.history):
            if transition.revision <= revision:
                break
            if low <= transition.key < high:
                reverted[transition.key] = transition.previous
        return reverted

    def transitions_since(self, revision: int) -> list[Transition[Entry]]:
        """The transitions after a revision, oldest first."""
        found: list[Transition[Entry]] = []
        for transition in reversed(self.history):
            if transition.revision <= revision:
                break
            found.append(transition)
        found.reverse()
        return found
