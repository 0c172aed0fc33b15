"""Upgrades the data of a store at startup, and stops a running server whose data a newer version has migrated.

`run` in `app/__init__.py` calls both. [Upgrades](docs/upgrades.md) describes what operators see.
"""

import asyncio
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import structlog
from msgspec.structs import replace

from fairlead import __version__
from fairlead.app import data_migrations
from fairlead.app.auth import PEPPER_FILE
from fairlead.app.maintenance import atomic_write
from fairlead.app.stores import StoreStack
from fairlead.authn.bootstrap import PEPPER_FINGERPRINT, PEPPER_VARIABLE, load_pepper, verify_pepper
from fairlead.controllers.runtime.leader import LEASE_NAME, LeaseTiming, new_identity
from fairlead.core.clock import SystemClock, timestamp
from fairlead.core.files import FileProblem, ensure_private_folder
from fairlead.core.objects import get_path
from fairlead.core.waiting import background_task
from fairlead.kinds.core.lease import LEASE
from fairlead.kinds.core.namespace import SYSTEM_NAMESPACE
from fairlead.settings import Settings, StartError
from fairlead.storage.backup import write_backup
from fairlead.storage.contract import Record, Store, StoreUnavailable
from fairlead.storage.copy import Snapshot, take_snapshot
from fairlead.storage.data_version import (
    VERSION_KEY,
    DataVersion,
    NewerData,
    check_readable,
    encode_version,
    load_version,
    parse_release,
)
from fairlead.storage.encrypted import check_active_key
from fairlead.storage.fingerprints import load_fingerprint
from fairlead.storage.migration import MigrationPlan, migrate_data
from fairlead.storage.open import is_shared, scheme_of

BACKUP_FOLDER = "backups"
CHECK_SECONDS = 5.0
"""How often a running server checks whether it may still use the data."""
ANNOUNCE_SECONDS = 2 * CHECK_SECONDS
"""How long a migration waits for servers that must not use the migrated data: they stop by themselves meanwhile."""

log = structlog.get_logger(__name__)


async def upgrade_data(settings: Settings, stores: StoreStack) -> bool:
    """Migrates the data if necessary. Returns whether this is the newest release that uses it.

    Raises StartError, with advice, if this version must not use the data.
    """
    plan = MigrationPlan(
        data_migrations.MIGRATIONS,
        __version__,
        new_identity(),
        partial(_check, settings, stores),
        partial(_prepare, settings, stores.raw),
    )
    try:
        version = await migrate_data(stores.encrypted, plan)
    except (StoreUnavailable, FileProblem) as error:
        raise StartError(str(error)) from None
    return parse_release(version.release) <= parse_release(__version__)


async def _check(settings: Settings, stores: StoreStack, found: DataVersion, target: DataVersion) -> None:
    await _check_secrets(settings, stores)
    await _check_no_older_servers(settings, stores.raw, found, target)


async def _check_secrets(settings: Settings, stores: StoreStack) -> None:
    """A server that has the secrets of another installation by mistake must not migrate the data of this one."""
    await check_active_key(stores.raw, stores.encrypted.keyring)
    recorded, _ = await load_fingerprint(stores.raw, PEPPER_FINGERPRINT)
    if recorded is not None:
        path = settings.data / PEPPER_FILE
        variable = os.environ.get(PEPPER_VARIABLE, "")
        pepper = load_pepper(path, keys_exist=True, variable=variable)
        await verify_pepper(stores.raw, pepper, path, variable=variable)


async def _check_no_older_servers(settings: Settings, store: Store, found: DataVersion, target: DataVersion) -> None:
    """Refuses to skip a release that running servers need: none of them could use the migrated data."""
    if target.minimum_version <= found.version or not is_shared(settings.store_url):
        return
    log.info("waiting until it is certain that no older server uses the store")
    if await _is_lease_renewed(store):
        older = f"Fairlead {found.release}" if found.release else "an older version of Fairlead"
        raise StoreUnavailable(
            f"servers of {older} use this store, and cannot use the data of Fairlead {__version__}: upgrade them to "
            f"{target.minimum_release} first, or stop all of them, and start this one again"
        )


async def _is_lease_renewed(store: Store) -> bool:
    """Whether there is a leader. A server that has stopped in order has released the lease, and another one that runs
    takes it within its retry period."""
    timing = LeaseTiming()
    renewed_within = timing.lease_duration + timing.renew_interval
    taken_within = 2 * timing.retry_period
    holder, revision = await _read_lease(store)
    deadline = time.monotonic() + (renewed_within if holder else taken_within)
    while time.monotonic() < deadline:
        await asyncio.sleep(timing.retry_period)
        holder, found = await _read_lease(store)
        if found != revision and holder:
            return True
        if found != revision:
            revision = found
            deadline = time.monotonic() + taken_within
    return False


async def _read_lease(store: Store) -> tuple[Any, int]:
    """The holder, if there is one, and the revision."""
    record = await store.read(LEASE.key(SYSTEM_NAMESPACE, LEASE_NAME))
    return (get_path(orjson.loads(record.value), "spec.holderIdentity"), record.revision) if record else (None, 0)


async def _prepare(settings: Settings, store: Store, found: DataVersion, target: DataVersion) -> None:
    """A backup, if this server is the only user of the store. Otherwise, time for older servers to stop."""
    if scheme_of(settings.store_url) == "sqlite":
        path = await _back_up(settings, store, found, target)
        log.info("wrote a backup before the migration", path=str(path))
    elif target.minimum_version > found.minimum_version and is_shared(settings.store_url):
        await asyncio.sleep(ANNOUNCE_SECONDS)


async def _back_up(settings: Settings, store: Store, found: DataVersion, target: DataVersion) -> Path:
    folder = ensure_private_folder(settings.data / BACKUP_FOLDER)
    now = timestamp(SystemClock().now())
    # A release that continues what an older one has begun: the backup from before that is the one to go back to.
    state = "-partly-migrated" if found.migration is not None and found.migration.prepared else ""
    path = folder / f"data-{found.version}{state}-before-{target.release}-{now.replace(':', '')}.backup"
    snapshot = await take_snapshot(store)
    records = _without_lock(snapshot.records, replace(found, migration=None))
    try:
        for stale in folder.glob(".data-*.backup.*"):  # of servers that were killed meanwhile; this one has the lock
            stale.unlink(missing_ok=True)
        with atomic_write(path, force=False) as file:
            await write_backup(Snapshot(snapshot.revision, records), now, scheme_of(settings.store_url), file)
    except OSError as error:
        advice = "free some space or fix it, and start the server again; nothing was migrated"
        raise FileProblem(f"{path}: the backup before the migration failed ({error.strerror}); {advice}") from None
    return path


async def _without_lock(records: AsyncGenerator[Record], found: DataVersion) -> AsyncGenerator[Record]:
    """The records as they were before the migration has taken its lock."""
    async with aclosing(records):
        async for record in records:
            if record.key != VERSION_KEY:
                yield record
            elif found != DataVersion():
                yield Record(record.key, encode_version(found), record.revision)


@asynccontextmanager
async def stop_when_outdated(settings: Settings, store: Store, stop: asyncio.Event) -> AsyncIterator[None]:
    """Sets `stop` if a newer version migrates the data to what this one cannot use, and then raises StartError."""
    if not is_shared(settings.store_url):
        yield
        return
    async with background_task(_wait_until_outdated(store, stop), "check the data version") as watching:
        yield
    if not watching.cancelled() and (message := watching.result()):
        raise StartError(message)


async def _wait_until_outdated(store: Store, stop: asyncio.Event) -> str:
    while True:
        await asyncio.sleep(CHECK_SECONDS)
        try:
            found, _ = await load_version(store)
            check_readable(found or DataVersion(), len(data_migrations.MIGRATIONS), __version__)
        except NewerData as error:
            log.error("this version must not use the data any more; the server stops", reason=str(error))
            stop.set()
            return str(error)
        except StoreUnavailable:
            continue  # every request reports that; the store may come back
        except Exception:  # nothing may end this check while the server uses the data
            log.exception("checking the data version failed; trying again")
