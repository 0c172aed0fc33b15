"""What a runner must know after kill -9 or a reboot: what each workspace should do, and its last tasks.

It is stored before the runner acts (`engines/records.py`). Values of `workspaceEnv` in options may be secret.
"""

from pathlib import Path
from typing import Any

import msgspec

from fairlead.core.files import read_file, write_file
from fairlead.runner.engines.records import RecordFolder, UidRecord

UP, STOP, DELETE, RESTORE = "up", "stop", "delete", "restore"
"""Types of tasks."""
RUNNING, SUCCEEDED, FAILED = "Running", "Succeeded", "Failed"
"""Statuses of tasks."""
MAX_TASKS = 5


class TaskRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A task. `attempts` counts the processes of the runner that have worked on it; 0 is a task that was requested and
    has not begun."""

    id: str
    type: str
    created_at: str
    status: str = RUNNING
    ended_at: str = ""
    step: str = ""
    reason: str = ""
    message: str = ""
    attempts: int = 0
    user: str = ""
    snapshot: str = ""
    """What a restore copies: this path of this snapshot."""
    path: str = ""


class WorkspaceRecord(UidRecord, frozen=True):
    """What the runner knows of a workspace. The uid identifies it; namespace and name are for messages."""

    namespace: str
    name: str
    engine: str = ""
    owner: str = ""
    """The user, or `team/` and the team, that the workspace belongs to."""
    is_for_other_owner: bool = False
    """What the engine has was made for an earlier owner. The next `up` replaces the container."""
    source: str = ""
    """The source of the first `up`. It does not change until a reset."""
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    """Those of the last `up`."""
    is_template_requested: bool = False
    """The `up` that is due was requested by a user who did not ask to keep the container: it applies the template as it
    is now. What comes up by itself, or for a session, starts the container that is there."""
    is_up_due: bool = False
    """An `up` was requested and has not ended; or the workspace sleeps, and comes up when it is woken."""
    is_stopped: bool = False
    """It was stopped on request, and stays so until the next `up`."""
    handled_request: str = ""
    """The last value of the annotation that requests an `up`."""
    host_boot: str = ""
    """The boot of the machine during which the last `up` succeeded."""
    is_deletion_requested: bool = False
    """The object of the workspace had a deletionTimestamp: its data is not to be kept."""
    orphaned_at: str = ""
    """Since when the server does not have the workspace any more, without having it deleted."""
    is_lost_in_restore: bool = False
    """The server had been restored from a backup when the workspace was first missing."""
    client_state: str = ""
    """What clients store with the workspace; the runner does not read it."""
    tasks: tuple[TaskRecord, ...] = ()
    """The last tasks, oldest first."""

    @property
    def last_task(self) -> TaskRecord | None:
        return self.tasks[-1] if self.tasks else None

    def with_task(self, task: TaskRecord) -> "WorkspaceRecord":
        """The record with a new or changed task. Old ones are dropped, unless they have not ended."""
        if any(each.id == task.id for each in self.tasks):
            return msgspec.structs.replace(
                self, tasks=tuple(task if each.id == task.id else each for each in self.tasks)
            )
        ended = [each.id for each in self.tasks if each.status != RUNNING]
        dropped = ended[: max(0, len(self.tasks) + 1 - MAX_TASKS)]
        others = (each for each in self.tasks if each.id not in dropped)
        return msgspec.structs.replace(self, tasks=(*others, task))

    def find_task(self, task_id: str) -> TaskRecord | None:
        return next((each for each in self.tasks if each.id == task_id), None)


class Journal(RecordFolder[WorkspaceRecord]):
    """The records of all workspaces of the runner."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, WorkspaceRecord)

    def require(self, uid: str) -> WorkspaceRecord:
        """Raises LookupError if the workspace is not taken yet."""
        record = self.get(uid)
        if record is None:
            raise LookupError(f"the workspace {uid} is not taken yet")
        return record

    def read_revision(self) -> int:
        """The revision of the server at the last complete list; 0 if it is not known."""
        text = (read_file(self._revision_path) or b"").decode(errors="replace").strip()
        return int(text) if text.isascii() and text.isdecimal() else 0

    def write_revision(self, revision: int) -> None:
        write_file(self._revision_path, str(revision).encode())

    @property
    def _revision_path(self) -> Path:
        return self._folder.with_name("server-revision")
