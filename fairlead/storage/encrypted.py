"""A store wrapper that encrypts credentials at rest. Transparent to its callers.

`app` puts it around the store that it has opened. Each value is bound to its key, so an encrypted value cannot be
moved to another object. Plain values, for example from an older database, are readable; `reencrypt.py` encrypts them.

What is encrypted stays encrypted, also if this version sees no credential in it: during an upgrade, a newer version may
have written one in a field that only that version knows, and writes of this one preserve the field. A write is based on
a value that was read here, so the keys of such values are remembered when they are read.

A value that cannot be decrypted raises StoreUnavailable with the object and the key id. `load_keyring` checks all
values before the server starts, because a server could not recover from this later. `publish_active_key` ensures that
all replicas encrypt with keys that the others have.
"""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing

from fairlead.core.crypto.encryption import DecryptionError, EncryptionKeyFile, Keyring, UnknownKey, is_encrypted
from fairlead.core.files import FileProblem
from fairlead.storage.commit import pack_key
from fairlead.storage.contract import (
    Compacted,
    Event,
    Key,
    Page,
    Precondition,
    Record,
    RevisionConflict,
    Store,
    StoreUnavailable,
    Write,
)
from fairlead.storage.fingerprints import Fingerprint, compute_fingerprint, load_fingerprint, save_fingerprint
from fairlead.storage.wrapper import StoreWrapper

SCAN_PAGE_SIZE = 1_000
ACTIVE_KEY_FINGERPRINT = "seal-key"
"""The name of the fingerprint record of the active key. Stores and backups contain it, so it cannot change."""

IsSensitive = Callable[[Key, bytes], bool]
"""Whether the plain value of a key contains a credential."""


def _ignore_duration(seconds: float) -> None:
    return None


def _has_no_other_keys() -> bool:
    return False


class EncryptedStore(StoreWrapper):
    """`keyring` is replaced as a whole when the keys change."""

    def __init__(self, store: Store, keyring: Keyring, is_sensitive: IsSensitive) -> None:
        super().__init__(store)
        self.keyring = keyring
        self.is_sensitive = is_sensitive
        self._other_encrypted: dict[Key, int] = {}
        """The keys of encrypted values that are not sensitive for this version, with their revisions. Usually none."""
        self.on_commit: Callable[[float], None] = _ignore_duration
        """Called with the duration of each commit in seconds."""
        self.reload_keys: Callable[[], bool] = _has_no_other_keys
        """Called if a value is encrypted with an unknown key: another process may have been the first to find a new
        one. Replaces `keyring` and returns True if there are new keys."""

    async def read(self, key: Key) -> Record | None:
        record = await self.inner.read(key)
        return None if record is None else self._decrypt_record(record)

    async def scan(self, prefix: Key, *, after: Key | None = None, limit: int = 0, at: int | None = None) -> Page:
        page = await self.inner.scan(prefix, after=after, limit=limit, at=at)
        return Page([self._decrypt_record(record) for record in page.records], page.revision, page.has_more)

    async def commit(self, writes: Sequence[Write], preconditions: Sequence[Precondition] = ()) -> int:
        begun = time.perf_counter()
        try:
            # All writes of the commit: it may move an object to another key.
            encrypt_all = any(change.key in self._other_encrypted for change in writes)
            changes = [self._encrypt(change, always=encrypt_all) for change in writes]
            return await self.inner.commit(changes, preconditions)
        finally:
            self.on_commit(time.perf_counter() - begun)

    async def watch(self, prefix: Key, since: int) -> AsyncIterator[Sequence[Event]]:
        async for batch in self.inner.watch(prefix, since):
            yield [self._decrypt_event(event) for event in batch]

    def _encrypt(self, change: Write, *, always: bool) -> Write:
        value = change.value
        # Also encrypt plain values that look like an envelope, so that whatever looks encrypted when it is read
        # really is.
        if value is None or not (always or is_encrypted(value) or self.is_sensitive(change.key, value)):
            return change
        return Write(change.key, self.keyring.encrypt(value, pack_key(change.key)), change.expected_revision)

    def _decrypt_record(self, record: Record) -> Record:
        if not is_encrypted(record.value):
            return record
        return Record(record.key, self._decrypt(record.key, record.value, record.revision), record.revision)

    def _decrypt_event(self, event: Event) -> Event:
        if event.value is None and self._other_encrypted.get(event.key, event.revision) < event.revision:
            del self._other_encrypted[event.key]
        if event.value is None or not is_encrypted(event.value):
            return event
        return Event(event.key, self._decrypt(event.key, event.value, event.revision), event.revision)

    def _decrypt(self, key: Key, value: bytes, revision: int) -> bytes:
        plain = self._decrypt_value(key, value)
        if not (is_encrypted(plain) or self.is_sensitive(key, plain)):
            self._other_encrypted[key] = max(revision, self._other_encrypted.get(key, 0))
        return plain

    def _decrypt_value(self, key: Key, value: bytes) -> bytes:
        try:
            return decrypt_value(self.keyring, key, value)
        except StoreUnavailable as error:
            if not isinstance(error.__cause__, UnknownKey) or not self.reload_keys():
                raise
            return decrypt_value(self.keyring, key, value)


def decrypt_value(keyring: Keyring, key: Key, value: bytes) -> bytes:
    """Decrypt a value. Raises StoreUnavailable, with the name of the object, if that fails."""
    try:
        return keyring.decrypt(value, pack_key(key))
    except DecryptionError as error:
        raise StoreUnavailable(f"{format_key(key)} is {error}") from error


def format_key(key: Key) -> str:
    return "/".join(part for part in key if part)


async def load_keyring(store: Store, keys: EncryptionKeyFile) -> Keyring:
    """Load the keys, and check that they decrypt everything; create them if there are none and nothing is encrypted
    yet.

    Raises FileProblem if keys are missing or differ from those of other replicas, so that the operator has to provide
    them. Raises StoreUnavailable if a value in the history cannot be decrypted. Current values are checked when the
    view loads them.
    """
    keyring = keys.read()
    if keyring is None:
        await _check_no_key_in_use(store, keys.source)
    while True:
        try:
            await _check_decryptable(store, keyring, keys.source)
            break
        except Compacted:  # by another replica meanwhile; retry with a newer snapshot
            continue
    # Create the file before storing the fingerprint: the fingerprint of a key that no server has could never be
    # removed.
    return keyring or keys.create()


async def _check_no_key_in_use(store: Store, source: str) -> None:
    stored, _ = await load_fingerprint(store, ACTIVE_KEY_FINGERPRINT)
    if stored is not None:
        advice = "copy that file and pepper.key from a server that has them, or restore both from a backup"
        raise FileProblem(f"{source}: missing, and other servers of this store encrypt with key {stored.id}; {advice}")


async def check_active_key(store: Store, keyring: Keyring) -> tuple[Fingerprint | None, int]:
    """The fingerprint that other replicas have published, and its revision. Raises FileProblem if we lack the key that
    they use."""
    stored, revision = await load_fingerprint(store, ACTIVE_KEY_FINGERPRINT)
    if stored is not None and stored not in [
        compute_fingerprint(ACTIVE_KEY_FINGERPRINT, key.secret, key.id) for key in keyring.keys
    ]:
        which = "differs here" if stored.id in [key.id for key in keyring.keys] else "is missing here"
        advice = "all servers need the same keys: copy them from a server that has it"
        raise FileProblem(f"{keyring.source}: other servers encrypt with key {stored.id}, which {which}; {advice}")
    return stored, revision


async def publish_active_key(store: Store, keyring: Keyring) -> None:
    """Publish the fingerprint of our active key to other replicas. Raises like `check_active_key`."""
    active = keyring.keys[0]
    while True:
        stored, revision = await check_active_key(store, keyring)
        if stored is not None and stored.id == active.id:
            return
        try:
            return await save_fingerprint(
                store,
                ACTIVE_KEY_FINGERPRINT,
                compute_fingerprint(ACTIVE_KEY_FINGERPRINT, active.secret, active.id),
                revision,
            )
        except RevisionConflict:  # another replica was faster; check what it has published
            continue


async def _check_decryptable(store: Store, keyring: Keyring | None, source: str) -> None:
    async with aclosing(iter_all_values(store) if keyring is None else _iter_history_values(store)) as values:
        async for key, value in values:
            if not is_encrypted(value):
                continue
            if keyring is None:
                advice = "copy it from another server of this store, or restore it from a backup"
                raise FileProblem(f"{source}: missing, and {format_key(key)} in the store is encrypted; {advice}")
            decrypt_value(keyring, key, value)


async def iter_all_values(store: Store) -> AsyncGenerator[tuple[Key, bytes]]:
    """All readable values, including those in the history. Unordered, with repetitions."""
    oldest = await store.oldest()
    after: Key | None = None
    while True:
        page = await store.scan((), after=after, limit=SCAN_PAGE_SIZE, at=oldest)
        for record in page.records:
            yield record.key, record.value
        if not page.has_more:
            break
        after = page.records[-1].key
    async with aclosing(_iter_history_values(store)) as values:
        async for key, value in values:
            yield key, value


async def _iter_history_values(store: Store) -> AsyncGenerator[tuple[Key, bytes]]:
    """The values written after the oldest readable revision."""
    oldest = await store.oldest()
    newest = await store.revision()
    if newest == oldest:
        return
    async for batch in store.watch((), oldest):
        for event in batch:
            if event.value is not None:
                yield event.key, event.value
        if batch[-1].revision >= newest:
            return
    raise StoreUnavailable("the store was closed")
