"""Whether a workspace is ready, and if not, why. Pure.

The one place that decides: `kubectl`, the command line and the console show what the condition `Ready` says.

`Ready` is True while the container runs. The phase is another matter: clients that create a workspace wait until its
phase is `Ready`, which the runner reports when it has accepted the workspace, and then bring it up.
"""

from dataclasses import dataclass

from fairlead.core.objects import Object, get_path, metadata
from fairlead.core.workspaces import RUNNER_SILENT, WorkspaceState
from fairlead.registry.conditions import FALSE, TRUE, UNKNOWN, find_condition

READY, RECONCILING, STALLED = "Ready", "Reconciling", "Stalled"
TEMPLATE_NOT_RESOLVED = "TemplateNotResolved"
RECOVERY = "Recovery"
"""The runner's reason for the phase while a container with the sources runs in place of the wanted one."""
TASKS_UNDER_WAY = {"UpRunning": WorkspaceState.STARTING, "StopRunning": WorkspaceState.STOPPING}
NOT_STARTED = "it was not brought up yet; `fairlead workspace up` starts it"
STOPPED = "it is stopped; `fairlead workspace up` starts it again"


@dataclass(frozen=True, slots=True)
class Readiness:
    """The condition Ready. `progress` is Reconciling while the workspace is in transition, Stalled while it needs
    manual action, and else empty."""

    ready: str
    reason: str
    message: str = ""
    severity: str = ""
    progress: str = ""


def evaluate_readiness(workspace: Object, status: Object, scheduled: Object, silence: str) -> Readiness:
    """`status` has its new phase. `scheduled` is the condition Scheduled; `silence` says since when the runner does not
    respond."""
    phase, message = status["phase"], status.get("message") or ""
    reason = status.get("reason") or phase
    if "deletionTimestamp" in metadata(workspace):
        message = f'waiting for runner "{get_path(workspace, "spec.runnerRef.runner")}" to shut it down'
        return Readiness(FALSE, "Deleting", message, "Info", RECONCILING)
    if silence:
        return Readiness(UNKNOWN, RUNNER_SILENT, silence)
    if phase == "Ready":
        return _evaluate_container(status, message)
    if phase == "Sleeping":
        return Readiness(FALSE, reason, message, "Info")
    if phase == "Failed" or scheduled["status"] != TRUE or reason == TEMPLATE_NOT_RESOLVED:
        return Readiness(FALSE, reason, message, "Error", STALLED)
    return Readiness(FALSE, reason, message, "Info", RECONCILING)


def _evaluate_container(status: Object, message: str) -> Readiness:
    """That of a workspace that a runner has accepted."""
    container = status.get("lastWorkspaceStatus")
    task = find_condition(status, "TaskSucceeded") or {}
    if task.get("status") == UNKNOWN or container == "Busy":
        state = TASKS_UNDER_WAY.get(task.get("reason") or "", WorkspaceState.BUSY)
        return Readiness(FALSE, state, task.get("message") or message, "Info", RECONCILING)
    if container == "Running":
        if status.get("reason") == RECOVERY:
            return Readiness(FALSE, WorkspaceState.DEGRADED, message, "Warning")
        return Readiness(TRUE, WorkspaceState.RUNNING, message or "its container runs")
    if container == "Stopped":
        return Readiness(FALSE, WorkspaceState.STOPPED, message or STOPPED, "Info")
    if container == "NotFound":
        return Readiness(FALSE, WorkspaceState.NOT_STARTED, message or NOT_STARTED, "Info")
    return Readiness(UNKNOWN, WorkspaceState.NOT_REPORTED, message or "its runner has not reported on its container")
