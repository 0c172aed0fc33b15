"""Bodies of requests on their way to a cluster: how they are framed, and streams of them. `upstream.py` calls this.

A stream has a task of its own, since a cluster may answer before it has heard all, and must be heard then: with an
error, or because both sides talk at once.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence

from fairlead.core.errors import BadRequest
from fairlead.upstream.connection import Connection
from fairlead.upstream.messages import Response

_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
_CHUNKED = "transfer-encoding: chunked\r\n"
MAX_LENGTH_DIGITS = 18


def framing(method: str, headers: Sequence[tuple[str, str]], body: bytes | AsyncIterator[bytes]) -> str:
    """The header line that says where the body ends; nothing for requests that usually have none."""
    if isinstance(body, bytes):
        return f"content-length: {len(body)}\r\n" if body or method in _WITH_BODY else ""
    length = _length(headers)
    return _CHUNKED if length is None else f"content-length: {length}\r\n"


def _length(headers: Sequence[tuple[str, str]]) -> int | None:
    """How long the client said its body would be. Two answers to that are one too many."""
    values = [value.strip() for name, value in headers if name.lower() == "content-length"]
    if not values:
        return None
    value = values[0]
    if len(values) > 1 or not (value.isascii() and value.isdecimal()) or len(value) > MAX_LENGTH_DIGITS:
        raise BadRequest("content-length is not one number; send it once, or leave it out")
    return int(value)


class Upload:
    """A streamed body. `seconds` is how long the cluster may leave a full pipe alone, `end` when all must be over.

    A client may take its time with the body; that is for whoever listens to it to limit.
    """

    def __init__(self, connection: Connection, headers: Sequence[tuple[str, str]], seconds: float, end: float) -> None:
        self._connection = connection
        self._left = _length(headers)
        self._seconds = seconds
        self._end = end

    async def run(self, body: AsyncIterator[bytes], response: Response) -> None:
        """Returns when the head of the answer has come, be the upload done or not."""
        connection = self._connection
        connection.deadline = self._end
        task = asyncio.get_running_loop().create_task(self._send(body, response))
        connection.upload = task
        task.add_done_callback(lambda done: self._done(done, response))
        await response.arrival

    def _done(self, task: asyncio.Task[None], response: Response) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if self._connection.upload is not task:
            return  # the exchange is over, and the connection may be somebody else's
        if error is not None:
            self._connection.fail(error)
            return
        self._connection.upload = None
        if not response.arrival.done():
            self._connection.deadline = self._soon()

    async def _send(self, body: AsyncIterator[bytes], response: Response) -> None:
        connection, counted = self._connection, self._left is not None
        async for data in body:
            if not data:
                continue
            if self._left is not None:
                self._left -= len(data)
                if self._left < 0:
                    raise BadRequest("the body is longer than its content-length says")
            connection.write(data if counted else b"%x\r\n%b\r\n" % (len(data), data))
            if not response.arrival.done():
                connection.deadline = self._soon()
            await connection.drain()
            if not response.arrival.done():
                connection.deadline = self._end
        if self._left:
            raise BadRequest("the body is shorter than its content-length says")
        if not counted:
            connection.write(b"0\r\n\r\n")

    def _soon(self) -> float:
        return min(self._end, asyncio.get_running_loop().time() + self._seconds)
