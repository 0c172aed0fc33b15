"""The storage contract: the `Store` protocol for revisioned bytes under tuple keys, and its errors.

A store knows nothing about objects, kinds or JSON. The contract maps directly to etcd's Txn, Range and Watch, and to
a log in one SQL table. Selectors, TTLs, dry runs and caching are implemented above it. Every store must pass
`tests/storage/test_contract.py`.

Revisions are one strictly increasing sequence per store, allocated under the write lock. Every commit has one, and
all its writes share it. No reader sees revision N after N+1. Revisions survive restarts.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from msgspec import Struct

Key = tuple[str, ...]
"""A tuple of parts, never a joined path, so keys cannot be ambiguous. Keys are ordered part by part."""

FIRST_REVISION = 1_000
"""The revision of an empty store. Well above 1, so that resourceVersion 1, which some clients try, is always in the
past."""


class Record(Struct, frozen=True, gc=False):  # every write makes several of these three: a Struct is built fastest
    """A key, its value, and the revision of the commit that last wrote it."""

    key: Key
    value: bytes
    revision: int


class Event(Struct, frozen=True, gc=False):
    """The change of one key by one commit. `value` is None if the key was deleted."""

    key: Key
    value: bytes | None
    revision: int


class Write(Struct, frozen=True, gc=False):
    """A write to one key: the new value, or None to delete it.

    `expected_revision` is the revision that the key must have; 0 means that it must not exist.
    """

    key: Key
    value: bytes | None
    expected_revision: int


@dataclass(frozen=True, slots=True)
class Precondition:
    """A condition on a key that the commit does not write: it must have this revision (0 = must not exist)."""

    key: Key
    expected_revision: int


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a scan, in key order. Pass its `revision` as `at` to read the next page of the same snapshot."""

    records: Sequence[Record]
    revision: int
    has_more: bool


class StorageError(Exception):
    """The base class of all errors of a store.

    StorageError
    ├── RevisionConflict   a key does not have the expected revision; nothing was written
    ├── Compacted          the revision was compacted; start again from a newer one
    └── StoreUnavailable   the store cannot respond now (disk full, read-only, locked, unreachable); retry later
    """


class RevisionConflict(StorageError):
    def __init__(self, key: Key, expected: int, actual: int) -> None:
        super().__init__(f"{'/'.join(key)} is at revision {actual}, not {expected}")
        self.key, self.expected, self.actual = key, expected, actual


class Compacted(StorageError):
    def __init__(self, requested: int, oldest: int) -> None:
        super().__init__(f"revision {requested} has been compacted; the oldest one left is {oldest}")
        self.requested, self.oldest = requested, oldest


class StoreUnavailable(StorageError):
    """The message is for operators: what is wrong and what to do about it."""


class Store(Protocol):
    """The interface of all stores. Call its methods on one event loop only; concurrent calls are allowed."""

    async def read(self, key: Key) -> Record | None:
        """The current record of a key. Linearizable: sees every commit acknowledged before the call."""

    async def scan(self, prefix: Key, *, after: Key | None = None, limit: int = 0, at: int | None = None) -> Page:
        """Records whose keys start with `prefix` and come after `after`, at most `limit` (0 = all), at revision `at`.

        `at=None` means now. Pages read with the same `at` are one consistent snapshot. Raises Compacted.
        """

    async def commit(self, writes: Sequence[Write], preconditions: Sequence[Precondition] = ()) -> int:
        """Apply all writes atomically and durably, and return their revision.

        Raises RevisionConflict for the first write or precondition that does not hold. If the caller is cancelled,
        the commit may still happen. Raises ValueError if there are no writes or a key is named twice.
        """

    def watch(self, prefix: Key, since: int) -> AsyncIterator[Sequence[Event]]:
        """All events under the prefix after revision `since`, in order and exactly once; first history, then live.

        Batches contain whole commits. Raises Compacted if `since` is older than `oldest()`, also later, if the watch
        falls behind compaction. Ends when the store is closed.
        """

    async def revision(self) -> int:
        """The revision of the newest acknowledged commit (FIRST_REVISION in an empty store)."""

    def local_revision(self) -> int | None:
        """The same without waiting, if this process can know it; None if other replicas may have written."""

    async def oldest(self) -> int:
        """The oldest revision that `scan(at=)` and `watch(since=)` still accept."""

    async def compact(self, before: int) -> None:
        """Discard history that only revisions before `before` need.

        The compacted revision never decreases, and never exceeds the newest revision.
        """

    async def purge_deleted(self) -> None:
        """Physically remove compacted data from the disk. Commits are blocked meanwhile, possibly for long."""

    async def check_writable(self) -> None:
        """Raise StoreUnavailable unless a commit could succeed now. Free in normal operation; after a failure it
        tries a write."""

    async def close(self) -> None:
        """Finish pending commits, end all watches and release resources. Idempotent."""
