"""The watch cache: the content of the store in memory, which serves all reads and watches.

The view follows the store's watch and never writes. For each object it keeps the encoded JSON and the few parsed
fields that selectors need. So GET returns bytes, LIST joins them, and a watch event is encoded once for all watchers.
It also keeps recent transitions, for lists at older revisions and for resumed watches.

The view knows nothing about objects: the registry passes `build_entry`, which turns a stored record into an `Entry`.
"""

import asyncio
import sys
from collections.abc import Sequence
from typing import Protocol

import structlog

from fairlead.core.waiting import RevisionWaiters, end_tasks
from fairlead.storage.contract import Compacted, Event, Key, Record, Store, StoreUnavailable
from fairlead.storage.view.collection import Collection, IndexQuery
from fairlead.storage.view.entry import Entry, EntryBuilder
from fairlead.storage.view.fan_out import Transition, Watcher, WatchFilter
from fairlead.storage.view.sorted_chunks import ChunkSlice, JoinedBytesCache

__all__ = ["ChunkSlice", "Entry", "EntryBuilder", "IndexQuery", "NamespacedName", "View"]

LOAD_PAGE = 5_000
WARM_BATCH_SIZE, WARM_PAUSE_SECONDS = 200, 0.002
"""Entries to parse per step, and the pause between steps, which leaves time for requests."""
RETRY_SECONDS = 0.5
MAX_HISTORY_BYTES = 128 * 1024 * 1024
"""Total size of the recent transitions. Above it, the oldest are discarded early."""
TRANSITION_OVERHEAD_BYTES = 512
"""Approximate overhead of a transition, without its states."""

NamespacedName = tuple[str, str]
"""Namespace and name: the last two parts of a key."""

log = structlog.get_logger(__name__)


class ViewObserver(Protocol):
    """Is told of every object that the view loads and of every change, when the view has it."""

    def start_load(self) -> None:
        """All objects are loaded, for the first time or again."""
        ...

    def load(self, entry: Entry) -> None: ...

    def finish_load(self) -> None:
        """The loaded objects are now the content of the view."""
        ...

    def change(self, key: Key, previous: Entry | None, current: Entry | None) -> None: ...


class View:
    """The content of the store in memory. Call it on the event loop only. Only the `async` methods wait."""

    def __init__(self, store: Store, build_entry: EntryBuilder, max_history_bytes: int = MAX_HISTORY_BYTES) -> None:
        self._store = store
        self._max_history_bytes = max_history_bytes
        self._local_revision = store.local_revision
        self._build_entry = build_entry
        self._collections: dict[tuple[str, str], Collection] = {}
        self._joined_cache = JoinedBytesCache()
        self._history_bytes = 0
        self._waiters = RevisionWaiters()
        self._follower: asyncio.Task[None] | None = None
        self._watches_ended = False
        self._observers: list[ViewObserver] = []
        self.revision = 0
        self.oldest = 0

    def observe(self, observer: ViewObserver) -> None:
        """Adds an observer. Objects that the view has already are loaded into it at once."""
        observer.start_load()
        for collection in self._collections.values():
            for entry in collection.entries.values():
                observer.load(entry)
        observer.finish_load()
        self._observers.append(observer)

    async def start(self) -> None:
        """Load the store. Returns when the view contains every commit that was acknowledged before the call."""
        while True:
            try:
                since = await self._load()
                break
            except Compacted:  # between two pages; retry with a newer snapshot
                continue
        self._follower = asyncio.create_task(self._follow(since), name="view")
        self._follower.add_done_callback(self._on_follower_done)
        await self.wait_for(await self._store.revision())

    async def warm_selector_fields(self) -> None:
        """Parse the labels of all entries in small steps, so that the first request with a label selector need not
        wait for it."""
        for collection in list(self._collections.values()):
            entries = list(collection.entries.values())
            for at in range(0, len(entries), WARM_BATCH_SIZE):
                for entry in entries[at : at + WARM_BATCH_SIZE]:
                    _ = entry.labels
                await asyncio.sleep(WARM_PAUSE_SECONDS)

    def end_watches(self) -> None:
        """End all watches, current and future, after their queued events. Reads and writes continue."""
        self._watches_ended = True
        for collection in self._collections.values():
            collection.watchers.end()

    async def stop(self) -> None:
        """Stop following the store."""
        if self._follower is not None:
            await end_tasks(self._follower)

    def get(self, key: Key) -> Entry | None:
        collection = self._collections.get((key[0], key[1]))
        return collection.entries.get(key) if collection is not None else None

    def entries(self, group: str, plural: str, namespace: str = "") -> list[Entry]:
        """The current objects, in key order."""
        low, high = _key_range((group, plural), namespace, None)
        return self._collection(group, plural).latest(low, high, 0)[0].entries()

    def slice(self, group: str, plural: str, namespace: str = "") -> ChunkSlice:
        """The same as a slice, for iterating in steps."""
        low, high = _key_range((group, plural), namespace, None)
        return self._collection(group, plural).latest(low, high, 0)[0]

    def page(
        self,
        resource: tuple[str, str],
        namespace: str,
        *,
        after: NamespacedName | None = None,
        at: int | None = None,
        limit: int = 0,
    ) -> tuple[ChunkSlice | list[Entry], int]:
        """Objects after `after`, at most `limit` (0 = all), now or at an earlier revision, and how many more there
        are.

        Raises Compacted if the revision is too old.
        """
        collection = self._collection(*resource)
        low, high = _key_range(resource, namespace, after)
        then = self._past_revision(collection, at)
        return collection.latest(low, high, limit) if then is None else collection.at_revision(low, high, limit, then)

    async def build_indexes(self, resource: tuple[str, str], queries: Sequence[IndexQuery]) -> None:
        """Build the indexes that `index_scan` needs for these conditions."""
        await self._collection(*resource).build_indexes(queries)

    def index_scan(
        self,
        resource: tuple[str, str],
        namespace: str,
        queries: Sequence[IndexQuery],
        *,
        after: NamespacedName | None = None,
        at: int | None = None,
    ) -> list[Entry]:
        """Objects as from `page`: all that meet the conditions, and possibly others. Raises Compacted."""
        collection = self._collection(*resource)
        low, high = _key_range(resource, namespace, after)
        return collection.index_scan(low, high, queries, self._past_revision(collection, at))

    def _past_revision(self, collection: Collection, at: int | None) -> int | None:
        """The revision, or None if the collection has not changed since."""
        if at is None or at >= self.revision:
            return None
        self.check_retained(at)
        history = collection.history
        return at if history and history[-1].revision > at else None

    def count(self, group: str, plural: str, namespace: str = "") -> int:
        """The current number of objects."""
        collection = self._collection(group, plural)
        if not namespace:
            return len(collection.entries)
        return collection.count(*_key_range((group, plural), namespace, None))

    def changed_at(self, group: str, plural: str) -> int:
        """The revision of the last change of any of the objects."""
        return self._collection(group, plural).changed_at

    def watch(
        self, group: str, plural: str, namespace: str, since: int, limit: int, watch_filter: WatchFilter | None = None
    ) -> Watcher[Entry]:
        """A watcher that first replays the transitions after `since` and then receives live ones. Raises Compacted.

        With `watch_filter`, it may skip transitions that do not match.
        """
        self.check_retained(since)
        collection = self._collection(group, plural)
        watcher: Watcher[Entry] = Watcher(namespace, limit, watch_filter)
        for transition in collection.transitions_since(since):
            watcher.replay(transition)
        collection.watchers.add(watcher)
        if self._watches_ended:
            watcher.end()
        return watcher

    def unwatch(self, group: str, plural: str, watcher: Watcher[Entry]) -> None:
        self._collection(group, plural).watchers.remove(watcher)

    def check_retained(self, revision: int) -> None:
        """Raise Compacted if the history no longer reaches back to `revision`."""
        if revision < self.oldest:
            raise Compacted(revision, self.oldest)

    def is_current(self) -> bool:
        """Whether the view is known to contain every acknowledged commit, without asking the store."""
        known = self._local_revision()
        return known is not None and known <= self.revision

    async def wait_current(self) -> None:
        """Wait until the view contains every commit, of any replica, that was acknowledged before the call."""
        revision = await self._store.revision()
        if revision > self.revision:
            await self.wait_for(revision)

    async def wait_for(self, revision: int) -> None:
        """Wait until the view has reached `revision`. The caller sets the timeout."""
        if self.revision >= revision:
            return
        if self._follower is not None and self._follower.done():
            raise _not_following()
        await self._waiters.add(revision)

    def _on_follower_done(self, follower: "asyncio.Task[None]") -> None:
        """The follower task has ended: fail all waiters."""
        if not follower.cancelled() and follower.exception() is not None:
            log.error("following the store failed", exc_info=follower.exception())
        self._waiters.fail(_not_following)

    def discard_before(self, before: int) -> None:
        """Discard transitions that only revisions before `before` need. Called after a compaction of the store."""
        self.oldest = max(self.oldest, min(before, self.revision))
        for collection in self._collections.values():
            history = collection.history
            while history and history[0].revision <= self.oldest:
                self._history_bytes -= _weight(history.popleft())

    def _collection(self, group: str, plural: str) -> Collection:
        collection = self._collections.get((group, plural))
        if collection is None:
            collection = self._collections[group, plural] = Collection(self._joined_cache)
        return collection

    async def _load(self) -> int:
        """Load the oldest readable snapshot, so that following from it also rebuilds the history.

        It replaces the previous content atomically. Existing watchers would miss the gap, so they have to list again.
        """
        oldest = await self._store.oldest()
        for observer in self._observers:
            observer.start_load()
        loaded: dict[tuple[str, str], list[Entry]] = {}
        after: Key | None = None
        while True:
            page = await self._store.scan((), after=after, limit=LOAD_PAGE, at=oldest)
            for record in page.records:
                entry = self._build_entry(record)
                loaded.setdefault((record.key[0], record.key[1]), []).append(entry)
                for observer in self._observers:
                    observer.load(entry)
            if not page.has_more:
                break
            after = page.records[-1].key
        for collection in self._collections.values():
            collection.watchers.overflow()
        self._joined_cache, self._history_bytes = JoinedBytesCache(), 0
        self._collections = {
            resource: Collection(self._joined_cache, entries, oldest) for resource, entries in loaded.items()
        }
        for observer in self._observers:
            observer.finish_load()
        self.oldest = self.revision = oldest
        self._waiters.advance(oldest)
        return oldest

    async def _follow(self, since: int) -> None:
        """Follow the store forever. After an outage, continue from the current revision."""
        behind = False
        while True:
            try:
                if behind:
                    since, behind = await self._load(), False
                async for batch in self._store.watch((), since):
                    self._apply(batch)
                    since = self.revision
                return
            except StoreUnavailable as error:
                log.warning("the watch of the store was interrupted; resuming", reason=str(error))
                await asyncio.sleep(RETRY_SECONDS)
            except Compacted:
                log.warning("fell behind the compaction of the store; reloading", since=since)
                behind = True

    def _apply(self, batch: Sequence[Event]) -> None:
        for event in batch:
            collection = self._collection(event.key[0], event.key[1])
            previous = collection.entries.get(event.key)
            key = previous.key if previous is not None else _intern_key(event.key)
            current = None
            if event.value is None:
                collection.remove(key)
            else:
                current = self._build_entry(Record(key, event.value, event.revision))
                collection.put(current)
            transition = Transition(key, event.revision, previous, current)
            self._history_bytes += _weight(transition)
            collection.history.append(transition)
            collection.changed_at = event.revision
            collection.watchers.publish(transition)
            for observer in self._observers:
                observer.change(key, previous, current)
        if batch:
            self.revision = batch[-1].revision
            self._waiters.advance(self.revision)
        while self._history_bytes > self._max_history_bytes and self.oldest < self.revision:
            # Discard an eighth at a time, because each pass over the collections has a fixed cost.
            self.discard_before(self.oldest + max(1, (self.revision - self.oldest) // 8))


def _not_following() -> StoreUnavailable:
    return StoreUnavailable("the server has stopped following its store; restart it")


def _key_range(resource: tuple[str, str], namespace: str, after: NamespacedName | None) -> tuple[Key, Key]:
    """The key range of a resource, in one namespace or (empty) in all, after `after`."""
    group, plural = resource
    low: Key = (group, plural, namespace, "")
    high: Key = (group, plural, namespace + "\x00", "") if namespace else (group, plural + "\x00", "", "")
    if after is not None:
        low = max(low, (group, plural, after[0], after[1] + "\x00"))
    return low, high


def _intern_key(key: Key) -> Key:
    """The key with interned parts, which many keys share."""
    group, plural, namespace, name = key
    return sys.intern(group), sys.intern(plural), sys.intern(namespace), name


def _weight(transition: Transition[Entry]) -> int:
    """The approximate memory of a transition, including its encoded watch event."""
    previous, current = transition.previous, transition.current
    before = len(previous.body) + len(previous.full_body) if previous is not None else 0
    return TRANSITION_OVERHEAD_BYTES + before + (len(current.body) if current is not None else 0)
