"""The server side of a WebSocket, on top of ASGI. Called by `asgi.py` for upgrade requests."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from fairlead.core.call import Upgrade
from fairlead.server.http.disconnect import dup_connection
from fairlead.server.http.request import Receive
from fairlead.server.http.slow_clients import can_linger, linger
from fairlead.server.http.websocket_intake import IncomingMessage

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
