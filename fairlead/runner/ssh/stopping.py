"""Whether a process has ended because its workspace has stopped, so that its user gets to know why."""

import asyncio

from fairlead.runner.engines.contract import ContainerState, Engine, EngineError

RUNNING_STATES = (ContainerState.RUNNING, ContainerState.BUSY)
MESSAGE = "the workspace has stopped"
KILLED = 137
CHECKS, CHECK_SECONDS = 10, 0.1


async def is_running(engine: Engine, uid: str) -> bool:
    try:
        return (await engine.status(uid)).state in RUNNING_STATES
    except EngineError:
        return False


async def has_stopped(engine: Engine, uid: str, code: int) -> bool:
    """After a process has ended with this exit code. When a container stops, its first process ends after the others,
    so one that was killed may have ended a moment too early."""
    for _ in range(CHECKS if code == KILLED else 1):
        if not await is_running(engine, uid):
            return True
        if code == KILLED:
            await asyncio.sleep(CHECK_SECONDS)
    return False
