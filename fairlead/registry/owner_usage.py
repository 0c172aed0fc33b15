"""Indexes the objects of a resource by owner, kept up to date from watch events.

Admission reads it on every create, and there may be 100,000 objects, so it scans all of them only on first use and
after its watch queue has overflowed.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

from fairlead.registry.informer import QUEUE
from fairlead.storage.contract import Key
from fairlead.storage.view.fan_out import Watcher
from fairlead.storage.view.view import Entry, View


@dataclass(frozen=True, slots=True)
class Held:
    """One object of an owner. `category` separates objects that are counted separately; `ended_at` is when it stopped
    counting, empty while it counts."""

    owner: Hashable
    sort: str = ""
    size: int = 0
    created: str = ""
    ended: str = ""
    revision: int = 0
    is_kept: bool = False
    """Whether finalizers keep it in the store after a delete."""


Describe = Callable[[Entry], Sequence[Held]]
"""The usage entries of an object, one per owner; empty if it has no owner."""


def size_of(entry: Entry) -> int:
    """The size of an object in bytes."""
    return len(entry.whole or entry.body)


class Holdings:
    """The objects of one resource by owner. It has no task of its own: reads apply the pending changes."""

    def __init__(self, view: View, group: str, plural: str, describe: Describe) -> None:
        self._view = view
        self._place = (group, plural)
        self._describe = describe
        self._watcher: Watcher[Entry] | None = None
        self._held: dict[Key, Sequence[Held]] = {}
        self._by_owner: dict[Hashable, dict[Key, Held]] = {}

    def of(self, owner: Hashable) -> Mapping[Key, Held]:
        """The owner's objects in the current view. Do not keep the result: the next call changes it."""
        self._refresh()
        return self._by_owner.get(owner, {})

    def _refresh(self) -> None:
        watcher = self._watcher
        if watcher is None or watcher.overflowed:
            self._start_over()
        elif watcher.pending:
            for transition in watcher.drain():
                self._take_in(transition.key, transition.current)

    def _take_in(self, key: Key, entry: Entry | None) -> None:
        for before in self._held.pop(key, ()):
            mine = self._by_owner[before.owner]
            del mine[key]
            if not mine:
                del self._by_owner[before.owner]
        held = self._describe(entry) if entry is not None else ()
        if held:
            self._held[key] = held
        for each in held:
            self._by_owner.setdefault(each.owner, {})[key] = each

    def _start_over(self) -> None:
        if self._watcher is not None:
            self._view.unwatch(*self._place, self._watcher)
        self._watcher = self._view.watch(*self._place, "", self._view.revision, QUEUE)
        self._held.clear()
        self._by_owner.clear()
        for entry in self._view.entries(*self._place):
            self._take_in(entry.key, entry)
