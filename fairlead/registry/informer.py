"""A resource's objects, decoded and kept up to date: for those who ask the same question on every request."""

from fairlead.core.objects import Object
from fairlead.registry.codec import decode
from fairlead.storage.view.fan_out import Watcher
from fairlead.storage.view.view import Entry, Place, View

QUEUE = 10_000


class Following:
    """Follows one resource in the view. There is no task: whoever asks first calls `refresh`, which costs nothing while
    nothing happens."""

    def __init__(self, view: View, group: str, plural: str) -> None:
        self._view = view
        self._resource = (group, plural)
        self._watcher: Watcher[Entry] | None = None
        self._generation = 0
        self._changed: set[Place] | None = None
        self.objects: dict[Place, Object] = {}

    @property
    def as_of(self) -> int:
        """What the view shows. While this is the same number, nothing has happened to any resource."""
        return self._view.revision

    def refresh(self) -> int:
        """Takes in what has happened; returns a number that is another one whenever something has."""
        watcher = self._watcher
        if watcher is None or watcher.overflowed:
            self._start_over()
        elif watcher.pending:
            for transition in watcher.drain():
                place = transition.key[2], transition.key[3]
                self._mark(place)
                if transition.current is None:
                    self.objects.pop(place, None)
                else:
                    self.objects[place] = decode(transition.current)
            self._generation += 1
        return self._generation

    def changes(self) -> set[Place]:
        """Takes in what has happened; returns where, since the last such question. At the first, that is everywhere."""
        self.refresh()
        found = set(self.objects) if self._changed is None else self._changed
        if found or self._changed is None:
            self._changed = set()
        return found

    def _mark(self, *places: Place) -> None:
        # Nobody may ever ask, and then this must not grow.
        if self._changed is not None:
            self._changed.update(places)

    def _start_over(self) -> None:
        if self._watcher is not None:
            self._view.unwatch(*self._resource, self._watcher)
        self._watcher = self._view.watch(*self._resource, "", self._view.revision, QUEUE)
        entries = self._view.entries(*self._resource)
        self._mark(*self.objects)
        self.objects = {(entry.key[2], entry.key[3]): decode(entry) for entry in entries}
        self._mark(*self.objects)
        self._generation += 1
