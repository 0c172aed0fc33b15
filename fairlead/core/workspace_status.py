"""What a workspace does, in one word, with a reason: for the tables of kubectl and of the command line.

The controller of workspaces decides it, as the reason of the condition `Ready`; this only reads that.
"""

from enum import StrEnum
from typing import Any

from fairlead.core.objects import Object, get_path, metadata

RUNNER_SILENT = "RunnerSilent"
"""Reason of the condition `Ready` while the runner is silent."""
PHASES_WITHOUT_STATE = ("Pending", "Sleeping", "Failed")


class WorkspaceState(StrEnum):
    """What a workspace does that a runner has accepted: the reasons of its condition `Ready`."""

    RUNNING = "Running"
    STARTING = "Starting"
    STOPPING = "Stopping"
    BUSY = "Busy"
    STOPPED = "Stopped"
    NOT_STARTED = "NotStarted"
    DEGRADED = "Degraded"
    NOT_REPORTED = "NotReported"


def current_reason(workspace: Object) -> Any:
    """Why the workspace is not ready if its status does not say so, which task is under way or has failed, or that a
    changed template waits for an `up`; empty if there is nothing of these."""
    conditions = {each.get("type"): each for each in get_path(workspace, "status.conditions") or ()}
    ready = conditions.get("Ready") or {}
    task = conditions.get("TaskSucceeded") or {}
    if ready and ready.get("status") != "True" and ready.get("reason") not in set(WorkspaceState):
        return ready.get("reason") or ""
    if task and task.get("status") != "True":
        return task.get("reason") or ""
    applied = conditions.get("TemplateApplied") or {}
    return applied.get("reason") or "" if applied.get("status") == "False" else ""


def workspace_status(workspace: Object) -> str:
    """What the workspace does, in one word, from its condition `Ready`. The phase does not say it: its `Ready` means
    that a runner has accepted the workspace."""
    status = workspace.get("status") or {}
    conditions = {each.get("type"): each for each in status.get("conditions") or ()}
    reason = str((conditions.get("Ready") or {}).get("reason") or "")
    if "deletionTimestamp" in metadata(workspace):
        return "Terminating"
    if reason in (RUNNER_SILENT, WorkspaceState.NOT_REPORTED):
        return "Unknown"
    if reason in set(WorkspaceState):
        return reason
    phase = str(status.get("phase") or "")
    return phase if phase in PHASES_WITHOUT_STATE else "Pending"
