"""Backup, restore and copy of a store, and CRD export. Called by `fairlead backup`, `restore`, `store` and `export`.

No server runs in this process, but servers may use the store at the same time. A backup is consistent even then.
Copying from, or restoring into, a store that is being written to is refused. Raises StartError, or FileProblem for the
backup file.
"""

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from fairlead.core.clock import SystemClock, timestamp
from fairlead.core.files import FileProblem
from fairlead.kinds import KINDS
from fairlead.registry.catalog import Catalog
from fairlead.registry.crds import crds
from fairlead.settings import StartError
from fairlead.storage.backup import Backup, Damaged, Summary, verify, write_backup
from fairlead.storage.contract import Key, Record, Store, Unavailable
from fairlead.storage.copy import (
    Filled,
    Occupied,
    fill,
    first_above,
    held_still,
    refuse_changed,
    refuse_occupied,
    scanned,
)
from fairlead.storage.open import is_shared, open_snapshot, open_store, open_to_fill, scheme_of

PIPE = "-"
QUIET_SECONDS = 5.0
"""A server on a shared store writes more often than this, if only to renew its lease."""

Records = AsyncGenerator[tuple[Key, bytes]]


@dataclass(frozen=True, slots=True)
class Moved:
    """The revision of the source, and what was written to the target store."""

    revision: int
    filled: Filled
    seal_keys: tuple[str, ...] = ()


async def back_up(url: str, place: str, *, force: bool = False) -> Summary:
    """`path` may be `-` for the standard output. The file appears atomically, once it is complete."""
    if place == PIPE:
        with _file_problems("the standard output"):
            return await _write(url, sys.stdout.buffer)
    with _file_problems(place), _complete(Path(place), force) as file:
        return await _write(url, file)


async def _write(url: str, out: BinaryIO) -> Summary:
    with _store_problems("the store"):
        async with open_snapshot(url) as snapshot:
            summary = await write_backup(snapshot, timestamp(SystemClock().now()), scheme_of(url), out)
        if not summary.count:
            raise Unavailable(
                "it is empty; check that its URL, including schema or prefix, is the one that the servers use"
            )
    out.flush()
    return summary


def verified(place: str) -> Summary:
    with _file_problems(place), _opened(place) as file:
        return verify(file)


async def restore(place: str, url: str, *, force: bool = False, quiet: float = QUIET_SECONDS) -> Moved:
    """`path` may be `-` for the standard input. A file is verified completely before the store is changed."""
    if place != PIPE:
        verified(place)
    with _file_problems(place), _opened(place) as file:
        backup = Backup(file)
        stats = await _fill(url, backup.header.revision, _given(backup), quiet if force else None)
    return Moved(backup.header.revision, stats, backup.summary.seal_keys if backup.summary else ())


async def copy(source: str, target: str, *, force: bool = False, quiet: float = QUIET_SECONDS) -> Moved:
    """Copies a store that no server uses: later writes would be missing in the copy."""
    with _store_problems("the store to copy from"):
        store = await open_store(source)
        try:
            source_state = await scanned(store)
            await _see_quiet(source, store, quiet)
            records = _pairs(held_still(store, source_state))
            stats = await _fill(target, source_state.revision, records, quiet if force else None)
        finally:
            await store.close()
    return Moved(source_state.revision, stats)


async def _fill(url: str, revision: int, records: Records, replacing: float | None) -> Filled:
    """Replaces the content of a store that is idle for `replace_after_idle` seconds; with None, it must be empty."""
    with _store_problems("the store to fill"):
        async with aclosing(records):
            if scheme_of(url) == "memory":
                raise ValueError("an in-memory store is lost when this command ends; name a persistent store")
            # Check before opening it with a new first revision, so that a rejected store stays unchanged.
            await _refuse_used(url, replacing)
            store = await open_to_fill(url, first_above(revision))
            try:
                return await fill(store, records, replace=replacing is not None)
            finally:
                await store.close()


async def _refuse_used(url: str, replacing: float | None) -> None:
    store = await open_to_fill(url)
    try:
        if replacing is None:
            await refuse_occupied(store)
        else:
            await _see_quiet(url, store, replacing)
    finally:
        await store.close()


async def _see_quiet(url: str, store: Store, seconds: float) -> None:
    """Raises Unavailable if a server writes to a shared store."""
    if is_shared(url):
        revision = await store.revision()
        await asyncio.sleep(seconds)
        await refuse_changed(store, revision)


async def _given(backup: Backup) -> Records:
    for pair in backup.records():
        yield pair


async def _pairs(records: AsyncGenerator[Record]) -> Records:
    with _store_problems("the store to copy from"):
        async with aclosing(records):
            async for record in records:
                yield record.key, record.value


@contextmanager
def _opened(place: str) -> Iterator[BinaryIO]:
    if place == PIPE:
        yield sys.stdin.buffer
        return
    with open(place, "rb") as file:
        yield file


@contextmanager
def _complete(path: Path, force: bool) -> Iterator[BinaryIO]:
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
def _store_problems(what: str) -> Iterator[None]:
    try:
        yield
    except Occupied as error:
        raise StartError(f"{what}: {error}; name an empty store, or use --force to replace its content") from None
    except (Unavailable, ValueError) as error:
        raise StartError(f"{what}: {error}") from None


@contextmanager
def _file_problems(place: str) -> Iterator[None]:
    title = "the standard input" if place == PIPE else place
    try:
        yield
    except Damaged as error:
        raise FileProblem(f"{title}: {error}; use another backup") from None
    except OSError as error:
        raise FileProblem(f"{title}: {error.strerror or error}; fix it, or name another file") from None


def management_crds(api_group: str) -> list[dict[str, Any]]:
    """The management kinds as CustomResourceDefinitions."""
    return crds(Catalog(KINDS, api_group).kinds, api_group)
