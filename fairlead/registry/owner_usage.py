"""How much each owner holds of a resource: counted as the view changes, so that asking costs what the owner holds.

Admission asks on every create, and a server may have a hundred thousand objects: nothing here ever looks at all of them
again, but once at the first question and after a queue has overflowed.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

from fairlead.registry.informer import QUEUE
from fairlead.storage.contract import Key
from fairlead.storage.view.fan_out import Watcher
from fairlead.storage.view.view import Entry, View


@dataclass(frozen=True, slots=True)
class Held:
    """One object of an owner's. `sort` tells those apart that are counted apart; `ended` is when it ceased to count for
    anything, empty while it does."""

    owner: Hashable
    sort: str = ""
    size: int = 0
    created: str = ""
    ended: str = ""
    revision: int = 0
    is_kept: bool = False
    """Whether something holds it, so that it does not go when it is deleted."""


Describe = Callable[[Entry], Sequence[Held]]
"""What an object is to its owners, each of them once; nothing for one that nobody owns."""


def size_of(entry: Entry) -> int:
    """The bytes that an object takes."""
    return len(entry.whole or entry.body)


class Holdings:
    """The objects of one resource by their owner. There is no task: whoever asks takes in what has happened."""

    def __init__(self, view: View, group: str, plural: str, describe: Describe) -> None:
        self._view = view
        self._place = (group, plural)
        self._describe = describe
        self._watcher: Watcher[Entry] | None = None
        self._held: dict[Key, Sequence[Held]] = {}
        self._by_owner: dict[Hashable, dict[Key, Held]] = {}

    def of(self, owner: Hashable) -> Mapping[Key, Held]:
        """What the owner holds as the view shows it now. Not to be kept: it changes with the next question."""
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
