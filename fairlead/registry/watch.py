"""Turns changes of objects into watch events: ADDED, MODIFIED or DELETED as seen through a selector.

An object that starts to match the selector is ADDED for this watcher; one that stops matching is DELETED, whatever
happened to it in the store. `server/api/watch.py` frames these events and handles timeouts and bookmarks.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import NamedTuple

from fairlead.core.call import Sieve
from fairlead.core.concurrency import SLICE_BYTES, cut
from fairlead.core.errors import Expired
from fairlead.registry.codec import restamped, show_body
from fairlead.registry.kind import Kind
from fairlead.registry.selectors import Selection
from fairlead.registry.storage_errors import storage_errors
from fairlead.storage.contract import Key
from fairlead.storage.view.fan_out import BY_NAME, Sought, Transition, Watcher
from fairlead.storage.view.view import Entry, View

AT_ONCE = 200
"""How many events are built and encoded before yielding to the event loop: as Tables, a few milliseconds."""

WaitForTurn = Callable[[], Awaitable[None]]
"""Awaited before each batch of initial events, to limit how many streams send theirs at the same time."""


async def _go_on() -> None:
    """No pacing."""


class WatchEvent(NamedTuple):
    """One event for one watcher. Its `line` is the encoded JSON, shared by all watchers that get the same event."""

    type: str
    body: bytes
    line: bytes


class Feed:
    """A watcher with its selector. Close it when the stream ends.

    `object_filter` limits it to the objects that the requester may get. Such a session remembers which objects were
    visible, because that can change without any object changing.
    """

    def __init__(
        self, view: View, kind: Kind, namespace: str, selection: Selection, queue: int, sieve: Sieve | None = None
    ) -> None:
        self._view = view
        self._kind = kind
        self._namespace = namespace
        self._selection = selection
        self._queue = queue
        self._sieve = sieve
        self._permissions = sieve.generation() if sieve is not None else None
        self._seen: set[Key] = set()
        self._watcher: Watcher[Entry] | None = None

    async def existing(self, wait_for_turn: WaitForTurn = _go_on) -> AsyncIterator[list[bytes]]:
        """The bodies of the initial ADDED events, in batches; events after them are available from `poll`. Each batch
        is built after `pace` returns."""
        entries = self._view.stretch(*self._kind.place, self._namespace)
        await self.start(self._view.revision)
        for part in entries.parts(self._selection.rows_at_once(AT_ONCE)):
            for some in cut(part, _size):
                await wait_for_turn()
                # Only bytes: allocating an object per entry would trigger Python's garbage collector in each batch.
                yield [show_body(self._kind, entry.body) for entry in some if self._shows(entry)]
                await asyncio.sleep(0)

    async def start(self, since: int) -> None:
        """Starts with the events after revision `since`. Raises Expired if that has been compacted."""
        with storage_errors():
            group, plural = self._kind.place
            # With an object filter all objects are watched: visibility is tracked for unselected ones, too.
            sought = _sought(self._selection) if self._sieve is None else None
            self._watcher = self._view.watch(group, plural, self._namespace, since, self._queue, sought)
        self._seen = await self._visible_before(self._watcher.waiting())

    def news(self) -> Awaitable[None]:
        """Completes when there are events, when the session has ended, or when `wake` was called."""
        return self._started.news()

    def rouse(self) -> None:
        """Ends a wait for events, even if there are none."""
        self._started.rouse()

    @property
    def ended(self) -> bool:
        """No more events will come, because the server is stopping."""
        return self._started.ended

    @property
    def pending(self) -> bool:
        """Whether there are events to poll."""
        return self._started.pending

    def take(self) -> list[WatchEvent]:
        """The pending events, a limited batch of them. Raises Expired if the watcher's queue overflowed."""
        watcher = self._started
        if watcher.overflowed:
            raise Expired(
                "this watch could not keep up with the changes and has missed some; list again and watch from there"
            )
        unchanged = self._sieve is None and not self._selection and self._kind.form is None
        tell = _whole if unchanged else self._event
        events = [tell(transition) for transition in watcher.drain_some(AT_ONCE, _event_size, SLICE_BYTES)]
        return [event for event in events if event is not None]

    @property
    def is_sight_changed(self) -> bool:
        """Whether permissions have changed since visibility was last checked."""
        return self._sieve is not None and self._sieve.generation() != self._permissions

    async def check_sight(self) -> None:
        """After a change of permissions, with no events pending: raises Expired if the requester sees more or fewer
        objects than before, although no object changed. The client must list again."""
        if self._sieve is None:
            return
        self._permissions = self._sieve.generation()
        if await self._visible() != self._seen:
            raise Expired("what you may see has changed; list again and watch from there")

    async def _visible(self) -> set[Key]:
        """The keys that the requester may see at the time of the call. Yields to the event loop between batches."""
        sieve = self._sieve
        if sieve is None:
            return set()
        entries, seen = self._view.entries(*self._kind.place, self._namespace), set[Key]()
        for start in range(0, len(entries), AT_ONCE):
            seen.update([entry.key for entry in entries[start : start + AT_ONCE] if sieve.sees(entry)])
            if start + AT_ONCE < len(entries):
                await asyncio.sleep(0)
        return seen

    async def _visible_before(self, transitions: Sequence[Transition[Entry]]) -> set[Key]:
        """The keys that the requester could see before the pending transitions."""
        seen = await self._visible()
        for transition in reversed(transitions):
            self._look(seen, transition.key, transition.previous)
        return seen

    def _look(self, seen: set[Key], key: Key, entry: Entry | None) -> bool:
        """Records and returns whether the requester sees an object in this state."""
        if self._sieve is None:
            return entry is not None
        visible = entry is not None and self._sieve.sees(entry)
        (seen.add if visible else seen.discard)(key)
        return visible

    def position(self) -> int:
        """The revision up to which all events have been polled. Only valid if none are pending."""
        return self._view.revision

    def close(self) -> None:
        if self._watcher is not None:
            self._view.unwatch(*self._kind.place, self._watcher)

    @property
    def _started(self) -> Watcher[Entry]:
        if self._watcher is None:
            raise RuntimeError("the watch session has not been started")
        return self._watcher

    def _shows(self, entry: Entry) -> bool:
        return self._selects(entry) and (self._sieve is None or self._sieve.sees(entry))

    def _selects(self, entry: Entry | None) -> bool:
        return entry is not None and (not self._selection or self._selection.takes(entry))

    def _sides(self, previous: Entry | None, current: Entry | None) -> tuple[bool, bool]:
        """Whether an object matched the selector before, and matches it now."""
        after = self._selects(current)
        if previous is None or current is None or self._selection.fields or previous.labels is not current.labels:
            return self._selects(previous), after
        return after, after  # equal labels are the same mapping, and rarely change

    def _event(self, transition: Transition[Entry]) -> WatchEvent | None:
        before, after = self._sides(transition.previous, transition.current)
        if self._sieve is not None:
            # Based on what was visible then: permissions may have changed since.
            before = before and transition.key in self._seen
            after = self._look(self._seen, transition.key, transition.current) and after
        if after:
            return _shown(self._kind, transition, "MODIFIED" if before else "ADDED")
        return _shown(self._kind, transition, "DELETED") if before else None


def _sought(selection: Selection) -> Sought | None:
    """The most selective requirement by which watchers are indexed. What it matches must still be tested."""
    for each in selection.fields:
        if each.operator == "in" and each.key == "metadata.name":
            return BY_NAME, "", each.values
    labels = [("labels", each) for each in selection.labels]
    fields = [("selectable", each) for each in selection.fields if not each.key.startswith("metadata.")]
    known = [(sort, each.key, each.values) for sort, each in labels + fields if each.operator == "in"]
    return min(known, key=lambda sought: len(sought[2]), default=None)


def _whole(transition: Transition[Entry]) -> WatchEvent | None:
    """The event for a watcher without selector and filter."""
    if transition.current is None:
        return _encoded(transition, "DELETED") if transition.previous is not None else None
    return _encoded(transition, "MODIFIED" if transition.previous is not None else "ADDED")


def _shown(kind: Kind, transition: Transition[Entry], type: str) -> WatchEvent:
    """The event, converted to the kind that is served. The first watcher converts it for all others."""
    if kind.form is None:
        return _encoded(transition, type)
    name = f"{type} {kind.api_version}"
    event = transition.encoded.get(name)
    if not isinstance(event, WatchEvent):
        body = show_body(kind, _encoded(transition, type).body)
        event = transition.encoded[name] = WatchEvent(type, body, line(type, body))
    return event


def _encoded(transition: Transition[Entry], type: str) -> WatchEvent:
    event = transition.encoded.get(type)
    if isinstance(event, WatchEvent):
        return event
    previous, current = transition.previous, transition.current
    state = previous if type == "DELETED" else current
    if state is None:
        raise RuntimeError(f"transition has no state for a {type} event")
    body = restamped(state, transition.revision) if type == "DELETED" else state.body
    event = transition.encoded[type] = WatchEvent(type, body, line(type, body))
    return event


def _size(entry: Entry) -> int:
    return len(entry.body)


def _event_size(transition: Transition[Entry]) -> int:
    """Bytes of an event, which contains one of the two states."""
    state = transition.current or transition.previous
    return len(state.body) if state is not None else 0


def added_lines(bodies: Sequence[bytes]) -> bytes:
    """Initial ADDED events, encoded as JSON lines."""
    return b"".join([b'{"type":"ADDED","object":%b}\n' % body for body in bodies])


def line(type: str, body: bytes) -> bytes:
    """An event, encoded as a JSON line."""
    return b'{"type":"%b","object":%b}\n' % (type.encode(), body)
