"""A store that seals credentials on their way down and opens them on their way up; nobody above it knows.

The composition root puts it over whichever store it has opened. Each value is bound to its key, so that a sealed one is
worth nothing in the place of another object. What is not sealed, like the values of a database from before, is read as
it is; `resealing.py` sees to those.

A value that does not open is Unavailable, in words that name the object and the key. `keyring_for` looks at everything
before the server starts, because a server that stumbles over such a value later on could only keep stumbling.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing

from fairlead.core.files import FileProblem
from fairlead.core.seal_keys import SealKeys
from fairlead.core.sealing import Keyring, Unsealable, is_sealed
from fairlead.storage.contract import Change, Check, Compacted, Event, Key, Page, Record, Store, Unavailable
from fairlead.storage.keys import pack

WALK_PAGE = 1_000

Holds = Callable[[Key, bytes], bool]
"""Whether the value of a key, plain, holds a credential."""


class Sealed:
    """The contract over another store. `keyring` is replaced as a whole when the keys change."""

    def __init__(self, store: Store, keyring: Keyring, holds: Holds) -> None:
        self._store = store
        self.keyring = keyring
        self.holds = holds

    async def read(self, key: Key) -> Record | None:
        record = await self._store.read(key)
        return None if record is None else self._opened(record)

    async def scan(self, prefix: Key, *, after: Key | None = None, limit: int = 0, at: int | None = None) -> Page:
        page = await self._store.scan(prefix, after=after, limit=limit, at=at)
        return Page([self._opened(record) for record in page.records], page.revision, page.more)

    async def commit(self, changes: Sequence[Change], checks: Sequence[Check] = ()) -> int:
        return await self._store.commit([self._closed(change) for change in changes], checks)

    async def watch(self, prefix: Key, since: int) -> AsyncIterator[Sequence[Event]]:
        async for batch in self._store.watch(prefix, since):
            yield [self._heard(event) for event in batch]

    async def revision(self) -> int:
        return await self._store.revision()

    async def oldest(self) -> int:
        return await self._store.oldest()

    async def compact(self, before: int) -> None:
        await self._store.compact(before)

    async def scrub(self) -> None:
        await self._store.scrub()

    async def check(self) -> None:
        await self._store.check()

    async def close(self) -> None:
        await self._store.close()

    def _closed(self, change: Change) -> Change:
        value = change.value
        # What only looks sealed is sealed, too: then whatever looks so when it is read really is.
        if value is None or not (is_sealed(value) or self.holds(change.key, value)):
            return change
        return Change(change.key, self.keyring.seal(value, pack(change.key)), change.expected)

    def _opened(self, record: Record) -> Record:
        if not is_sealed(record.value):
            return record
        return Record(record.key, unsealed(self.keyring, record.key, record.value), record.revision)

    def _heard(self, event: Event) -> Event:
        if event.value is None or not is_sealed(event.value):
            return event
        return Event(event.key, unsealed(self.keyring, event.key, event.value), event.revision)


def unsealed(keyring: Keyring, key: Key, value: bytes) -> bytes:
    """What a sealed value holds; Unavailable, naming the object, where it does not open."""
    try:
        return keyring.unseal(value, pack(key))
    except Unsealable as error:
        raise Unavailable(f"{shown(key)} is {error}") from error


def shown(key: Key) -> str:
    return "/".join(part for part in key if part)


async def keyring_for(store: Store, keys: SealKeys) -> Keyring:
    """The keys that open everything in this store; made where there are none and nothing is sealed yet.

    Raises FileProblem where the keys are missing and somebody has to bring them back, Unavailable where a value does
    not open with those that are there.
    """
    keyring = keys.read()
    while True:
        try:
            await _try_on_all(store, keyring, keys.source)
            return keyring or keys.make()
        except Compacted:  # by another server meanwhile; the next attempt begins at a younger state
            continue


async def _try_on_all(store: Store, keyring: Keyring | None, source: str) -> None:
    async with aclosing(every_value(store)) as values:
        async for key, value in values:
            if not is_sealed(value):
                continue
            if keyring is None:
                advice = "restore it from a backup; without it, the credentials in the store are lost"
                raise FileProblem(f"{source}: missing, and {shown(key)} in the store is sealed; {advice}")
            unsealed(keyring, key, value)


async def every_value(store: Store) -> AsyncGenerator[tuple[Key, bytes]]:
    """All values that the store can still be asked for, those of the past included. Unordered; some come twice."""
    oldest, newest = await store.oldest(), await store.revision()
    after: Key | None = None
    while True:
        page = await store.scan((), after=after, limit=WALK_PAGE, at=oldest)
        for record in page.records:
            yield record.key, record.value
        if not page.more:
            break
        after = page.records[-1].key
    if newest == oldest:
        return
    async for batch in store.watch((), oldest):
        for event in batch:
            if event.value is not None:
                yield event.key, event.value
        if batch[-1].revision >= newest:
            return
    raise Unavailable("the store was closed")
