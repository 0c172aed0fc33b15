"""The storage contract: revisioned bytes under tuple keys. The whole of it, with its errors, on this page.

A store knows nothing of objects, kinds or JSON. It maps one to one onto etcd's Txn/Range/Watch and onto a one-table SQL
log. Selectors, TTLs, dry runs and caching live above it. `tests/storage/test_contract.py` asks every store the same
questions; a store that is not in that suite does not exist.

Revisions are one strictly increasing sequence for the whole store, allocated under the write lock: every commit gets
one, all changes of a commit share it, and no reader ever sees revision N after it has seen N+1. They survive restarts.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

Key = tuple[str, ...]
"""Parts, never a joined path: no part can pretend to be two. Keys order by their parts, part by part."""

FIRST_REVISION = 1_000
"""Where an empty store stands. Well above 1, so that version 1, which some clients try, is always in the past."""


@dataclass(slots=True, unsafe_hash=True)  # values like all others, but frozen ones take three times as long to make
class Record:
    """A key's value and the revision of the commit that last wrote it."""

    key: Key
    value: bytes
    revision: int


@dataclass(slots=True, unsafe_hash=True)  # as Record: every write makes one
class Event:
    """What one commit did to one key. `value` is None where the key was deleted."""

    key: Key
    value: bytes | None
    revision: int


@dataclass(slots=True, unsafe_hash=True)  # as Record: every write makes one
class Change:
    """A wish for one key: `value` is what it shall hold, None to delete it.

    `expected` is the revision the key must have now; 0 says that it must not exist.
    """

    key: Key
    value: bytes | None
    expected: int


@dataclass(frozen=True, slots=True)
class Check:
    """A condition of a commit on a key that it does not write: its revision must be `expected` (0 = absent)."""

    key: Key
    expected: int


@dataclass(frozen=True, slots=True)
class Page:
    """A piece of a scan, in key order. `revision` is the snapshot it shows: pass it as `at` for the next piece."""

    records: Sequence[Record]
    revision: int
    more: bool


class StorageError(Exception):
    """Everything a store raises on purpose.

    StorageError
    ├── Conflict      a change or check found another revision than it expected; nothing was written
    ├── Compacted     that old revision is gone; start again from a newer one
    └── Unavailable   the store cannot answer now (disk full, read-only, locked, unreachable); trying later may help
    """


class Conflict(StorageError):
    def __init__(self, key: Key, expected: int, actual: int) -> None:
        super().__init__(f"{'/'.join(key)} is at revision {actual}, not {expected}")
        self.key, self.expected, self.actual = key, expected, actual


class Compacted(StorageError):
    def __init__(self, asked: int, oldest: int) -> None:
        super().__init__(f"revision {asked} has been compacted; the oldest one left is {oldest}")
        self.asked, self.oldest = asked, oldest


class Unavailable(StorageError):
    """Its message is for people: what is wrong and what to do about it."""


class Store(Protocol):
    """What every store promises. All methods belong to one event loop and may be called concurrently."""

    async def read(self, key: Key) -> Record | None:
        """The newest record of a key; sees every commit acknowledged before the call."""

    async def scan(self, prefix: Key, *, after: Key | None = None, limit: int = 0, at: int | None = None) -> Page:
        """Records whose keys begin with `prefix`, past `after`, at most `limit` (0 = all), as they stood at `at`.

        `at=None` means now. Pages read with the same `at` are one consistent snapshot. Raises Compacted.
        """

    async def commit(self, changes: Sequence[Change], checks: Sequence[Check] = ()) -> int:
        """Writes all changes or none, durably, and returns their revision.

        Raises Conflict at the first change or check that does not hold. When it returns, a crash of the process or the
        machine no longer loses the commit. When the caller is cancelled meanwhile, the commit may still happen.
        A commit without changes is a programming error (ValueError), as is one that names a key twice.
        """

    def watch(self, prefix: Key, since: int) -> AsyncIterator[Sequence[Event]]:
        """Every event on the prefix with a revision above `since`, in order, none twice, none left out; then live.

        Each batch holds whole commits only. Raises Compacted when `since` is older than `oldest()`, also later,
        if this watcher falls behind compaction. Ends when the store is closed.
        """

    async def revision(self) -> int:
        """The revision of the newest acknowledged commit (FIRST_REVISION in an empty store)."""

    def known_revision(self) -> int | None:
        """The same without waiting, where nobody but this process commits; None where others have to be asked."""

    async def oldest(self) -> int:
        """The oldest revision that `scan(at=)` and `watch(since=)` still answer."""

    async def compact(self, before: int) -> None:
        """Forgets history that only states older than `before` need. The state at `before` and all after it stay.

        Never moves backwards; a `before` above the newest revision is cut to it.
        """

    async def scrub(self) -> None:
        """Leaves nothing on the disk of what compaction has forgotten. Commits wait meanwhile, perhaps for long."""

    async def check(self) -> None:
        """Raises Unavailable unless a commit could succeed now. Free while all is well; after a failure it tries."""

    async def close(self) -> None:
        """Finishes the commits under way, ends the watches, lets go of the file. Idempotent."""
