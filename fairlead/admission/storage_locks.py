"""Deletes the locks of storage quotas (`registry/storage_quota.py`) with their namespace or user."""

from collections.abc import Iterator

from fairlead.admission import Rule, applies_to, is_resource
from fairlead.core.objects import name_of
from fairlead.core.user import SERVICE_ACCOUNT_PREFIX
from fairlead.kinds.access.components import Component
from fairlead.registry import write_locks
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry
from fairlead.registry.storage_quota import NAMESPACE, USER, storage_lock_key
from fairlead.registry.write_rules import is_removal


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
