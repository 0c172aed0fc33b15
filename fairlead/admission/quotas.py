"""Enforces project quotas on instances, exactly, also under concurrent creates.

Usage is counted in the view (`domain/quotas.py`), and a commit that adds to it takes the project's write lock
(`registry/quota/write_locks.py`): of two writes that saw the same usage only one commits, and the other one is retried
with a new count. Deletes and sleeping only reduce usage, so they take no lock. Lowering a quota deletes nothing, but
rejects new instances. The lock is deleted with its project.

Deletes the locks of storage quotas (`registry/quota/enforcement.py`) with their namespace or user.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fairlead.admission import Rule, applies_to, is_resource
from fairlead.core.errors import QUOTA, Forbidden
from fairlead.core.objects import Object, metadata, name_of
from fairlead.core.user import SERVICE_ACCOUNT_PREFIX
from fairlead.domain.quotas import ACTIVE_SUFFIX, QuotaOwner, parse_limit, quota_keys, quota_limits, quota_owner
from fairlead.kinds.access.components import Component
from fairlead.kinds.projects.project import PROJECT
from fairlead.registry.codec import decode
from fairlead.registry.informer import OwnerUsageIndex, UsageEntry, UsageReader
from fairlead.registry.kind import Change
from fairlead.registry.quota import write_locks
from fairlead.registry.quota.enforcement import NAMESPACE, USER, storage_lock_key
from fairlead.registry.registry import Registry
from fairlead.registry.storage_errors import translate_storage_errors
from fairlead.registry.write_rules import is_removal
from fairlead.storage.view.view import Entry, View

Usage = Callable[[str, QuotaOwner | None], int]
"""The usage of a quota key, by one owner or (None) by the whole project."""


@dataclass(frozen=True, slots=True)
class QuotaDelta:
    """What a change adds to one quota: that of the project, or that of one owner."""

    keys: frozenset[str]
    limits: dict[str, str]
    owner: QuotaOwner | None

    def quota_error(self, project: str, usage: Usage) -> str | None:
        """The message of Kubernetes' ResourceQuota if the quota is exceeded, else None."""
        counted = {key: usage(key, self.owner) for key in sorted(self.keys)}
        over = {key: count for key, count in counted.items() if count + 1 > parse_limit(self.limits[key])}
        if not over:
            return None
        whose = f"project {project}" if self.owner is None else f"project {project}, {' '.join(self.owner)}"
        requested = ",".join(f"{key}=1" for key in over)
        in_use = ",".join(f"{key}={count}" for key, count in over.items())
        limited = ",".join(f"{key}={self.limits[key]}" for key in over)
        return f"exceeded quota: {whose}, requested: {requested}, used: {in_use}, limited: {limited}"


def enforce_quotas(api_group: str, prefix: str) -> Rule:
    """Rejects writes that exceed a project quota. `prefix` is that of project namespaces."""
    counts = _UsageIndex()

    @applies_to(lambda kind, verb: kind.group == api_group and (kind.namespaced or kind.plural == PROJECT.plural))
    async def rule(change: Change, registry: Registry) -> None:
        if change.kind.plural == PROJECT.plural:
            _release_lock(change, registry)
        elif change.new is not None and not change.subresource:
            await _enforce(change, registry, prefix, counts)

    return rule


async def _enforce(change: Change, registry: Registry, prefix: str, usage_index: "_UsageIndex") -> None:
    namespace = metadata(change.obj).get("namespace", "")
    if not namespace.startswith(prefix):
        return
    name = namespace.removeprefix(prefix)
    if _try_reserve(change, registry, name, usage_index) is None:
        return
    # Another replica may have reduced the usage and this view may not have caught up yet.
    with translate_storage_errors():
        await registry.view.wait_current()
    why = _try_reserve(change, registry, name, usage_index)
    if why is not None:
        kind = change.kind
        raise Forbidden.of(kind.plural, kind.group, name_of(change.obj), why, refused_by=QUOTA)


def _try_reserve(change: Change, registry: Registry, project: str, usage_index: "_UsageIndex") -> str | None:
    """Returns why the change exceeds a quota. If it does not, adds the write lock to its commit and returns None.

    Must not await: project, usage and the lock's revision have to be read from the same state of the view.
    """
    entry = registry.resource(change.kind.group, PROJECT.plural).get_cached("", project)
    if entry is None or b'"quotas":' not in entry.body:
        return None
    added = [each for each in _quota_deltas(change, decode(entry)) if each.keys]
    if not added:
        return None
    used = usage_index.usage(change, registry)
    for each in added:
        why = each.quota_error(project, used)
        if why is not None:
            return why
    change.extra_writes.append(
        write_locks.acquire_lock(registry.view, write_locks.lock_key(change.kind.group, project))
    )
    return None


def _quota_deltas(change: Change, project: Object) -> Iterator[QuotaDelta]:
    plural, old, new = change.kind.plural, change.old, change.obj
    after = quota_keys(plural, new)
    more = quota_keys(plural, new) - quota_keys(plural, old)
    whole = quota_limits(project, "project", (plural,))
    yield QuotaDelta(more & whole.keys(), whole, None)
    owner = quota_owner(new)
    if owner is not None:
        each = quota_limits(project, "user", (plural,))
        yield QuotaDelta((more if owner == quota_owner(old) else after) & each.keys(), each, owner)


class _UsageIndex:
    """Usage by namespace, quota key and owner.

    Updated incrementally from the view: every create reads it, and a project may have thousands of instances.
    """

    def __init__(self) -> None:
        self._by_plural: dict[str, tuple[View, OwnerUsageIndex]] = {}

    def usage(self, change: Change, registry: Registry) -> Usage:
        group, plural, view = change.kind.group, change.kind.plural, registry.view
        namespace = metadata(change.obj)["namespace"]
        known = self._by_plural.get(plural)
        if known is None or known[0] is not view:
            known = self._by_plural[plural] = view, OwnerUsageIndex(view, group, plural, _describe(plural))
        holdings = known[1]

        def count(key: str, owner: QuotaOwner | None) -> int:
            moved = sum(
                key in quota_keys(plural, each) and owner in (None, quota_owner(each)) for each in change.moves_with
            )
            if owner is None and not key.endswith(ACTIVE_SUFFIX):
                return view.count(group, plural, namespace) + moved
            return len(holdings.get((namespace, key, owner))) + moved

        return count


def _describe(plural: str) -> UsageReader:
    def describe(entry: Entry) -> list[UsageEntry]:
        obj, namespace = decode(entry), entry.key[2]
        holders = dict.fromkeys((None, quota_owner(obj)))
        return [UsageEntry((namespace, key, owner)) for key in quota_keys(plural, obj) for owner in holders]

    return describe


def _release_lock(change: Change, registry: Registry) -> None:
    """Deletes the write lock in the commit that deletes the project."""
    if is_removal(change):
        write = write_locks.delete_lock(registry.view, write_locks.lock_key(change.kind.group, name_of(change.obj)))
        if write is not None:
            change.extra_writes.append(write)


def release_storage_locks(api_group: str, components: tuple[Component, ...]) -> Rule:
    """Adds the deletion of the locks to the commit that removes a namespace, user, team or component."""
    owners = {each.plural: each.subject_prefix for each in components} | {"users": "", "teams": ""}

    @applies_to(
        lambda kind, verb: (
            verb != "create" and (is_resource(kind, "", "namespaces") or is_resource(kind, api_group, *owners))
        )
    )
    async def rule(change: Change, registry: Registry) -> None:
        if not is_removal(change):
            return
        for subject, name in _subjects(change, owners):
            lock = write_locks.delete_lock(registry.view, storage_lock_key(api_group, subject, name))
            if lock is not None:
                change.extra_writes.append(lock)

    return rule


def _subjects(change: Change, owners: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Namespaces and users that nothing counts for any more."""
    plural, name = change.kind.plural, name_of(change.obj)
    if plural in owners:
        yield USER, owners[plural] + name
    else:
        yield NAMESPACE, name
        yield USER, SERVICE_ACCOUNT_PREFIX + name
