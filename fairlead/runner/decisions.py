"""Which task of a workspace is due. Pure: the same facts give the same decision, however often it is made.

What is wanted comes from the object of the API and from the journal; what is comes from the engine. The server writes
the annotations by which a workspace is asked to sleep, or a user does (`force`); `docs/workspace-sleep.md` has all of
them.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from fairlead.core.backoff import BackoffPolicy
from fairlead.core.clock import parse_rfc3339
from fairlead.core.objects import Object, annotations_of
from fairlead.runner.engines.contract import ContainerState
from fairlead.runner.journal import DELETE, FAILED, RESTORE, RUNNING, STOP, SUCCEEDED, UP, WorkspaceRecord

ORPHAN_RETENTION = timedelta(days=7)
"""How long the data of a workspace is kept that the server does not have, and that was not deleted there."""
RESTORE_RETENTION = timedelta(days=90)
"""The same if the server had been restored from a backup: the workspace may be one that the backup does not have."""
RETRY = BackoffPolicy(first_seconds=5.0, max_seconds=300.0)

PREFIX = "sleepmode.service.sh/"
FORCE, FORCE_DURATION = f"{PREFIX}force", f"{PREFIX}force-duration"
SLEEP_TYPE, SLEEPING_SINCE = f"{PREFIX}sleep-type", f"{PREFIX}sleeping-since"
INACTIVITY_SLEEP, SCHEDULED_SLEEP = "inactivitySleep", "scheduledSleep"
FORCED_SLEEP, FORCED_DURATION_SLEEP = "forcedSleep", "forcedDurationSleep"
SLEEP_TYPES = frozenset({INACTIVITY_SLEEP, SCHEDULED_SLEEP, FORCED_SLEEP, FORCED_DURATION_SLEEP})

ACTIVE, IDLE, UNKNOWN = "Active", "Idle", "Unknown"
"""States of `status.activity`."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the object of the API says. Without an object, the workspace is an orphan."""

    exists: bool = True
    is_deleting: bool = False
    is_asleep: bool = False
    sleep_type: str = ""
    """Why it is to sleep, as in its annotation `sleep-type`."""
    is_template_resolved: bool = True
    template_problem: str = ""
    """Why the template cannot be resolved, if the server says so."""
    template_hash: str = ""
    """Of what needs a new container when it changes."""
    owner: str = ""

    @property
    def is_forced(self) -> bool:
        """Whether a user requested the sleep."""
        return self.sleep_type.startswith("forced")


def due_task(
    wanted: Wanted, record: WorkspaceRecord, state: ContainerState, now: datetime, retention: timedelta | None = None
) -> str:
    """The type of the task that is due; empty if none is. `retention` is how long the data of orphans is kept."""
    is_active = state in (ContainerState.RUNNING, ContainerState.BUSY)
    if wanted.is_deleting or _is_requested(record, DELETE):
        return DELETE if state is not ContainerState.NOT_FOUND or _may_have_leftovers(record) else ""
    if not wanted.exists:
        if state is ContainerState.NOT_FOUND:  # nothing of a user's, but maybe what an `up` left that failed early
            return DELETE if _may_have_leftovers(record) else ""
        if (end := retention_end(record, retention)) is not None and now >= end:
            return DELETE
        return STOP if is_active else ""
    if wanted.is_asleep or record.is_stopped:
        return STOP if is_active else ""
    if _is_requested(record, RESTORE):
        return RESTORE
    return UP if record.is_up_due and wanted.is_template_resolved else ""


def is_waiting_for_template(wanted: Wanted, record: WorkspaceRecord) -> bool:
    """Whether an `up` is due that cannot begin before the server has resolved the template."""
    is_wanted = wanted.exists and not wanted.is_deleting and not wanted.is_asleep and not record.is_stopped
    return is_wanted and record.is_up_due and not wanted.is_template_resolved


def has_new_owner(wanted: Wanted, record: WorkspaceRecord | None) -> bool:
    """Whether the workspace has been given to another user or team since it was looked at last."""
    return wanted.exists and record is not None and bool(record.owner) and record.owner != wanted.owner


def must_cancel(type: str, wanted: Wanted, record: WorkspaceRecord) -> bool:
    """Whether a task under way must end for another one: a deletion ends all others, and a stop or sleep an `up`
    and a restore."""
    if type == DELETE:
        return False
    if wanted.is_deleting or _is_requested(record, DELETE):
        return True
    return type in (UP, RESTORE) and (not wanted.exists or wanted.is_asleep or record.is_stopped)


def retry_delay(record: WorkspaceRecord, type: str) -> float:
    """Seconds before a task of this type is tried again, by the number of failures in a row. An `up` is not retried: it
    fails once, and waits for the next request."""
    failures = 0
    for task in reversed(record.tasks):
        if (task.type, task.status) != (type, FAILED):
            break
        failures += 1
    return 0.0 if type == UP else RETRY.delay(failures)


def _may_have_leftovers(record: WorkspaceRecord) -> bool:
    """Whether the engine may have something of it although it does not show it: an `up` had begun, or the engine lists
    a workspace that the journal does not know."""
    for task in reversed(record.tasks):
        if (task.type, task.status) == (DELETE, SUCCEEDED):
            return False
        if task.type == UP and task.attempts:
            return True
    return bool(record.engine)


def _is_requested(record: WorkspaceRecord, type: str) -> bool:
    """Whether the last task is of this type and has not ended."""
    task = record.last_task
    return task is not None and (task.type, task.status) == (type, RUNNING)


def retention_end(record: WorkspaceRecord, retention: timedelta | None = None) -> datetime | None:
    """When the data of an orphan is removed; None if it is none."""
    since = parse_rfc3339(record.orphaned_at)
    if since is None:
        return None
    duration = ORPHAN_RETENTION if retention is None else retention
    return since + (max(duration, RESTORE_RETENTION) if record.is_lost_in_restore else duration)


def sleep_type_of(workspace: Object) -> str:
    """Why the workspace is to sleep; empty if it is to be awake."""
    notes = annotations_of(workspace)
    if notes.get(FORCE) == "true":
        return FORCED_DURATION_SLEEP if (notes.get(FORCE_DURATION) or "0").strip("0") else FORCED_SLEEP
    # A forced sleep ends when the server has removed its type, not before: that write is checked against quotas.
    found = notes.get(SLEEP_TYPE) or ""
    return found if found in SLEEP_TYPES else ""


def sleeping_since(workspace: Object) -> str:
    """Identifies a decision to sleep."""
    return annotations_of(workspace).get(SLEEPING_SINCE) or ""
