"""Waiting on the event loop: for a signal, for a revision, for the end of tasks or of the process, or for time to pass.

All of it is for one event loop, not for threads.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import structlog

T = TypeVar("T")

log = structlog.get_logger(__name__)


class Signal:
    """Wakes the one task that waits for it. If none does, the next wait returns at once, so no wake-up is lost.

    It says that something may have changed, not what: the waiting task looks, and waits again if there is nothing.
    """

    __slots__ = ("_is_set", "_waiter")

    def __init__(self) -> None:
        self._is_set = False
        self._waiter: asyncio.Future[None] | None = None

    def wake(self) -> None:
        self._is_set = True
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def clear(self) -> None:
        """Forgets a wake-up, because the caller is about to look anyway."""
        self._is_set = False

    async def wait(self, seconds: float | None = None) -> bool:
        """Waits for a wake-up, at most `seconds`, and returns whether there was one. If cancelled, it takes none."""
        if not self._is_set:
            if self._waiter is not None:
                raise RuntimeError("another task waits for this signal")
            loop = asyncio.get_running_loop()
            waiter = self._waiter = loop.create_future()
            timer = loop.call_later(seconds, _time_out, waiter) if seconds is not None else None
            try:
                await waiter
            finally:
                self._waiter = None
                if timer is not None:
                    timer.cancel()
        was_set, self._is_set = self._is_set, False
        return was_set


def _time_out(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)


class RevisionWaiters:
    """Tasks that wait until a revision is reached."""

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []

    def add(self, revision: int) -> "asyncio.Future[None]":
        """A future that `advance` completes when it reaches this revision."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((revision, waiter))
        return waiter

    def advance(self, revision: int) -> None:
        if not self._waiters:
            return
        remaining = []
        for awaited, waiter in self._waiters:
            if waiter.done():
                continue  # its task was cancelled
            if awaited > revision:
                remaining.append((awaited, waiter))
            else:
                waiter.set_result(None)
        self._waiters = remaining

    def fail(self, build_error: Callable[[], Exception]) -> None:
        """Ends all waits with an error: the revision does not advance any more."""
        waiters, self._waiters = self._waiters, []
        for _, waiter in waiters:
            if not waiter.done():
                waiter.set_exception(build_error())


def start_task(
    tasks: "set[asyncio.Task[T]]", work: Coroutine[Any, Any, T], name: str | None = None
) -> "asyncio.Task[T]":
    """Runs `work` in a task. `tasks` holds it until it has ended, as the event loop itself does not."""
    task = asyncio.create_task(work, name=name)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task


async def end_tasks(*tasks: "asyncio.Task[Any]") -> None:
    """Cancels the tasks and waits until they have ended. What they return or raise is left to others."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def background_task(work: Coroutine[Any, Any, T], name: str | None = None) -> AsyncIterator["asyncio.Task[T]"]:
    """Runs `work` in a task while the context is open. If it has not ended then, it is cancelled."""
    task = asyncio.create_task(work, name=name)
    try:
        yield task
    finally:
        await end_tasks(task)


async def run_to_end(work: Coroutine[Any, Any, None]) -> None:
    """Awaits `work` to its end, also if the caller is cancelled meanwhile: what stops is often cancelled once more."""
    task = asyncio.create_task(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise


async def wait_until_stopped(stop: asyncio.Event, work: "asyncio.Task[None]") -> None:
    """Waits until `stop` is set. Background work only ends by an internal error, which is logged and raised."""
    async with background_task(stop.wait()) as stopping:
        await asyncio.wait((stopping, work), return_when=asyncio.FIRST_COMPLETED)
    if work.done():
        log.error("background work has failed; stopping", exc_info=work.exception())
        work.result()


async def sleep_monotonic(seconds: float) -> float:
    """Sleeps, and returns the monotonic time afterwards. Tests replace it to control the time."""
    await asyncio.sleep(seconds)
    return time.monotonic()
