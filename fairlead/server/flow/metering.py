"""How long a request keeps the event loop busy: only its own steps count, not what it waits for in between."""

from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Metered(Generic[T]):
    """Something to await whose steps on the event loop are timed. `note` is told the seconds of each step."""

    __slots__ = ("_awaitable", "_note", "_now", "seconds")

    def __init__(self, awaitable: Awaitable[T], now: Callable[[], float], note: Callable[[float], None]) -> None:
        self._awaitable = awaitable
        self._now = now
        self._note = note
        self.seconds = 0.0

    def __await__(self) -> Generator[Any, Any, T]:
        steps, now = self._awaitable.__await__(), self._now
        error: BaseException | None = None
        while True:
            began = now()
            try:
                waited_for = next(steps) if error is None else steps.throw(error)
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                took = now() - began
                self.seconds += took
                self._note(took)
            error = None
            try:
                yield waited_for
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as raised:  # noqa: BLE001 - what the event loop raises is the request's to handle
                error = raised
