"""Runs a coroutine on an event loop of its own, in a thread of its own.

For work whose Python code is driven by an untrusted peer, such as parsing HTTP that arrives in tiny pieces: on the
event loop of the server, each piece would delay all requests. Threads share the interpreter, which a thread gives up
after `BUSY_SWITCH_SECONDS` (`core/concurrency.py`).

The coroutine must use nothing that belongs to the caller's loop: futures, locks, connections.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Generic, TypeVar

from fairlead.core.concurrency import SWITCH_INTERVAL
from fairlead.core.thread_activity import ThreadTask, track_thread

T = TypeVar("T")


async def run_in_loop_thread(name: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Runs `work`, and returns its result or raises its exception. If the caller is cancelled, so is `work`, and the
    caller waits until that has ended: afterwards, nothing uses its files any more."""
    return await _LoopThread(name, work).run()


class _LoopThread(Generic[T]):
    def __init__(self, name: str, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._name = name
        self._work = work
        self._caller = asyncio.get_running_loop()
        self._done: asyncio.Future[T] = self._caller.create_future()
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task[T] | None = None
        self._is_cancelled = False

    async def run(self) -> T:
        try:
            threading.Thread(target=self._run_loop, name=self._name, daemon=True).start()
        except RuntimeError:  # too many threads
            self._loop.close()
            raise
        try:
            return await asyncio.shield(self._done)
        except asyncio.CancelledError:
            with suppress(RuntimeError):  # the loop is closed: the work has ended
                self._loop.call_soon_threadsafe(self._cancel)
            await asyncio.wait([self._done])
            if not self._done.cancelled():
                self._done.exception()  # retrieved, so that it is not logged
            raise

    def _cancel(self) -> None:
        """In the thread."""
        self._is_cancelled = True
        if self._task is not None:
            self._task.cancel()

    def _run_loop(self) -> None:
        activity = track_thread()
        activity.begin(ThreadTask(self._name, 0))
        result: T | None = None
        error: BaseException | None = None
        try:
            with SWITCH_INTERVAL, asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                result = runner.run(self._run_work())
        except BaseException as caught:  # noqa: BLE001 - the caller gets every exception
            error = caught
        with suppress(RuntimeError):  # the caller's loop is closed
            self._caller.call_soon_threadsafe(self._finish, result, error)

    async def _run_work(self) -> T:
        self._task = asyncio.ensure_future(self._work())
        if self._is_cancelled:
            self._task.cancel()
        return await self._task

    def _finish(self, result: Any, error: BaseException | None) -> None:
        """In the thread of the caller."""
        if self._done.done():
            return
        if error is None:
            self._done.set_result(result)
        elif isinstance(error, asyncio.CancelledError):
            self._done.cancel()
        else:
            self._done.set_exception(error)
