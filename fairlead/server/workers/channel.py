"""Calls in both directions over one framed connection, between a worker and the coordinator.

A frame is a line of JSON, and after it the content of the result, if there is one:

    ["call", number, method, arguments]    the number is 0 if no result is expected
    ["result", number]                     and the content
    ["error", number, message, seconds]    the call was rejected; it may be retried after so many seconds

Frames are handled in the order in which they were sent. So a call that gives something back cannot overtake the one
that took it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from itertools import count

import orjson
import structlog

from fairlead.core.errors import Details, TooManyRequests, Unavailable
from fairlead.core.framed_socket import FramedConnection
from fairlead.core.waiting import start_task

MAX_FRAME_BYTES = 64 * 1024 * 1024
"""The metrics of all workers have to fit."""
CALL_TIMEOUT_SECONDS = 5.0
RETRY_AFTER_SECONDS = 1
CALL, RESULT, ERROR = "call", "result", "error"

log = structlog.get_logger(__name__)

Method = Callable[..., Awaitable[bytes] | None]
"""Returns None, or the content of the result. It may raise TooManyRequests."""


class Channel:
    """One end of a connection: calls the methods of the other end, and runs its own. Call it on the event loop only."""

    def __init__(
        self, connection: FramedConnection, methods: Mapping[str, Method], on_closed: Callable[[], None]
    ) -> None:
        self._connection = connection
        self._methods = methods
        self._on_closed = on_closed
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def call(self, method: str, *arguments: object, seconds: float = CALL_TIMEOUT_SECONDS) -> bytes:
        """The content of the result. Raises TooManyRequests if the other end does, and Unavailable without a result."""
        if self._connection.is_closed:
            raise _unavailable()
        number = next(self._numbers)
        result: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[number] = result
        self._connection.send(orjson.dumps([CALL, number, method, arguments]))
        try:
            async with asyncio.timeout(seconds):
                return await result
        except TimeoutError:
            raise _unavailable() from None
        finally:
            del self._waiting[number]

    def notify(self, method: str, *arguments: object) -> None:
        """Calls a method without waiting for it."""
        self._connection.send(orjson.dumps([CALL, 0, method, arguments]))

    async def close(self) -> None:
        self._connection.close()
        await self._connection.wait_closed()

    async def wait_closed(self) -> None:
        await self._connection.wait_closed()

    def on_frames(self, frames: list[bytes]) -> None:
        """Called by the connection."""
        for frame in frames:
            header, _, content = frame.partition(b"\n")
            kind, number, *rest = orjson.loads(header)
            if kind == CALL:
                self._run(number, *rest)
            elif (waiting := self._waiting.get(number)) is not None and not waiting.done():
                if kind == RESULT:
                    waiting.set_result(content)
                else:
                    message, seconds = rest
                    waiting.set_exception(
                        TooManyRequests(message, Details(retry_after=seconds)) if message else _unavailable()
                    )

    def on_closed(self) -> None:
        """Called by the connection."""
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(_unavailable())
        for task in self._tasks:
            task.cancel()
        self._on_closed()

    def _run(self, number: int, method: str, arguments: list[object]) -> None:
        try:
            work = self._methods[method](*arguments)
        except TooManyRequests as error:
            self._send_error(number, error.message, error.details.retry_after)
            return
        if work is None:
            self._send_result(number, b"")
            return
        start_task(self._tasks, self._finish(number, work))

    async def _finish(self, number: int, work: Awaitable[bytes]) -> None:
        try:
            self._send_result(number, await work)
        except Exception:  # the caller must not wait for the timeout
            log.exception("a call between processes of this server failed")
            self._send_error(number, "", RETRY_AFTER_SECONDS)

    def _send_result(self, number: int, content: bytes) -> None:
        if number:
            self._connection.send(orjson.dumps([RESULT, number]), b"\n", content)

    def _send_error(self, number: int, message: str, seconds: int) -> None:
        if number:
            self._connection.send(orjson.dumps([ERROR, number, message, seconds]))


def _unavailable() -> Unavailable:
    return Unavailable(
        "the process that coordinates the workers of this server does not respond; try again",
        Details(retry_after=RETRY_AFTER_SECONDS),
    )
