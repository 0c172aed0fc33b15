"""Much output and then the end at once, as exec in a real cluster was seen to have it, and ways in which it ends worse.

An API server writes the last of the output, the outcome on the error channel and a closing frame, and closes the
connection in the same moment. It does not wait for anything: whoever reads slowly has to read all of it afterwards.
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
from tests.fake_cluster.exec_websockets import SUCCESS, accepted

MESSAGE = 32 * 1024
"""As an API server cuts output."""
STDOUT, ERROR = b"\x01", b"\x03"

ENDINGS: Mapping[str, tuple[int, str]] = {
    "goodbye": (1000, ""),
    "silent": (1006, ""),
    "cut": (1006, ""),
    "reset": (1006, ""),
}
"""How a flood ends, and what is told of it. `goodbye`: a closing frame, TLS is closed, then TCP, as in a real cluster.
`silent`: the same without the frame. `cut`: only TCP is closed. `reset`: TCP is reset once everything has arrived."""


@cache
def output(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def flooding(size: int, ending: str) -> Behaviour:
    """On an upgrade: so many bytes of output and an outcome, and at once the end."""

    async def behaviour(asked: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(accepted(asked))
        protocol = ServerProtocol(state=OPEN)
        content = output(size)
        for start in range(0, size, MESSAGE):
            protocol.send_binary(STDOUT + content[start : start + MESSAGE])
            await _flush(protocol, writer)
        protocol.send_binary(ERROR + SUCCESS)
        if ending == "goodbye":
            protocol.send_close(1000)
        await _flush(protocol, writer)
        await _end(writer, ending)
        return False

    return behaviour


async def _flush(protocol: ServerProtocol, writer: asyncio.StreamWriter) -> None:
    for data in protocol.data_to_send():
        if data:
            writer.write(data)
    await writer.drain()


async def _end(writer: asyncio.StreamWriter, ending: str) -> None:
    """asyncio would wait until the other side has closed TLS, too. An API server does not."""
    transport: Any = writer.transport
    tls, connection = transport._ssl_protocol, writer.get_extra_info("socket")
    below = tls._transport
    if ending in ("goodbye", "silent"):
        with suppress(ssl.SSLWantReadError):
            tls._sslobj.unwrap()
        tls._process_outgoing()
    while transport.get_write_buffer_size() or below.get_write_buffer_size():  # noqa: ASYNC110 - nobody announces it
        await asyncio.sleep(0.005)
    if ending == "reset":
        while _unacknowledged(connection.fileno()):  # noqa: ASYNC110 - nor this
            await asyncio.sleep(0.005)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


def _unacknowledged(descriptor: int) -> int:
    """Bytes that were sent and have not arrived."""
    counted = bytearray(4)
    fcntl.ioctl(descriptor, termios.TIOCOUTQ, counted)
    return int.from_bytes(counted, "little")


def flooding_body(size: int, ending: str, *, is_sized: bool) -> Behaviour:
    """The same as an ordinary answer: a log, a page of a service."""

    async def behaviour(asked: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        length = f"content-length: {size}\r\n" if is_sized else ""
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nconnection: close\r\n{length}\r\n".encode())
        content = output(size)
        for start in range(0, size, MESSAGE):
            writer.write(content[start : start + MESSAGE])
            await writer.drain()
        await _end(writer, ending)
        return False

    return behaviour
