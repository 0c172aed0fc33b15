"""The only module that speaks to the HTTP server: its request becomes a Call, our Reply its response or stream.

granian runs embedded, in our own event loop and process: TLS, HTTP/1.1 and HTTP/2 are handled by its threads, and
what reaches Python is one coroutine per request.
"""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qs

from granian.constants import HTTPModes
from granian.http import HTTP1Settings, HTTP2Settings
from granian.server.embed import Server

from fairlead.core.call import Call, Reply
from fairlead.core.errors import TooLarge
from fairlead.server.pacing import Pace, Paces
from fairlead.server.pipeline import Proceed

HEADER_BYTES = 64 * 1024
DRAIN_FACTOR = 4
"""How many times the limit of a body is read and thrown away, so that its sender comes to read the answer."""


class Scope(Protocol):
    """What granian tells of a request."""

    proto: str
    method: str
    path: str
    query_string: str
    headers: Any
    client: str


@dataclass(frozen=True, slots=True)
class Listening:
    """Where to listen, with which certificate, and how many seconds requests under way get to finish in the end."""

    address: str
    port: int
    cert_file: Path
    key_file: Path
    grace: float


class Front:
    """The application that granian calls."""

    def __init__(self, handle: Proceed, body_limit: int) -> None:
        self._handle = handle
        self._body_limit = body_limit
        self._paces = Paces()

    async def __rsgi__(self, scope: Scope, proto: Any) -> None:
        if scope.proto != "http":
            proto.close(404)
            return
        query = parse_qs(scope.query_string, keep_blank_values=True) if scope.query_string else {}
        call = Call(
            scope.method,
            scope.path,
            query,
            scope.headers,
            _body_reader(scope, proto, self._body_limit),
            scope.client,
            _audit_id(),
        )
        reply = await self._handle(call)
        if reply.stream is None:
            _send(scope.method, proto, call, reply)
        else:
            await self._stream(proto, call, reply, reply.stream)

    async def _stream(self, proto: Any, call: Call, reply: Reply, chunks: AsyncIterator[bytes]) -> None:
        """Sends until the stream ends or the client goes away, whichever is first."""
        transport = proto.response_stream(reply.status, _headers(call, reply))
        pace = self._paces.enter(call.client)
        sending = asyncio.ensure_future(_pump(transport, chunks, pace))
        gone = asyncio.ensure_future(_disconnected(proto))
        try:
            await asyncio.wait((sending, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, gone):
                task.cancel()
            await asyncio.gather(sending, gone, return_exceptions=True)
            self._paces.leave(call.client, pace)


def _audit_id() -> str:
    """A random name for the request, in the shape of a UUID but made several times as fast."""
    text = os.urandom(16).hex()
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-a{text[17:20]}-{text[20:]}"


def _body_reader(scope: Scope, proto: Any, limit: int) -> Callable[[], Any]:
    async def read() -> bytes:
        length = scope.headers.get("content-length")
        if length is not None and length.isdecimal() and int(length) <= limit:
            whole: bytes = await proto()
            return whole
        body, size = bytearray(), 0
        async for chunk in proto:
            size += len(chunk)
            if size <= limit:
                body += chunk
            elif size > limit * DRAIN_FACTOR:
                break
        if size > limit:
            raise TooLarge(f"Request entity too large: limit is {limit}")
        return bytes(body)

    return read


def _headers(call: Call, reply: Reply) -> list[tuple[str, str]]:
    headers = [("content-type", reply.content_type), ("audit-id", call.audit_id), *reply.headers]
    if not reply.cacheable:
        headers.append(("cache-control", "no-cache, private"))
    headers.extend(("warning", f"299 - {_quoted(warning)}") for warning in dict.fromkeys(call.warnings))
    return headers


def _send(method: str, proto: Any, call: Call, reply: Reply) -> None:
    if method == "HEAD":
        proto.response_empty(reply.status, _headers(call, reply))
    else:
        proto.response_bytes(reply.status, _headers(call, reply), reply.body)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'.encode("ascii", "backslashreplace").decode()


async def _disconnected(proto: Any) -> None:
    """granian's awaitables are no futures; only a coroutine around one makes a task that can be cancelled."""
    await proto.client_disconnect()


async def _pump(transport: Any, chunks: AsyncIterator[bytes], pace: Pace) -> None:
    async for chunk in chunks:
        await pace.wait()
        await transport.send_bytes(chunk)
        pace.sent(len(chunk))


@asynccontextmanager
async def listening(front: Front, where: Listening) -> AsyncIterator[int]:
    """Serves while the context lasts; yields the port. Leaving it finishes the requests under way."""
    server = Server(
        front,
        address=where.address,
        port=where.port,
        http=HTTPModes.auto,
        websockets=False,
        backlog=1024,
        log_enabled=False,
        ssl_cert=where.cert_file,
        ssl_key=where.key_file,
        http1_settings=HTTP1Settings(max_buffer_size=HEADER_BYTES),
        http2_settings=HTTP2Settings(max_headers_size=HEADER_BYTES),
    )
    serving = asyncio.create_task(server.serve(), name="http")
    try:
        await _accepting(where.address, where.port, serving)
        yield where.port
    finally:
        server.stop()  # type: ignore[no-untyped-call]  # granian leaves it unannotated
        await asyncio.wait((serving,), timeout=where.grace)


def free_port(address: str, port: int) -> int:
    """The port to listen on. granian shares ports between processes, so one in use must be noticed here."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((address, port))
        bound: int = probe.getsockname()[1]
        return bound


async def _accepting(address: str, port: int, serving: "asyncio.Task[None]") -> None:
    """Returns once connections are taken."""
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)
    while not serving.done():
        try:
            _, writer = await asyncio.open_connection(reachable, port)
        except OSError:
            await asyncio.sleep(0.01)
            continue
        writer.close()
        return
    await serving
