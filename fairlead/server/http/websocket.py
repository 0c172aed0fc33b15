"""The server side of a WebSocket, on top of ASGI. Called by `asgi.py` for upgrade requests.

It bounds the messages that clients have begun to send, and not finished. The HTTP server passes a message on when it is
complete, accepts 64 MiB for one, and has no setting for that. Nothing in this process sees an unfinished message. So we
ask the kernel how much the HTTP server has read from the connection since the last message: what it has read, and not
passed on, is in its memory. A client that exceeds a limit is disconnected. Several clients may exceed a limit together:
then it is the one with the largest message.
"""

import asyncio
import fcntl
import socket
import sys
import termios
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import structlog

from fairlead.core.call import Upgrade
from fairlead.server.http.disconnect import close_connection, dup_connection, find_descriptor, peer_address
from fairlead.server.http.memory_budgets import MemoryLimits
from fairlead.server.http.request import Receive
from fairlead.server.http.slow_clients import can_linger, linger

CHECK_SECONDS = 0.25
_TCP_INFO_BYTES = 256
_BYTES_RECEIVED = slice(128, 136)
"""The position of `tcpi_bytes_received` in Linux' `struct tcp_info`."""

log = structlog.get_logger(__name__)


class IncomingMessage:
    """What was read of the message that a client is sending on one WebSocket."""

    __slots__ = ("_begin", "_connection", "client", "user")

    def __init__(self, client: str, user: str) -> None:
        self.client = client
        self.user = user
        self._connection: socket.socket | None = None
        self._begin = 0

    async def attach(self) -> None:
        """Looks the connection up. Without it, as on systems without /proc, nothing is counted."""
        descriptor = await find_descriptor(self.client)
        if descriptor is not None:
            # Borrowed, not duplicated: a duplicate would keep the connection open after the HTTP server has closed it.
            self._connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=descriptor)

    def detach(self) -> None:
        if self._connection is not None:
            self._connection.detach()
            self._connection = None

    @property
    def is_connected(self) -> bool:
        """False after the HTTP server has closed the connection: another one may have its descriptor then, whose bytes
        must not count."""
        return self._connection is None or peer_address(self._connection) == self.client

    def mark_complete(self) -> None:
        """A message has arrived: what is read from now on belongs to the next one."""
        self._begin = self._read_bytes()

    @property
    def size(self) -> int:
        return max(0, self._read_bytes() - self._begin)

    def _read_bytes(self) -> int:
        """How many bytes of the connection the HTTP server has read in total, encrypted as they are."""
        if self._connection is None:
            return 0
        with suppress(OSError):  # closed
            info = self._connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
            waiting = fcntl.ioctl(self._connection.fileno(), termios.FIONREAD, b"\0" * 4)
            return int.from_bytes(info[_BYTES_RECEIVED], sys.byteorder) - int.from_bytes(waiting, sys.byteorder)
        return 0


class MessageIntake:
    """All WebSockets of this process. They are checked several times a second, while there are any."""

    def __init__(self, limits: MemoryLimits) -> None:
        self._limits = limits
        self._incoming: set[IncomingMessage] = set()
        self._checking: asyncio.Task[None] | None = None

    async def add(self, client: str, user: str) -> IncomingMessage:
        incoming = IncomingMessage(client, user)
        await incoming.attach()
        incoming.mark_complete()  # the handshake
        self._incoming.add(incoming)
        if self._checking is None:
            self._checking = asyncio.create_task(self._check_until_idle())
        return incoming

    def remove(self, incoming: IncomingMessage) -> None:
        self._incoming.discard(incoming)
        incoming.detach()

    async def _check_until_idle(self) -> None:
        try:
            while self._incoming:
                await asyncio.sleep(CHECK_SECONDS)
                self.check()
        finally:
            self._checking = None

    def check(self) -> None:
        """Disconnects the clients that exceed a limit."""
        for ended in [each for each in self._incoming if not each.is_connected]:
            self.remove(ended)
        sizes = sorted(((each.size, each) for each in self._incoming), key=lambda item: item[0], reverse=True)
        total = sum(size for size, _ in sizes)
        by_user = Counter[str]()
        for size, each in sizes:
            by_user[each.user] += size
        for size, each in sizes:
            limits, held = self._limits, by_user[each.user]
            if size <= limits.connection and held <= limits.user and total <= limits.total:
                continue
            log.warning("a client sends a message that is too large", client=each.client, user=each.user, bytes=size)
            total -= size
            by_user[each.user] -= size
            self.remove(each)
            close_connection(each.client)


Send = Callable[[dict[str, Any]], Awaitable[None]]

LINGER_THRESHOLD_BYTES = 16 * 1024
"""If less was sent in total, it fits the socket buffers, and closing needs no lingering."""
MAX_REASON_BYTES = 123
"""The maximum of a WebSocket close frame."""


class ServerWebSocket:
    """An accepted WebSocket. `incoming` has the address of the peer, as in a `Call`."""

    __slots__ = ("_bytes_sent", "_client", "_incoming", "_is_closed", "_receive", "_send")

    def __init__(self, receive: Receive, send: Send, incoming: IncomingMessage) -> None:
        self._receive = receive
        self._send = send
        self._client = incoming.client
        self._incoming = incoming
        self._bytes_sent = 0
        self._is_closed = False

    async def receive(self) -> bytes | str | None:
        if self._is_closed:
            return None
        message = await self._receive()
        self._incoming.mark_complete()
        if message["type"] != "websocket.receive":
            self._is_closed = True
            return None
        data: bytes | None = message.get("bytes")
        text: str = message.get("text") or ""
        return data if data is not None else text

    async def send(self, message: bytes | str) -> None:
        if self._is_closed:
            return
        self._bytes_sent += len(message)
        with suppress(RuntimeError):  # the client has disconnected; `receive` reports it
            await self._send({"type": "websocket.send", "text" if isinstance(message, str) else "bytes": message})

    async def close(self, code: int, reason: str) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        connection = (
            await dup_connection(self._client) if self._bytes_sent > LINGER_THRESHOLD_BYTES and can_linger() else None
        )
        truncated = reason.encode()[:MAX_REASON_BYTES].decode(errors="ignore")
        with suppress(RuntimeError):
            await self._send({"type": "websocket.close", "code": code, "reason": truncated})
        if connection is not None:
            await linger(connection)


async def run_websocket(upgrade: Upgrade, receive: Receive, send: Send, incoming: IncomingMessage) -> None:
    """Accepts the WebSocket, runs the upgrade on it, and closes it."""
    await send({"type": "websocket.accept", "subprotocol": upgrade.subprotocol or None, "headers": []})
    accepted = ServerWebSocket(receive, send, incoming)
    try:
        await upgrade.run(accepted)
    finally:
        await accepted.close(1001, "the server closes this connection")
