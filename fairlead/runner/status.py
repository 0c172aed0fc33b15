"""The status that a runner reports for a workspace, and the Events about its tasks. Pure.

`Ready` means that the runner has taken the workspace; the state of the container is `lastWorkspaceStatus`. `Failed`
means that the last task failed and nothing runs. The reasons of the server are not the runner's to set.
"""

from dataclasses import dataclass

from fairlead.core.objects import Object, get_path, metadata
from fairlead.runner.decisions import Wanted
from fairlead.runner.engines.contract import ContainerState, EngineStatus
from fairlead.runner.journal import FAILED, RUNNING, TaskRecord, WorkspaceRecord

TASK_SUCCEEDED = "TaskSucceeded"
READY, SLEEPING, FAILED_PHASE = "Ready", "Sleeping", "Failed"
MESSAGE_LENGTH = 4096


@dataclass(frozen=True, slots=True)
class Report:
    """The fields of `status` that the runner writes. `condition` is None if the workspace has had no task."""

    fields: Object
    condition: Object | None = None

    def differs_from(self, workspace: Object) -> bool:
        status = workspace.get("status") or {}
        if any((status.get(name) or "") != value for name, value in self.fields.items()):
            return True
        found = find_task_condition(workspace)
        return self.condition is not None and any(
            (found.get(name) or "") != self.condition[name] for name in ("status", "reason", "message")
        )

    def patch(self, workspace: Object, now: str) -> Object:
        """A strategic merge patch: conditions of other writers are kept. The uid protects a successor of that name."""
        meta, status = metadata(workspace), dict(self.fields)
        if self.condition is not None:
            before = find_task_condition(workspace)
            is_same = before.get("status") == self.condition["status"]
            moment = before.get("lastTransitionTime") if is_same else None
            generation = meta.get("generation")
            condition = {**self.condition, "lastTransitionTime": moment or now, "observedGeneration": generation}
            status["conditions"] = [condition]
        return {"metadata": {"uid": meta["uid"]}, "status": status}


def build_report(wanted: Wanted, record: WorkspaceRecord, observed: EngineStatus, step: str = "") -> Report:
    """`step` is what the task under way does, if there is one."""
    task = record.last_task
    is_busy = task is not None and task.status == RUNNING
    state = ContainerState.BUSY if is_busy else observed.state
    phase = _phase_fields(wanted, record, observed, is_busy)
    return Report({**phase, "lastWorkspaceStatus": str(state)}, _task_condition(task, step) if task else None)


def _phase_fields(wanted: Wanted, record: WorkspaceRecord, observed: EngineStatus, is_busy: bool) -> Object:
    task = record.last_task
    runs = observed.state in (ContainerState.RUNNING, ContainerState.BUSY)
    if wanted.is_deleting:
        return {}  # the phase does not matter any more, and the server says that it is being deleted
    if wanted.is_asleep and not is_busy and not runs:
        return _phase(SLEEPING, "SleepRequested", "it sleeps on request, until it is woken")
    if task is not None and task.status == FAILED and not runs:
        return _phase(FAILED_PHASE, task.reason, task.message)
    if observed.is_recovery:
        message = "the build failed; a container with the sources and without the wanted tools runs in its place"
        return _phase(READY, "Recovery", message)
    stopped = observed.cause if observed.state is ContainerState.STOPPED and not is_busy else ""
    return _phase(READY, "", stopped)


def _phase(phase: str, reason: str, message: str) -> Object:
    return {"phase": phase, "reason": reason, "message": message[:MESSAGE_LENGTH]}


def _task_condition(task: TaskRecord, step: str) -> Object:
    name = task.type.capitalize()
    if task.status == RUNNING:
        status, reason, message = "Unknown", f"{name}Running", step or task.step or "starting"
    elif task.status == FAILED:
        status, reason, message = "False", task.reason or f"{name}Failed", task.message
    else:
        status, reason, message = "True", f"{name}Succeeded", ""
    return {"type": TASK_SUCCEEDED, "status": status, "reason": reason, "message": message[:MESSAGE_LENGTH]}


def describe_failure(message: str, step: str) -> str:
    """The message of a failed task, with its step."""
    return f"step {step}: {message}" if step and f"step {step}" not in message else message


def find_task_condition(workspace: Object) -> Object:
    """The condition about the last task; empty if there is none."""
    conditions: list[Object] = get_path(workspace, "status.conditions") or []
    return next((each for each in conditions if each.get("type") == TASK_SUCCEEDED), {})
