"""The picture of the store in memory that all reads are served from, and the fan-out to watchers.

The view follows the store's own watch and never writes. For each object it keeps the finished JSON bytes beside the few
parsed parts that selection needs, so GET hands out bytes, LIST joins them, and a watch event is encoded once for all
its watchers. It also keeps the recent transitions, which is what old snapshots and resumed watches are made of.

The view does not know what an object is: `finish`, handed in by the registry, turns a stored record into an Entry.
"""

import asyncio
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import structlog

from fairlead.storage.contract import Compacted, Event, Key, Record, Store, Unavailable
from fairlead.storage.watchers import Transition, Watcher, Watchers

LOAD_PAGE = 5_000
RETRY_SECONDS = 0.5

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Entry:
    """One object as it is served: its finished JSON, and what selectors look at."""

    key: Key
    revision: int
    body: bytes
    labels: Mapping[str, str]
    fields: Mapping[str, str]
    whole: bytes = b""
    """The JSON with what is never served, where there is such a thing; empty where `body` is all there is."""


Finish = Callable[[Record], Entry]
Place = tuple[str, str]
"""Namespace and name: the last two parts of a key."""


class Collection:
    """The objects of one resource, in key order, with their recent past and their watchers."""

    __slots__ = ("entries", "history", "order", "watchers")

    def __init__(self) -> None:
        self.entries: dict[Place, Entry] = {}
        self.order: list[Place] = []
        self.history: deque[Transition[Entry]] = deque()
        self.watchers: Watchers[Entry] = Watchers()

    def put(self, place: Place, entry: Entry) -> Entry | None:
        previous = self.entries.get(place)
        if previous is None:
            insort(self.order, place)
        self.entries[place] = entry
        return previous

    def drop(self, place: Place) -> Entry | None:
        previous = self.entries.pop(place, None)
        if previous is not None:
            del self.order[bisect_left(self.order, place)]
        return previous

    def places(self, namespace: str, after: Place | None) -> list[Place]:
        """Where objects are, in order: in one namespace or (empty) in all, past `after`."""
        order = self.order
        start = bisect_right(order, after) if after else 0
        if not namespace:
            return order[start:]
        start = max(start, bisect_left(order, (namespace, "")))
        return order[start : bisect_left(order, (namespace + "\x00", ""))]

    def at(self, revision: int) -> "Collection":
        """The same objects as they stood at an earlier revision: the transitions since then, undone."""
        if not self.history or self.history[-1].revision <= revision:
            return self
        past = Collection()
        past.entries = dict(self.entries)
        for transition in reversed(self.history):
            if transition.revision <= revision:
                break
            place = transition.key[2], transition.key[3]
            if transition.previous is None:
                past.entries.pop(place, None)
            else:
                past.entries[place] = transition.previous
        past.order = sorted(past.entries)
        return past

    def since(self, revision: int) -> list[Transition[Entry]]:
        """What happened after a revision, oldest first."""
        found: list[Transition[Entry]] = []
        for transition in reversed(self.history):
            if transition.revision <= revision:
                break
            found.append(transition)
        found.reverse()
        return found


class View:
    """Everything in the store, in memory. All methods belong to the event loop; none but the `async` ones wait."""

    def __init__(self, store: Store, finish: Finish) -> None:
        self._store = store
        self._finish = finish
        self._collections: dict[tuple[str, str], Collection] = {}
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._follower: asyncio.Task[None] | None = None
        self._stopped = False
        self.revision = 0
        self.oldest = 0

    async def start(self) -> None:
        """Loads the store and returns once every commit that was acknowledged before the call is in view."""
        while True:
            try:
                since = await self._load()
                break
            except Compacted:  # between two pages; the next attempt begins at a younger snapshot
                continue
        self._follower = asyncio.create_task(self._follow(since), name="view")
        self._follower.add_done_callback(self._left_alone)
        await self.reached(await self._store.revision())

    def end_watches(self) -> None:
        """Lets every watch deliver what it has and end, now and from now on; reads and writes go on."""
        self._stopped = True
        for collection in self._collections.values():
            collection.watchers.end()

    async def stop(self) -> None:
        """Stops following the store."""
        if self._follower is not None:
            self._follower.cancel()
            await asyncio.gather(self._follower, return_exceptions=True)

    def get(self, key: Key) -> Entry | None:
        collection = self._collections.get((key[0], key[1]))
        return collection.entries.get((key[2], key[3])) if collection is not None else None

    def entries(self, group: str, plural: str, namespace: str = "") -> list[Entry]:
        """The objects there are now, in key order."""
        return self.page((group, plural), namespace)[0]

    def page(
        self,
        resource: tuple[str, str],
        namespace: str,
        *,
        after: Place | None = None,
        at: int | None = None,
        limit: int = 0,
    ) -> tuple[list[Entry], int]:
        """Objects past `after`, at most `limit` (0 = all), now or as they stood at an earlier revision.

        The number beside them says how many more there are. Raises Compacted when the revision is too long ago.
        """
        collection = self._collection(*resource)
        if at is not None and at < self.revision:
            self.remembers(at)
            collection = collection.at(at)
        places = collection.places(namespace, after)
        chosen = places[:limit] if limit else places
        return [collection.entries[place] for place in chosen], len(places) - len(chosen)

    def count(self, group: str, plural: str, namespace: str = "") -> int:
        """How many objects there are now."""
        order = self._collection(group, plural).order
        if not namespace:
            return len(order)
        return bisect_left(order, (namespace + "\x00", "")) - bisect_left(order, (namespace, ""))

    def watch(self, group: str, plural: str, namespace: str, since: int, limit: int) -> Watcher[Entry]:
        """A watcher that starts with what happened after `since` and then hears everything. Raises Compacted."""
        self.remembers(since)
        collection = self._collection(group, plural)
        watcher: Watcher[Entry] = Watcher(namespace, limit)
        for transition in collection.since(since):
            watcher.replay(transition)
        collection.watchers.add(watcher)
        if self._stopped:
            watcher.end()
        return watcher

    def unwatch(self, group: str, plural: str, watcher: Watcher[Entry]) -> None:
        self._collection(group, plural).watchers.remove(watcher)

    def remembers(self, revision: int) -> None:
        """Raises Compacted when the history no longer reaches back to `revision`."""
        if revision < self.oldest:
            raise Compacted(revision, self.oldest)

    async def fresh(self) -> None:
        """Waits until everything acknowledged before the call, by whichever replica, is in view."""
        revision = await self._store.revision()
        if revision > self.revision:
            await self.reached(revision)

    async def reached(self, revision: int) -> None:
        """Waits until the view shows `revision`. The caller bounds the wait."""
        if self.revision >= revision:
            return
        if self._follower is not None and self._follower.done():
            raise Unavailable("the server no longer follows its store; restart it")
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((revision, future))
        await future

    def _left_alone(self, follower: "asyncio.Task[None]") -> None:
        """Nobody is going to wake those who wait."""
        if not follower.cancelled() and follower.exception() is not None:
            log.error("following the store has failed", exc_info=follower.exception())
        for _, future in self._waiting:
            if not future.done():
                future.set_exception(Unavailable("the server no longer follows its store; restart it"))
        self._waiting = []

    def forget(self, before: int) -> None:
        """Drops transitions that only snapshots older than `before` need; called when the store was compacted."""
        self.oldest = max(self.oldest, min(before, self.revision))
        for collection in self._collections.values():
            history = collection.history
            while history and history[0].revision <= self.oldest:
                history.popleft()

    def _collection(self, group: str, plural: str) -> Collection:
        collection = self._collections.get((group, plural))
        if collection is None:
            collection = self._collections[group, plural] = Collection()
        return collection

    async def _load(self) -> int:
        """Reads the oldest snapshot there is, so that following from it also rebuilds the history.

        It takes the place of what was there in one step: nobody ever sees half of it. Watchers of what was there cannot
        be given the gap, so they are told to list again.
        """
        oldest = await self._store.oldest()
        loaded: dict[tuple[str, str], Collection] = {}
        after: Key | None = None
        while True:
            page = await self._store.scan((), after=after, limit=LOAD_PAGE, at=oldest)
            for record in page.records:
                group, plural, namespace, name = record.key
                loaded.setdefault((group, plural), Collection()).put((namespace, name), self._finish(record))
            if not page.more:
                break
            after = page.records[-1].key
        for collection in self._collections.values():
            collection.watchers.overflow()
        self._collections = loaded
        self.oldest = oldest
        self._advance(oldest)
        return oldest

    async def _follow(self, since: int) -> None:
        """Follows the store for ever; a store that is away for a while is asked again from where we stand."""
        behind = False
        while True:
            try:
                if behind:
                    since, behind = await self._load(), False
                async for batch in self._store.watch((), since):
                    self._apply(batch)
                    since = self.revision
                return
            except Unavailable as error:
                log.warning("the store's watch broke off; following again", reason=str(error))
                await asyncio.sleep(RETRY_SECONDS)
            except Compacted:
                log.warning("fell behind the store's compaction; loading again", since=since)
                behind = True

    def _apply(self, batch: Sequence[Event]) -> None:
        for event in batch:
            collection = self._collection(event.key[0], event.key[1])
            place = event.key[2], event.key[3]
            if event.value is None:
                current, previous = None, collection.drop(place)
            else:
                current = self._finish(Record(event.key, event.value, event.revision))
                previous = collection.put(place, current)
            transition = Transition(event.key, event.revision, previous, current)
            collection.history.append(transition)
            collection.watchers.offer(transition)
        if batch:
            self._advance(batch[-1].revision)

    def _advance(self, revision: int) -> None:
        self.revision = revision
        if not self._waiting:
            return
        still: list[tuple[int, asyncio.Future[None]]] = []
        for awaited, future in self._waiting:
            if future.done():
                continue  # whoever gave up waiting
            if awaited > revision:
                still.append((awaited, future))
            else:
                future.set_result(None)
        self._waiting = still
