"""Behaviours that send large outputs and close the connection at once, as exec of real clusters does, or abruptly.

An API server writes the last of the output, the exit status on the error channel and a close frame, and closes the
connection immediately. It does not wait for the client: a slow client has to read all of it afterwards.
"""

import asyncio
import fcntl
import random
import socket
import ssl
import struct
import termios
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any

from websockets.protocol import OPEN
from websockets.server import ServerProtocol

from tests.fake_cluster.exchange import Behaviour, RecordedRequest
from tests.fake_cluster.exec_websockets import SUCCESS, build_upgrade_response

MESSAGE_BYTES = 32 * 1024
"""The size of the messages of an API server."""
STDOUT, ERROR = b"\x01", b"\x03"

CLOSE_CODES: Mapping[str, tuple[int, str]] = {
    "close-frame": (1000, ""),
    "no-close-frame": (1006, ""),
    "tcp-close": (1006, ""),
    "tcp-reset": (1006, ""),
}
"""How the connection ends, with the close code and reason. `close-frame`: a close frame, then TLS and TCP are closed,
as in a real cluster. `no-close-frame`: the same without the frame. `tcp-close`: only TCP is closed. `tcp-reset`: TCP is
reset after everything has arrived."""


@cache
def generate_output(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def respond_with_output(size: int, close_mode: str) -> Behaviour:
    """On an upgrade: sends this many bytes of output and an exit status, and closes at once."""

    async def behaviour(request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(build_upgrade_response(request))
        protocol = ServerProtocol(state=OPEN)
        content = generate_output(size)
        for start in range(0, size, MESSAGE_BYTES):
            protocol.send_binary(STDOUT + content[start : start + MESSAGE_BYTES])
            await _flush(protocol, writer)
        protocol.send_binary(ERROR + SUCCESS)
        if close_mode == "close-frame":
            protocol.send_close(1000)
        await _flush(protocol, writer)
        await _close_connection(writer, close_mode)
        return False

    return behaviour


async def _flush(protocol: ServerProtocol, writer: asyncio.StreamWriter) -> None:
    for data in protocol.data_to_send():
        if data:
            writer.write(data)
    await writer.drain()


async def _close_connection(writer: asyncio.StreamWriter, close_mode: str) -> None:
    """Closes without waiting for the peer to close TLS, as an API server does. asyncio itself would wait."""
    transport: Any = writer.transport
    tls, connection = transport._ssl_protocol, writer.get_extra_info("socket")
    tcp_transport = tls._transport
    if close_mode in ("close-frame", "no-close-frame"):
        with suppress(ssl.SSLWantReadError):
            tls._sslobj.unwrap()
        tls._process_outgoing()
    while transport.get_write_buffer_size() or tcp_transport.get_write_buffer_size():  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(0.005)
    if close_mode == "tcp-reset":
        while _count_unacknowledged_bytes(connection.fileno()):  # noqa: ASYNC110 - nor for this
            await asyncio.sleep(0.005)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


def _count_unacknowledged_bytes(descriptor: int) -> int:
    """Bytes that were sent and are not acknowledged."""
    count = bytearray(4)
    fcntl.ioctl(descriptor, termios.TIOCOUTQ, count)
    return int.from_bytes(count, "little")


def respond_with_body(size: int, close_mode: str, *, is_sized: bool) -> Behaviour:
    """The same as an ordinary response body."""

    async def behaviour(request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        length = f"content-length: {size}\r\n" if is_sized else ""
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nconnection: close\r\n{length}\r\n".encode())
        content = generate_output(size)
        for start in range(0, size, MESSAGE_BYTES):
            writer.write(content[start : start + MESSAGE_BYTES])
            await writer.drain()
        await _close_connection(writer, close_mode)
        return False

    return behaviour
