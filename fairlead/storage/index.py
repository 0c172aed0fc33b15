"""Which objects have which value under a name: a label, or a field that people select by. Kept by Collection.

Built for a name when it is first asked for, and kept up from then on, so that names nobody asks for cost nothing. It
only narrows: what it finds may be more than what is wanted, and whoever asks still looks at each.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from fairlead.storage.contract import Key
from fairlead.storage.entry import Entry

MOST_NAMES = 16
"""Anybody may ask for any label: the one not asked for longest makes room."""

Read = Callable[[Entry], Mapping[str, str]]


class Index:
    __slots__ = ("_names", "_read")

    def __init__(self, read: Read) -> None:
        self._read = read
        self._names: dict[str, dict[str, set[Key]]] = {}

    def find(self, name: str, values: Collection[str] | None, everything: Iterable[Entry]) -> list[set[Key]]:
        """The objects with any of the values, or (None) with any value at all, in disjoint sets."""
        found = self._names.pop(name, None)
        if found is None:
            found = self._built(name, everything)
            if len(self._names) >= MOST_NAMES:
                del self._names[next(iter(self._names))]
        self._names[name] = found  # the last now, and the first to go in the end
        return list(found.values()) if values is None else [found[value] for value in values if value in found]

    def move(self, key: Key, previous: Entry | None, current: Entry | None) -> None:
        """Takes note of an object's step from one state to the next."""
        if not self._names:
            return
        before = self._read(previous) if previous is not None else {}
        after = self._read(current) if current is not None else {}
        for name, found in self._names.items():
            old, new = before.get(name), after.get(name)
            if old == new:
                continue
            if old is not None:
                found[old].discard(key)
                if not found[old]:
                    del found[old]
            if new is not None:
                found.setdefault(new, set()).add(key)

    def _built(self, name: str, everything: Iterable[Entry]) -> dict[str, set[Key]]:
        found: dict[str, set[Key]] = {}
        for entry in everything:
            value = self._read(entry).get(name)
            if value is not None:
                found.setdefault(value, set()).add(entry.key)
        return found
