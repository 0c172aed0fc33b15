"""The streams of `pods/exec`: messages of a WebSocket whose first byte is a channel.

Version 5 of the protocol can end stdin alone. With version 4, of clusters before Kubernetes 1.29, the end of stdin is
not passed on, and a process that waits for it ends with the session.
"""

import asyncio
import contextlib
from collections import deque
from typing import Any

from fairlead.core.body_errors import Malformed
from fairlead.core.json import decode, encode
from fairlead.core.objects import get_path
from fairlead.upstream.websocket import UpstreamWebSocket

V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"
STDIN, STDOUT, STDERR, ERROR, RESIZE = range(5)
CLOSE_STDIN = bytes((255, STDIN))
MAX_BUFFERED_BYTES = 256 * 1024
MAX_MESSAGE_BYTES = 32 * 1024
PING_SECONDS = 15.0
FAILED_CODE = 255
"""The exit code of a process whose real one is unknown, because the connection broke off."""
INTERRUPTED = b"the connection to the workspace was interrupted\n"


class Pipe:
    """A `ByteReader` over received data. `feed` waits while too much of it is unread."""

    def __init__(self) -> None:
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._is_ended = False
        self._changed = asyncio.Condition()

    async def feed(self, data: bytes) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self._size < MAX_BUFFERED_BYTES or self._is_ended)
            if not self._is_ended and data:
                self._chunks.append(data)
                self._size += len(data)
                self._changed.notify_all()

    async def end(self) -> None:
        async with self._changed:
            self._is_ended = True
            self._changed.notify_all()

    async def read(self, n: int = -1, /) -> bytes:
        async with self._changed:
            await self._changed.wait_for(lambda: bool(self._chunks) or self._is_ended)
            if not self._chunks:
                return b""
            data = self._chunks.popleft()
            if 0 <= n < len(data):
                self._chunks.appendleft(data[n:])
                data = data[:n]
            self._size -= len(data)
            self._changed.notify_all()
            return data


class ExecConnection:
    """One exec: its streams, and how it ended."""

    def __init__(self, websocket: UpstreamWebSocket) -> None:
        self.stdout = Pipe()
        self.stderr = Pipe()
        self.exit_code: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._websocket = websocket
        self._has_reported = False
        self._failure = INTERRUPTED
        self._receiving = asyncio.create_task(self._receive(), name="exec")
        self._pinging = asyncio.create_task(self._ping(), name="exec ping")

    @property
    def has_reported(self) -> bool:
        """Whether the exit code is that of the process, and not made up."""
        return self._has_reported

    async def write(self, data: bytes, /) -> None:
        for start in range(0, len(data), MAX_MESSAGE_BYTES):
            await self._websocket.send(bytes((STDIN,)) + data[start : start + MAX_MESSAGE_BYTES])

    async def close(self) -> None:
        """The end of stdin."""
        if self._websocket.subprotocol == V5:
            await self._websocket.send(CLOSE_STDIN)

    async def resize(self, columns: int, rows: int) -> None:
        await self._websocket.send(bytes((RESIZE,)) + encode({"Width": columns, "Height": rows}))

    async def release(self) -> None:
        """Closes the connection. The process inside does not notice."""
        await self.stdout.end()
        await self.stderr.end()
        self._pinging.cancel()
        self._receiving.cancel()
        await asyncio.gather(self._receiving, self._pinging, return_exceptions=True)
        await self._websocket.close(1000, "")

    async def _receive(self) -> None:
        try:
            while (message := await self._websocket.receive()) is not None:
                data = message.encode() if isinstance(message, str) else message
                match data[:1]:
                    case b"\x01":
                        await self.stdout.feed(data[1:])
                    case b"\x02":
                        await self.stderr.feed(data[1:])
                    case b"\x03":
                        self._report(data[1:])
        finally:
            if not self.exit_code.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await self.stderr.feed(self._failure)
                self.exit_code.set_result(FAILED_CODE)
            await self.stdout.end()
            await self.stderr.end()

    def _report(self, content: bytes) -> None:
        code, message = parse_exit(content)
        if code is None:
            self._failure = f"{message}\n".encode()
        elif not self.exit_code.done():
            self.exit_code.set_result(code)
            self._has_reported = True

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(PING_SECONDS)
            self._websocket.ping()


def parse_exit(content: bytes) -> tuple[int | None, str]:
    """The exit code in the Status that ends an exec; None with a message if the process could not run."""
    try:
        status: Any = decode(content)
    except Malformed:
        return None, "the cluster sent no valid status"
    if get_path(status, "status") == "Success":
        return 0, ""
    for cause in get_path(status, "details.causes") or ():
        if isinstance(cause, dict) and cause.get("reason") == "ExitCode" and str(cause.get("message")).isdecimal():
            return int(cause["message"]), ""
    return None, str(get_path(status, "message") or "the process could not be started")
