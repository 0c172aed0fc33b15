"""Controllers at work in a world, and a way to wait until they have done something."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fairlead.controllers.runtime.loop import Controller, run_controllers
from tests.harness.registry import World


@asynccontextmanager
async def at_work(world: World, *controllers: Controller) -> AsyncIterator[None]:
    """Runs the controllers meanwhile. One that has failed fails the test."""
    task = asyncio.create_task(run_controllers(controllers, world.view, world.clock))
    try:
        yield
    finally:
        task.cancel()
        (outcome,) = await asyncio.gather(task, return_exceptions=True)
        if isinstance(outcome, Exception):
            raise outcome


async def until(holds: Callable[[], object], seconds: float = 120) -> None:
    """Waits until something is so; on virtual time, so that it costs nothing."""
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110  # what is waited for has no event of its own
            await asyncio.sleep(0.05)
