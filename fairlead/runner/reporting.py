"""Writes the status of a workspace to the server, and an Event when a task has ended."""

from fairlead.core.clock import timestamp
from fairlead.core.objects import Object, metadata
from fairlead.runner.journal import FAILED, RUNNING, WorkspaceRecord
from fairlead.runner.services import RunnerServices
from fairlead.runner.status import TASK_SUCCEEDED, Report, find_condition

OWNER_CHANGED = "OwnerChanged"


async def write_report(services: RunnerServices, workspace: Object, report: Report) -> Object:
    """Returns the workspace as it is then. Raises ClientError; Replaced if another process has taken over."""
    await services.fence.require_current()
    return await services.api.patch_workspace(workspace, report.patch(workspace, timestamp(services.clock.now())))


async def record_owner_change(services: RunnerServices, workspace: Object) -> None:
    """Raises ClientError."""
    message = "the owner has changed: it is stopped, and the next `up` creates a new container with other credentials"
    await services.api.record_event(workspace, OWNER_CHANGED, message, "Normal")


async def record_task_end(services: RunnerServices, before: Object, after: Object, record: WorkspaceRecord) -> None:
    """Records an Event if the last task has ended between two versions of the workspace. Raises ClientError."""
    task = record.last_task
    if task is None or task.status == RUNNING or "deletionTimestamp" in metadata(after):
        return
    reason = str(find_condition(after, TASK_SUCCEEDED).get("reason") or "")
    if reason and reason != find_condition(before, TASK_SUCCEEDED).get("reason"):
        kind = "Warning" if task.status == FAILED else "Normal"
        message = task.message or f"{task.type} succeeded"
        await services.api.record_event(after, reason, message, kind)
