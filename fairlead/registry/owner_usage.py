"""Indexes the objects of a resource by owner, kept up to date from watch events.

Admission reads it on every create, and there may be 100,000 objects, so it scans all of them only on first use and
after its watch queue has overflowed.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

from fairlead.registry.informer import WATCH_QUEUE_SIZE
from fairlead.storage.contract import Key
from fairlead.storage.view.fan_out import Watcher
from fairlead.storage.view.view import Entry, View


@dataclass(frozen=True, slots=True)
class UsageEntry:
    """One object of an owner. `category` separates objects that are counted separately; `ended_at` is when it stopped
    counting, empty while it counts."""

    owner: Hashable
    category: str = ""
    size: int = 0
    created_at: str = ""
    ended_at: str = ""
    revision: int = 0
    has_finalizers: bool = False
    """Whether finalizers keep it in the store after a delete."""


UsageReader = Callable[[Entry], Sequence[UsageEntry]]
"""The usage entries of an object, one per owner; empty if it has no owner."""


def entry_size(entry: Entry) -> int:
    """The size of an object in bytes."""
    return len(entry.full_body or entry.body)


class OwnerUsageIndex:
    """The objects of one resource by owner. It has no task of its own: reads apply the pending changes."""

    def __init__(self, view: View, group: str, plural: str, read_usage: UsageReader) -> None:
        self._view = view
        self._resource = (group, plural)
        self._read_usage = read_usage
        self._watcher: Watcher[Entry] | None = None
        self._by_key: dict[Key, Sequence[UsageEntry]] = {}
        self._by_owner: dict[Hashable, dict[Key, UsageEntry]] = {}

    def get(self, owner: Hashable) -> Mapping[Key, UsageEntry]:
        """The owner's objects in the current view. Do not keep the result: the next call changes it."""
        self._refresh()
        return self._by_owner.get(owner, {})

    def _refresh(self) -> None:
        watcher = self._watcher
        if watcher is None or watcher.overflowed:
            self._relist()
        elif watcher.has_pending:
            for transition in watcher.drain():
                self._apply_change(transition.key, transition.current)

    def _apply_change(self, key: Key, entry: Entry | None) -> None:
        for before in self._by_key.pop(key, ()):
            mine = self._by_owner[before.owner]
            del mine[key]
            if not mine:
                del self._by_owner[before.owner]
        held = self._read_usage(entry) if entry is not None else ()
        if held:
            self._by_key[key] = held
        for each in held:
            self._by_owner.setdefault(each.owner, {})[key] = each

    def _relist(self) -> None:
        if self._watcher is not None:
            self._view.unwatch(*self._resource, self._watcher)
        self._watcher = self._view.watch(*self._resource, "", self._view.revision, WATCH_QUEUE_SIZE)
        self._by_key.clear()
        self._by_owner.clear()
        for entry in self._view.entries(*self._resource):
            self._apply_change(entry.key, entry)
