"""A session: the WebSocket of a client, and the stream to the runner behind it.

It ends with the exit code, when one end disconnects, or when the client may not use the workspace any more, which is
checked every few seconds. What the session has started at the runner is not affected, unless it is an ssh session.
"""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from fairlead.core.call import RECHECK_SECONDS, WebSocket
from fairlead.core.errors import ApiError
from fairlead.links.contract import Stream
from fairlead.links.frames import STDIN
from fairlead.links.streams import Data, Eof, StreamReset
from fairlead.server.http.disconnect import dup_connection
from fairlead.subresources.workspaces.client_frames import ClientMessageError, Framing, TypedFraming

NORMAL, GOING_AWAY, POLICY_VIOLATION, INTERNAL_ERROR = 1000, 1001, 1008, 1011
TRY_AGAIN_LATER = 1013
ACCEPT_SECONDS = 30.0
"""Timeout for accepting the client's WebSocket: the client may disconnect before that."""
STALL_SECONDS = 600.0
"""A client that reads nothing for this time is disconnected."""
FAILURE_SECONDS = 5.0
"""How long a client may take to read why its session has ended."""
KEEPALIVE_SECONDS, KEEPALIVE_INTERVAL, KEEPALIVE_PROBES = 10, 5, 3
"""TCP keepalive: the connection of a client that has vanished ends after 25 seconds."""

CloseReason = tuple[int, str]
CloseTask = asyncio.Task[CloseReason]


class Session:
    """`client` is the address of the client, and `recheck` raises ApiError once access is lost."""

    def __init__(
        self, stream: Stream, client: str, recheck: Callable[[], None], framing: Framing | None = None
    ) -> None:
        self._stream = stream
        self._client = client
        self._recheck = recheck
        self._framing = framing or TypedFraming()
        abandon = partial(stream.abandon, "the client has disconnected")
        self._accept_timer = asyncio.get_running_loop().call_later(ACCEPT_SECONDS, abandon)

    async def run(self, websocket: WebSocket) -> None:
        self._accept_timer.cancel()
        pumps = asyncio.create_task(self._send_stdin(websocket)), asyncio.create_task(self._send_output(websocket))
        close_reason: CloseReason = GOING_AWAY, "the server closes this connection"
        try:
            await _enable_keepalive(self._client)
            close_reason = await self._wait_closed(*pumps)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            await self._stream.reset("the client has disconnected")
            if close_reason[0] != NORMAL:
                with suppress(TimeoutError):  # a client that does not read is closed without the reason
                    async with asyncio.timeout(FAILURE_SECONDS):
                        for message in self._framing.encode_failure(*close_reason):
                            await websocket.send(message)
            await websocket.close(*close_reason)

    async def _wait_closed(self, stdin: CloseTask, output: CloseTask) -> CloseReason:
        while True:
            done, _ = await asyncio.wait((stdin, output), timeout=RECHECK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if output in done:
                return output.result()
            if stdin in done:
                return stdin.result()
            try:
                self._recheck()
            except ApiError as error:
                return POLICY_VIOLATION, error.message

    async def _send_stdin(self, websocket: WebSocket) -> CloseReason:
        """Returns when the client has disconnected, or has violated the protocol."""
        is_open = True
        while (message := await websocket.receive()) is not None:
            try:
                received = self._framing.decode(message)
            except ClientMessageError as error:
                return error.code, error.reason
            with suppress(StreamReset):  # the other pump reports it
                match received:
                    case Eof():
                        is_open = False
                        await self._stream.send_eof(STDIN)
                    case Data(_, content) if content and is_open:
                        await self._stream.send(STDIN, content)
        return NORMAL, ""

    async def _send_output(self, websocket: WebSocket) -> CloseReason:
        """Returns after the exit code, or when the stream has ended without one."""
        try:
            while (message := await self._stream.receive()) is not None:
                async with asyncio.timeout(STALL_SECONDS):
                    for encoded in self._framing.encode(message):
                        await websocket.send(encoded)
        except StreamReset as reset:
            return INTERNAL_ERROR, f"the runner has ended the stream: {reset.reason}"
        except TimeoutError:
            return POLICY_VIOLATION, "the client does not read"
        return NORMAL, ""


async def _enable_keepalive(client: str) -> None:
    """Has the kernel check whether the client is still there: the HTTP server has no pings for WebSockets."""
    connection = await dup_connection(client)
    if connection is None:
        return
    with connection, suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_INTERVAL)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_PROBES)
