"""Moves a workspace to another runner: `POST devpodworkspaceinstances/<name>/move`.

The other runner fetches the source again, and brings the workspace up. So what is not pushed is lost. Without
`discard`, nothing moves if there is something like that, or if the runner before cannot be asked. That runner stops the
workspace, and keeps what it has until it runs on the other one (`controllers/workspaces/moves.py`); until then, it can
move back.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import msgspec

from fairlead.controllers.workspaces.scheduling import SCHEDULED, STARTED_STATES, schedule
from fairlead.core.errors import ApiError, BadRequest, Conflict
from fairlead.core.objects import Object, get_path, metadata
from fairlead.core.workspaces import (
    MOVE_LOSSES,
    MOVED_FROM_ANNOTATION,
    SOURCE_ANNOTATION,
    UP_ANNOTATION,
    list_former_runners,
)
from fairlead.domain.sleep_mode import change_annotations
from fairlead.kinds.clusters.runner import RUNNERS
from fairlead.kinds.instances.workspace import REPORTED_FIELDS, SERVER_CONDITIONS
from fairlead.kinds.projects.project import PROJECT
from fairlead.links.requests import OpenRequest
from fairlead.registry.codec import decode
from fairlead.registry.conditions import TRUE, conditions_of, record_event, without_conditions
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import server_write_options
from fairlead.server.api.actions import ActionRequest
from fairlead.subresources.workspaces.exchanges import ExchangeHandlers, build_response
from fairlead.subresources.workspaces.targets import WORKSPACES, RunnerRequests
from fairlead.subresources.workspaces.waking import Waking

RUNNER_FIELD = "spec.runnerRef.runner"
ADVICE = "push what is to be kept, or discard it (`fairlead workspace move --discard`)"


class _Losses(msgspec.Struct):
    losses: Annotated[list[Annotated[str, msgspec.Meta(max_length=256)]], msgspec.Meta(max_length=16)]
    source: Annotated[str, msgspec.Meta(max_length=4096)] = ""


@dataclass(frozen=True, slots=True)
class MoveHandler:
    requests: RunnerRequests
    exchanges: ExchangeHandlers
    waking: Waking
    registry: Registry
    api_group: str
    namespace_prefix: str

    async def __call__(self, request: ActionRequest) -> Object:
        spec = request.body.get("spec") or {}
        target = str(spec.get("runner") or "")
        if not target:
            raise BadRequest("spec.runner: name the runner to move to")
        if request.dry_run:
            raise BadRequest("dryRun is not supported: a workspace is moved or not; omit it")
        # The verb `use` does not decide where it runs: that is a part of its spec.
        request.call.require(replace(request.call.target, verb="update", path="", subresource=""))
        workspace = await self.requests.get_workspace(request)
        former = self._check(request, workspace, target)
        found = await self._find_losses(request, workspace)
        if found.losses and not spec.get("discard"):
            lost = "; ".join(found.losses)
            raise self._refuse(request, f'what only runner "{former}" has would be lost: {lost}; {ADVICE}')
        await self.waking.wake_for_up(request)
        await self._move(request, former, target, found.source)
        await record_event(
            self.registry, workspace, "Moved", f'moved from runner "{former}" to "{target}" by {request.user.name}'
        )
        return build_response(request, spec=spec, status={"runner": former, "lost": found.losses})

    def _check(self, request: ActionRequest, workspace: Object, target: str) -> str:
        """The runner of now. Raises Conflict if the workspace cannot move to the other one."""
        former = str(get_path(workspace, RUNNER_FIELD) or "")
        if "deletionTimestamp" in metadata(workspace):
            raise self._refuse(request, "it is being deleted")
        if not former:
            raise self._refuse(request, "it has no runner yet; set spec.runnerRef.runner")
        if former == target:
            raise self._refuse(request, f'it is on runner "{target}" already')
        if problem := self._find_problem(workspace, target):
            raise self._refuse(request, problem)
        return former

    def _find_problem(self, workspace: Object, target: str) -> str:
        """Why the other runner cannot have it: as for a new workspace that names it, and it has to respond."""
        project_name = metadata(workspace)["namespace"].removeprefix(self.namespace_prefix)
        project = self._read(PROJECT.plural, project_name)
        runner = self._read(RUNNERS, target)
        runners: Mapping[str, Object] = {target: runner} if runner is not None else {}
        wanted = {**(workspace.get("spec") or {}), "runnerRef": {"runner": target}}
        status = without_conditions(forget_reports(workspace)["status"], SCHEDULED)
        placement = schedule({**workspace, "spec": wanted, "status": status}, project, runners, {})
        if placement.scheduled["status"] != TRUE:
            return str(placement.scheduled["message"])
        if placement.silence:
            return f'runner "{target}" does not respond: {placement.silence}'
        if placement.runner_phase != "Initialized":
            return f'runner "{target}" was never started, or has failed; `fairlead runner show {target}` says more'
        return ""

    def _read(self, plural: str, name: str) -> Object | None:
        entry = self.registry.resource(self.api_group, plural).get_cached("", name)
        return decode(entry) if entry is not None else None

    async def _find_losses(self, request: ActionRequest, workspace: Object) -> _Losses:
        """What only the runner of now has, as far as that can be known."""
        try:
            found: _Losses = await self.exchanges.exchange(request, OpenRequest(MOVE_LOSSES), _Losses)
            return found
        except ApiError as error:
            if get_path(workspace, "status.lastWorkspaceStatus") not in STARTED_STATES:
                return _Losses([])  # it was never brought up
            return _Losses([f"everything that is not pushed, which is not known: {error.message}"])

    async def _move(self, request: ActionRequest, former: str, target: str, source: str) -> None:
        """As the server, which alone may change a runner. The requester may update the workspace."""
        workspaces = self.registry.resource(self.api_group, WORKSPACES)
        requested_at = self.registry.clock.now().isoformat(timespec="milliseconds")

        def edit(current: Object) -> Object:
            if get_path(current, RUNNER_FIELD) != former:
                raise self._refuse(request, "it was moved by another request meanwhile")
            left = [each for each in (*list_former_runners(current), former) if each != target]
            changes: dict[str, str | None] = {
                MOVED_FROM_ANNOTATION: ",".join(dict.fromkeys(left)),
                UP_ANNOTATION: requested_at,
            }
            if source:  # that of its first `up`, which may have been an option
                changes[SOURCE_ANNOTATION] = source
            moved = {**current, "spec": {**current["spec"], "runnerRef": {"runner": target}}}
            return change_annotations(moved, changes)

        await workspaces.modify(request.namespace, request.name, edit, server_write_options())
        await workspaces.modify(request.namespace, request.name, forget_reports, server_write_options("status"))

    def _refuse(self, request: ActionRequest, why: str) -> Conflict:
        return Conflict.of(WORKSPACES, self.api_group, request.name, why)


def forget_reports(workspace: Object) -> Object:
    """Without what the runner before has reported: nothing of that is true of the other one."""
    status: dict[str, Any] = {
        name: value for name, value in (workspace.get("status") or {}).items() if name not in REPORTED_FIELDS
    }
    conditions = [each for each in conditions_of(workspace.get("status")) if each.get("type") in SERVER_CONDITIONS]
    return {**workspace, "status": {**status, "conditions": conditions}}
