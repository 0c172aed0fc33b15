"""The server side of a WebSocket, on top of ASGI. Called by `asgi.py` for upgrade requests."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from fairlead.core.call import Upgrade
from fairlead.server.http.disconnect import hold
from fairlead.server.http.request import Receive
from fairlead.server.http.slow_clients import can_linger, linger

Send = Callable[[dict[str, Any]], Awaitable[None]]

NEVER_QUEUED = 16 * 1024
"""If less was sent in total, it fits the socket buffers, and closing needs no lingering."""
REASON_BYTES = 123
"""The maximum of a WebSocket close frame."""


class AcceptedSocket:
    """An accepted WebSocket. `client` is the address of the peer, as in a `Call`."""

    __slots__ = ("_client", "_closed", "_receive", "_send", "_sent")

    def __init__(self, receive: Receive, send: Send, client: str) -> None:
        self._receive = receive
        self._send = send
        self._client = client
        self._sent = 0
        self._closed = False

    async def receive(self) -> bytes | str | None:
        if self._closed:
            return None
        message = await self._receive()
        if message["type"] != "websocket.receive":
            self._closed = True
            return None
        data: bytes | None = message.get("bytes")
        text: str = message.get("text") or ""
        return data if data is not None else text

    async def send(self, message: bytes | str) -> None:
        if self._closed:
            return
        self._sent += len(message)
        with suppress(RuntimeError):  # the client has disconnected; `receive` reports it
            await self._send({"type": "websocket.send", "text" if isinstance(message, str) else "bytes": message})

    async def close(self, code: int, reason: str) -> None:
        if self._closed:
            return
        self._closed = True
        connection = await hold(self._client) if self._sent > NEVER_QUEUED and can_linger() else None
        truncated = reason.encode()[:REASON_BYTES].decode(errors="ignore")
        with suppress(RuntimeError):
            await self._send({"type": "websocket.close", "code": code, "reason": truncated})
        if connection is not None:
            await linger(connection)


async def go_on(upgrade: Upgrade, receive: Receive, send: Send, client: str) -> None:
    """Accepts the WebSocket, runs the upgrade on it, and closes it."""
    await send({"type": "websocket.accept", "subprotocol": upgrade.protocol or None, "headers": []})
    accepted = AcceptedSocket(receive, send, client)
    try:
        await upgrade.run(accepted)
    finally:
        await accepted.close(1001, "the server closes this connection")
