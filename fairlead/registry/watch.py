"""Turns changes of objects into watch events: ADDED, MODIFIED or DELETED as seen through a selector.

An object that starts to match the selector is ADDED for this watcher; one that stops matching is DELETED, whatever
happened to it in the store. Each event is encoded here once, as a JSON line that all watchers share (`encode_event`).
`server/api/watch.py` sends the lines, and handles timeouts and bookmarks.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import NamedTuple

from fairlead.core.call import ObjectFilter
from fairlead.core.concurrency import MAX_SLICE_BYTES, split_by_size
from fairlead.core.errors import Expired
from fairlead.registry.codec import convert_body, replace_resource_version
from fairlead.registry.kind import Kind
from fairlead.registry.selectors import Selector
from fairlead.registry.storage_errors import translate_storage_errors
from fairlead.storage.contract import Key
from fairlead.storage.view.fan_out import BY_NAME, Transition, Watcher, WatchFilter
from fairlead.storage.view.view import Entry, View

BATCH_SIZE = 200
"""How many events are built and encoded before yielding to the event loop: as Tables, a few milliseconds."""

Pace = Callable[[], Awaitable[None]]
"""Awaited before each batch of initial events, to limit how many streams send theirs at the same time."""


async def _no_pacing() -> None:
    """No pacing."""


class WatchEvent(NamedTuple):
    """One event for one watcher. Its `line` is the encoded JSON, shared by all watchers that get the same event."""

    type: str
    body: bytes
    line: bytes


class WatchSession:
    """A watcher with its selector. Close it when the stream ends.

    `object_filter` limits it to the objects that the requester may get. Such a session remembers which objects were
    visible, because that can change without any object changing.
    """

    def __init__(
        self,
        view: View,
        kind: Kind,
        namespace: str,
        selector: Selector,
        queue_size: int,
        object_filter: ObjectFilter | None = None,
    ) -> None:
        self._view = view
        self._kind = kind
        self._namespace = namespace
        self._selector = selector
        self._queue_size = queue_size
        self._object_filter = object_filter
        self._filter_generation = object_filter.generation() if object_filter is not None else None
        self._known_visible: set[Key] = set()
        self._watcher: Watcher[Entry] | None = None

    async def initial_objects(self, pace: Pace = _no_pacing) -> AsyncIterator[list[bytes]]:
        """The bodies of the initial ADDED events, in batches; events after them are available from `poll`. Each batch
        is built after `pace` returns."""
        entries = self._view.slice(*self._kind.stored_resource, self._namespace)
        await self.start(self._view.revision)
        for part in entries.batches(self._selector.batch_size(BATCH_SIZE)):
            for some in split_by_size(part, _entry_size):
                await pace()
                # Only bytes: allocating an object per entry would trigger Python's garbage collector in each batch.
                yield [convert_body(self._kind, entry.body) for entry in some if self._is_shown(entry)]
                await asyncio.sleep(0)

    async def start(self, since: int) -> None:
        """Starts with the events after revision `since`. Raises Expired if that has been compacted."""
        with translate_storage_errors():
            group, plural = self._kind.stored_resource
            # With an object filter all objects are watched: visibility is tracked for unselected ones, too.
            watch_filter = _watch_filter(self._selector) if self._object_filter is None else None
            self._watcher = self._view.watch(group, plural, self._namespace, since, self._queue_size, watch_filter)
        self._known_visible = await self._visible_keys_before(self._watcher.peek_all())

    def wait_for_events(self) -> Awaitable[None]:
        """Completes when there are events, when the session has ended, or when `wake` was called."""
        return self._require_watcher.wait_ready()

    def wake(self) -> None:
        """Ends a wait for events, even if there are none."""
        self._require_watcher.wake()

    @property
    def is_ended(self) -> bool:
        """No more events will come, because the server is stopping."""
        return self._require_watcher.ended

    @property
    def has_pending(self) -> bool:
        """Whether there are events to poll."""
        return self._require_watcher.has_pending

    def poll(self) -> list[WatchEvent]:
        """The pending events, a limited batch of them. Raises Expired if the watcher's queue overflowed."""
        watcher = self._require_watcher
        if watcher.overflowed:
            raise Expired(
                "this watch could not keep up with the changes and has missed some; list again and watch from there"
            )
        unchanged = self._object_filter is None and not self._selector and self._kind.conversion is None
        build = _unfiltered_event if unchanged else self._build_event
        events = [build(transition) for transition in watcher.drain_bounded(BATCH_SIZE, _event_size, MAX_SLICE_BYTES)]
        return [event for event in events if event is not None]

    @property
    def is_visibility_check_due(self) -> bool:
        """Whether permissions have changed since visibility was last checked."""
        return self._object_filter is not None and self._object_filter.generation() != self._filter_generation

    async def check_visibility(self) -> None:
        """After a change of permissions, with no events pending: raises Expired if the requester sees more or fewer
        objects than before, although no object changed. The client must list again."""
        if self._object_filter is None:
            return
        self._filter_generation = self._object_filter.generation()
        if await self._visible_keys() != self._known_visible:
            raise Expired("what you may see has changed; list again and watch from there")

    async def _visible_keys(self) -> set[Key]:
        """The keys that the requester may see at the time of the call. Yields to the event loop between batches."""
        object_filter = self._object_filter
        if object_filter is None:
            return set()
        entries = self._view.entries(*self._kind.stored_resource, self._namespace)
        seen = set[Key]()
        for start in range(0, len(entries), BATCH_SIZE):
            seen.update([entry.key for entry in entries[start : start + BATCH_SIZE] if object_filter.allows(entry)])
            if start + BATCH_SIZE < len(entries):
                await asyncio.sleep(0)
        return seen

    async def _visible_keys_before(self, transitions: Sequence[Transition[Entry]]) -> set[Key]:
        """The keys that the requester could see before the pending transitions."""
        seen = await self._visible_keys()
        for transition in reversed(transitions):
            self._track_visibility(seen, transition.key, transition.previous)
        return seen

    def _track_visibility(self, visible_keys: set[Key], key: Key, entry: Entry | None) -> bool:
        """Records and returns whether the requester sees an object in this state."""
        if self._object_filter is None:
            return entry is not None
        visible = entry is not None and self._object_filter.allows(entry)
        (visible_keys.add if visible else visible_keys.discard)(key)
        return visible

    def current_revision(self) -> int:
        """The revision up to which all events have been polled. Only valid if none are pending."""
        return self._view.revision

    def close(self) -> None:
        if self._watcher is not None:
            self._view.unwatch(*self._kind.stored_resource, self._watcher)

    @property
    def _require_watcher(self) -> Watcher[Entry]:
        if self._watcher is None:
            raise RuntimeError("the watch session has not been started")
        return self._watcher

    def _is_shown(self, entry: Entry) -> bool:
        return self._is_selected(entry) and (self._object_filter is None or self._object_filter.allows(entry))

    def _is_selected(self, entry: Entry | None) -> bool:
        return entry is not None and (not self._selector or self._selector.matches(entry))

    def _selected_before_after(self, previous: Entry | None, current: Entry | None) -> tuple[bool, bool]:
        """Whether an object matched the selector before, and matches it now."""
        after = self._is_selected(current)
        if previous is None or current is None or self._selector.fields or previous.labels is not current.labels:
            return self._is_selected(previous), after
        return after, after  # equal labels are the same mapping, and rarely change

    def _build_event(self, transition: Transition[Entry]) -> WatchEvent | None:
        before, after = self._selected_before_after(transition.previous, transition.current)
        if self._object_filter is not None:
            # Based on what was visible then: permissions may have changed since.
            before = before and transition.key in self._known_visible
            after = self._track_visibility(self._known_visible, transition.key, transition.current) and after
        if after:
            return _converted_event(self._kind, transition, "MODIFIED" if before else "ADDED")
        return _converted_event(self._kind, transition, "DELETED") if before else None


def _watch_filter(selector: Selector) -> WatchFilter | None:
    """The most selective requirement by which watchers are indexed. What it matches must still be tested."""
    for each in selector.fields:
        if each.operator == "in" and each.key == "metadata.name":
            return BY_NAME, "", each.values
    labels = [("labels", each) for each in selector.labels]
    fields = [("selectable", each) for each in selector.fields if not each.key.startswith("metadata.")]
    known = [(sort, each.key, each.values) for sort, each in labels + fields if each.operator == "in"]
    return min(known, key=lambda condition: len(condition[2]), default=None)


def _unfiltered_event(transition: Transition[Entry]) -> WatchEvent | None:
    """The event for a watcher without selector and filter."""
    if transition.current is None:
        return _shared_event(transition, "DELETED") if transition.previous is not None else None
    return _shared_event(transition, "MODIFIED" if transition.previous is not None else "ADDED")


def _converted_event(kind: Kind, transition: Transition[Entry], type: str) -> WatchEvent:
    """The event, converted to the kind that is served. The first watcher converts it for all others."""
    if kind.conversion is None:
        return _shared_event(transition, type)
    name = f"{type} {kind.api_version}"
    event = transition.encoded.get(name)
    if not isinstance(event, WatchEvent):
        body = convert_body(kind, _shared_event(transition, type).body)
        event = transition.encoded[name] = WatchEvent(type, body, encode_event(type, body))
    return event


def _shared_event(transition: Transition[Entry], type: str) -> WatchEvent:
    event = transition.encoded.get(type)
    if isinstance(event, WatchEvent):
        return event
    previous, current = transition.previous, transition.current
    state = previous if type == "DELETED" else current
    if state is None:
        raise RuntimeError(f"transition has no state for a {type} event")
    body = replace_resource_version(state, transition.revision) if type == "DELETED" else state.body
    event = transition.encoded[type] = WatchEvent(type, body, encode_event(type, body))
    return event


def _entry_size(entry: Entry) -> int:
    return len(entry.body)


def _event_size(transition: Transition[Entry]) -> int:
    """Bytes of an event, which contains one of the two states."""
    state = transition.current or transition.previous
    return len(state.body) if state is not None else 0


def encode_added_events(bodies: Sequence[bytes]) -> bytes:
    """Initial ADDED events, encoded as JSON lines."""
    return b"".join([b'{"type":"ADDED","object":%b}\n' % body for body in bodies])


def encode_event(type: str, body: bytes) -> bytes:
    """An event, encoded as a JSON line."""
    return b'{"type":"%b","object":%b}\n' % (type.encode(), body)
