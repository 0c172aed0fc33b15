"""Counts the stored objects and their bytes: per namespace, per user, and per user in each namespace.

The server keeps every object in memory, so this is what a user costs. `enforcement.py` limits it. The view reports
each change, so the counts are those of the view at any time, and a write costs the same however many objects there are.

Whom an object counts for is in an annotation, see `charged_user.py`.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from fairlead.registry.quota.charged_user import charged_user
from fairlead.registry.quota.write_locks import is_lock_key
from fairlead.storage.contract import Key
from fairlead.storage.view.entry import Entry

_RESOURCE_VERSION_LENGTH = len(b'"resourceVersion":"",')
_EVENTS = ("", "events")


class StoredUsage(NamedTuple):
    """A number of objects and their total size in bytes, as stored."""

    objects: int = 0
    bytes: int = 0


NO_USAGE = StoredUsage()


def stored_size(entry: Entry) -> int:
    """The size of the stored value: what is served contains the resourceVersion in addition."""
    return len(entry.full_body or entry.body) - _RESOURCE_VERSION_LENGTH - len(str(entry.revision))


class _Counts:
    def __init__(self) -> None:
        self.by_namespace: dict[str, StoredUsage] = {}
        self.by_user: dict[str, StoredUsage] = {}
        self.by_namespaced_user: dict[str, dict[str, StoredUsage]] = {}

    def add(self, entry: Entry, sign: int = 1) -> None:
        """Adds an object, or (-1) subtracts it."""
        key, user = entry.key, charged_user(entry)
        size = sign * stored_size(entry)
        if user:
            _add(self.by_user, user, sign, size)
        if not key[2] or (not user and (key[0], key[1]) == _EVENTS):
            return
        _add(self.by_namespace, key[2], sign, size)
        if user:
            users = self.by_namespaced_user.setdefault(key[2], {})
            _add(users, user, sign, size)
            if not users:
                del self.by_namespaced_user[key[2]]


def _add(usage: dict[str, StoredUsage], subject: str, objects: int, size: int) -> None:
    before = usage.get(subject, NO_USAGE)
    after = StoredUsage(before.objects + objects, before.bytes + size)
    if after == NO_USAGE:
        del usage[subject]
    else:
        usage[subject] = after


class StorageUsage:
    """The counts. `View.observe` keeps them up to date. In namespaces, the Events of the server itself do not count:
    they expire, and must not keep users from writing."""

    def __init__(self) -> None:
        self._counts = _Counts()
        self._loading = _Counts()

    def start_load(self) -> None:
        """A load of the whole store begins. Until it ends, the counts stay as they are."""
        self._loading = _Counts()

    def load(self, entry: Entry) -> None:
        if not is_lock_key(entry.key):
            self._loading.add(entry)

    def finish_load(self) -> None:
        self._counts = self._loading

    def change(self, key: Key, previous: Entry | None, current: Entry | None) -> None:
        if is_lock_key(key):
            return
        if previous is not None:
            self._counts.add(previous, -1)
        if current is not None:
            self._counts.add(current)

    def of_namespace(self, namespace: str) -> StoredUsage:
        return self._counts.by_namespace.get(namespace, NO_USAGE)

    def of_user(self, user: str) -> StoredUsage:
        return self._counts.by_user.get(user, NO_USAGE)

    def users_of_namespace(self, namespace: str) -> Iterator[tuple[str, StoredUsage]]:
        """What each user stores in the namespace, the largest first."""
        users: Mapping[str, StoredUsage] = self._counts.by_namespaced_user.get(namespace, {})
        return iter(sorted(users.items(), key=lambda each: (-each[1].bytes, each[0])))
