"""A store wrapper that encrypts credentials at rest. Transparent to its callers.

`app` puts it around the store that it has opened. Each value is bound to its key, so an encrypted value cannot be
moved to another object. Plain values, for example from an older database, are readable; `reencrypt.py` encrypts them.

A value that cannot be decrypted raises StoreUnavailable with the object and the key id. `load_keyring` checks all
values before the server starts, because a server could not recover from this later. `publish_active_key` ensures that
all replicas encrypt with keys that the others have.
"""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing

from fairlead.core.crypto.encryption import Keyring, Unsealable, is_sealed
from fairlead.core.crypto.key_file import SealKeys
from fairlead.core.files import FileProblem
from fairlead.storage.commit import pack
from fairlead.storage.contract import Change, Check, Compacted, Conflict, Event, Key, Page, Record, Store, Unavailable
from fairlead.storage.fingerprints import fingerprint, keep, kept

WALK_PAGE = 1_000
SEAL_KEY = "seal-key"
"""The name of the fingerprint record of the active key."""

Holds = Callable[[Key, bytes], bool]
"""Whether the plain value of a key contains a credential."""


def _unheard(seconds: float) -> None:
    return None


class Sealed:
    """A Store that wraps another one. `keyring` is replaced as a whole when the keys change."""

    def __init__(self, store: Store, keyring: Keyring, holds: Holds) -> None:
        self._store = store
        self.keyring = keyring
        self.holds = holds
        self.note_commit: Callable[[float], None] = _unheard
        """Called with the duration of each commit in seconds."""

    async def read(self, key: Key) -> Record | None:
        record = await self._store.read(key)
        return None if record is None else self._opened(record)

    async def scan(self, prefix: Key, *, after: Key | None = None, limit: int = 0, at: int | None = None) -> Page:
        page = await self._store.scan(prefix, after=after, limit=limit, at=at)
        return Page([self._opened(record) for record in page.records], page.revision, page.more)

    async def commit(self, changes: Sequence[Change], checks: Sequence[Check] = ()) -> int:
        begun = time.perf_counter()
        try:
            return await self._store.commit([*map(self._closed, changes)], checks)
        finally:
            self.note_commit(time.perf_counter() - begun)

    async def watch(self, prefix: Key, since: int) -> AsyncIterator[Sequence[Event]]:
        async for batch in self._store.watch(prefix, since):
            yield [self._heard(event) for event in batch]

    async def revision(self) -> int:
        return await self._store.revision()

    def known_revision(self) -> int | None:
        return self._store.known_revision()

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
        # Also encrypt plain values that look like an envelope, so that whatever looks encrypted when it is read
        # really is.
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
    """Decrypt a value. Raises StoreUnavailable, with the name of the object, if that fails."""
    try:
        return keyring.unseal(value, pack(key))
    except Unsealable as error:
        raise Unavailable(f"{shown(key)} is {error}") from error


def shown(key: Key) -> str:
    return "/".join(part for part in key if part)


async def keyring_for(store: Store, keys: SealKeys) -> Keyring:
    """Load the keys, and check that they decrypt everything; create them if there are none and nothing is encrypted
    yet.

    Raises FileProblem if keys are missing or differ from those of other replicas, so that the operator has to provide
    them. Raises StoreUnavailable if a value in the history cannot be decrypted. Current values are checked when the
    view loads them.
    """
    keyring = keys.read()
    if keyring is None:
        await _nobody_has_keys(store, keys.source)
    while True:
        try:
            await _try_on_all(store, keyring, keys.source)
            break
        except Compacted:  # by another replica meanwhile; retry with a newer snapshot
            continue
    # Create the file before storing the fingerprint: the fingerprint of a key that no server has could never be
    # removed.
    return keyring or keys.make()


async def _nobody_has_keys(store: Store, source: str) -> None:
    theirs, _ = await kept(store, SEAL_KEY)
    if theirs is not None:
        advice = "copy that file from a server that has it, or restore it from a backup"
        raise FileProblem(f"{source}: missing, and other servers of this store encrypt with key {theirs.id}; {advice}")


async def agree_on_active(store: Store, keyring: Keyring) -> None:
    """Publish the fingerprint of our active key to other replicas. Raises FileProblem if we lack the key that they
    use."""
    active = keyring.keys[0]
    while True:
        theirs, revision = await kept(store, SEAL_KEY)
        if theirs is not None and theirs not in [fingerprint(SEAL_KEY, key.secret, key.id) for key in keyring.keys]:
            which = "differs here" if theirs.id in [key.id for key in keyring.keys] else "is missing here"
            advice = "all servers need the same keys: copy them from a server that has it"
            raise FileProblem(f"{keyring.source}: other servers encrypt with key {theirs.id}, which {which}; {advice}")
        if theirs is not None and theirs.id == active.id:
            return
        try:
            return await keep(store, SEAL_KEY, fingerprint(SEAL_KEY, active.secret, active.id), revision)
        except Conflict:  # another replica was faster; check what it has published
            continue


async def _try_on_all(store: Store, keyring: Keyring | None, source: str) -> None:
    async with aclosing(every_value(store) if keyring is None else _past_values(store)) as values:
        async for key, value in values:
            if not is_sealed(value):
                continue
            if keyring is None:
                advice = "copy it from another server of this store, or restore it from a backup"
                raise FileProblem(f"{source}: missing, and {shown(key)} in the store is encrypted; {advice}")
            unsealed(keyring, key, value)


async def every_value(store: Store) -> AsyncGenerator[tuple[Key, bytes]]:
    """All readable values, including those in the history. Unordered, with repetitions."""
    oldest = await store.oldest()
    after: Key | None = None
    while True:
        page = await store.scan((), after=after, limit=WALK_PAGE, at=oldest)
        for record in page.records:
            yield record.key, record.value
        if not page.more:
            break
        after = page.records[-1].key
    async with aclosing(_past_values(store)) as values:
        async for key, value in values:
            yield key, value


async def _past_values(store: Store) -> AsyncGenerator[tuple[Key, bytes]]:
    """The values written after the oldest readable revision."""
    oldest, newest = await store.oldest(), await store.revision()
    if newest == oldest:
        return
    async for batch in store.watch((), oldest):
        for event in batch:
            if event.value is not None:
                yield event.key, event.value
        if batch[-1].revision >= newest:
            return
    raise Unavailable("the store was closed")
