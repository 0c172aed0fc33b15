"""An event loop on virtual time: when nobody has anything to do, its clock leaps to whatever is due next.

What waits for seconds or hours is done at once and in the right order, and a test that would wait for ever fails on
the spot. Only for code that lives on one loop: work in other threads would be leapt over.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Any

EPOCH = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class StuckError(Exception):
    """Every task waits for something that nobody is going to bring about."""


class _LeapingSelector(selectors.SelectSelector):
    def __init__(self, leap: Callable[[float], None]) -> None:
        super().__init__()
        self._leap = leap

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise StuckError("every task waits, and nothing is scheduled that could wake one")
        self._leap(timeout)
        return []


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._virtual_now = 0.0
        super().__init__(_LeapingSelector(self._leap))

    def time(self) -> float:
        return self._virtual_now

    def _leap(self, seconds: float) -> None:
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
    """Under the name `pytest_asyncio_loop_factories` in a conftest, it puts all tests beside that on virtual time."""
    return {"virtual": VirtualTimeLoop}
