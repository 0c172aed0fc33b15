"""An informer: the decoded objects of one resource, kept up to date. For code that reads them on every request.

What is computed from such objects is a `Derived` value: it is built again only when they have changed.

Indexes the objects of a resource by owner, kept up to date from watch events.

Admission reads it on every create, and there may be 100,000 objects, so it scans all of them only on first use and
after its watch queue has overflowed.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from operator import call
from typing import Generic, Protocol, TypeVar

from fairlead.core.objects import Object
from fairlead.registry.codec import decode
from fairlead.storage.contract import Key
from fairlead.storage.view.fan_out import Watcher
from fairlead.storage.view.view import Entry, NamespacedName, View

WATCH_QUEUE_SIZE = 10_000

T = TypeVar("T")


class Informer:
    """Caches one resource of the view. It has no task of its own: callers call `refresh`, which is cheap if nothing
    changed."""

    def __init__(self, view: View, group: str, plural: str) -> None:
        self.view = view
        self._resource = (group, plural)
        self._watcher: Watcher[Entry] | None = None
        self._generation = 0
        self._changed_keys: set[NamespacedName] | None = None
        self.objects: dict[NamespacedName, Object] = {}

    def refresh(self) -> int:
        """Applies pending changes. Returns a generation number that differs whenever something has changed."""
        watcher = self._watcher
        if watcher is None or watcher.overflowed:
            self._relist()
        elif watcher.has_pending:
            for transition in watcher.drain():
                key = transition.key[2], transition.key[3]
                self._mark_changed(key)
                if transition.current is None:
                    self.objects.pop(key, None)
                else:
                    self.objects[key] = decode(transition.current)
            self._generation += 1
        return self._generation

    def pop_changed_keys(self) -> set[NamespacedName]:
        """Applies pending changes. Returns the keys that changed since the last call; on the first call, all keys."""
        self.refresh()
        found = set(self.objects) if self._changed_keys is None else self._changed_keys
        if found or self._changed_keys is None:
            self._changed_keys = set()
        return found

    def _mark_changed(self, *keys: NamespacedName) -> None:
        # Not before the first `pop_changed_keys`: without a reader the set would grow forever.
        if self._changed_keys is not None:
            self._changed_keys.update(keys)

    def _relist(self) -> None:
        if self._watcher is not None:
            self.view.unwatch(*self._resource, self._watcher)
        self._watcher = self.view.watch(*self._resource, "", self.view.revision, WATCH_QUEUE_SIZE)
        entries = self.view.entries(*self._resource)
        self._mark_changed(*self.objects)
        self.objects = {(entry.key[2], entry.key[3]): decode(entry) for entry in entries}
        self._mark_changed(*self.objects)
        self._generation += 1


class HasRevision(Protocol):
    """The view, as far as `Derived` needs it."""

    revision: int


class Derived(Generic[T]):
    """A value that is computed from objects of the view, and kept until they change.

    Each of `generations` returns a value that differs whenever the objects have changed, such as `Informer.refresh`.
    They are only called if the view has a new revision, since `get` is called on every request. `build` returns a new
    value, or updates the same one.
    """

    __slots__ = ("_build", "_generations", "_seen", "_seen_revision", "_value", "_view")

    _value: T

    def __init__(self, view: HasRevision, generations: Sequence[Callable[[], object]], build: Callable[[], T]) -> None:
        self._view = view
        self._generations = generations
        self._build = build
        self._seen: list[object] | None = None
        self._seen_revision = -1

    def get(self) -> T:
        """The value for the current state of the view. Do not keep it: the next call may return another one."""
        if self._view.revision != self._seen_revision:
            self._update()
        return self._value

    def _update(self) -> None:
        revision, current = self._view.revision, list(map(call, self._generations))
        if current != self._seen:
            self._value = self._build()
        # Only now: if `build` fails, the next call tries again.
        self._seen, self._seen_revision = current, revision


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
