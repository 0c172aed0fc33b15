"""An informer: the decoded objects of one resource, kept up to date. For code that reads them on every request."""

from fairlead.core.objects import Object
from fairlead.registry.codec import decode
from fairlead.storage.view.fan_out import Watcher
from fairlead.storage.view.view import Entry, NamespacedName, View

WATCH_QUEUE_SIZE = 10_000


class Informer:
    """Caches one resource of the view. It has no task of its own: callers call `refresh`, which is cheap if nothing
    changed."""

    def __init__(self, view: View, group: str, plural: str) -> None:
        self._view = view
        self._resource = (group, plural)
        self._watcher: Watcher[Entry] | None = None
        self._generation = 0
        self._changed_keys: set[NamespacedName] | None = None
        self.objects: dict[NamespacedName, Object] = {}

    @property
    def revision(self) -> int:
        """The revision of the view. While it is the same, no object of any resource has changed."""
        return self._view.revision

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
            self._view.unwatch(*self._resource, self._watcher)
        self._watcher = self._view.watch(*self._resource, "", self._view.revision, WATCH_QUEUE_SIZE)
        entries = self._view.entries(*self._resource)
        self._mark_changed(*self.objects)
        self.objects = {(entry.key[2], entry.key[3]): decode(entry) for entry in entries}
        self._mark_changed(*self.objects)
        self._generation += 1
