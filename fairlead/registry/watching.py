"""What a watch delivers: each transition as ADDED, MODIFIED or DELETED from the point of view of its selection.

An object that begins to match a selector is ADDED for that watcher, one that ceases to match is DELETED, whatever
really happened to it. `server/watch.py` frames these events and knows about time; this module only decides what they
are.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from fairlead.core.errors import Expired
from fairlead.registry.kind import Kind
from fairlead.registry.record import restamped
from fairlead.registry.selectors import Selection
from fairlead.registry.translate import storage_errors
from fairlead.storage.view import Entry, View
from fairlead.storage.watchers import Transition, Watcher


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One event for one watcher. `line` is the finished JSON line, shared between all watchers that hear the same."""

    type: str
    body: bytes
    line: bytes


class Feed:
    """A watcher with its selection. Close it when the stream ends."""

    def __init__(self, view: View, kind: Kind, namespace: str, selection: Selection, queue: int) -> None:
        self._view = view
        self._kind = kind
        self._namespace = namespace
        self._selection = selection
        self._queue = queue
        self._watcher: Watcher[Entry] | None = None

    def existing(self) -> list[WatchEvent]:
        """What is there now, as ADDED events; what happens after it comes next."""
        entries = list(self._view.entries(self._kind.group, self._kind.plural, self._namespace))
        self.start(self._view.revision)
        return [WatchEvent("ADDED", entry.body, line("ADDED", entry.body)) for entry in entries if self._wants(entry)]

    def start(self, since: int) -> None:
        """Begins with what happened after `since`. Raises Expired when that is too long ago."""
        with storage_errors():
            group, plural = self._kind.group, self._kind.plural
            self._watcher = self._view.watch(group, plural, self._namespace, since, self._queue)

    async def wait(self, seconds: float) -> None:
        await self._started.wait(seconds)

    @property
    def ended(self) -> bool:
        """Nothing more will come, because the server is stopping."""
        return self._started.ended

    def take(self) -> Iterator[WatchEvent]:
        """Everything that waits. Raises Expired when the watcher could not keep up."""
        watcher = self._started
        if watcher.overflowed:
            raise Expired(
                "this watch could not keep up with the changes and has missed some; list again and watch from there"
            )
        for transition in watcher.drain():
            event = self._event(transition)
            if event is not None:
                yield event

    def position(self) -> int:
        """The revision up to which everything has been taken; only asked when nothing waits."""
        return self._view.revision

    def close(self) -> None:
        if self._watcher is not None:
            self._view.unwatch(self._kind.group, self._kind.plural, self._watcher)

    @property
    def _started(self) -> Watcher[Entry]:
        if self._watcher is None:
            raise RuntimeError("the feed has not been started")
        return self._watcher

    def _wants(self, entry: Entry | None) -> bool:
        if entry is None:
            return False
        return not self._selection or self._selection.accepts(entry.labels, entry.fields)

    def _event(self, transition: Transition[Entry]) -> WatchEvent | None:
        before, after = self._wants(transition.previous), self._wants(transition.current)
        if after and transition.current is not None:
            return _encoded(transition, "MODIFIED" if before else "ADDED", transition.current.body)
        if before and transition.previous is not None:
            return _encoded(transition, "DELETED", restamped(transition.previous, transition.revision))
        return None


def _encoded(transition: Transition[Entry], type: str, body: bytes) -> WatchEvent:
    event = transition.encoded.get(type)
    if not isinstance(event, WatchEvent):
        event = transition.encoded[type] = WatchEvent(type, body, line(type, body))
    return event


def line(type: str, body: bytes) -> bytes:
    """An event as it goes over the wire."""
    return b'{"type":"%b","object":%b}\n' % (type.encode(), body)
