"""Has runners remove what they have of workspaces that were moved away, once these run on their new runner.

Until then, they are to keep it, however short the time is for which they keep orphans otherwise. Whether the workspaces
run, the new runner is asked itself: the status may still have a report of the one before. A runner that
does not respond is asked again until it does; if its Runner is deleted, there is no process to ask.
"""

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any

from fairlead.core.errors import ApiError, NotFound
from fairlead.core.objects import Object, get_path, metadata
from fairlead.core.workspaces import DISCARD, MOVED_FROM_ANNOTATION, RETAIN, list_former_runners
from fairlead.domain.sleep_mode import change_annotations
from fairlead.kinds.clusters.runner import RUNNERS
from fairlead.kinds.instances.workspace import WORKSPACE
from fairlead.links.requests import OpenRequest
from fairlead.registry.codec import decode
from fairlead.registry.conditions import is_true
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import server_write_options
from fairlead.storage.contract import Key
from fairlead.storage.view.view import Entry

RETRY_SECONDS = 60.0
AskRunner = Callable[[OpenRequest], Awaitable[dict[str, Any]]]


class MoveController:
    name, workers = "moves", 2

    def __init__(self, registry: Registry, api_group: str, ask: AskRunner) -> None:
        self.watches = ((api_group, WORKSPACE.plural),)
        self._workspaces = registry.resource(api_group, WORKSPACE.plural)
        self._runners = registry.resource(api_group, RUNNERS)
        self._ask = ask

    def keys_for(self, key: Key, entry: Entry | None) -> Iterable[Key]:
        return (key,)

    async def reconcile(self, key: Key) -> float | None:
        entry = self._workspaces.get_cached(key[2], key[3])
        workspace = decode(entry) if entry is not None else {}
        former = list_former_runners(workspace) if workspace else []
        if not former:
            return None
        if not await self._runs(workspace):
            for name in former:
                await self._pass_on(RETAIN, name, workspace)
            return RETRY_SECONDS
        done = {name for name in former if await self._pass_on(DISCARD, name, workspace)}

        def edit(changed: Object) -> Object:
            left = [each for each in list_former_runners(changed) if each not in done]
            return change_annotations(changed, {MOVED_FROM_ANNOTATION: ",".join(left) or None})

        with suppress(NotFound):  # it was deleted meanwhile
            await self._workspaces.modify(key[2], key[3], edit, server_write_options())
        return RETRY_SECONDS if len(done) < len(former) else None

    async def _runs(self, workspace: Object) -> bool:
        """Whether it does on its new runner, as that says."""
        if not is_true(workspace.get("status"), "Ready"):
            return False
        runner = str(get_path(workspace, "spec.runnerRef.runner") or "")
        try:
            return is_brought_up(await self._ask(build_request("troubleshoot", runner, workspace)))
        except ApiError:
            return False

    async def _pass_on(self, action: str, runner: str, workspace: Object) -> bool:
        """Whether a former runner has the request, or does not exist any more."""
        if self._runners.get_cached("", runner) is None:
            return True
        try:
            await self._ask(build_request(action, runner, workspace))
        except ApiError:
            return False
        return True


def build_request(action: str, runner: str, workspace: Object) -> OpenRequest:
    meta = metadata(workspace)
    return OpenRequest(action, runner, meta["uid"], meta["namespace"], meta["name"])


def is_brought_up(report: dict[str, Any]) -> bool:
    """Whether a workspace runs, and its last `up` succeeded, as its runner says."""
    tasks = [each for each in report.get("tasks") or () if isinstance(each, dict) and each.get("type") == "up"]
    container = report.get("container")
    runs = isinstance(container, dict) and container.get("state") == "Running"
    return runs and bool(tasks) and tasks[-1].get("status") == "Succeeded"
