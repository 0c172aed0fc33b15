"""The status that a runner reports for a workspace, and the Events about its tasks. Pure.

`Ready` means that the runner has taken the workspace; the state of the container is `lastWorkspaceStatus`. `Failed`
means that the last task failed and nothing runs. The reasons of the server are not the runner's to set.

What a workspace uses is rounded, and reported only if it has changed noticeably, at most once a minute or together with
something else: each report is a write to the store of the server.
"""

from dataclasses import dataclass

from fairlead.core.objects import Object, get_path, metadata
from fairlead.runner.decisions import FORCED_DURATION_SLEEP, FORCED_SLEEP, INACTIVITY_SLEEP, SCHEDULED_SLEEP, Wanted
from fairlead.runner.engines.contract import ContainerState, EngineStatus
from fairlead.runner.journal import FAILED, RUNNING, TaskRecord, WorkspaceRecord

TASK_SUCCEEDED, TEMPLATE_APPLIED = "TaskSucceeded", "TemplateApplied"
APPLIED, APPLIED_AT_NEXT_UP = "Applied", "AppliedAtNextUp"
"""Reasons of `TemplateApplied`."""
READY, SLEEPING, FAILED_PHASE = "Ready", "Sleeping", "Failed"
MESSAGE_LENGTH = 4096
SLEEP_REASONS = {
    FORCED_SLEEP: ("SleepRequested", "it sleeps on request, until it is woken"),
    FORCED_DURATION_SLEEP: ("SleepRequested", "it sleeps on request, until the requested time is over or it is woken"),
    INACTIVITY_SLEEP: ("Inactive", "it sleeps because it was not used; ssh and `up` wake it"),
    SCHEDULED_SLEEP: ("MaxRunExceeded", "it sleeps because it ran for as long as it may at a time; `up` wakes it"),
}
"""By the type of a sleep: reason and message of the phase."""


@dataclass(frozen=True, slots=True)
class Report:
    """The fields and conditions of `status` that the runner writes. `usage` is written together with them, or when the
    caller decides so."""

    fields: Object
    conditions: tuple[Object, ...] = ()
    usage: Object | None = None

    def differs_from(self, workspace: Object) -> bool:
        """Whether anything but the usage differs."""
        status = workspace.get("status") or {}
        if any((status.get(name) or "") != value for name, value in self.fields.items()):
            return True
        return any(
            (find_condition(workspace, each["type"]).get(name) or "") != each[name]
            for each in self.conditions
            for name in ("status", "reason", "message")
        )

    def patch(self, workspace: Object, now: str) -> Object:
        """A strategic merge patch: conditions of other writers are kept. The uid protects a successor of that name."""
        meta = metadata(workspace)
        status = dict(self.fields)
        if self.conditions:
            status["conditions"] = [_with_times(each, workspace, now) for each in self.conditions]
        if self.usage is not None:
            status["usage"] = self.usage
        return {"metadata": {"uid": meta["uid"]}, "status": status}


def _with_times(condition: Object, workspace: Object, now: str) -> Object:
    before = find_condition(workspace, condition["type"])
    moment = before.get("lastTransitionTime") if before.get("status") == condition["status"] else None
    return {
        **condition,
        "lastTransitionTime": moment or now,
        "observedGeneration": metadata(workspace).get("generation"),
    }


def build_report(wanted: Wanted, record: WorkspaceRecord, observed: EngineStatus | None, step: str = "") -> Report:
    """`observed` is None while a task is under way, and `step` what it does."""
    task = record.last_task
    is_busy = task is not None and task.status == RUNNING
    seen = observed or EngineStatus(ContainerState.NOT_FOUND)
    state = ContainerState.BUSY if is_busy else seen.state
    phase = _phase_fields(wanted, record, seen, is_busy)
    conditions = [_task_condition(task, step)] if task else []
    if not is_busy and seen.template_hash:
        conditions.append(_template_condition(seen.template_hash == wanted.template_hash))
    usage = describe_usage(seen) if observed is not None and not is_busy else None
    return Report({**phase, "lastWorkspaceStatus": str(state)}, tuple(conditions), usage)


def _phase_fields(wanted: Wanted, record: WorkspaceRecord, observed: EngineStatus, is_busy: bool) -> Object:
    task = record.last_task
    runs = observed.state in (ContainerState.RUNNING, ContainerState.BUSY)
    if wanted.is_deleting:
        return {}  # the phase does not matter any more, and the server says that it is being deleted
    if wanted.is_asleep and not is_busy and not runs:
        return _phase(SLEEPING, *SLEEP_REASONS.get(wanted.sleep_type, SLEEP_REASONS[FORCED_SLEEP]))
    if task is not None and task.status == FAILED and not runs:
        return _phase(FAILED_PHASE, task.reason, task.message)
    if observed.is_recovery:
        message = "the build failed; a container with the sources and without the wanted tools runs in its place"
        return _phase(READY, "Recovery", message)
    stopped = observed.cause if observed.state is ContainerState.STOPPED and not is_busy else ""
    return _phase(READY, "", stopped)


def _phase(phase: str, reason: str, message: str) -> Object:
    return {"phase": phase, "reason": reason, "message": message[:MESSAGE_LENGTH]}


def _template_condition(is_applied: bool) -> Object:
    """Whether the container was created from the template as it is now. It is never replaced without a request."""
    if is_applied:
        status, reason, message = "True", APPLIED, ""
    else:
        message = (
            "the template or its parameters have changed; `fairlead workspace up` creates a new container from them. "
            "Until then, sessions and `start` go on with the one that is there"
        )
        status, reason = "False", APPLIED_AT_NEXT_UP
    return {"type": TEMPLATE_APPLIED, "status": status, "reason": reason, "message": message}


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


def find_condition(workspace: Object, type: str) -> Object:
    """The condition of this type; empty if there is none."""
    conditions: list[Object] = get_path(workspace, "status.conditions") or []
    return next((each for each in conditions if each.get("type") == type), {})


# --- usage ------------------------------------------------------------------------------------------------------------

MIN_SECONDS = 60.0
MIN_CHANGE, MIN_CHANGE_MEBIBYTES = 0.1, 16
_MEBIBYTE = 1024 * 1024


def describe_usage(observed: EngineStatus) -> Object:
    """`status.usage`, as quantities. None removes a value that is unknown now, as in a merge patch."""
    return {"memory": _format(observed.memory_bytes), "disk": _format(observed.disk_bytes)}


def has_changed_noticeably(workspace: Object, usage: Object) -> bool:
    before = get_path(workspace, "status.usage") or {}
    return any(_is_noticeable(before.get(name), value) for name, value in usage.items())


def _format(size: int | None) -> str | None:
    return None if size is None else f"{-(-size // _MEBIBYTE)}Mi"


def _is_noticeable(before: str | None, after: str | None) -> bool:
    if not before or not after:
        return bool(before) != bool(after)
    was, now = (int(each.removesuffix("Mi")) if each.removesuffix("Mi").isdecimal() else 0 for each in (before, after))
    return abs(now - was) >= max(MIN_CHANGE_MEBIBYTES, MIN_CHANGE * was)
