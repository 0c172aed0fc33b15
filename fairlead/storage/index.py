"""Which objects have which value under a name: a label, or a field that people select by. Kept by Collection.

Built for a name when it is first asked for, and kept up from then on, so that names nobody asks for cost nothing. It
only narrows: what it finds may be more than what is wanted, and whoever asks still looks at each.

Among many objects it is built with pauses, so that the event loop is not held. What changes meanwhile is taken note of,
and whoever asks before it is finished goes without.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping

from fairlead.storage.contract import Key
from fairlead.storage.entry import Entry

MOST_NAMES = 16
"""Anybody may ask for any label: the one not asked for longest makes room."""

AT_ONCE = 2_000
"""So many objects are looked at without a pause: some milliseconds, if none of them has been looked at before."""

Read = Callable[[Entry], Mapping[str, str]]


class Index:
    __slots__ = ("_names", "_read", "_unfinished")

    def __init__(self, read: Read) -> None:
        self._read = read
        self._names: dict[str, dict[str, set[Key]]] = {}
        self._unfinished: dict[str, dict[str, set[Key]]] = {}

    async def build(self, name: str, entries: Mapping[Key, Entry]) -> None:
        """Builds what `find` would not, because there are too many objects. `entries` are those there are, by key."""
        if len(entries) <= AT_ONCE or name in self._names or name in self._unfinished:
            return
        found = self._unfinished[name] = {}
        try:
            keys = list(entries)
            for start in range(0, len(keys), AT_ONCE):
                some = [entries[key] for key in keys[start : start + AT_ONCE] if key in entries]
                self._add(found, name, some)
                await asyncio.sleep(0)
        finally:
            del self._unfinished[name]
        self._keep(name, found)

    def find(self, name: str, values: Collection[str] | None, everything: Collection[Entry]) -> list[set[Key]] | None:
        """The objects with any of the values, or (None) with any value at all, in disjoint sets. None if they are not
        known, and there are too many objects to find out at once."""
        found = self._names.pop(name, None)
        if found is None:
            if len(everything) > AT_ONCE:
                return None
            found = {}
            self._add(found, name, everything)
        self._keep(name, found)
        return list(found.values()) if values is None else [found[value] for value in values if value in found]

    def move(self, key: Key, previous: Entry | None, current: Entry | None) -> None:
        """Takes note of an object's step from one state to the next."""
        if not self._names and not self._unfinished:
            return
        before = self._read(previous) if previous is not None else {}
        after = self._read(current) if current is not None else {}
        for name, found in (*self._names.items(), *self._unfinished.items()):
            old, new = before.get(name), after.get(name)
            if old == new:
                continue
            if old is not None and old in found:  # which it need not be yet in what is unfinished
                found[old].discard(key)
                if not found[old]:
                    del found[old]
            if new is not None:
                found.setdefault(new, set()).add(key)

    def _keep(self, name: str, found: dict[str, set[Key]]) -> None:
        if len(self._names) >= MOST_NAMES:
            del self._names[next(iter(self._names))]
        self._names[name] = found  # the last now, and the first to go in the end

    def _add(self, found: dict[str, set[Key]], name: str, entries: Iterable[Entry]) -> None:
        for entry in entries:
            value = self._read(entry).get(name)
            if value is not None:
                found.setdefault(value, set()).add(entry.key)
