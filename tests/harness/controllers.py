"""Running controllers during a test."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fairlead.controllers.runtime.loop import Controller, run_controllers
from tests.harness.registry import RegistryFixture


@asynccontextmanager
async def running_controllers(api: RegistryFixture, *controllers: Controller) -> AsyncIterator[None]:
    """Runs the controllers in the background. If one of them fails, so does the test."""
    task = asyncio.create_task(run_controllers(controllers, api.view, api.clock))
    try:
        yield
    finally:
        task.cancel()
        (outcome,) = await asyncio.gather(task, return_exceptions=True)
        if isinstance(outcome, Exception):
            raise outcome
