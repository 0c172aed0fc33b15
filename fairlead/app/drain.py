"""The time between the request to stop and the stop itself, in which the server goes on serving.

`/readyz` fails meanwhile, so that load balancers send new requests to other replicas before this one closes its port.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog

from fairlead.core.errors import Unavailable
from fairlead.core.waiting import background_task

log = structlog.get_logger(__name__)


class Drain:
    """`stopped` is set when the server has to stop: after the drain, or at once if it cannot serve any longer."""

    def __init__(self) -> None:
        self.stopped = asyncio.Event()
        self.is_ready = False
        """Whether the server has announced that it is ready. One that still starts has no clients to wait for."""
        self._is_draining = False

    async def check(self) -> None:
        """The /readyz check `shutdown`."""
        if self._is_draining:
            raise Unavailable("the server is shutting down")

    async def run(self, requested: asyncio.Event, seconds: float) -> None:
        await requested.wait()
        if self.is_ready and seconds:
            self._is_draining = True
            log.info("the server will stop; /readyz fails from now on", seconds=seconds)
            await asyncio.sleep(seconds)
        self.stopped.set()


@asynccontextmanager
async def drain_before_stop(requested: asyncio.Event, seconds: float) -> AsyncIterator[Drain]:
    drain = Drain()
    async with background_task(drain.run(requested, seconds), "drain before the stop"):
        yield drain
