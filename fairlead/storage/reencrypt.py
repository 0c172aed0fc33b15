"""The background task that re-encrypts credentials with the active key.

It works on the store below `EncryptedStore`, where values are as on disk. Values that should be encrypted but are
plain (from an older database, or because a field became sensitive) and values with an older key are written again,
encrypted with the active key. Watchers see an update without a difference.

The history still contains the old values. It is kept for the configured time and then compacted, even if fewer
revisions than configured are left, because an old key is unused only when no readable value needs it. Then deleted
data is purged from the disk, and that is recorded beside the keys, where `fairlead encryption-key forget` checks it.

The keys may change at any time and are polled. A key that this process has read once stays in its keyring, so
removing one too early does no harm while the server runs.

If several replicas share a store, the leader does this work. The others run `watch_keys`, because they must be able
to decrypt what the leader writes.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing

import structlog

from fairlead.core.crypto.encryption import EncryptionKeyFile, is_encrypted, key_id_of
from fairlead.core.files import FileProblem
from fairlead.core.waiting import sleep_monotonic
from fairlead.storage.commit import pack_key
from fairlead.storage.contract import Key, Record, RevisionConflict, StorageError, Store, StoreUnavailable, Write
from fairlead.storage.encrypted import (
    ACTIVE_KEY_FINGERPRINT,
    EncryptedStore,
    decrypt_value,
    iter_all_values,
    publish_active_key,
)
from fairlead.storage.fingerprints import load_fingerprint

POLL_SECONDS = 5.0
BATCH_SIZE = 200

log = structlog.get_logger(__name__)


async def run_reencryption(
    store: Store,
    encrypted: EncryptedStore,
    keys: EncryptionKeyFile,
    *,
    history_seconds: float,
    on_compacted: Callable[[int], None],
    sleep: Callable[[float], Awaitable[float]] = sleep_monotonic,
) -> None:
    """Re-encrypt forever, on the store below `encrypted`. History is kept for at least `history_seconds`.

    `on_compacted` is called with each compacted revision. Tests pass `sleep` to control the time.
    """
    reencryptor = Reencryptor(store, encrypted, keys, history_seconds, on_compacted)
    now = await sleep(0)
    while True:
        try:
            await reencryptor.step(now)
        except (StorageError, FileProblem) as error:
            log.warning("re-encrypting credentials failed; retrying later", reason=str(error))
        now = await sleep(POLL_SECONDS)


async def watch_keys(
    encrypted: EncryptedStore,
    keys: EncryptionKeyFile,
    *,
    is_leader: Callable[[], bool],
    sleep: Callable[[float], Awaitable[float]] = sleep_monotonic,
) -> None:
    """Reload changed keys forever, unless this replica is the leader: then `run_reencryption` does that."""
    while True:
        await sleep(POLL_SECONDS)
        if not is_leader():
            reload_keys(encrypted, keys)


def reload_keys(encrypted: EncryptedStore, keys: EncryptionKeyFile) -> bool:
    """Switch to changed keys; False if they have not changed or are invalid."""
    if not keys.has_changed():
        return False
    try:
        keyring = keys.read()
    except FileProblem as error:
        log.error("the encryption keys are invalid; keeping the previous ones", reason=str(error))
        return False
    if keyring is None:
        advice = "restore the file before this server stops, otherwise the credentials in the store are lost"
        log.error("the encryption keys are missing; keeping the previous ones", file=keys.source, advice=advice)
        return False
    encrypted.keyring = keyring.with_fallback(encrypted.keyring)
    log.info("the encryption keys have changed", active=keyring.active_key_id)
    return True


class Reencryptor:
    def __init__(
        self,
        store: Store,
        encrypted: EncryptedStore,
        keys: EncryptionKeyFile,
        history_seconds: float,
        on_compacted: Callable[[int], None],
    ) -> None:
        self._store = store
        self._encrypted = encrypted
        self._keys = keys
        self._history_seconds = history_seconds
        self._on_compacted = on_compacted
        self._reset()

    def _reset(self) -> None:
        self._key_id = self._encrypted.keyring.active_key_id
        self._rewritten = 0
        self._wait_until = 0.0
        self._compact_before: int | None = None
        self._is_done = False

    async def step(self, now: float) -> None:
        """Do the next part of the work: current values first, then the history."""
        if reload_keys(self._encrypted, self._keys) or self._key_id != self._encrypted.keyring.active_key_id:
            # Start at the next step, when commits encrypted with the previous key have certainly arrived.
            self._reset()
        elif not self._is_done and now >= self._wait_until:
            await self._run_step(now)

    async def _run_step(self, now: float) -> None:
        if (await load_fingerprint(self._store, ACTIVE_KEY_FINGERPRINT))[0] is not None:
            await publish_active_key(self._store, self._encrypted.keyring)
        if rewritten := await self._rewrite_stale():
            self._rewritten += rewritten
            await self._schedule_compaction(now)
        elif not await self._has_stale_values():
            await self._finish(now)
        elif self._compact_before is None:
            await self._schedule_compaction(now)
        else:
            await self._store.compact(self._compact_before)
            self._on_compacted(self._compact_before)
            self._compact_before = None

    async def _rewrite_stale(self) -> int:
        """Re-encrypt all stale values, and return their number."""
        rewritten, after = 0, None
        while True:
            page = await self._store.scan((), after=after, limit=BATCH_SIZE)
            stale = [record for record in page.records if self._is_stale(record.key, record.value)]
            rewritten += sum(await asyncio.gather(*[self._reencrypt(record) for record in stale]))
            if not page.has_more:
                return rewritten
            after = page.records[-1].key

    def _is_stale(self, key: Key, value: bytes) -> bool:
        if is_encrypted(value):
            return key_id_of(value) != self._encrypted.keyring.active_key_id
        return self._encrypted.is_sensitive(key, value)

    async def _reencrypt(self, record: Record) -> bool:
        keyring, key, value = self._encrypted.keyring, record.key, record.value
        if is_encrypted(value):
            try:
                value = decrypt_value(keyring, key, value)
            except StoreUnavailable as error:
                log.error("a credential cannot be decrypted; continuing with the others", reason=str(error))
                return False
        try:
            await self._store.commit([Write(key, keyring.encrypt(value, pack_key(key)), record.revision)])
        except RevisionConflict:  # a concurrent write has encrypted it as well
            return False
        return True

    async def _has_stale_values(self) -> bool:
        """Whether any readable value, current or in the history, is not encrypted with the active key."""
        async with aclosing(iter_all_values(self._store)) as values:
            async for key, value in values:
                if self._is_stale(key, value):
                    return True
        return False

    async def _schedule_compaction(self, now: float) -> None:
        """Schedule a compaction of the history up to now."""
        self._keys.set_reencrypted("")
        self._wait_until = now + self._history_seconds
        self._compact_before = await self._store.revision()

    async def _finish(self, now: float) -> None:
        active = self._encrypted.keyring.active_key_id
        if self._keys.reencrypted_id != active:
            # Delays the retry if this fails: it reads and writes the whole store.
            self._wait_until = now + self._history_seconds
            await self._store.purge_deleted()
            self._keys.set_reencrypted(active)
        self._is_done = True
        if self._rewritten:
            log.info("credentials were re-encrypted", key=active, count=self._rewritten)
