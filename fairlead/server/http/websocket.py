"""The server side of a WebSocket, on top of ASGI. Called by `asgi.py` for upgrade requests."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from fairlead.core.call import Upgrade
from fairlead.server.http.disconnect import dup_connection
from fairlead.server.http.request import Receive
from fairlead.server.http.slow_clients import can_linger, linger

Send = Callable[[dict[str, Any]], Awaitable[None]]

LINGER_THRESHOLD_BYTES = 16 * 1024
"""If less was sent in total, it fits the socket buffers, and closing needs no lingering."""
MAX_REASON_BYTES = 123
"""The maximum of a WebSocket close frame."""


class ServerWebSocket:
    """An accepted WebSocket. `client` is the address of the peer, as in a `Call`."""

    __slots__ = ("_bytes_sent", "_client", "_is_closed", "_receive", "_send")

    def __init__(self, receive: Receive, send: Send, client: str) -> None:
        self._receive = receive
        self._send = send
        self._client = client
        self._bytes_sent = 0
        self._is_closed = False

    async def receive(self) -> bytes | str | None:
        if self._is_closed:
            return None
        message = await self._receive()
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


async def run_websocket(upgrade: Upgrade, receive: Receive, send: Send, client: str) -> None:
    """Accepts the WebSocket, runs the upgrade on it, and closes it."""
    await send({"type": "websocket.accept", "subprotocol": upgrade.subprotocol or None, "headers": []})
    accepted = ServerWebSocket(receive, send, client)
    try:
        await upgrade.run(accepted)
    finally:
        await accepted.close(1001, "the server closes this connection")
