"""Lock records: writes that all writers of one subject share, so that concurrent decisions conflict in the store.

A rule that counts objects reads the lock record in the view, counts in the same view, and adds the next revision of the
lock record to the commit. If another writer has committed in between, the commit fails and the write is decided again.
No kind serves these records, so they occur in no list or watch.
"""

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext
from weakref import WeakValueDictionary

from fairlead.registry.codec import encode
from fairlead.storage.contract import Key, Write
from fairlead.storage.view.view import View

LOCK_PLURAL = "quotatickets"


def lock_key(api_group: str, project: str) -> Key:
    """The key of a project's lock record."""
    return (api_group, LOCK_PLURAL, "", project)


def is_lock_key(key: Key) -> bool:
    return key[1] == LOCK_PLURAL


def acquire_lock(view: View, key: Key) -> Write:
    """The write that takes the lock in its current state in the view."""
    entry = view.get(key)
    value = encode({"apiVersion": f"{key[0]}/v1", "kind": "QuotaTicket", "metadata": {"name": key[3]}})
    return Write(key, value, entry.revision if entry is not None else 0)


def delete_lock(view: View, key: Key) -> Write | None:
    """The write that deletes the lock record; None if there is none."""
    entry = view.get(key)
    return None if entry is None else Write(key, None, entry.revision)


class LockQueue:
    """Serializes the retries of writes that lost a lock.

    If all of them retried at once, only one would succeed each time, and the last might use up its attempts.
    """

    unlocked: AbstractAsyncContextManager[None] = nullcontext()
    """For the first attempt, which does not wait."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()

    def lock_for_retry(self, conflict_key: Key) -> AbstractAsyncContextManager[None]:
        """The lock to hold for a retry after a conflict on this key."""
        if not is_lock_key(conflict_key):
            return self.unlocked
        lock = self._locks.get(conflict_key)
        if lock is None:
            lock = self._locks[conflict_key] = asyncio.Lock()
        return lock
