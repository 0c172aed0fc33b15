"""Enforces project quotas on instances, exactly, also under concurrent creates.

Usage is counted in the view (`domain/quotas.py`), and a commit that adds to it takes the project's write lock
(`registry/write_locks.py`): of two writes that saw the same usage only one commits, and the other one is retried with a
new count. Deletes and sleeping only reduce usage, so they take no lock. Lowering a quota deletes nothing, but rejects
new instances. The lock is deleted with its project.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fairlead.admission import Rule, concerning
from fairlead.core.errors import Forbidden
from fairlead.core.objects import Object, metadata, name_of
from fairlead.domain.quotas import ACTIVE, Holder, amount, holder_of, keys_of, limits
from fairlead.registry import write_locks
from fairlead.registry.codec import decode
from fairlead.registry.deletion import is_ending
from fairlead.registry.kind import Change
from fairlead.registry.owner_usage import Describe, Held, Holdings
from fairlead.registry.registry import Registry
from fairlead.registry.storage_errors import storage_errors
from fairlead.storage.view.view import Entry, View

PROJECTS = "projects"

Used = Callable[[str, Holder | None], int]
"""The usage of a quota key, by one owner or (None) by the whole project."""


@dataclass(frozen=True, slots=True)
class Added:
    """What a change adds to one quota: that of the project, or that of one owner."""

    keys: frozenset[str]
    limits: dict[str, str]
    holder: Holder | None

    def excess(self, project: str, used: Used) -> str | None:
        """The message of Kubernetes' ResourceQuota if the quota is exceeded, else None."""
        counted = {key: used(key, self.holder) for key in sorted(self.keys)}
        over = {key: count for key, count in counted.items() if count + 1 > amount(self.limits[key])}
        if not over:
            return None
        whose = f"project {project}" if self.holder is None else f"project {project}, {' '.join(self.holder)}"
        requested = ",".join(f"{key}=1" for key in over)
        in_use = ",".join(f"{key}={count}" for key, count in over.items())
        limited = ",".join(f"{key}={self.limits[key]}" for key in over)
        return f"exceeded quota: {whose}, requested: {requested}, used: {in_use}, limited: {limited}"


def quotas(api_group: str, prefix: str) -> Rule:
    """Rejects writes that exceed a project quota. `prefix` is that of project namespaces."""
    counts = _Counts()

    @concerning(lambda kind, verb: kind.group == api_group and (kind.namespaced or kind.plural == PROJECTS))
    async def rule(change: Change, registry: Registry) -> None:
        if change.kind.plural == PROJECTS:
            _let_go(change, registry)
        elif change.new is not None and not change.subresource:
            await _keep_within(change, registry, prefix, counts)

    return rule


async def _keep_within(change: Change, registry: Registry, prefix: str, counts: "_Counts") -> None:
    namespace = metadata(change.obj).get("namespace", "")
    if not namespace.startswith(prefix):
        return
    name = namespace.removeprefix(prefix)
    if _excess(change, registry, name, counts) is None:
        return
    # Another replica may have reduced the usage and this view may not have caught up yet.
    with storage_errors():
        await registry.view.fresh()
    why = _excess(change, registry, name, counts)
    if why is not None:
        raise Forbidden.of(change.kind.plural, change.kind.group, name_of(change.obj), why)


def _excess(change: Change, registry: Registry, project: str, counts: "_Counts") -> str | None:
    """Returns why the change exceeds a quota. If it does not, adds the write lock to its commit and returns None.

    Must not await: project, usage and the lock's revision have to be read from the same state of the view.
    """
    entry = registry.resource(change.kind.group, PROJECTS).peek("", project)
    if entry is None or b'"quotas":' not in entry.body:
        return None
    added = [each for each in _added(change, decode(entry)) if each.keys]
    if not added:
        return None
    used = counts.used(change, registry)
    for each in added:
        why = each.excess(project, used)
        if why is not None:
            return why
    change.also.append(write_locks.taken(registry.view, write_locks.key_of(change.kind.group, project)))
    return None


def _added(change: Change, project: Object) -> Iterator[Added]:
    plural, old, new = change.kind.plural, change.old, change.obj
    after, more = keys_of(plural, new), keys_of(plural, new) - keys_of(plural, old)
    whole = limits(project, "project", (plural,))
    yield Added(more & whole.keys(), whole, None)
    holder = holder_of(new)
    if holder is not None:
        each = limits(project, "user", (plural,))
        yield Added((more if holder == holder_of(old) else after) & each.keys(), each, holder)


class _Counts:
    """Usage by namespace, quota key and owner.

    Updated incrementally from the view: every create reads it, and a project may have thousands of instances.
    """

    def __init__(self) -> None:
        self._by_plural: dict[str, tuple[View, Holdings]] = {}

    def used(self, change: Change, registry: Registry) -> Used:
        group, plural, view = change.kind.group, change.kind.plural, registry.view
        namespace = metadata(change.obj)["namespace"]
        known = self._by_plural.get(plural)
        if known is None or known[0] is not view:
            known = self._by_plural[plural] = view, Holdings(view, group, plural, _describe(plural))
        holdings = known[1]

        def count(key: str, holder: Holder | None) -> int:
            if holder is None and not key.endswith(ACTIVE):
                return view.count(group, plural, namespace)
            return len(holdings.of((namespace, key, holder)))

        return count


def _describe(plural: str) -> Describe:
    def describe(entry: Entry) -> list[Held]:
        obj, namespace = decode(entry), entry.key[2]
        holders = dict.fromkeys((None, holder_of(obj)))
        return [Held((namespace, key, holder)) for key in keys_of(plural, obj) for holder in holders]

    return describe


def _let_go(change: Change, registry: Registry) -> None:
    """Deletes the write lock in the commit that deletes the project."""
    if is_ending(change):
        write = write_locks.removed(registry.view, write_locks.key_of(change.kind.group, name_of(change.obj)))
        if write is not None:
            change.also.append(write)
