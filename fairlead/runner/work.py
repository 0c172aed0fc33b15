"""The task under way of one workspace: starts it, stores each step before the engine acts in it, and stores its end.

A task that ends with the process is not stored as ended: the next process goes on with it under its ID.
"""

import asyncio
import dataclasses
from collections.abc import Callable

import structlog
from msgspec.structs import replace

from fairlead.core.clock import timestamp
from fairlead.core.objects import Object
from fairlead.core.workspaces import SNAPSHOT
from fairlead.runner.credentials import fetch_credentials
from fairlead.runner.desired import build_spec, choose_source, parse_source, provider_name
from fairlead.runner.engines.contract import (
    COMMANDS_STEP,
    ContainerState,
    Engine,
    EngineError,
    Reason,
    SnapshotEngine,
)
from fairlead.runner.journal import DELETE, FAILED, RESTORE, RUNNING, STOP, SUCCEEDED, UP, TaskRecord, WorkspaceRecord
from fairlead.runner.registry import choose_engine
from fairlead.runner.services import Claimant, RunnerServices
from fairlead.runner.status import describe_failure
from fairlead.runner.tasks import ERROR, INFO, MessageLog, RunningTask, new_task_id
from fairlead.runner.template_policy import check_template, find_engine

log = structlog.get_logger(__name__)

MAX_ATTEMPTS = 10
"""A task that this many processes of the runner did not survive has failed: it may be what ends them."""
CANCELLED, RUNNER_RESTARTED, INTERNAL_ERROR = "Cancelled", "RunnerRestarted", "InternalError"
REPLACED_MESSAGE = "another task took its place"
ONE_TIME_OPTIONS = ("recreate", "reset", SNAPSHOT)


class TaskWork:
    """At most one task at a time. `on_change` is called at each step and at the end."""

    def __init__(self, uid: str, services: RunnerServices, on_change: Callable[[], None]) -> None:
        self._uid = uid
        self._services = services
        self._on_change = on_change
        self._work: asyncio.Task[None] | None = None
        self._running: RunningTask | None = None
        self._type = ""
        self._owner = ""
        self._step = ""

    @property
    def is_busy(self) -> bool:
        return self._work is not None

    @property
    def task_id(self) -> str:
        """The task under way; empty if there is none."""
        return self._running.task_id if self._running is not None else ""

    @property
    def type(self) -> str:
        """The type of the last task that was started."""
        return self._type

    @property
    def step(self) -> str:
        """What the task under way does; empty if there is none."""
        return self._step if self._work is not None else ""

    def start(self, record: WorkspaceRecord, type: str, workspace: Object | None) -> None:
        """Starts a task, or goes on with the last one of the record."""
        task, services = record.last_task, self._services
        if task is None or task.status != RUNNING:
            task = TaskRecord(new_task_id(), type, timestamp(services.clock.now()))
        task = replace(task, attempts=task.attempts + 1)
        record = record.with_task(task)
        if type == UP and workspace is not None:
            engine = record.engine or find_engine(services, workspace)
            record = replace(record, engine=engine, source=choose_source(workspace, record))
        services.journal.put(record)
        self._type, self._owner, self._step = type, record.owner, task.step
        task_log = services.logs.open(self._uid, task.id)
        self._running = RunningTask(task.id, task_log, services.clock, self._note_step)
        if task.attempts > 1:
            self._running.log_message(f"the runner was restarted; going on with this task ({task.attempts})")
        self._work = asyncio.create_task(self._execute(self._running, task, record, workspace))

    def cancel(self) -> None:
        """Another task takes its place, or a user has cancelled it."""
        if self._running is not None and self._work is not None:
            self._running.mark_cancelled()
            self._work.cancel()

    async def abandon(self) -> None:
        """The process ends: the task is left to the next one, so it is not marked as cancelled."""
        if self._work is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)

    def end(self, task: TaskRecord, status: str, reason: str = "", message: str = "") -> TaskRecord:
        """The task as ended. The log of one that nothing works on says so, and is complete."""
        ended_at = timestamp(self._services.clock.now())
        ended = replace(task, status=status, reason=reason, message=message, ended_at=ended_at)
        if self.task_id != task.id:
            task_log = self._services.logs.get(self._uid, task.id)
            MessageLog(task_log, self._services.clock).log_message(*_describe_end(ended))
            task_log.close()
        return ended

    async def _execute(
        self, running: RunningTask, task: TaskRecord, record: WorkspaceRecord, workspace: Object | None
    ) -> None:
        """Runs a task to its end, and stores how it ended. A cancellation without a successor stores nothing."""
        ended: TaskRecord | None = None
        try:
            if task.attempts > MAX_ATTEMPTS:
                message = f"the runner ended {MAX_ATTEMPTS} times during this task"
                raise EngineError(RUNNER_RESTARTED, message, task.step)
            await call_engine(self._services, running, task, record, workspace)
            ended = self.end(task, SUCCEEDED)
        except EngineError as error:
            message = running.conceal(describe_failure(error.message, error.step))
            ended = self.end(task, FAILED, str(error.reason), message)
        except asyncio.CancelledError:
            if running.is_cancelled:
                ended = self.end(task, FAILED, CANCELLED, REPLACED_MESSAGE)
            raise
        except Exception as error:  # a fault of an engine ends its task, not the runner
            log.error("an engine failed unexpectedly", uid=self._uid, task=task.id, exc_info=error)
            ended = self.end(task, FAILED, INTERNAL_ERROR, f"the engine failed unexpectedly: {type(error).__name__}")
        finally:
            self._work = self._running = None
            running.end_output()
            if ended is not None:
                self._finish(ended, running)
            self._on_change()

    def _note_step(self, step: str) -> None:
        """Stores the step before the engine acts in it."""
        self._step, record = step, self._services.journal.get(self._uid)
        task = record.find_task(self.task_id) if record is not None else None
        if record is not None and task is not None:
            self._services.journal.put(record.with_task(replace(task, step=step)))
        self._on_change()

    def _finish(self, ended: TaskRecord, running: RunningTask) -> None:
        """Stores the end of a task together with what follows from it."""
        record = self._services.journal.require(self._uid)
        options, found = record.options, record.find_task(ended.id)
        record = record.with_task(replace(ended, step=found.step if found else ""))
        if ended.type == UP:  # what comes up by itself later, as after a reboot, must not delete anything
            remembered = {name: each for name, each in options.items() if name not in ONE_TIME_OPTIONS}
            record = replace(record, options=remembered, is_template_requested=False)
        if ended.type == UP and ended.reason != CANCELLED:
            record = replace(record, is_up_due=False)
        if (ended.type, ended.status) == (UP, SUCCEEDED):
            # If the owner has changed meanwhile, the container is that of the former one.
            is_for_other_owner = record.is_for_other_owner and record.owner != self._owner
            record = replace(record, is_for_other_owner=is_for_other_owner, host_boot=self._services.host_boot)
        if (ended.type, ended.status) == (DELETE, SUCCEEDED):
            record = replace(record, is_for_other_owner=False, source="", host_boot="")
        running.log_message(*_describe_end(ended))
        self._services.journal.put(record)
        self._services.logs.get(self._uid, ended.id).close()
        self._services.logs.prune(self._uid, (task.id for task in record.tasks))


def _describe_end(task: TaskRecord) -> tuple[str, str]:
    """The last line of the log of a task, and its level."""
    if task.status == FAILED:
        return f"{task.type} failed: {task.message}", ERROR
    return f"{task.type} succeeded", INFO


# --- the call of the engine -------------------------------------------------------------------------------------------


async def call_engine(
    services: RunnerServices, running: RunningTask, task: TaskRecord, record: WorkspaceRecord, workspace: Object | None
) -> None:
    """Raises EngineError. Deleting needs neither the object nor the template."""
    engine = services.engines.get(record.engine)
    if task.type != UP:
        if engine is None and record.engine:
            raise _missing_engine(record.engine, services)
        if engine is not None and task.type == RESTORE:
            await require_snapshots(engine).restore(record.uid, task.snapshot, task.path, running)
        elif engine is not None:
            await (engine.stop if task.type == STOP else engine.delete)(record.uid, running)
        return
    if workspace is not None:
        named = choose_engine(provider_name(workspace), services.engines)
        check_template(services, workspace, record.engine or named)
    if engine is None or workspace is None:
        raise _missing_engine(record.engine or provider_name(workspace or {}), services)
    # What an earlier process began goes on at once. The template may have changed since, which applies at the next up.
    if task.attempts > 1 and await engine.adopt(record.uid, running):
        return
    await _bring_up(services, engine, running, record, workspace)


async def _bring_up(
    services: RunnerServices, engine: Engine, running: RunningTask, record: WorkspaceRecord, workspace: Object
) -> None:
    if record.options.get(SNAPSHOT):
        require_snapshots(engine)
    source = parse_source(record.source)
    observed = await engine.status(record.uid)
    if record.is_for_other_owner and observed.state in (ContainerState.RUNNING, ContainerState.BUSY):
        # What follows may wait, or fail: until then, nothing of the former owner is to run for the new one.
        await engine.stop(record.uid, running)
    is_new = bool(record.options.get("recreate") or record.options.get("reset") or record.is_for_other_owner)
    is_build = observed.state is ContainerState.NOT_FOUND or is_new
    if is_build and (shortage := services.disk.find_shortage()):
        raise EngineError(Reason.DISK_FULL, shortage)
    slots = services.slots.builds if is_build else services.slots.starts
    claimant = Claimant(owner=record.owner, project=record.namespace)
    if wait := slots.describe_wait(claimant):
        running.note_wait(wait)
    async with slots.hold(claimant) as slot:
        # Commands of the repository may take as long as they like, and have the limits of the workspace.
        running.call_at(COMMANDS_STEP, slot.release)
        credentials = await fetch_credentials(services, workspace, source, running)
        spec = build_spec(workspace, record, source, credentials)
        await engine.up(dataclasses.replace(spec, installation=services.installation), running)


def require_snapshots(engine: Engine) -> SnapshotEngine:
    """The engine, if it is one with snapshots. Raises EngineError."""
    if not isinstance(engine, SnapshotEngine):
        raise EngineError(Reason.SNAPSHOT_FAILED, f"the engine {engine.name} has no snapshots")
    return engine


def _missing_engine(name: str, services: RunnerServices) -> EngineError:
    names = ", ".join(services.engines) or "none"
    message = f'this runner has no engine "{name}", which the template names as its provider; it has: {names}'
    return EngineError(Reason.ENGINE_UNAVAILABLE, message)
