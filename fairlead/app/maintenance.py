"""Backup, restore and copy of a store, and CRD export. Called by `fairlead backup`, `restore`, `store` and `export`.

No server runs in this process, but servers may use the store at the same time. A backup is consistent even then.
Copying from, or restoring into, a store that is being written to is refused. Raises StartError, or FileProblem for the
backup file.
"""

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from fairlead import __version__
from fairlead.app.data_migrations import MIGRATIONS
from fairlead.core.clock import SystemClock, timestamp
from fairlead.core.files import FileProblem, MissingFile
from fairlead.kinds import KINDS
from fairlead.registry.crds import build_crds
from fairlead.registry.kind import Catalog
from fairlead.settings import StartError
from fairlead.storage.backup import BackupReader, BackupSummary, CorruptBackup, verify_file, write_backup
from fairlead.storage.contract import Key, Record, Store, StoreUnavailable
from fairlead.storage.copy import (
    CopyStats,
    StoreNotEmpty,
    check_empty,
    check_unchanged,
    first_revision_after,
    frozen_records,
    restore_records,
    take_snapshot,
)
from fairlead.storage.data_version import RESTORE_ADVICE, DataVersion, NewerData, check_readable, load_version
from fairlead.storage.open import is_shared, open_existing_store, open_for_restore, open_snapshot, scheme_of

STDIO = "-"
IDLE_CHECK_SECONDS = 5.0
"""A server on a shared store writes more often than this, if only to renew its lease."""

Records = AsyncGenerator[tuple[Key, bytes]]


@dataclass(frozen=True, slots=True)
class CopyResult:
    """The revision of the source, and what was written to the target store."""

    revision: int
    stats: CopyStats
    encryption_keys: tuple[str, ...] = ()


async def back_up(url: str, path: str, *, force: bool = False) -> BackupSummary:
    """`path` may be `-` for the standard output. The file appears atomically, once it is complete."""
    if path == STDIO:
        with _translate_file_errors("the standard output"):
            return await _write_backup(url, sys.stdout.buffer)
    with _translate_file_errors(path), atomic_write(Path(path), force) as file:
        return await _write_backup(url, file)


async def _write_backup(url: str, out: BinaryIO) -> BackupSummary:
    with _translate_store_errors("the store"):
        async with open_snapshot(url) as snapshot:
            summary = await write_backup(snapshot, timestamp(SystemClock().now()), scheme_of(url), out)
        if not summary.count:
            raise StoreUnavailable(
                "it is empty; check that its URL, including schema or prefix, is the one that the servers use"
            )
    out.flush()
    return summary


def verify_backup(path: str) -> BackupSummary:
    with _translate_file_errors(path), _open_backup(path) as file:
        return verify_file(file)


async def restore_backup(
    path: str, url: str, *, force: bool = False, idle_seconds: float = IDLE_CHECK_SECONDS
) -> CopyResult:
    """`path` may be `-` for the standard input. A backup is verified completely before the store is changed."""
    with _translate_file_errors(path), _open_backup(path) as source, _seekable(source) as file:
        start = file.tell()  # of a redirected file, something else may have read the beginning
        _check_data_version(verify_file(file).data_version, f"{_title_of(path)}: its data", "or use an older backup")
        file.seek(start)
        backup = BackupReader(file)
        stats = await _fill_store(url, backup.header.revision, _backup_records(backup), idle_seconds if force else None)
    return CopyResult(backup.header.revision, stats, backup.summary.encryption_key_ids if backup.summary else ())


async def copy_store(
    source: str, target: str, *, force: bool = False, idle_seconds: float = IDLE_CHECK_SECONDS
) -> CopyResult:
    """Copies a store that no server uses: later writes would be missing in the copy."""
    with _translate_store_errors("the store to copy from"):
        store = await open_existing_store(source)
        try:
            version, _ = await load_version(store)
            _check_data_version(version or DataVersion(), "the store to copy from: its data", RESTORE_ADVICE)
            source_state = await take_snapshot(store)
            await _require_idle(source, store, idle_seconds)
            records = _store_records(frozen_records(store, source_state))
            stats = await _fill_store(target, source_state.revision, records, idle_seconds if force else None)
        finally:
            await store.close()
    return CopyResult(source_state.revision, stats)


async def _fill_store(url: str, revision: int, records: Records, replace_after_idle: float | None) -> CopyStats:
    """Replaces the content of a store that is idle for `replace_after_idle` seconds; with None, it must be empty."""
    with _translate_store_errors("the store to fill"):
        async with aclosing(records):
            if scheme_of(url) == "memory":
                raise ValueError("an in-memory store is lost when this command ends; name a persistent store")
            # Check before opening it with a new first revision, so that a rejected store stays unchanged.
            await _check_target(url, replace_after_idle)
            store = await open_for_restore(url, first_revision_after(revision))
            try:
                return await restore_records(store, records, replace=replace_after_idle is not None)
            finally:
                await store.close()


async def _check_target(url: str, replace_after_idle: float | None) -> None:
    store = await open_for_restore(url)
    try:
        if replace_after_idle is None:
            await check_empty(store)
        else:
            await _require_idle(url, store, replace_after_idle)
    finally:
        await store.close()


async def _require_idle(url: str, store: Store, seconds: float) -> None:
    """Raises Unavailable if a server writes to a shared store."""
    if is_shared(url):
        revision = await store.revision()
        await asyncio.sleep(seconds)
        await check_unchanged(store, revision)


async def _backup_records(backup: BackupReader) -> Records:
    for pair in backup.records():
        yield pair


async def _store_records(records: AsyncGenerator[Record]) -> Records:
    with _translate_store_errors("the store to copy from"):
        async with aclosing(records):
            async for record in records:
                yield record.key, record.value


@contextmanager
def _open_backup(path: str) -> Iterator[BinaryIO]:
    if path == STDIO:
        yield sys.stdin.buffer
        return
    with open(path, "rb") as file:
        yield file


@contextmanager
def _seekable(file: BinaryIO) -> Iterator[BinaryIO]:
    """The file; a pipe is first copied to a temporary file, which only this process can open."""
    if file.seekable():
        yield file
        return
    with tempfile.TemporaryFile() as copied:
        try:
            shutil.copyfileobj(file, copied)
            copied.seek(0)
        except OSError as error:
            folder = tempfile.gettempdir()
            advice = "set TMPDIR to a folder with more space"
            raise StartError(f"cannot copy the backup to {folder}: {error.strerror}; {advice}") from None
        yield copied


def _check_data_version(found: DataVersion, data: str, advice: str) -> None:
    """Raises StartError for data that this version cannot use: its servers would not start on it."""
    try:
        check_readable(found, len(MIGRATIONS), __version__, data, advice)
    except NewerData as error:
        raise StartError(str(error)) from None


@contextmanager
def atomic_write(path: Path, force: bool) -> Iterator[BinaryIO]:
    """A temporary file, which atomically replaces `path` once it is synced to disk. Readable by its owner only."""
    if not force and os.path.lexists(path):
        raise FileProblem(f"{path}: the file already exists; name another one, or use --force to replace it")
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(descriptor)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def _translate_store_errors(title: str) -> Iterator[None]:
    try:
        yield
    except StoreNotEmpty as error:
        raise StartError(f"{title}: {error}; name an empty store, or use --force to replace its content") from None
    except (StoreUnavailable, ValueError) as error:
        raise StartError(f"{title}: {error}") from None


def _title_of(path: str) -> str:
    return "the standard input" if path == STDIO else path


@contextmanager
def _translate_file_errors(path: str) -> Iterator[None]:
    title = _title_of(path)
    try:
        yield
    except CorruptBackup as error:
        raise FileProblem(f"{title}: {error}; use another backup") from None
    except FileNotFoundError:
        folder = Path(path).parent
        missing = f"{title}: no such file" if folder.is_dir() else f"{folder}: no such folder"
        raise MissingFile(f"{missing}; check the path") from None
    except OSError as error:
        raise FileProblem(f"{title}: {error.strerror or error}; fix it, or name another file") from None


def management_crds(api_group: str) -> list[dict[str, Any]]:
    """The management kinds as CustomResourceDefinitions."""
    return build_crds(Catalog(KINDS, api_group).kinds, api_group)
