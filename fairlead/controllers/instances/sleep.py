"""Puts instances to sleep that are not used, wakes those whose sleep is over, and deletes those not used for long.

`SleepController` writes what was decided: annotations, `status.sleepModeConfig`, and deletions. What decides differs:
`InstanceSleepController` is that of spaces and virtual clusters, whose own controllers then stop and start what they
have in a cluster (`sleeping_workloads.py`); workspaces have another one (`controllers/workspaces/sleep.py`).

Deletion is irreversible, so it waits for an hour by the monotonic clock, after an Event: a wall clock that jumps, and
is corrected, deletes nothing.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress

from fairlead.controllers.instances.remote_errors import QUOTA_EXCEEDED, WARNING
from fairlead.core.clock import timestamp
from fairlead.core.errors import QUOTA, Conflict, Forbidden, NotFound
from fairlead.core.objects import Object, get_path, metadata, name_of
from fairlead.domain.instance_sleep import build_sleep_mode, decide
from fairlead.domain.sleep_decisions import SleepDecision, format_time
from fairlead.domain.sleep_mode import change_annotations
from fairlead.domain.typed_objects import ASLEEP, RemoteInstance, SpaceInstance, VirtualClusterInstance
from fairlead.kinds.instances.remote_instances import SPACE, VIRTUAL_CLUSTER
from fairlead.registry.codec import decode
from fairlead.registry.conditions import TRUE, condition, find_condition, record_event, with_condition
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import DeleteOptions, server_write_options
from fairlead.storage.contract import Key
from fairlead.storage.view.view import Entry

DELETION_GRACE_SECONDS = 3600.0
MAX_RECHECK_SECONDS = 60.0
"""The longest wait for a time of the wall clock, which may jump."""
_TYPES: Mapping[str, type[RemoteInstance]] = {
    SPACE.plural: SpaceInstance,
    VIRTUAL_CLUSTER.plural: VirtualClusterInstance,
}


class SleepController:
    """For the kinds that a subclass decides about."""

    def __init__(self, registry: Registry, api_group: str) -> None:
        self._registry = registry
        self._group = api_group
        self._deletions: dict[Key, tuple[str, float]] = {}
        """Whose deletion is due: the uid, and since when, on the monotonic clock."""
        self._refusals: dict[Key, str] = {}
        """Wake-ups that a quota refuses, with the message of the Event about it."""

    def _decide(self, key: Key, instance: Object) -> SleepDecision:
        """What happens to the instance now. Of subclasses."""
        raise NotImplementedError

    def _build_sleep_mode(self, key: Key, instance: Object) -> Object:
        """`status.sleepModeConfig`. Of subclasses."""
        raise NotImplementedError

    async def reconcile(self, key: Key) -> float | None:
        resource = self._registry.resource(self._group, key[1])
        entry = resource.get_cached(key[2], key[3])
        if entry is None:
            self._forget(key)
            return None
        instance = decode(entry)
        if "deletionTimestamp" in metadata(instance) or get_path(instance, "status.ignoreReconciliation"):
            self._forget(key)
            return None
        with suppress(NotFound):  # it was deleted meanwhile
            decision = await self._try_to_decide(key, instance)
            await self._write_status(key)
            return self._earliest(decision, await self._delete_unused(key, instance, decision))
        return None

    def _forget(self, key: Key) -> None:
        self._deletions.pop(key, None)
        self._refusals.pop(key, None)

    async def _try_to_decide(self, key: Key, instance: Object) -> SleepDecision:
        """A wake-up by the server itself, such as that of a schedule, waits until the quota of awake instances allows
        it."""
        try:
            decision = await self._write_annotations(key, instance)
        except Forbidden as error:
            if error.refused_by != QUOTA:
                raise
            if self._refusals.get(key) != error.message:
                await record_event(self._registry, instance, QUOTA_EXCEEDED, _describe(error.message), type="Warning")
            self._refusals[key] = error.message
            return SleepDecision(recheck_at=self._now() + int(MAX_RECHECK_SECONDS))
        self._refusals.pop(key, None)
        return decision

    async def _write_annotations(self, key: Key, instance: Object) -> SleepDecision:
        decision = self._decide(key, instance)

        def edit(current: Object) -> Object:
            nonlocal decision
            decision = self._decide(key, current)
            return change_annotations(current, decision.changes)

        if change_annotations(instance, decision.changes) is instance:
            return decision
        resource = self._registry.resource(self._group, key[1])
        await resource.modify(key[2], key[3], edit, server_write_options())
        if decision.event is not None:
            await record_event(self._registry, instance, *decision.event)
        return decision

    async def _write_status(self, key: Key) -> None:
        def edit(current: Object) -> Object:
            status = current.get("status") or {}
            config = self._build_sleep_mode(key, current)
            after = {**status, "sleepModeConfig": config} if config or "sleepModeConfig" in status else status
            after = self._report_refusal(current, after, self._refusals.get(key, ""))
            return {**current, "status": after} if after != status else current

        resource = self._registry.resource(self._group, key[1])
        entry = resource.get_cached(key[2], key[3])
        if entry is not None and edit(current := decode(entry)) is not current:
            await resource.modify(key[2], key[3], edit, server_write_options("status"))

    def _report_refusal(self, instance: Object, status: Object, message: str) -> Object:
        """The status with a condition about a wake-up that a quota refuses; without one if the message is empty. Of
        subclasses whose kinds have such a condition."""
        return status

    async def _delete_unused(self, key: Key, instance: Object, decision: SleepDecision) -> float | None:
        """Deletes the instance when that has been due for a while. Returns the seconds after which to check again."""
        meta = metadata(instance)
        monotonic = self._registry.clock.monotonic()
        uid, at = meta["uid"], decision.deletes_at
        if not at or self._now() < at:
            self._deletions.pop(key, None)
            return at - self._now() if at else None
        if self._deletions.get(key, ("", 0.0))[0] != uid:
            self._deletions[key] = (uid, monotonic)
            message = f"it was not used for so long that its deletion is due since {format_time(at)}; it is deleted in "
            message += "an hour, unless it is started before"
            await record_event(self._registry, instance, "DeletionScheduled", message, type="Warning")
        if (remaining := self._deletions[key][1] + DELETION_GRACE_SECONDS - monotonic) > 0:
            return remaining
        options = DeleteOptions(uid, meta["resourceVersion"])
        resource = self._registry.resource(self._group, key[1])
        with suppress(Conflict):  # it was changed, and so is queued again
            await resource.delete(meta["namespace"], name_of(instance), options, server_write_options())
            del self._deletions[key]
            await record_event(self._registry, instance, "DeletedUnused", "it was not used for long", type="Warning")
        return None

    def _earliest(self, decision: SleepDecision, deletion: float | None) -> float | None:
        waits = [deletion, decision.recheck_at - self._now() if decision.recheck_at else None]
        found = [min(max(each, 1.0), MAX_RECHECK_SECONDS) for each in waits if each is not None]
        return min(found, default=None)

    def _now(self) -> int:
        return int(self._registry.clock.now().timestamp())


class InstanceSleepController(SleepController):
    name, workers = "instance-sleep", 1

    def __init__(self, registry: Registry, api_group: str) -> None:
        super().__init__(registry, api_group)
        self.watches = tuple((api_group, plural) for plural in _TYPES)

    def keys_for(self, key: Key, entry: Entry | None) -> Iterable[Key]:
        return (key,)

    def _decide(self, key: Key, instance: Object) -> SleepDecision:
        return decide(_TYPES[key[1]](instance), self._now())

    def _build_sleep_mode(self, key: Key, instance: Object) -> Object:
        return build_sleep_mode(_TYPES[key[1]](instance), self._decide(key, instance), self._now())

    def _report_refusal(self, instance: Object, status: Object, message: str) -> Object:
        if message:
            report = condition(ASLEEP, TRUE, QUOTA_EXCEEDED, _describe(message), WARNING)
        elif (find_condition(status, ASLEEP) or {}).get("reason") == QUOTA_EXCEEDED:
            report = condition(ASLEEP, TRUE, ASLEEP, "its workloads are stopped")
        else:
            return status
        return with_condition(
            status, report, timestamp(self._registry.clock.now()), metadata(instance).get("generation")
        )


def _describe(refusal: str) -> str:
    return f"it cannot be woken up: {refusal}; this is retried; put others to sleep, or ask for a larger quota"
