"""The background task that has every credential sealed under the active key. Started by the composition root.

It works on the store below `Sealed`, where values are as they are on the disk: those that are plain though they should
not be (a database from before, a field that has become secret) and those under an older key are written again, sealed
anew. Nothing else about them changes; watchers see an update without a difference.

History still shows them as they were. It is kept for the time that watchers are promised and then forgotten, even if
fewer revisions than usual are left: an old key is done with only once nothing readable needs it. Then the disk is
scrubbed of what was deleted. That moment is marked beside the keys, which is what `fairlead seal forget` waits for.

The keys may change at any time. They are looked at every few seconds; a key that this process has once known, it
keeps, so that one that was taken away too early does no harm as long as the server runs.

Of several servers that share a store, the one that leads does the work; the others look at the keys all the same, with
`heed_keys`, because they have to open what the leader seals.
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
    """Sleeps, and says when it woke up, on the monotonic clock."""
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
    """Works for ever on the store below `sealed`; history that has to go is kept for `seconds` at least.

    `on_compacted` hears of each revision compacted to. `pause` is given by tests, which turn the clock themselves.
    """
    resealing = Resealing(store, sealed, keys, seconds, on_compacted)
    now = await pause(0)
    while True:
        try:
            await resealing.step(now)
        except (StorageError, FileProblem) as error:
            log.warning("credentials could not be resealed; trying again later", reason=str(error))
        now = await pause(LOOK_SECONDS)


async def heed_keys(
    sealed: Sealed,
    keys: SealKeys,
    *,
    unless: Callable[[], bool],
    pause: Callable[[float], Awaitable[float]] = _pause,
) -> None:
    """Takes in new keys for ever, unless the work is this server's: then they are `keep_sealed`'s matter."""
    while True:
        await pause(LOOK_SECONDS)
        if not unless() and keys.changed():
            take_in(sealed, keys)


def take_in(sealed: Sealed, keys: SealKeys) -> bool:
    """Puts changed keys to use; False where they are unusable."""
    try:
        keyring = keys.read()
    except FileProblem as error:
        log.error("the keys for sealing are unusable; going on with the former ones", reason=str(error))
        return False
    if keyring is None:
        advice = "restore the file before this server stops, or the credentials in the store are lost"
        log.error("the keys for sealing are gone; going on with the former ones", file=keys.source, advice=advice)
        return False
    sealed.keyring = keyring.with_older(sealed.keyring)
    log.info("the keys for sealing have changed", active=keyring.active)
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
        """Whatever is next: values first, then the history that shows them as they were, then nothing."""
        if self._keys.changed():
            # The work begins a step later, when commits that were sealed under the last key have long arrived.
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
        """Seals anew what needs it, and says how many values that were."""
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
                log.error("a credential does not open; going on with the others", reason=str(error))
                return False
        try:
            await self._store.commit([Change(key, keyring.seal(value, pack(key)), record.revision)])
        except Conflict:  # whoever was faster has sealed it as well
            return False
        return True

    async def _any_left(self) -> bool:
        """Whether anything readable, now or in the past, is not sealed under the active key."""
        async with aclosing(every_value(self._store)) as values:
            async for key, value in values:
                if self._is_stale(key, value):
                    return True
        return False

    async def _hold(self, now: float) -> None:
        """History up to now has to go, but not before its time."""
        self._keys.mark("")
        self._wait_until = now + self._seconds
        self._forget_before = await self._store.revision()

    async def _finish(self, now: float) -> None:
        active = self._sealed.keyring.active
        if self._keys.marked != active:
            # Not at every look, should it fail: it reads and writes all there is.
            self._wait_until = now + self._seconds
            await self._store.scrub()
            self._keys.mark(active)
        self._done = True
        if self._rewritten:
            log.info("credentials are sealed anew", key=active, count=self._rewritten)
