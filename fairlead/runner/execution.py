"""Calls the engine of a workspace for one task."""

from dataclasses import replace

from fairlead.core.objects import Object
from fairlead.runner.credentials import fetch_credentials
from fairlead.runner.desired import build_spec, parse_source, provider_name
from fairlead.runner.engines.contract import ContainerState, Engine, EngineError, Reason
from fairlead.runner.journal import STOP, UP, TaskRecord, WorkspaceRecord
from fairlead.runner.registry import choose_engine
from fairlead.runner.services import RunnerServices
from fairlead.runner.tasks import RunningTask
from fairlead.runner.template_policy import check_template


async def call_engine(
    services: RunnerServices, running: RunningTask, task: TaskRecord, record: WorkspaceRecord, workspace: Object | None
) -> None:
    """Raises EngineError. Deleting needs neither the object nor the template."""
    engine = services.engines.get(record.engine)
    if task.type != UP:
        if engine is None and record.engine:
            raise _missing_engine(record.engine, services)
        if engine is not None:
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
    source = parse_source(record.source)
    observed = await engine.status(record.uid)
    is_new = bool(record.options.get("recreate") or record.options.get("reset") or record.is_for_other_owner)
    is_build = observed.state is ContainerState.NOT_FOUND or is_new
    if is_build and (shortage := services.disk.find_shortage()):
        raise EngineError(Reason.DISK_FULL, shortage)
    slots = services.slots.builds if is_build else services.slots.starts
    if wait := slots.describe_wait():
        running.note_wait(wait)
    async with slots.hold(f"{record.namespace}/{record.name}"):
        credentials = await fetch_credentials(services, workspace, source, running)
        spec = build_spec(workspace, record, source, credentials)
        await engine.up(replace(spec, installation=services.installation), running)


def _missing_engine(name: str, services: RunnerServices) -> EngineError:
    names = ", ".join(services.engines) or "none"
    message = f'this runner has no engine "{name}", which the template names as its provider; it has: {names}'
    return EngineError(Reason.ENGINE_UNAVAILABLE, message)
