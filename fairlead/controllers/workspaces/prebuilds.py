"""Repeats prebuilds by their schedules: it requests an `up`, as every client can, by an annotation.

What counts is the time of the last request, so that one which was due while no server ran is made up for, once.
"""

from collections.abc import Iterable
from contextlib import suppress

from fairlead.controllers.instances.sleep import MAX_RECHECK_SECONDS
from fairlead.core.clock import parse_rfc3339, timestamp
from fairlead.core.errors import NotFound
from fairlead.core.objects import Object, metadata
from fairlead.core.workspaces import PREBUILD_SCHEDULE_ANNOTATION, UP_ANNOTATION, is_prebuild
from fairlead.domain.cron import InvalidSchedule, parse_schedule
from fairlead.domain.sleep_mode import change_annotations
from fairlead.kinds.instances.workspace import WORKSPACE
from fairlead.registry.codec import decode
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import server_write_options
from fairlead.storage.contract import Key
from fairlead.storage.view.view import Entry


class PrebuildController:
    name, workers = "prebuilds", 1

    def __init__(self, registry: Registry, api_group: str) -> None:
        self.watches = ((api_group, WORKSPACE.plural),)
        self._registry = registry
        self._workspaces = registry.resource(api_group, WORKSPACE.plural)

    def keys_for(self, key: Key, entry: Entry | None) -> Iterable[Key]:
        return (key,)

    async def reconcile(self, key: Key) -> float | None:
        entry = self._workspaces.get_cached(key[2], key[3])
        if entry is None:
            return None
        now = self._registry.clock.now()
        due = find_next_build(decode(entry))
        if not due:
            return None
        if (wait := due - now.timestamp()) > 0:
            return min(wait, MAX_RECHECK_SECONDS)

        def edit(current: Object) -> Object:
            is_due = 0 < find_next_build(current) <= now.timestamp()
            return change_annotations(current, {UP_ANNOTATION: timestamp(now)}) if is_due else current

        with suppress(NotFound):  # it was deleted meanwhile
            await self._workspaces.modify(key[2], key[3], edit, server_write_options())
        return None


def find_next_build(workspace: Object) -> int:
    """When the next build of a prebuild is due, as Unix time; 0 if it has no schedule."""
    meta = metadata(workspace)
    annotations = meta.get("annotations") or {}
    text = annotations.get(PREBUILD_SCHEDULE_ANNOTATION)
    if not text or not is_prebuild(workspace) or "deletionTimestamp" in meta:
        return 0
    last = parse_rfc3339(annotations.get(UP_ANNOTATION) or "") or parse_rfc3339(meta.get("creationTimestamp") or "")
    try:
        return parse_schedule(text).next_after(int(last.timestamp())) if last is not None else 0
    except InvalidSchedule:
        return 0
