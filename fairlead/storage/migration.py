"""Migrates the data of a store to the version of this program, once, whichever servers start at the same time.

A migration changes records one by one, with a function that is called again for records that it has changed already if
a server is killed meanwhile. The servers that start agree on one of them by a lock in the version record
(`data_version.py`). It renews the lock, and every commit of a migration requires the lock as it is: a server that was
suspended, and whose lock another one has taken over, changes nothing any more.

Other replicas may serve requests meanwhile. A record that one of them changes is read and migrated again.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import structlog
from msgspec.structs import replace

from fairlead.core.waiting import background_task
from fairlead.storage.contract import (
    Key,
    Page,
    Precondition,
    Record,
    RevisionConflict,
    StorageError,
    Store,
    StoreUnavailable,
    Write,
)
from fairlead.storage.copy import PAGE_SIZE
from fairlead.storage.data_version import (
    RESTORE_ADVICE,
    VERSION_KEY,
    DataVersion,
    MigrationLock,
    check_readable,
    encode_version,
    load_version,
    parse_release,
    save_version,
)
from fairlead.storage.encrypted import format_key

RENEW_SECONDS = 2.0
TAKEOVER_SECONDS = 15.0
"""How long the lock must be unchanged until another server takes it over."""
POLL_SECONDS = 0.25
CONCURRENT_COMMITS = 64

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Migration:
    """One step from `version - 1` to `version`, first part of `release`.

    `minimum_version` is the oldest version whose programs can use the data afterwards. Replicas are upgraded one after
    the other, so it must not be larger than the newest version that the release before knew.
    """

    version: int
    release: str
    minimum_version: int
    description: str
    transform: Callable[[Key, bytes], bytes | None]
    """The new value of a record, or None if it stays. Must do nothing with what it returned before."""


async def _do_nothing(found: DataVersion, target: DataVersion) -> None:
    pass


@dataclass(frozen=True, slots=True)
class MigrationPlan:
    """What a program knows about the data. `history` has all migrations in order, beginning with version 1."""

    history: Sequence[Migration]
    release: str
    holder: str
    check: Callable[[DataVersion, DataVersion], Awaitable[None]] = _do_nothing
    """Called before anything is written, with the versions before and after. Raises StoreUnavailable if this program
    must not use the store."""
    prepare: Callable[[DataVersion, DataVersion], Awaitable[None]] = _do_nothing
    """Called with the lock, before anything is changed, once for each target: a server that takes the lock over does
    not prepare again what was prepared. The version before has the lock of the former server, if there was one."""

    @property
    def version(self) -> int:
        return len(self.history)

    def target(self, found: DataVersion) -> DataVersion:
        """The version that the data has after all migrations."""
        pending = self.history[found.version :]
        minimum = max((found.minimum_version, *(each.minimum_version for each in pending)))
        release = found.minimum_release
        if minimum > found.minimum_version:
            release = self.history[minimum - 1].release
        return DataVersion(self.version, minimum, release, self.release)


class _LockLost(Exception):
    """Another server has taken the lock over."""


async def migrate_data(store: Store, plan: MigrationPlan) -> DataVersion:
    """Migrate the data if necessary, or wait until another server has done it. Returns the version of the data.

    Raises StoreUnavailable, with advice, if this program must not use the data.
    """
    has_waited = False
    while True:
        found, revision = await load_version(store)
        try:
            if found is None and not (await store.scan((), limit=1)).records:
                new = plan.target(DataVersion())
                await save_version(store, new, 0)
                return new
            current = found or DataVersion()
            check_readable(current, plan.version, plan.release)
            if current.version >= plan.version:
                return await _record_release(store, plan, current, revision)
            if current.migration is not None:
                if not has_waited:
                    log.info("another server migrates the data; waiting for it", holder=current.migration.holder)
                has_waited = True
                if await _is_renewed(store, revision):
                    continue
            await plan.check(current, plan.target(current))
            return await _Migrator(store, plan, current).run(revision)
        except (RevisionConflict, _LockLost):  # another server was faster; look again
            continue


async def _record_release(store: Store, plan: MigrationPlan, found: DataVersion, revision: int) -> DataVersion:
    """Record the newest release that uses the data. Older ones then leave to it what depends on the release."""
    if found.migration is not None or parse_release(found.release) >= parse_release(plan.release):
        return found
    await plan.check(found, plan.target(found))
    found = replace(found, release=plan.release)
    await save_version(store, found, revision)
    return found


async def _is_renewed(store: Store, revision: int) -> bool:
    """Waits for a change of the lock. False if there is none for so long that its holder must have died."""
    deadline = time.monotonic() + TAKEOVER_SECONDS
    while time.monotonic() < deadline:
        await asyncio.sleep(POLL_SECONDS)
        _, now = await load_version(store)
        if now != revision:
            return True
    return False


class _Migrator:
    """Runs the pending migrations while it holds the lock."""

    def __init__(self, store: Store, plan: MigrationPlan, found: DataVersion) -> None:
        self._store = store
        self._plan = plan
        self._before = found
        self._target = plan.target(found)
        self._lock = MigrationLock(
            plan.version, plan.holder, prepared=found.migration.prepared if found.migration is not None else 0
        )
        # Raised first: from now on, the data may be what older programs cannot read.
        self._version = replace(
            found, minimum_version=self._target.minimum_version, minimum_release=self._target.minimum_release
        )
        self._revision = 0
        self._renewed_at = 0.0

    async def run(self, revision: int) -> DataVersion:
        await self._save(replace(self._version, migration=self._lock), revision)
        log.info("migrating the data", version=self._before.version, target=self._target.version)
        if self._lock.prepared < self._lock.target:
            await self._prepare(had_record=revision > 0)
        for migration in self._plan.history[self._before.version :]:
            count = await self._apply(migration)
            log.info("migrated the data", version=migration.version, changed=count, what=migration.description)
            self._version = replace(self._version, version=migration.version)
            await self._renew(force=True)
        await self._save(self._target, self._revision)
        return self._target

    async def _prepare(self, *, had_record: bool) -> None:
        try:
            await self._prepare_and_renew()
        except Exception:  # nothing has changed yet, so the next start need not wait for this lock
            if not self._lock.prepared:
                await self._release(had_record=had_record)
            raise
        self._lock = replace(self._lock, prepared=self._lock.target)
        await self._renew(force=True)

    async def _prepare_and_renew(self) -> None:
        """Renews the lock meanwhile, as a backup may take long."""
        async with background_task(self._call_prepare(), "prepare the migration") as task:
            while not (await asyncio.wait([task], timeout=RENEW_SECONDS))[0]:
                await self._renew(force=True)
        task.result()

    async def _release(self, *, had_record: bool) -> None:
        """Restores the record as it was. If even that fails, another server takes the lock over later."""
        value = encode_version(replace(self._before, migration=None)) if had_record else None
        with suppress(StorageError):
            await self._store.commit([Write(VERSION_KEY, value, self._revision)])

    async def _call_prepare(self) -> None:
        await self._plan.prepare(self._before, self._target)

    async def _apply(self, migration: Migration) -> int:
        """Changes all records. Returns how many."""
        after: Key | None = None
        count = 0
        while True:
            page = await self._store.scan((), after=after, limit=PAGE_SIZE)
            changes = _changes(page, migration)
            written = 0
            for start in range(0, len(changes), CONCURRENT_COMMITS):
                written += await self._commit(changes[start : start + CONCURRENT_COMMITS])
                await self._renew()
            count += written
            if written < len(changes):
                continue  # another replica has changed a record of this page
            if not page.has_more:
                return count
            after = page.records[-1].key
            await self._renew()

    async def _commit(self, changes: Sequence[Write]) -> int:
        """Commits each change on its own: a watch that resumes after one of them would miss others of its revision.
        Stores combine commits that wait, so that is not slower. Returns how many did not conflict."""
        lock = [Precondition(VERSION_KEY, self._revision)]
        results = await asyncio.gather(
            *[self._store.commit([change], lock) for change in changes], return_exceptions=True
        )
        errors = [each for each in results if isinstance(each, BaseException)]
        for error in errors:
            if not isinstance(error, RevisionConflict):
                raise error
            if error.key == VERSION_KEY:
                raise _LockLost from error
        return len(results) - len(errors)

    async def _renew(self, *, force: bool = False) -> None:
        if force or time.monotonic() - self._renewed_at > RENEW_SECONDS:
            self._lock = replace(self._lock, renewals=self._lock.renewals + 1)
            await self._save(replace(self._version, migration=self._lock), self._revision)

    async def _save(self, version: DataVersion, expected: int) -> None:
        self._revision = await save_version(self._store, version, expected)
        self._renewed_at = time.monotonic()


def _changes(page: Page, migration: Migration) -> list[Write]:
    changes = []
    for record in page.records:
        new = None if record.key == VERSION_KEY else _transform(record, migration)
        if new is not None and new != record.value:
            changes.append(Write(record.key, new, record.revision))
    return changes


def _transform(record: Record, migration: Migration) -> bytes | None:
    """The error names the record, but not what is wrong with it: that could contain a credential."""
    try:
        return migration.transform(record.key, record.value)
    except Exception as error:
        raise StoreUnavailable(
            f"{format_key(record.key)} could not be migrated to data version {migration.version} "
            f"({migration.description}): {type(error).__name__}; repair it with the version before, {RESTORE_ADVICE}"
        ) from error
