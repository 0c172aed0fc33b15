"""The picture of the store in memory that all reads are served from, and the fan-out to watchers.

The view follows the store's own watch and never writes. For each object it keeps the finished JSON bytes beside the few
parsed parts that selection needs, so GET hands out bytes, LIST joins them, and a watch event is encoded once for all
its watchers. It also keeps the recent transitions, which is what old snapshots and resumed watches are made of.

The view does not know what an object is: `finish`, handed in by the registry, turns a stored record into an Entry.
"""

import asyncio
import sys
from collections.abc import Sequence

import structlog

from fairlead.storage.contract import Compacted, Event, Key, Record, Store, Unavailable
from fairlead.storage.view.collection import Collection, Wanted
from fairlead.storage.view.entry import Entry, Finish
from fairlead.storage.view.fan_out import Sought, Transition, Watcher
from fairlead.storage.view.sorted_chunks import Kept, Stretch

__all__ = ["Entry", "Finish", "Place", "Stretch", "View", "Wanted"]

LOAD_PAGE = 5_000
LOOK_STEP, LOOK_PAUSE = 200, 0.002
"""How many entries are looked at in a row, and how many seconds requests have for themselves then."""
RETRY_SECONDS = 0.5
PAST_BYTES = 128 * 1024 * 1024
"""For the recent transitions, in all. When they weigh more, the oldest are forgotten before their time is over."""
TRANSITION_BYTES = 512
"""What a transition costs beside the states between which it is, roughly."""

Place = tuple[str, str]
"""Namespace and name: the last two parts of a key."""

log = structlog.get_logger(__name__)


class View:
    """Everything in the store, in memory. All methods belong to the event loop; none but the `async` ones wait."""

    def __init__(self, store: Store, finish: Finish) -> None:
        self._store = store
        self._known_revision = store.known_revision
        self._finish = finish
        self._collections: dict[tuple[str, str], Collection] = {}
        self._kept = Kept()
        self._past = 0
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

    async def look_over(self) -> None:
        """Has every entry read that nobody has asked for its labels yet, in small steps: whoever selects by a label
        first would have to wait for all of it."""
        for collection in list(self._collections.values()):
            entries = list(collection.entries.values())
            for at in range(0, len(entries), LOOK_STEP):
                for entry in entries[at : at + LOOK_STEP]:
                    _ = entry.labels
                await asyncio.sleep(LOOK_PAUSE)

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
        return collection.entries.get(key) if collection is not None else None

    def entries(self, group: str, plural: str, namespace: str = "") -> list[Entry]:
        """The objects there are now, in key order."""
        low, high = _range((group, plural), namespace, None)
        return self._collection(group, plural).now(low, high, 0)[0].entries()

    def stretch(self, group: str, plural: str, namespace: str = "") -> Stretch:
        """The same, to be gone through little by little."""
        low, high = _range((group, plural), namespace, None)
        return self._collection(group, plural).now(low, high, 0)[0]

    def page(
        self,
        resource: tuple[str, str],
        namespace: str,
        *,
        after: Place | None = None,
        at: int | None = None,
        limit: int = 0,
    ) -> tuple[Stretch | list[Entry], int]:
        """Objects past `after`, at most `limit` (0 = all), now or as they stood at an earlier revision.

        The number beside them says how many more there are. Raises Compacted when the revision is too long ago.
        """
        collection = self._collection(*resource)
        low, high = _range(resource, namespace, after)
        then = self._then(collection, at)
        return collection.now(low, high, limit) if then is None else collection.then(low, high, limit, then)

    async def prepare(self, resource: tuple[str, str], wanted: Sequence[Wanted]) -> None:
        """Gets ready for `candidates` with these conditions, which then are found without looking at all objects."""
        await self._collection(*resource).prepare(wanted)

    def candidates(
        self,
        resource: tuple[str, str],
        namespace: str,
        wanted: Sequence[Wanted],
        *,
        after: Place | None = None,
        at: int | None = None,
    ) -> list[Entry]:
        """Objects as `page` has them, all of those that meet the conditions and some that do not. Raises Compacted."""
        collection = self._collection(*resource)
        low, high = _range(resource, namespace, after)
        return collection.candidates(low, high, wanted, self._then(collection, at))

    def _then(self, collection: Collection, at: int | None) -> int | None:
        """The revision, if the collection looked different at it."""
        if at is None or at >= self.revision:
            return None
        self.remembers(at)
        history = collection.history
        return at if history and history[-1].revision > at else None

    def count(self, group: str, plural: str, namespace: str = "") -> int:
        """How many objects there are now."""
        collection = self._collection(group, plural)
        if not namespace:
            return len(collection.entries)
        return collection.count(*_range((group, plural), namespace, None))

    def watch(
        self, group: str, plural: str, namespace: str, since: int, limit: int, sought: Sought | None = None
    ) -> Watcher[Entry]:
        """A watcher that starts with what happened after `since` and then hears everything, or at least everything
        about what is `sought`. Raises Compacted."""
        self.remembers(since)
        collection = self._collection(group, plural)
        watcher: Watcher[Entry] = Watcher(namespace, limit, sought)
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

    def is_fresh(self) -> bool:
        """Whether everything acknowledged before the call is in view, as far as that is known without asking."""
        known = self._known_revision()
        return known is not None and known <= self.revision

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
                self._past -= _weight(history.popleft())

    def _collection(self, group: str, plural: str) -> Collection:
        collection = self._collections.get((group, plural))
        if collection is None:
            collection = self._collections[group, plural] = Collection(self._kept)
        return collection

    async def _load(self) -> int:
        """Reads the oldest snapshot there is, so that following from it also rebuilds the history.

        It takes the place of what was there in one step: nobody ever sees half of it. Watchers of what was there cannot
        be given the gap, so they are told to list again.
        """
        oldest = await self._store.oldest()
        loaded: dict[tuple[str, str], list[Entry]] = {}
        after: Key | None = None
        while True:
            page = await self._store.scan((), after=after, limit=LOAD_PAGE, at=oldest)
            for record in page.records:
                loaded.setdefault((record.key[0], record.key[1]), []).append(self._finish(record))
            if not page.more:
                break
            after = page.records[-1].key
        for collection in self._collections.values():
            collection.watchers.overflow()
        self._kept, self._past = Kept(), 0
        self._collections = {resource: Collection(self._kept, entries) for resource, entries in loaded.items()}
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
            previous = collection.entries.get(event.key)
            key = previous.key if previous is not None else _shared(event.key)
            current = None
            if event.value is None:
                collection.drop(key)
            else:
                current = self._finish(Record(key, event.value, event.revision))
                collection.put(current)
            transition = Transition(key, event.revision, previous, current)
            self._past += _weight(transition)
            collection.history.append(transition)
            collection.watchers.offer(transition)
        if batch:
            self._advance(batch[-1].revision)
        while self._past > PAST_BYTES and self.oldest < self.revision:
            # An eighth of the time at once, since looking for what to forget costs as much for a little as for a lot.
            self.forget(self.oldest + max(1, (self.revision - self.oldest) // 8))

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


def _range(resource: tuple[str, str], namespace: str, after: Place | None) -> tuple[Key, Key]:
    """The keys of a resource, in one namespace or (empty) in all, past `after`: from the first to before the second."""
    group, plural = resource
    low: Key = (group, plural, namespace, "")
    high: Key = (group, plural, namespace + "\x00", "") if namespace else (group, plural + "\x00", "", "")
    if after is not None:
        low = max(low, (group, plural, after[0], after[1] + "\x00"))
    return low, high


def _shared(key: Key) -> Key:
    """A key that does not hold its own copy of what many keys begin with."""
    group, plural, namespace, name = key
    return sys.intern(group), sys.intern(plural), sys.intern(namespace), name


def _weight(transition: Transition[Entry]) -> int:
    """Counted with the event that it makes for watchers, which stays with it."""
    previous, current = transition.previous, transition.current
    before = len(previous.body) + len(previous.whole) if previous is not None else 0
    return TRANSITION_BYTES + before + (len(current.body) if current is not None else 0)
