"""One workspace: compares what is wanted with what is, and runs one task at a time until both agree.

It is level-triggered. Requests, changes of the object and a restart of the process only change what is known; what is
due follows from that. A task that the journal has as running, and that no process works on, was requested or left
behind by an earlier process: it goes on under its ID.
"""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import structlog
from msgspec.structs import replace

from fairlead.client import ClientError
from fairlead.core.clock import parse_rfc3339, timestamp
from fairlead.core.objects import Object, get_path, metadata
from fairlead.core.waiting import Signal
from fairlead.core.workspaces import KEEP_CONTAINER, list_former_runners
from fairlead.runner.answers import parse_revision
from fairlead.runner.api import is_gone
from fairlead.runner.decisions import (
    FORCE,
    Wanted,
    due_task,
    has_new_owner,
    is_waiting_for_template,
    must_cancel,
    retry_delay,
)
from fairlead.runner.desired import provider_name, read_wanted, requested_up
from fairlead.runner.engines.contract import ContainerState, EngineError, EngineStatus, Reason
from fairlead.runner.journal import (
    DELETE,
    FAILED,
    RESTORE,
    RUNNING,
    STOP,
    SUCCEEDED,
    UP,
    TaskRecord,
    WorkspaceRecord,
)
from fairlead.runner.registry import choose_engine
from fairlead.runner.services import RunnerServices
from fairlead.runner.status import (
    MIN_SECONDS,
    TASK_SUCCEEDED,
    TEMPLATE_APPLIED,
    Report,
    build_report,
    find_condition,
    has_changed_noticeably,
)
from fairlead.runner.tasks import new_task_id
from fairlead.runner.work import CANCELLED, ONE_TIME_OPTIONS, REPLACED_MESSAGE, TaskWork

log = structlog.get_logger(__name__)

POLL_SECONDS = 10.0
VERSION_POLLS, VERSION_POLL_SECONDS = 100, 0.05
RETRY_SECONDS = 5.0
OWNER_CHANGED = "OwnerChanged"
ASLEEP, TEMPLATE_UNAVAILABLE, TOO_MANY_TASKS = "Asleep", "TemplateUnavailable", "TooManyTasks"
UNDER_WAY = "UnderWay"
MAX_UNFINISHED_TASKS = 16
"""Requests that wait for a task that does not end. Each has a log, and a place in the journal."""
ASLEEP_MESSAGE = f"the workspace sleeps on request; it comes up when the annotation {FORCE} is removed"
WAITING_MESSAGE = "waiting for the server to resolve its template"
OWNER_OPTIONS = ("workspaceEnv",)
"""Options of `up` that belong to the owner."""
CONTAINER_OPTIONS = ("workspaceEnv", "devContainerPath")
"""Options of `up` for the container that it creates."""
NOTHING = EngineStatus(ContainerState.NOT_FOUND)


class WorkspaceReconciler:
    """The workspace with one uid. `run` is its only worker."""

    def __init__(self, uid: str, services: RunnerServices) -> None:
        self.uid = uid
        self._services = services
        self._object: Object | None = None
        self._changed = Signal()
        self._work = TaskWork(uid, services, self._changed.wake)
        self._usage_reported_at: float | None = None

    # --- what others say -------------------------------------------------------------------------------------------

    def observe(self, workspace: Object) -> None:
        """The object of the API, new or changed."""
        self._object = workspace
        self._changed.wake()

    def observe_missing(self, engine: str = "", *, is_restored: bool = False) -> None:
        """The server does not have the workspace. `engine` is the one that has something of it, if that is known.
        `is_restored`: the server has been restored from a backup."""
        record = self.record or WorkspaceRecord(self.uid, "", "", engine)
        if is_restored and not record.orphaned_at:
            record = replace(record, is_lost_in_restore=True)
        if record is not self.record:
            self._save(record)
        self._object = None
        self._changed.wake()

    @property
    def record(self) -> WorkspaceRecord | None:
        return self._services.journal.get(self.uid)

    @property
    def workspace(self) -> Object | None:
        return self._object

    @property
    def is_busy(self) -> bool:
        """Whether a task is under way."""
        return self._work.is_busy

    async def wait_for_version(self, version: str) -> None:
        """Waits until the object is at least as new, but not for long: an `up` that wakes a workspace may be faster
        than the watch."""
        for _ in range(VERSION_POLLS):
            if self._object is None:
                return
            if parse_revision(metadata(self._object).get("resourceVersion")) >= parse_revision(version):
                return
            await asyncio.sleep(VERSION_POLL_SECONDS)

    def store_client_state(self, state: str) -> None:
        self._save(replace(self._require_record(), client_state=state))

    def request_up(self, options: Mapping[str, Any], user: str = "") -> str:
        """Requests an `up`, and returns the ID of its task. It joins one that is under way, unless that does not do
        what is asked for: then it raises EngineError."""
        record = self._require_record()
        task = record.last_task
        if task is not None and (task.type, task.status) == (UP, RUNNING):
            if difference := self._find_difference(record, options):
                message = f"another `up` is under way, {difference}; wait until it has ended"
                raise EngineError(UNDER_WAY, message)
            return task.id
        given = {name: each for name, each in options.items() if name != KEEP_CONTAINER}
        remembered = {name: each for name, each in record.options.items() if name not in ONE_TIME_OPTIONS}
        record = replace(
            record,
            is_up_due=True,
            is_stopped=False,
            is_template_requested=not options.get(KEEP_CONTAINER),
            options={**remembered, **given},
        )
        return self._request(record, UP, user)

    def _find_difference(self, record: WorkspaceRecord, options: Mapping[str, Any]) -> str:
        """What the `up` under way does not do that these options ask for; empty if there is nothing."""
        names = (*ONE_TIME_OPTIONS, *CONTAINER_OPTIONS, *(("source",) if options.get("reset") else ()))
        for name in names:
            if options.get(name) and options.get(name) != record.options.get(name):
                return f"with another {name}" if record.options.get(name) else f"without {name}"
        applied = find_condition(self._object or {}, TEMPLATE_APPLIED)
        if applied.get("status") == "False" and not record.is_template_requested and not options.get(KEEP_CONTAINER):
            return "which keeps the container although the template has changed"
        return ""

    def request_restore(self, snapshot: str, path: str, user: str = "") -> str:
        """Requests a restore, and returns the ID of its task. It changes nothing of what is wanted, and is for what
        runs now. So it waits for no other task: raises EngineError while one is under way."""
        record = self._require_record()
        if record.is_for_other_owner:
            message = "the owner has changed, and snapshots are not for the new one; run `up` first"
            raise EngineError(OWNER_CHANGED, message)
        unfinished = next((each for each in record.tasks if each.status == RUNNING), None)
        if unfinished is not None:
            raise EngineError(UNDER_WAY, f"another task ({unfinished.type}) is under way; wait until it has ended")
        now = timestamp(self._services.clock.now())
        return self._add(record, TaskRecord(new_task_id(), RESTORE, now, user=user, snapshot=snapshot, path=path))

    def request_stop(self, user: str = "") -> str:
        return self._request(replace(self._require_record(), is_up_due=False, is_stopped=True), STOP, user)

    def request_delete(self, user: str = "") -> str:
        """Removes what the engine has. The object of the API stays."""
        return self._request(replace(self._require_record(), is_up_due=False, is_stopped=True), DELETE, user)

    def request_retain(self) -> None:
        """The time for which an orphan is kept begins anew."""
        self._save(replace(self._require_record(), orphaned_at=timestamp(self._services.clock.now())))

    def request_discard(self) -> None:
        """Removes what there is of a workspace that another runner has now, however often that takes."""
        self._save(replace(self._require_record(), is_deletion_requested=True))
        self._changed.wake()

    def request_cancel(self, task_id: str) -> bool:
        """Cancels a task that has not ended. Returns whether there is such a task."""
        record = self._require_record()
        task = record.find_task(task_id)
        if task is None or task.status != RUNNING:
            return False
        if self._work.task_id == task_id:
            self._save(replace(record, is_up_due=False))
            self._work.cancel()
        else:
            record = replace(record, is_up_due=False)
            self._save(record.with_task(self._work.end(task, FAILED, CANCELLED, "cancelled on request")))
            self._changed.wake()
        return True

    def _request(self, record: WorkspaceRecord, type: str, user: str) -> str:
        task = record.last_task
        if task is None or (task.type, task.status) != (type, RUNNING):
            if sum(each.status == RUNNING for each in record.tasks) >= MAX_UNFINISHED_TASKS:
                message = f"{MAX_UNFINISHED_TASKS} tasks of this workspace have not ended; wait until one has"
                raise EngineError(TOO_MANY_TASKS, message)
            task = TaskRecord(new_task_id(), type, timestamp(self._services.clock.now()), user=user)
        return self._add(record, task)

    def _add(self, record: WorkspaceRecord, task: TaskRecord) -> str:
        self._services.logs.open(self.uid, task.id)
        self._save(record.with_task(task))
        self._changed.wake()
        return task.id

    # --- the worker ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Ends when nothing is left of the workspace. Raises Replaced."""
        try:
            while True:
                self._changed.clear()
                delay = await self._reconcile()
                if delay is None:
                    return
                await self._changed.wait(delay)
        finally:
            await self._work.abandon()

    async def _reconcile(self) -> float | None:
        """Returns the seconds after which to look again; None if nothing is left to do for ever."""
        if self._object is not None and get_path(self._object, "status.ignoreReconciliation"):
            return POLL_SECONDS  # it is being moved to another project
        wanted = self._read_wanted()
        is_transferred = has_new_owner(wanted, self.record)
        record = self._update_record(wanted)
        if is_transferred:
            await self._record_owner_change()
        if self._work.is_busy:
            # Also if an `up` for the new owner is requested.
            is_for_former = is_transferred and self._work.type in (UP, RESTORE)
            if is_for_former or must_cancel(self._work.type, wanted, record):
                self._work.cancel()
            return await self._report(wanted, record, None)
        try:
            observed = await self._observe_engine(record)
        except EngineError as error:
            log.warning("the state of a workspace is unknown", uid=self.uid, error=error.message)
            return POLL_SECONDS
        if self._object is not None and has_new_owner(read_wanted(self._object), self.record):
            return 0.0  # since the engine was asked: what was requested meanwhile must not have the former container
        record = self._note_reboot(self._require_record(), wanted, observed)  # requests may have changed it meanwhile
        now, retention = self._services.clock.now(), self._services.orphan_retention
        due = due_task(wanted, record, observed.state, now, retention)
        record = self._settle_unfinished(record, due, wanted)
        if due and (delay := self._remaining_delay(record, due)):
            await self._report(wanted, record, observed)
            return delay
        if due:
            self._work.start(record, due, self._object)
            return await self._report(wanted, self._require_record(), observed)
        if not wanted.exists and observed.state is ContainerState.NOT_FOUND:
            self._forget()
            return None
        return await self._report(wanted, record, observed)

    def _read_wanted(self) -> Wanted:
        if self._object is not None:
            return self._services.activity.review(self.uid, self._object, read_wanted(self._object))
        record = self.record
        return Wanted(exists=False, is_deleting=record is not None and record.is_deletion_requested)

    def _update_record(self, wanted: Wanted) -> WorkspaceRecord:
        """Stores what the object says and what must not be forgotten."""
        if self._object is None:
            record = self._require_record()
            if not record.orphaned_at:
                record = replace(record, orphaned_at=timestamp(self._services.clock.now()))
                if not wanted.is_deleting:
                    log.warning("the server does not have a workspace", uid=self.uid, name=record.name)
                self._save(record)
            return record
        meta = metadata(self._object)
        record = self.record or self._take(self._object)
        record = replace(
            record,
            namespace=meta["namespace"],
            name=meta["name"],
            orphaned_at="",
            is_lost_in_restore=False,
            is_deletion_requested=wanted.is_deleting,
        )
        record = _change_owner(record, wanted) if has_new_owner(wanted, record) else replace(record, owner=wanted.owner)
        requested = requested_up(self._object)
        if requested and requested != record.handled_request and not wanted.is_deleting:
            self._save(replace(record, handled_request=requested))
            self.request_up({}, "")
            return self._require_record()
        self._save(record)
        return record

    def _take(self, workspace: Object) -> WorkspaceRecord:
        """A first record. If the workspace was started before, the journal is lost, or this is another machine than the
        one that has its data: then its engine is asked, and earlier requests are not repeated. But what its status says
        of one that was moved here is of the runner before, and the request for its `up` is for this one."""
        record = WorkspaceRecord(self.uid, metadata(workspace)["namespace"], metadata(workspace)["name"])
        is_started = get_path(workspace, "status.lastWorkspaceStatus") in ("Running", "Stopped", "Busy")
        if not is_started or list_former_runners(workspace):
            return record
        engine = choose_engine(provider_name(workspace), self._services.engines)
        return replace(record, engine=engine, handled_request=requested_up(workspace))

    async def _observe_engine(self, record: WorkspaceRecord) -> EngineStatus:
        engine = self._services.engines.get(record.engine)
        if engine is None and record.engine and self._object is None:
            raise EngineError(Reason.ENGINE_UNAVAILABLE, f"its engine {record.engine} is not enabled")
        return await engine.status(self.uid) if engine is not None else NOTHING

    def _note_reboot(self, record: WorkspaceRecord, wanted: Wanted, observed: EngineStatus) -> WorkspaceRecord:
        """What ran before a reboot of the machine, or before a sleep, comes up again."""
        was_running = record.host_boot and not record.is_stopped and wanted.exists
        rebooted = was_running and record.host_boot != self._services.host_boot
        fell_asleep = was_running and wanted.is_asleep and observed.state is ContainerState.RUNNING
        if (rebooted and observed.state is ContainerState.STOPPED) or fell_asleep:
            record = replace(record, is_up_due=True, host_boot=self._services.host_boot)
            self._save(record)
        return record

    def _settle_unfinished(self, record: WorkspaceRecord, due: str, wanted: Wanted) -> WorkspaceRecord:
        """Ends tasks that nothing works on, unless the last one is what is due, or waits for its template."""
        before, is_waiting = record, is_waiting_for_template(wanted, record)
        for task in record.tasks:
            is_last = task is record.last_task
            if task.status != RUNNING or (is_last and task.type == due):
                continue
            if task.type == UP and is_last and is_waiting:
                if wanted.template_problem:
                    ended = self._work.end(task, FAILED, TEMPLATE_UNAVAILABLE, wanted.template_problem)
                    record = replace(record.with_task(ended), is_up_due=False)
                continue
            if task.type in (STOP, DELETE) and not due:  # what it was to reach is so already
                record = record.with_task(self._work.end(task, SUCCEEDED))
            elif task.type == UP and wanted.is_asleep:
                record = record.with_task(self._work.end(task, FAILED, ASLEEP, ASLEEP_MESSAGE))
            else:
                record = record.with_task(self._work.end(task, FAILED, CANCELLED, REPLACED_MESSAGE))
        if record != before:
            self._save(record)
            self._services.logs.prune(self.uid, (task.id for task in record.tasks))
        return record

    def _remaining_delay(self, record: WorkspaceRecord, due: str) -> float:
        """Seconds until a failed task may be tried again."""
        task = record.last_task
        if task is None or task.status != FAILED or task.type != due:
            return 0.0
        from_end = self._services.clock.now() - _parse(task.ended_at)
        return max(0.0, retry_delay(record, due) - from_end.total_seconds())

    # --- reports ---------------------------------------------------------------------------------------------------

    async def _record_owner_change(self) -> None:
        message = (
            "the owner has changed: it is stopped, and the next `up` creates a new container with other credentials"
        )
        if self._object is not None:
            try:
                await self._services.api.record_event(self._object, OWNER_CHANGED, message, "Normal")
            except ClientError as error:
                log.warning("an Event could not be recorded", uid=self.uid, error=str(error))

    async def _report(self, wanted: Wanted, record: WorkspaceRecord, observed: EngineStatus | None) -> float:
        """Writes the status if it differs. Returns the seconds after which to look again."""
        workspace = self._object
        if workspace is None or not (wanted.is_template_resolved or record.tasks or wanted.is_deleting):
            return POLL_SECONDS
        waiting = WAITING_MESSAGE if is_waiting_for_template(wanted, record) else ""
        report = build_report(wanted, record, observed, self._work.step or waiting)
        if not report.differs_from(workspace) and not self._is_usage_due(workspace, report):
            return POLL_SECONDS
        try:
            await self._services.fence.require_current()
            patch = report.patch(workspace, timestamp(self._services.clock.now()))
            patched = await self._services.api.patch_workspace(workspace, patch)
            self._usage_reported_at = self._services.clock.monotonic()
            if self._object is workspace:
                self._object = patched
            await self._record_task_end(workspace, patched, record)
        except ClientError as error:
            if not is_gone(error):
                log.warning("a status could not be reported", uid=self.uid, error=str(error))
            return RETRY_SECONDS
        return POLL_SECONDS

    async def _record_task_end(self, before: Object, after: Object, record: WorkspaceRecord) -> None:
        """Records an Event if the last task has ended between two versions of the workspace. Raises ClientError."""
        task = record.last_task
        if task is None or task.status == RUNNING or "deletionTimestamp" in metadata(after):
            return
        reason = str(find_condition(after, TASK_SUCCEEDED).get("reason") or "")
        if reason and reason != find_condition(before, TASK_SUCCEEDED).get("reason"):
            kind = "Warning" if task.status == FAILED else "Normal"
            message = task.message or f"{task.type} succeeded"
            await self._services.api.record_event(after, reason, message, kind)

    def _is_usage_due(self, workspace: Object, report: Report) -> bool:
        if report.usage is None or not has_changed_noticeably(workspace, report.usage):
            return False
        reported_at, now = self._usage_reported_at, self._services.clock.monotonic()
        return reported_at is None or now - reported_at >= MIN_SECONDS

    def _require_record(self) -> WorkspaceRecord:
        return self._services.journal.require(self.uid)

    def _save(self, record: WorkspaceRecord) -> None:
        self._services.journal.put(record)

    def _forget(self) -> None:
        self._services.journal.remove(self.uid)
        self._services.logs.remove(self.uid)


def _change_owner(record: WorkspaceRecord, wanted: Wanted) -> WorkspaceRecord:
    """Nothing that was started for one owner goes on for another: it may know secrets, or pass on those to come."""
    options = {name: each for name, each in record.options.items() if name not in OWNER_OPTIONS}
    return replace(
        record, owner=wanted.owner, is_for_other_owner=True, is_up_due=False, is_stopped=True, options=options
    )


def _parse(text: str) -> datetime:
    return parse_rfc3339(text) or datetime.fromtimestamp(0, UTC)
