"""What a store holds, as a file and into another store. Called by `fairlead backup`, `restore` and `store`.

No server runs in this process. One may run beside it: a backup is taken from under it, and a store that it writes to
is neither copied nor filled. What goes wrong is a StartError or, with the file, a FileProblem.
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
"""A server on a shared store writes more often than this, if only to say that it lives."""

Records = AsyncGenerator[tuple[Key, bytes]]


@dataclass(frozen=True, slots=True)
class Moved:
    """Where the records came from, at which revision, and what the new store holds now."""

    revision: int
    filled: Filled
    seal_keys: tuple[str, ...] = ()


async def back_up(url: str, place: str, *, force: bool = False) -> Summary:
    """`place` is a path, or `-` for the standard output. The file is there when it is complete, and not before."""
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
            raise Unavailable("it is empty; see whether its address, with schema or prefix, is that of the servers")
    out.flush()
    return summary


def verified(place: str) -> Summary:
    with _file_problems(place), _opened(place) as file:
        return verify(file)


async def restore(place: str, url: str, *, force: bool = False, quiet: float = QUIET_SECONDS) -> Moved:
    """From a path, or from `-`, the standard input. A file is read twice: nothing is touched unless it is sound."""
    if place != PIPE:
        verified(place)
    with _file_problems(place), _opened(place) as file:
        backup = Backup(file)
        filled = await _fill(url, backup.header.revision, _given(backup), quiet if force else None)
    return Moved(backup.header.revision, filled, backup.summary.seal_keys if backup.summary else ())


async def copy(source: str, target: str, *, force: bool = False, quiet: float = QUIET_SECONDS) -> Moved:
    """From a store that no server uses: what is written after this would be missing."""
    with _store_problems("the store to copy from"):
        store = await open_store(source)
        try:
            snapshot = await scanned(store)
            await _see_quiet(source, store, quiet)
            records = _pairs(held_still(store, snapshot))
            filled = await _fill(target, snapshot.revision, records, quiet if force else None)
        finally:
            await store.close()
    return Moved(snapshot.revision, filled)


async def _fill(url: str, revision: int, records: Records, replacing: float | None) -> Filled:
    """`replacing`: what is there may go, if nobody writes to it for so many seconds."""
    with _store_problems("the store to fill"):
        async with aclosing(records):
            if scheme_of(url) == "memory":
                raise ValueError("what is in memory is gone when this command ends; name a store that lasts")
            # Before it is opened with another first revision: a store that we are not to touch stays as it is.
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
    """Unavailable where a server writes to a store that several can have open."""
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
    """A file that takes its name, and the place of what had it, once all of it is on the disk. For its owner only."""
    if not force and os.path.lexists(path):
        raise FileProblem(f"{path}: there is such a file already; name another one, or use --force to replace it")
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(descriptor)
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
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
        raise StartError(f"{what}: {error}; name an empty one, or use --force to replace all that it holds") from None
    except (Unavailable, ValueError) as error:
        raise StartError(f"{what}: {error}") from None


@contextmanager
def _file_problems(place: str) -> Iterator[None]:
    what = "the standard input" if place == PIPE else place
    try:
        yield
    except Damaged as error:
        raise FileProblem(f"{what}: {error}; use another backup") from None
    except OSError as error:
        raise FileProblem(f"{what}: {error.strerror or error}; name another file, or mend this one") from None


# DOC-MERGED app/exporting
# What other servers can be given of this one. Called by `fairlead export`; no server runs meanwhile.


def management_crds(api_group: str) -> list[dict[str, Any]]:
    """The management kinds as definitions for a kube-apiserver."""
    return crds(Catalog(KINDS, api_group).kinds, api_group)
