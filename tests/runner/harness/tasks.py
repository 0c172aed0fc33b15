"""A task for engines, as the runner would run it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from fairlead.runner.engines.contract import EngineError, Reason


@dataclass(slots=True)
class RecordedTask:
    """Keeps the log and the names of the steps."""

    task_id: str = "task-1"
    is_cancelled: bool = False
    steps: list[str] = field(default_factory=list)
    output: bytearray = field(default_factory=bytearray)
    entered: dict[str, asyncio.Event] = field(default_factory=dict)
    on_step: Callable[[str], None] | None = None

    @asynccontextmanager
    async def step(self, name: str, seconds: float) -> AsyncIterator[None]:
        self.steps.append(name)
        if self.on_step is not None:
            self.on_step(name)
        self.entered.setdefault(name, asyncio.Event()).set()
        try:
            async with asyncio.timeout(seconds) as deadline:
                watcher = asyncio.get_running_loop().call_later(seconds, self._note_timeout)
                try:
                    yield
                finally:
                    watcher.cancel()
        except TimeoutError as error:
            if not deadline.expired():
                raise
            self.is_cancelled = False
            raise EngineError(Reason.STEP_TIMED_OUT, f"took longer than {seconds:g} seconds", name) from error
        except EngineError as error:
            error.step = error.step or name
            raise

    def log(self, data: bytes) -> None:
        self.output += data

    async def wait_for_step(self, name: str) -> None:
        await self.entered.setdefault(name, asyncio.Event()).wait()

    @property
    def text(self) -> str:
        return self.output.decode(errors="replace")

    def _note_timeout(self) -> None:
        self.is_cancelled = True
