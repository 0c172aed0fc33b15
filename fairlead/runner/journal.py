"""What a runner must know after kill -9 or a reboot: what each workspace should do, and its last tasks.

There is one file per workspace, named by its uid. It is replaced atomically and synced to the disk before the runner
acts, so that the next process finds every task that may have had an effect. Writes block the event loop for as long as
the disk takes: acts are rare, and each takes far longer.

Values of `workspaceEnv` in options may be secret, so the files are readable by the runner only.
"""

import os
import re
from pathlib import Path
from typing import Any

import msgspec
import structlog

from fairlead.core.files import ensure_private_folder, read_file, write_file

log = structlog.get_logger(__name__)

UP, STOP, DELETE = "up", "stop", "delete"
"""Types of tasks."""
RUNNING, SUCCEEDED, FAILED = "Running", "Succeeded", "Failed"
"""Statuses of tasks."""
MAX_TASKS = 5
_UID = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{0,62}")


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


class WorkspaceRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the runner knows of a workspace. The uid identifies it; namespace and name are for messages."""

    uid: str
    namespace: str
    name: str
    engine: str = ""
    owner: str = ""
    """The user, or `team/` and the team, that the workspace belongs to."""
    is_for_other_owner: bool = False
    """What the engine has was made for an earlier owner. The next `up` replaces the container."""
    source: str = ""
    """The source of the first `up`. It does not change until a reset."""
    options: dict[str, Any] = {}
    """Those of the last `up`."""
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


_decode = msgspec.json.Decoder(WorkspaceRecord).decode


def is_valid_uid(uid: str) -> bool:
    """Whether the uid can be a part of a file name, and an argument of a program. Uids of objects are UUIDs."""
    return _UID.fullmatch(uid) is not None


class Journal:
    """The records of all workspaces, in memory and in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = ensure_private_folder(folder)
        self._records: dict[str, WorkspaceRecord] = {}
        for draft in self._folder.glob(".*"):  # of a process that was killed while it wrote
            draft.unlink()
        for path in sorted(self._folder.glob("*.json")):
            record = _read_record(path)
            if record is not None:
                self._records[record.uid] = record

    def get(self, uid: str) -> WorkspaceRecord | None:
        return self._records.get(uid)

    def require(self, uid: str) -> WorkspaceRecord:
        """Raises LookupError if the workspace is not taken yet."""
        record = self.get(uid)
        if record is None:
            raise LookupError(f"the workspace {uid} is not taken yet")
        return record

    def records(self) -> list[WorkspaceRecord]:
        return list(self._records.values())

    def put(self, record: WorkspaceRecord) -> None:
        """Stores a record durably."""
        if self._records.get(record.uid) == record:
            return
        write_file(self._path(record.uid), msgspec.json.encode(record))
        self._records[record.uid] = record

    def remove(self, uid: str) -> None:
        self._records.pop(uid, None)
        self._path(uid).unlink(missing_ok=True)

    def read_revision(self) -> int:
        """The revision of the server at the last complete list; 0 if it is not known."""
        text = (read_file(self._revision_path) or b"").decode(errors="replace").strip()
        return int(text) if text.isascii() and text.isdecimal() else 0

    def write_revision(self, revision: int) -> None:
        write_file(self._revision_path, str(revision).encode())

    @property
    def _revision_path(self) -> Path:
        return self._folder.with_name("server-revision")

    def _path(self, uid: str) -> Path:
        if not is_valid_uid(uid):
            raise ValueError(f"{uid!r} is not a uid")
        return self._folder / f"{uid}.json"


def _read_record(path: Path) -> WorkspaceRecord | None:
    """None if the disk has damaged the file. Its workspace is then found by its engine, and not deleted."""
    content = read_file(path) or b""
    try:
        record = _decode(content)
    except msgspec.MsgspecError as error:
        damaged = path.with_suffix(".damaged")
        log.error("a record of the journal is damaged", path=str(damaged), error=str(error))
        os.replace(path, damaged)
        return None
    return record if record.uid == path.stem else None
