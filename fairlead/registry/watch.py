"""What a watch delivers: each transition as ADDED, MODIFIED or DELETED from the point of view of its selection.

An object that begins to match a selector is ADDED for that watcher, one that ceases to match is DELETED, whatever
really happened to it. `server/api/watch.py` frames these events and knows about time; this module only decides what they
are.
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
"""So many events are made and encoded without a pause: as Tables, some milliseconds. Large ones are fewer."""

WaitForTurn = Callable[[], Awaitable[None]]
"""Whatever has one of many streams go on at a time."""


async def _go_on() -> None:
    """For a stream that nobody else waits for."""


class WatchEvent(NamedTuple):
    """One event for one watcher. `line` is the finished JSON line, shared between all watchers that hear the same."""

    type: str
    body: bytes
    line: bytes


class Feed:
    """A watcher with its selection. Close it when the stream ends.

    `sieve` cuts it down to what the asker may get. Such a feed remembers what the asker sees, because that can change
    without any object changing.
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
        """What is there now, the bodies of ADDED events, some at a time; what happens after it comes next. Each part is
        made when its turn has come."""
        entries = self._view.stretch(*self._kind.place, self._namespace)
        await self.start(self._view.revision)
        for part in entries.parts(self._selection.rows_at_once(AT_ONCE)):
            for some in cut(part, _size):
                await wait_for_turn()
                # No objects beside the bytes: so many would have Python's garbage collector come by in each part.
                yield [show_body(self._kind, entry.body) for entry in some if self._shows(entry)]
                await asyncio.sleep(0)

    async def start(self, since: int) -> None:
        """Begins with what happened after `since`. Raises Expired when that is too long ago."""
        with storage_errors():
            group, plural = self._kind.place
            # Under a sieve everything is followed, because what can be seen is remembered beyond what is selected.
            sought = _sought(self._selection) if self._sieve is None else None
            self._watcher = self._view.watch(group, plural, self._namespace, since, self._queue, sought)
        self._seen = await self._visible_before(self._watcher.waiting())

    def news(self) -> Awaitable[None]:
        """Done when there is something to take, when the feed has ended, or when it was roused."""
        return self._started.news()

    def rouse(self) -> None:
        """Ends the waiting for news, though there may be none."""
        self._started.rouse()

    @property
    def ended(self) -> bool:
        """Nothing more will come, because the server is stopping."""
        return self._started.ended

    @property
    def pending(self) -> bool:
        """Whether something waits to be taken."""
        return self._started.pending

    def take(self) -> list[WatchEvent]:
        """What waits, some of it if it is much. Raises Expired when the watcher could not keep up."""
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
        """Whether permissions have changed since somebody looked."""
        return self._sieve is not None and self._sieve.generation() != self._permissions

    async def check_sight(self) -> None:
        """After a change of permissions, when nothing waits: whoever sees more or less than before, though no object
        changed, must list again."""
        if self._sieve is None:
            return
        self._permissions = self._sieve.generation()
        if await self._visible() != self._seen:
            raise Expired("what you may see has changed; list again and watch from there")

    async def _visible(self) -> set[Key]:
        """What the asker sees at the moment of the call, found out with pauses."""
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
        """What the asker saw before the transitions that wait."""
        seen = await self._visible()
        for transition in reversed(transitions):
            self._look(seen, transition.key, transition.previous)
        return seen

    def _look(self, seen: set[Key], key: Key, entry: Entry | None) -> bool:
        """Notes whether the asker sees an object in this state, and says so."""
        if self._sieve is None:
            return entry is not None
        visible = entry is not None and self._sieve.sees(entry)
        (seen.add if visible else seen.discard)(key)
        return visible

    def position(self) -> int:
        """The revision up to which everything has been taken; only asked when nothing waits."""
        return self._view.revision

    def close(self) -> None:
        if self._watcher is not None:
            self._view.unwatch(*self._kind.place, self._watcher)

    @property
    def _started(self) -> Watcher[Entry]:
        if self._watcher is None:
            raise RuntimeError("the feed has not been started")
        return self._watcher

    def _shows(self, entry: Entry) -> bool:
        return self._selects(entry) and (self._sieve is None or self._sieve.sees(entry))

    def _selects(self, entry: Entry | None) -> bool:
        return entry is not None and (not self._selection or self._selection.takes(entry))

    def _sides(self, previous: Entry | None, current: Entry | None) -> tuple[bool, bool]:
        """Whether an object was, and is, among what is selected."""
        after = self._selects(current)
        if previous is None or current is None or self._selection.fields or previous.labels is not current.labels:
            return self._selects(previous), after
        return after, after  # equal labels are one mapping, and they seldom change

    def _event(self, transition: Transition[Entry]) -> WatchEvent | None:
        before, after = self._sides(transition.previous, transition.current)
        if self._sieve is not None:
            # By what the asker was shown: under permissions that have changed since, it might look as if it never was.
            before = before and transition.key in self._seen
            after = self._look(self._seen, transition.key, transition.current) and after
        if after:
            return _shown(self._kind, transition, "MODIFIED" if before else "ADDED")
        return _shown(self._kind, transition, "DELETED") if before else None


def _sought(selection: Selection) -> Sought | None:
    """The most telling of the conditions that watchers can be found by. What is found so still has to be tested."""
    for each in selection.fields:
        if each.operator == "in" and each.key == "metadata.name":
            return BY_NAME, "", each.values
    labels = [("labels", each) for each in selection.labels]
    fields = [("selectable", each) for each in selection.fields if not each.key.startswith("metadata.")]
    known = [(sort, each.key, each.values) for sort, each in labels + fields if each.operator == "in"]
    return min(known, key=lambda sought: len(sought[2]), default=None)


def _whole(transition: Transition[Entry]) -> WatchEvent | None:
    """The event for those who are told everything."""
    if transition.current is None:
        return _encoded(transition, "DELETED") if transition.previous is not None else None
    return _encoded(transition, "MODIFIED" if transition.previous is not None else "ADDED")


def _shown(kind: Kind, transition: Transition[Entry], type: str) -> WatchEvent:
    """The event in the form of the kind; that, too, is made by the first watcher for all the others."""
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
        raise RuntimeError(f"nothing is there to be {type}")
    body = restamped(state, transition.revision) if type == "DELETED" else state.body
    event = transition.encoded[type] = WatchEvent(type, body, line(type, body))
    return event


def _size(entry: Entry) -> int:
    return len(entry.body)


def _event_size(transition: Transition[Entry]) -> int:
    """Bytes of an event, which shows one of the two states."""
    state = transition.current or transition.previous
    return len(state.body) if state is not None else 0


def added_lines(bodies: Sequence[bytes]) -> bytes:
    """What exists, as it goes over the wire."""
    return b"".join([b'{"type":"ADDED","object":%b}\n' % body for body in bodies])


def line(type: str, body: bytes) -> bytes:
    """An event as it goes over the wire."""
    return b'{"type":"%b","object":%b}\n' % (type.encode(), body)
