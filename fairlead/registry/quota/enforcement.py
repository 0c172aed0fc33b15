"""Quotas on what is stored: objects and bytes, of all kinds together, per namespace and per user.

Every object is in the server's memory, so one user must not be able to store any amount. A user is the sender of the
request, as in flow control: with all keys, in all namespaces and for cluster-scoped kinds as well; the service accounts
of a namespace count together; an impersonator counts, not the impersonated user, unless an administrator impersonates.

An object counts for the user who created it, or who last made it larger than `FREE_BYTES`. So no user can fill the
quota of another. Writes of the server and of administrators are never rejected and count for no user; the objects count
in their namespace. Writes that do not make an object larger are never rejected.

Checks read the counts of the view. Concurrent writers, also of other processes, could each fit and exceed the limit
together. So a write that comes close to a limit, or is large, takes a lock record (`write_locks.py`): of two such
writes that saw the same counts only one commits, and the other is checked again. Other writes take no lock: those in
flight at the same time are fewer than `LOCK_MARGIN`, because flow control admits a few small writes per user at a time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from fairlead.core.errors import QUOTA, Forbidden
from fairlead.core.objects import annotations_of, metadata, name_of
from fairlead.core.user import CONTROLLER_USER, SERVICE_ACCOUNT_PREFIXES, User
from fairlead.registry import limits
from fairlead.registry.kind import Change
from fairlead.registry.quota.charged_user import CHARGED_USER, set_charged_user
from fairlead.registry.quota.usage import StorageUsage, StoredUsage, stored_size
from fairlead.registry.quota.write_locks import acquire_lock, lock_key
from fairlead.registry.storage_errors import translate_storage_errors
from fairlead.storage.contract import Key
from fairlead.storage.view.view import View

FREE_BYTES = 8 * 1024
"""An update that leaves an object at this size or less is always accepted: who is at the limit must still be able to
stop a workspace or disable a key. The number of objects bounds what that adds."""
FREE_COMPONENT_BYTES = 64 * 1024
"""The same for the reports of runners and agents."""
LOCK_MARGIN = StoredUsage(200, 4 * 1024 * 1024)
"""A write that leaves less room than this below the limit takes the lock."""
MAX_UNLOCKED_BYTES = 64 * 1024
"""A write that adds more than this takes the lock in any case."""

DEFAULT_NAMESPACE_LIMIT = StoredUsage(limits.STORED_OBJECTS_PER_NAMESPACE, limits.STORED_BYTES_PER_NAMESPACE)
DEFAULT_USER_LIMIT = StoredUsage(limits.STORED_OBJECTS_PER_USER, limits.STORED_BYTES_PER_USER)
NAMESPACE, USER = "namespace", "user"


@dataclass(frozen=True, slots=True)
class StorageLimits:
    """What may be stored in one namespace, and by one user."""

    namespace: StoredUsage = DEFAULT_NAMESPACE_LIMIT
    user: StoredUsage = DEFAULT_USER_LIMIT


class Addition(NamedTuple):
    """What a write adds to one subject: a namespace or a user."""

    subject: str
    name: str
    added: StoredUsage


@dataclass(frozen=True, slots=True)
class WriterRules:
    """Who is treated differently from users."""

    is_privileged: Callable[[User], bool] = lambda user: user.is_unscoped_admin
    """Administrators. Asked only if a limit would be exceeded."""
    is_component: Callable[[User], bool] = lambda user: False
    """Runners and agents. They report about the objects of others, so what they create counts for them alone, and not
    in the namespace."""


class StorageQuota:
    """Checks writes. One per process, for all resources."""

    def __init__(
        self,
        view: View,
        usage: StorageUsage,
        api_group: str,
        storage_limits: StorageLimits | None = None,
        writers: WriterRules | None = None,
    ) -> None:
        self.usage = usage
        self.limits = storage_limits or StorageLimits()
        self._view = view
        self._group = api_group
        self._writers = writers or WriterRules()

    def charge(self, change: Change) -> None:
        """Sets whom a new object counts for."""
        if not _is_exempt(change.user):
            set_charged_user(metadata(change.obj), storage_user(change.user))

    async def reserve(self, change: Change, key: Key, size: int) -> bool:
        """Rejects a write that exceeds a limit, or adds the locks that it needs to its commit. `size` is that of the
        encoded object. Returns True if the object now counts for another user, and has to be encoded again."""
        if _is_exempt(change.user):
            return False
        user = storage_user(change.user)
        additions = self._additions(change, user, key, size)
        if not additions:
            return False
        if self._try_reserve(change, additions) is not None:
            await self._reserve_or_reject(change, additions)
        if change.old is None or all(each.subject != USER for each in additions) or user == _charged_user(change):
            return False
        set_charged_user(metadata(change.obj), user)
        return True

    async def reserve_move(self, change: Change, namespace: str, added: StoredUsage) -> None:
        """The same for objects that move to another namespace. They count for the same users as before."""
        additions = [Addition(NAMESPACE, namespace, added)]
        if not _is_exempt(change.user) and self._try_reserve(change, additions) is not None:
            await self._reserve_or_reject(change, additions)

    def _additions(self, change: Change, user: str, key: Key, size: int) -> list[Addition]:
        is_component = self._writers.is_component(change.user)
        current = self._view.get(key) if change.old is not None else None
        if current is None:
            added = StoredUsage(1, size)
            own = Addition(USER, user, added)
            return [own, Addition(NAMESPACE, key[2], added)] if key[2] and not is_component else [own]
        before = stored_size(current)
        if size <= max(before, FREE_COMPONENT_BYTES if is_component else FREE_BYTES):
            return []
        growth = StoredUsage(0, size - before)
        is_own = user == _charged_user(change)
        found = [Addition(NAMESPACE, key[2], growth)] if key[2] else []
        return found if is_component else [*found, Addition(USER, user, growth if is_own else StoredUsage(1, size))]

    async def _reserve_or_reject(self, change: Change, additions: list[Addition]) -> None:
        # Another process may have deleted objects and this view may not have caught up yet.
        with translate_storage_errors():
            await self._view.wait_current()
        why = self._try_reserve(change, additions)
        if why is not None and not self._writers.is_privileged(change.user):
            kind = change.kind
            raise Forbidden.of(kind.plural, kind.group, name_of(change.obj), why, refused_by=QUOTA)

    def _try_reserve(self, change: Change, additions: list[Addition]) -> str | None:
        """Returns why a limit is exceeded. If none is, adds the locks and returns None.

        Must not await: the counts and the revisions of the locks have to be read from the same state of the view.
        """
        locks = []
        for each in additions:
            used, limit = self._used_and_limit(each)
            objects, size = each.added
            room, size_room = limit.objects - used.objects - objects, limit.bytes - used.bytes - size
            if (room < 0 and objects) or size_room < 0:
                return _describe_excess(each, used, limit)
            is_close = (room < LOCK_MARGIN.objects and objects) or size_room < LOCK_MARGIN.bytes
            if is_close or size > MAX_UNLOCKED_BYTES:
                locks.append(acquire_lock(self._view, storage_lock_key(self._group, each.subject, each.name)))
        change.extra_writes.extend(locks)
        return None

    def _used_and_limit(self, addition: Addition) -> tuple[StoredUsage, StoredUsage]:
        if addition.subject == USER:
            return self.usage.of_user(addition.name), self.limits.user
        return self.usage.of_namespace(addition.name), self.limits.namespace


def _is_exempt(user: User) -> bool:
    return user == CONTROLLER_USER or user.is_unscoped_admin


def storage_user(user: User) -> str:
    """The name that a user's objects count under."""
    sender = user.impersonator
    name = user.name if sender is None or sender.is_unscoped_admin else sender.name
    return name.rpartition(":")[0] if name.startswith(SERVICE_ACCOUNT_PREFIXES) else name


def _charged_user(change: Change) -> str:
    return str(annotations_of(change.obj).get(CHARGED_USER) or "")


def _describe_excess(addition: Addition, used: StoredUsage, limit: StoredUsage) -> str:
    """In the form of Kubernetes' ResourceQuota, with what to do."""
    subject, name, added = addition
    sums = zip(StoredUsage._fields, added, used, limit, strict=True)
    over = [field for field, more, before, most in sums if more and before + more > most]
    requested, in_use, limited = (
        ",".join(f"{field}={getattr(each, field)}" for field in over) for each in (added, used, limit)
    )
    settings = " and ".join(f"stored_{field}_per_{subject}" for field in over)
    where = "" if subject == USER else " in it"
    return (
        f"exceeded quota: storage of the {subject} {name}, requested: {requested}, used: {in_use}, limited: {limited}; "
        f"delete objects{where} or make them smaller, or have an administrator raise the setting {settings}"
    )


def storage_lock_key(api_group: str, subject: str, name: str) -> Key:
    """Projects and access keys use the same lock namespace; the prefix keeps them apart."""
    return lock_key(api_group, f"storage:{subject}:{name}")
