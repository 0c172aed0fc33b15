"""WebSockets of the subresources of workspaces: `ssh`, `port`, `up` and others.

    async with open_stream(login, path, {"port": 8080}) as stream:
        await stream.send(b"GET / HTTP/1.0\\r\\n\\r\\n")
        while (message := await stream.receive()) is not None: ...

Binary messages, whose first byte is the type: 0 and 2 are data of stdout and stderr, 1 and 3 their ends, 4 and 5 data
and end of stdin, 6 the exit code.
"""

import json
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from fairlead.client.contexts import Login
from fairlead.client.errors import ApiStatusError, ClientError, connection_error
from fairlead.client.tls import build_ssl_context
from fairlead.core.addresses import is_loopback

STDOUT, STDOUT_END, STDERR, STDERR_END, STDIN, STDIN_END, EXIT = range(7)
MAX_DATA_BYTES = 32 * 1024 - 2
"""Fits into one message, and into two frames of the connection between server and runner."""
MAX_MESSAGE_BYTES = 64 * 1024
OPEN_SECONDS = 65.0
PING_SECONDS = 20.0
"""Keeps the connection open where a load balancer closes idle ones. Responses are not awaited: they are read after the
data before them, for which the reader of a stream may take its time."""
KEEPALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""A quiet connection that is lost without a sign ends after 25 seconds. Not every system has all of these options."""
CLOSE_SECONDS = 1.0
NORMAL = 1000


@dataclass(frozen=True, slots=True)
class Output:
    """Data of stdout or stderr; empty at its end."""

    is_error: bool
    content: bytes


class StreamEnded(ClientError):
    """The stream broke off: the text says why."""


class WorkspaceStream:
    """`exit_code` is set at the end."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self.exit_code = 0

    async def send(self, data: bytes) -> None:
        """Waits until there is room. Data after the end of the stream is dropped; `receive` reports it."""
        try:
            for start in range(0, len(data), MAX_DATA_BYTES):
                await self._connection.send(bytes((STDIN,)) + data[start : start + MAX_DATA_BYTES])
        except ConnectionClosed:
            return

    async def send_eof(self) -> None:
        try:
            await self._connection.send(bytes((STDIN_END,)))
        except ConnectionClosed:
            return

    async def receive(self) -> Output | None:
        """The next output; None after the exit code. Raises StreamEnded if there is none."""
        while True:
            try:
                message = await self._connection.recv()
            except ConnectionClosed as error:
                raise StreamEnded(describe_close(error)) from None
            if isinstance(message, str) or not message:
                raise StreamEnded("the server sent an invalid message; is it a Fairlead server?")
            match message[0]:
                case 0 | 2:
                    return Output(message[0] == STDERR, message[1:])
                case 1 | 3:
                    return Output(message[0] == STDERR_END, b"")
                case 6:
                    self.exit_code = decode_exit_code(message[1:])
                    return None


@asynccontextmanager
async def open_stream(
    login: Login, path: str, options: Mapping[str, Any] | None = None
) -> AsyncIterator[WorkspaceStream]:
    """Opens the WebSocket at a path of the server. Raises ClientError."""
    query = f"?options={quote(json.dumps(options))}" if options else ""
    host = urlsplit(login.url).hostname or ""
    try:
        connection = await connect(
            f"wss{login.url.removeprefix('https')}{path}{query}",
            ssl=build_ssl_context(login.authority, login.insecure),
            additional_headers={"Authorization": f"Bearer {login.current_key()}"},
            compression=None,
            max_size=MAX_MESSAGE_BYTES,
            ping_interval=PING_SECONDS,
            ping_timeout=None,
            open_timeout=OPEN_SECONDS,
            close_timeout=CLOSE_SECONDS,
            proxy=None if is_loopback(host) else True,
        )
    except InvalidStatus as error:
        response = error.response
        raise ApiStatusError.parse(response.status_code, bytes(response.body or b""), login.url) from None
    except (OSError, ssl.SSLError, TimeoutError, InvalidHandshake) as error:
        raise connection_error(login.url, error, bool(login.authority)) from error
    _enable_keepalive(connection)
    try:
        yield WorkspaceStream(connection)
    finally:
        await connection.close()


def _enable_keepalive(connection: ClientConnection) -> None:
    found = connection.transport.get_extra_info("socket")
    if found is None:
        return
    found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE.items():
        if hasattr(socket, name):
            found.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def describe_close(error: ConnectionClosed) -> str:
    """Why the server closed the connection, or that it is lost."""
    if error.rcvd is None or error.rcvd.code == 1006:
        return "the connection to the server was lost"
    reason = error.rcvd.reason or f"the server closed it with code {error.rcvd.code}"
    return "the connection was closed" if error.rcvd.code == NORMAL else reason


def decode_exit_code(content: bytes) -> int:
    """A signed varint with zig-zag encoding."""
    value = 0
    for index, byte in enumerate(content[:10]):
        value |= (byte & 0x7F) << (7 * index)
    return value >> 1 if value % 2 == 0 else -((value + 1) >> 1)
