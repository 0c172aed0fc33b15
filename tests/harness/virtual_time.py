"""An event loop on virtual time: when no task is ready, its clock advances to the next timer.

Sleeps of seconds or hours end at once and in the right order, and a test that would wait for ever fails immediately.
Only for code on one loop: the clock does not wait for work in other threads.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Any

EPOCH = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class StuckError(Exception):
    """Every task waits, and no timer or event can wake one."""


class _AdvancingSelector(selectors.SelectSelector):
    def __init__(self, advance: Callable[[float], None]) -> None:
        super().__init__()
        self._advance = advance

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise StuckError("every task waits, and nothing is scheduled that could wake one")
        self._advance(timeout)
        return []


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._virtual_now = 0.0
        super().__init__(_AdvancingSelector(self._advance))

    def time(self) -> float:
        return self._virtual_now

    def _advance(self, seconds: float) -> None:
        self._virtual_now += seconds


class LoopClock:
    """The clock of the running loop, for code that is handed a clock."""

    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


def on_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Runs one asynchronous test on virtual time, where the tests around it are not."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            runner.run(test(*args, **kwargs))

    return run


def virtual_time_only(*_: Any, **__: Any) -> dict[str, type[VirtualTimeLoop]]:
    """Imported as `pytest_asyncio_loop_factories` in a conftest, runs all tests of its folder on virtual time."""
    return {"virtual": VirtualTimeLoop}
