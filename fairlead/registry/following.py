"""A resource's objects, decoded and kept up to date: for those who ask the same question on every request."""

import orjson

from fairlead.core.objects import Object
from fairlead.storage.view import Entry, Place, View
from fairlead.storage.watchers import Watcher

QUEUE = 10_000


class Following:
    """Follows one resource in the view. There is no task: whoever asks first calls `refresh`, which costs nothing while
    nothing happens."""

    def __init__(self, view: View, group: str, plural: str) -> None:
        self._view = view
        self._resource = (group, plural)
        self._watcher: Watcher[Entry] | None = None
        self._generation = 0
        self.objects: dict[Place, Object] = {}

    def refresh(self) -> int:
        """Takes in what has happened; returns a number that is another one whenever something has."""
        if self._watcher is None or self._watcher.overflowed:
            self._start_over()
        elif self._watcher.pending:
            for transition in self._watcher.drain():
                place = transition.key[2], transition.key[3]
                if transition.current is None:
                    self.objects.pop(place, None)
                else:
                    self.objects[place] = orjson.loads(transition.current.body)
            self._generation += 1
        return self._generation

    def _start_over(self) -> None:
        if self._watcher is not None:
            self._view.unwatch(*self._resource, self._watcher)
        self._watcher = self._view.watch(*self._resource, "", self._view.revision, QUEUE)
        entries = self._view.entries(*self._resource)
        self.objects = {(entry.key[2], entry.key[3]): orjson.loads(entry.body) for entry in entries}
        self._generation += 1
