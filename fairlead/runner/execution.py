"""Calls the engine of a workspace for one task."""

from fairlead.core.objects import Object
from fairlead.runner.desired import build_spec, provider_name
from fairlead.runner.engines.contract import ContainerState, Engine, EngineError, Reason, WorkspaceSpec
from fairlead.runner.journal import STOP, UP, TaskRecord, WorkspaceRecord
from fairlead.runner.services import RunnerServices
from fairlead.runner.tasks import RunningTask


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
    if engine is None or workspace is None:
        raise _missing_engine(record.engine or provider_name(workspace or {}), services)
    # What an earlier process began goes on at once. The template may have changed since, which applies at the next up.
    if task.attempts > 1 and await engine.adopt(record.uid, running):
        return
    await _bring_up(services, engine, build_spec(workspace, record, record.source), running)


async def _bring_up(services: RunnerServices, engine: Engine, spec: WorkspaceSpec, running: RunningTask) -> None:
    observed = await engine.status(spec.uid)
    is_build = observed.state is ContainerState.NOT_FOUND or spec.recreate or spec.reset
    slots = services.slots.builds if is_build else services.slots.starts
    if wait := slots.describe_wait():
        running.note_wait(wait)
    async with slots.hold(f"{spec.namespace}/{spec.name}"):
        await engine.up(spec, running)


def _missing_engine(name: str, services: RunnerServices) -> EngineError:
    names = ", ".join(services.engines) or "none"
    message = f'this runner has no engine "{name}", which the template names as its provider; it has: {names}'
    return EngineError(Reason.ENGINE_UNAVAILABLE, message)
