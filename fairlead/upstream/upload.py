"""Request bodies: framing headers and streamed uploads. `upstream.py` calls this.

A streamed upload runs in its own task, because a cluster may respond before it has received the whole body: with an
error, or in a bidirectional stream.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence

from fairlead.core.errors import BadRequest
from fairlead.upstream.connection import Connection
from fairlead.upstream.messages import Response

_METHODS_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
_CHUNKED = "transfer-encoding: chunked\r\n"
MAX_LENGTH_DIGITS = 18


def framing(method: str, headers: Sequence[tuple[str, str]], body: bytes | AsyncIterator[bytes]) -> str:
    """The header line that delimits the body; empty for methods that usually have no body."""
    if isinstance(body, bytes):
        return f"content-length: {len(body)}\r\n" if body or method in _METHODS_WITH_BODY else ""
    length = _content_length(headers)
    return _CHUNKED if length is None else f"content-length: {length}\r\n"


def _content_length(headers: Sequence[tuple[str, str]]) -> int | None:
    """The client's `content-length`, or None. Raises BadRequest if it is repeated or invalid."""
    values = [value.strip() for name, value in headers if name.lower() == "content-length"]
    if not values:
        return None
    value = values[0]
    if len(values) > 1 or not (value.isascii() and value.isdecimal()) or len(value) > MAX_LENGTH_DIGITS:
        raise BadRequest("content-length is not a single number; send it once, or omit it")
    return int(value)


class Upload:
    """A streamed request body.

    `write_seconds`: how long the cluster may leave a full write buffer unread. `deadline`: end of the whole exchange.
    There is no timeout for a slow client: the HTTP server that reads from it enforces that.
    """

    def __init__(
        self, connection: Connection, headers: Sequence[tuple[str, str]], write_seconds: float, deadline: float
    ) -> None:
        self._connection = connection
        self._remaining = _content_length(headers)
        self._write_seconds = write_seconds
        self._deadline = deadline

    async def run(self, body: AsyncIterator[bytes], response: Response) -> None:
        """Starts the upload. Returns when the response head is received, even if the upload is still running."""
        connection = self._connection
        connection.deadline = self._deadline
        task = asyncio.get_running_loop().create_task(self._send(body, response))
        connection.upload = task
        task.add_done_callback(lambda done: self._on_done(done, response))
        await response.head_received

    def _on_done(self, task: asyncio.Task[None], response: Response) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if self._connection.upload is not task:
            return  # the exchange is over, and the connection may serve another one
        if error is not None:
            self._connection.fail(error)
            return
        self._connection.upload = None
        if not response.head_received.done():
            self._connection.deadline = self._write_deadline()

    async def _send(self, body: AsyncIterator[bytes], response: Response) -> None:
        connection, counted = self._connection, self._remaining is not None
        async for data in body:
            if not data:
                continue
            if self._remaining is not None:
                self._remaining -= len(data)
                if self._remaining < 0:
                    raise BadRequest("the body is longer than its content-length")
            connection.write(data if counted else b"%x\r\n%b\r\n" % (len(data), data))
            if not response.head_received.done():
                connection.deadline = self._write_deadline()
            await connection.drain()
            if not response.head_received.done():
                connection.deadline = self._deadline
        if self._remaining:
            raise BadRequest("the body is shorter than its content-length")
        if not counted:
            connection.write(b"0\r\n\r\n")

    def _write_deadline(self) -> float:
        return min(self._deadline, asyncio.get_running_loop().time() + self._write_seconds)
