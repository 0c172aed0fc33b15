"""A task under way, as engines see it: named steps with deadlines, and a log.

The journal has the step before the engine acts in it. A step that takes too long is cancelled and fails the task with
its name. A task that is cancelled because the process ends is not marked: the next process goes on with it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from uuid import uuid4

from fairlead.core.clock import Clock
from fairlead.runner.engines.contract import EngineError, Reason
from fairlead.runner.log_lines import INFO, MessageLog


def new_task_id() -> str:
    return uuid4().hex


class RunningTask:
    """Implements `TaskContext`. `on_step` is called before each step."""

    def __init__(self, task_id: str, log: MessageLog, clock: Clock, on_step: Callable[[str], None]) -> None:
        self._task_id = task_id
        self._log = log
        self._clock = clock
        self._on_step = on_step
        self._is_cancelled = False
        self._expired_steps = 0

    @property
    def task_id(self) -> str:
        return self._task_id

    @property
    def is_cancelled(self) -> bool:
        return self._is_cancelled or self._expired_steps > 0

    def mark_cancelled(self) -> None:
        """Another task takes the place of this one. To be called before the cancellation."""
        self._is_cancelled = True

    def log(self, data: bytes) -> None:
        self._log.write_output(data)

    def mask(self, secrets: Iterable[str]) -> None:
        """Masks these values in what engines log, whether they mask them or not."""
        self._log.mask(secrets)

    def end_output(self) -> None:
        """Engines log nothing any more."""
        self._log.end_output()

    def log_message(self, message: str, level: str = INFO) -> None:
        """Appends a line of the runner itself."""
        self._log.write(message, level)

    def note_wait(self, what: str) -> None:
        """The task waits for others; this is not a step, and has no deadline."""
        self.log_message(what)
        self._on_step(what)

    @asynccontextmanager
    async def step(self, name: str, seconds: float) -> AsyncIterator[None]:
        self._on_step(name)
        began = self._clock.monotonic()
        self.log_message(f"step {name}")
        async with self._deadline(name, seconds):
            yield
        self.log_message(f"step {name} took {self._clock.monotonic() - began:.1f} s")

    @asynccontextmanager
    async def _deadline(self, name: str, seconds: float) -> AsyncIterator[None]:
        """Like `asyncio.timeout`, but `is_cancelled` is true before the block sees the cancellation."""
        task = asyncio.current_task()
        assert task is not None
        cancelling, has_expired = task.cancelling(), False

        def expire() -> None:
            nonlocal has_expired
            has_expired = True
            self._expired_steps += 1
            task.cancel()

        timer = asyncio.get_running_loop().call_later(seconds, expire)
        try:
            yield
        except asyncio.CancelledError:
            if has_expired and task.uncancel() <= cancelling:
                message = f"step {name} did not end within {seconds:g} s"
                raise EngineError(Reason.STEP_TIMED_OUT, message, name) from None
            raise
        except EngineError as error:
            error.step = error.step or name
            raise
        finally:
            timer.cancel()
            self._expired_steps -= has_expired
