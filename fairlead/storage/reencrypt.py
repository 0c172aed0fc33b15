"""The background task that re-encrypts credentials with the active key.

It works on the store below `EncryptedStore`, where values are as on disk. Values that should be encrypted but are
plain (from an older database, or because a field became sensitive) and values with an older key are written again,
encrypted with the active key. Watchers see an update without a difference.

The history still contains the old values. It is kept for the configured time and then compacted, even if fewer
revisions than configured are left, because an old key is unused only when no readable value needs it. Then deleted
data is purged from the disk, and that is recorded beside the keys, where `fairlead seal forget` checks it.

The keys may change at any time and are polled. A key that this process has read once stays in its keyring, so
removing one too early does no harm while the server runs.

If several replicas share a store, the leader does this work. The others run `watch_keys`, because they must be able
to decrypt what the leader writes.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing

import structlog

from fairlead.core.crypto.encryption import is_sealed, key_id_of
from fairlead.core.crypto.key_file import SealKeys
from fairlead.core.files import FileProblem
from fairlead.storage.commit import pack
from fairlead.storage.contract import Change, Conflict, Key, Record, StorageError, Store, Unavailable
from fairlead.storage.encrypted import SEAL_KEY, Sealed, agree_on_active, every_value, unsealed
from fairlead.storage.fingerprints import kept

LOOK_SECONDS = 5.0
BATCH = 200

log = structlog.get_logger(__name__)


async def _pause(seconds: float) -> float:
    """Sleep, and return the monotonic time afterwards."""
    await asyncio.sleep(seconds)
    return time.monotonic()


async def keep_sealed(
    store: Store,
    sealed: Sealed,
    keys: SealKeys,
    *,
    seconds: float,
    on_compacted: Callable[[int], None],
    pause: Callable[[float], Awaitable[float]] = _pause,
) -> None:
    """Re-encrypt forever, on the store below `encrypted`. History is kept for at least `history_seconds`.

    `on_compacted` is called with each compacted revision. Tests pass `sleep` to control the time.
    """
    resealing = Resealing(store, sealed, keys, seconds, on_compacted)
    now = await pause(0)
    while True:
        try:
            await resealing.step(now)
        except (StorageError, FileProblem) as error:
            log.warning("re-encrypting credentials failed; retrying later", reason=str(error))
        now = await pause(LOOK_SECONDS)


async def heed_keys(
    sealed: Sealed,
    keys: SealKeys,
    *,
    unless: Callable[[], bool],
    pause: Callable[[float], Awaitable[float]] = _pause,
) -> None:
    """Reload changed keys forever, unless this replica is the leader: then `run_reencryption` does that."""
    while True:
        await pause(LOOK_SECONDS)
        if not unless() and keys.changed():
            take_in(sealed, keys)


def take_in(sealed: Sealed, keys: SealKeys) -> bool:
    """Switch to the changed keys; False if they are invalid."""
    try:
        keyring = keys.read()
    except FileProblem as error:
        log.error("the encryption keys are invalid; keeping the previous ones", reason=str(error))
        return False
    if keyring is None:
        advice = "restore the file before this server stops, otherwise the credentials in the store are lost"
        log.error("the encryption keys are missing; keeping the previous ones", file=keys.source, advice=advice)
        return False
    sealed.keyring = keyring.with_older(sealed.keyring)
    log.info("the encryption keys have changed", active=keyring.active)
    return True


class Resealing:
    def __init__(
        self, store: Store, sealed: Sealed, keys: SealKeys, seconds: float, on_compacted: Callable[[int], None]
    ) -> None:
        self._store = store
        self._sealed = sealed
        self._keys = keys
        self._seconds = seconds
        self._on_compacted = on_compacted
        self._start_over()

    def _start_over(self) -> None:
        self._rewritten = 0
        self._wait_until = 0.0
        self._forget_before: int | None = None
        self._done = False

    async def step(self, now: float) -> None:
        """Do the next part of the work: current values first, then the history."""
        if self._keys.changed():
            # Start at the next step, when commits encrypted with the previous key have certainly arrived.
            if take_in(self._sealed, self._keys):
                self._start_over()
        elif not self._done and now >= self._wait_until:
            await self._work(now)

    async def _work(self, now: float) -> None:
        if (await kept(self._store, SEAL_KEY))[0] is not None:
            await agree_on_active(self._store, self._sealed.keyring)
        if rewritten := await self._rewrite():
            self._rewritten += rewritten
            await self._hold(now)
        elif not await self._any_left():
            await self._finish(now)
        elif self._forget_before is None:
            await self._hold(now)
        else:
            await self._store.compact(self._forget_before)
            self._on_compacted(self._forget_before)
            self._forget_before = None

    async def _rewrite(self) -> int:
        """Re-encrypt all stale values, and return their number."""
        rewritten, after = 0, None
        while True:
            page = await self._store.scan((), after=after, limit=BATCH)
            stale = [record for record in page.records if self._is_stale(record.key, record.value)]
            rewritten += sum(await asyncio.gather(*[self._reseal(record) for record in stale]))
            if not page.more:
                return rewritten
            after = page.records[-1].key

    def _is_stale(self, key: Key, value: bytes) -> bool:
        if is_sealed(value):
            return key_id_of(value) != self._sealed.keyring.active
        return self._sealed.holds(key, value)

    async def _reseal(self, record: Record) -> bool:
        keyring, key, value = self._sealed.keyring, record.key, record.value
        if is_sealed(value):
            try:
                value = unsealed(keyring, key, value)
            except Unavailable as error:
                log.error("a credential cannot be decrypted; continuing with the others", reason=str(error))
                return False
        try:
            await self._store.commit([Change(key, keyring.seal(value, pack(key)), record.revision)])
        except Conflict:  # a concurrent write has encrypted it as well
            return False
        return True

    async def _any_left(self) -> bool:
        """Whether any readable value, current or in the history, is not encrypted with the active key."""
        async with aclosing(every_value(self._store)) as values:
            async for key, value in values:
                if self._is_stale(key, value):
                    return True
        return False

    async def _hold(self, now: float) -> None:
        """Schedule a compaction of the history up to now."""
        self._keys.mark("")
        self._wait_until = now + self._seconds
        self._forget_before = await self._store.revision()

    async def _finish(self, now: float) -> None:
        active = self._sealed.keyring.active
        if self._keys.marked != active:
            # Delays the retry if this fails: it reads and writes the whole store.
            self._wait_until = now + self._seconds
            await self._store.scrub()
            self._keys.mark(active)
        self._done = True
        if self._rewritten:
            log.info("credentials were re-encrypted", key=active, count=self._rewritten)
