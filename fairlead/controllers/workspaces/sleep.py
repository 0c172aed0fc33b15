"""Puts workspaces to sleep that are not used, wakes those whose sleep is over, and deletes those not used for long.

This is the only place that decides that. `sleep_decisions.py` says what, from what the runner reports; the runner stops
the workspace when it sees the annotations. Deletion is irreversible, so it waits for an hour by the monotonic clock,
after an Event: a wall clock that jumps, and is corrected, deletes nothing.
"""

from collections.abc import Iterable
from contextlib import suppress

from fairlead.controllers.workspaces.scheduling import RUNNER_FIELD
from fairlead.controllers.workspaces.sleep_decisions import SleepDecision, build_sleep_mode, decide, format_time
from fairlead.core.errors import Conflict, NotFound
from fairlead.core.objects import Object, get_path, metadata, name_of
from fairlead.domain.sleep_mode import change_annotations
from fairlead.kinds.clusters.runner import RUNNERS, silence_message
from fairlead.kinds.instances.workspace import WORKSPACE
from fairlead.registry.codec import decode
from fairlead.registry.conditions import record_event
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import DeleteOptions, server_write_options
from fairlead.storage.contract import Key
from fairlead.storage.view.view import Entry

DELETION_GRACE_SECONDS = 3600.0
MAX_RECHECK_SECONDS = 60.0
"""The longest wait for a time of the wall clock, which may jump."""


class SleepController:
    name, workers = "workspace-sleep", 1

    def __init__(self, registry: Registry, api_group: str) -> None:
        self.watches = ((api_group, WORKSPACE.plural), (api_group, RUNNERS))
        self._registry = registry
        self._group = api_group
        self._workspaces = registry.resource(api_group, WORKSPACE.plural)
        self._runners = registry.resource(api_group, RUNNERS)
        self._deletions: dict[str, float] = {}
        """By uid: since when a deletion is due, on the monotonic clock."""

    def keys_for(self, key: Key, entry: Entry | None) -> Iterable[Key]:
        if key[1] == WORKSPACE.plural:
            return (key,)
        entries = self._registry.view.entries(self._group, WORKSPACE.plural)
        return [each.key for each in entries if each.fields.get(RUNNER_FIELD) == key[3]]

    async def reconcile(self, key: Key) -> float | None:
        entry = self._workspaces.get_cached(key[2], key[3])
        if entry is None:
            return None
        workspace = decode(entry)
        if "deletionTimestamp" in metadata(workspace) or get_path(workspace, "status.ignoreReconciliation"):
            self._deletions.pop(metadata(workspace)["uid"], None)
            return None
        with suppress(NotFound):  # it was deleted meanwhile
            decision = await self._write_annotations(key, workspace)
            await self._write_status(key)
            return self._earliest(decision, await self._delete_unused(workspace, decision))
        return None

    def _decide(self, workspace: Object) -> SleepDecision:
        return decide(workspace, self._is_silent(workspace), self._now())

    def _is_silent(self, workspace: Object) -> bool:
        """Whether nothing is known about the workspace: its runner is silent or gone, or there is none."""
        name = get_path(workspace, RUNNER_FIELD)
        entry = self._runners.get_cached("", name) if name else None
        return entry is None or bool(silence_message(decode(entry)))

    async def _write_annotations(self, key: Key, workspace: Object) -> SleepDecision:
        decision = self._decide(workspace)

        def edit(current: Object) -> Object:
            nonlocal decision
            decision = self._decide(current)
            return change_annotations(current, decision.changes)

        if change_annotations(workspace, decision.changes) is workspace:
            return decision
        await self._workspaces.modify(key[2], key[3], edit, server_write_options())
        if decision.event is not None:
            await record_event(self._registry, workspace, *decision.event)
        return decision

    async def _write_status(self, key: Key) -> None:
        def edit(current: Object) -> Object:
            status = current.get("status") or {}
            config = build_sleep_mode(current, self._decide(current), self._now())
            if config == (status.get("sleepModeConfig") or {}):
                return current
            return {**current, "status": {**status, "sleepModeConfig": config}}

        entry = self._workspaces.get_cached(key[2], key[3])
        if entry is not None and edit(current := decode(entry)) is not current:
            await self._workspaces.modify(key[2], key[3], edit, server_write_options("status"))

    async def _delete_unused(self, workspace: Object, decision: SleepDecision) -> float | None:
        """Deletes the workspace when that has been due for a while. Returns the seconds after which to check again."""
        meta = metadata(workspace)
        monotonic = self._registry.clock.monotonic()
        uid, at = meta["uid"], decision.deletes_at
        if not at or self._now() < at:
            self._deletions.pop(uid, None)
            return at - self._now() if at else None
        if uid not in self._deletions:
            self._deletions[uid] = monotonic
            message = f"it was not used for so long that its deletion is due since {format_time(at)}; it is deleted in "
            message += "an hour, unless it is started before"
            await record_event(self._registry, workspace, "DeletionScheduled", message, type="Warning")
        if (remaining := self._deletions[uid] + DELETION_GRACE_SECONDS - monotonic) > 0:
            return remaining
        options = DeleteOptions(uid, meta["resourceVersion"])
        with suppress(Conflict):  # it was changed, and so is queued again
            await self._workspaces.delete(meta["namespace"], name_of(workspace), options, server_write_options())
            del self._deletions[uid]
            await record_event(self._registry, workspace, "DeletedUnused", "it was not used for long", type="Warning")
        return None

    def _earliest(self, decision: SleepDecision, deletion: float | None) -> float | None:
        waits = [deletion, decision.recheck_at - self._now() if decision.recheck_at else None]
        found = [min(max(each, 1.0), MAX_RECHECK_SECONDS) for each in waits if each is not None]
        return min(found, default=None)

    def _now(self) -> int:
        return int(self._registry.clock.now().timestamp())
