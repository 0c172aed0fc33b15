"""The only module that speaks to the HTTP server: its request becomes a Call, our Reply its response or stream.

granian runs embedded, in our own event loop and process: TLS, HTTP/1.1 and HTTP/2 are handled by its threads, and
what reaches Python is one coroutine per request.
"""

import asyncio
import os
import resource
import socket
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qs

from granian.constants import HTTPModes
from granian.http import HTTP1Settings, HTTP2Settings
from granian.server.embed import Server

from fairlead.core.call import Call, Reply
from fairlead.core.errors import BadRequest, TooLarge
from fairlead.server.pacing import Pace, Paces
from fairlead.server.pipeline import Proceed

HEADER_BYTES = 64 * 1024
MAX_PAUSES = 16
"""Empty chunks in a body: a few are a client's habit, more are a connection that is gone."""
HEADER_MILLISECONDS = 10_000
DISCARD_SECONDS = 5.0
WARNINGS_BYTES = 4 * 1024
MAX_CONNECTIONS = 65_536
"""Far more than there are file descriptors, so that silent connections do not keep the others from being served."""
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
    http_version: str
    authority: str | None


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
        body = Body(scope, proto, self._body_limit)
        call = Call(
            scope.method,
            scope.path,
            query,
            scope.headers,
            body.read,
            scope.client,
            scope.authority or "",
            _audit_id(),
        )
        reply = await self._handle(call)
        await body.discard()
        if reply.stream is None or scope.method == "HEAD":
            self._paces.note(scope.client, len(reply.body))
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


class Body:
    """A request's body: read at most once, by whoever needs it."""

    def __init__(self, scope: Scope, proto: Any, limit: int) -> None:
        self._scope = scope
        self._proto = proto
        self._limit = limit
        self._untouched = True

    async def read(self) -> bytes:
        """The whole body, or an error if it is too large or only a part of it came."""
        body = bytearray()
        size, pauses = await self._take_in(body)
        if size > self._limit:
            raise TooLarge(f"Request entity too large: limit is {self._limit}")
        announced = self._scope.headers.get("content-length")
        if pauses > MAX_PAUSES or _broke_off(announced, size, pauses, self._scope.http_version):
            raise BadRequest("the body broke off before its end")
        return bytes(body)

    async def discard(self) -> None:
        """Takes in what nobody asked for: a client that is still sending would never see an answer sent before."""
        headers = self._scope.headers
        if not self._untouched or (headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers):
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(DISCARD_SECONDS):
                await self._take_in(None)

    async def _take_in(self, kept: bytearray | None) -> tuple[int, int]:
        """Reads as far as it makes sense and keeps what fits; tells the size, and how many chunks were empty."""
        self._untouched = False
        size, pauses = 0, 0
        async for chunk in self._proto:
            size += len(chunk)
            pauses += not chunk
            if kept is not None and size <= self._limit:
                kept += chunk
            if size > self._limit * DRAIN_FACTOR or pauses > MAX_PAUSES:
                break
        return size, pauses


def _broke_off(announced: str | None, size: int, pauses: int, version: str) -> bool:
    """Whether only a part of the body has arrived. Half an object must never be taken for a whole one.

    Without an announced length, granian tells it by an empty chunk of its own before the one that ends every body.
    HTTP/2 clients send empty chunks themselves, but there a body that breaks off has nobody left to be answered.
    """
    if announced is not None:
        return not announced.isdecimal() or int(announced) != size
    return pauses > 1 and not version.startswith("2")


def _headers(call: Call, reply: Reply) -> list[tuple[str, str]]:
    headers = [("content-type", reply.content_type), ("audit-id", call.audit_id), *reply.headers]
    if not reply.cacheable:
        headers.append(("cache-control", "no-cache, private"))
    headers.extend(("warning", f"299 - {warning}") for warning in _told(call.warnings))
    return headers


def _told(warnings: Iterable[str]) -> Iterator[str]:
    """Warnings as header values, each once, as many as clients can be expected to read."""
    room = WARNINGS_BYTES
    for warning in dict.fromkeys(warnings):
        quoted = _quoted(warning)
        room -= len(quoted)
        if room < 0:
            return
        yield quoted


def _send(method: str, proto: Any, call: Call, reply: Reply) -> None:
    if method == "HEAD":
        proto.response_empty(reply.status, _headers(call, reply))
    else:
        proto.response_bytes(reply.status, _headers(call, reply), reply.body)


def _quoted(text: str) -> str:
    """Text for a header: printable ASCII only, the rest written as escapes."""
    plain = "".join(each if each.isascii() and each.isprintable() else ascii(each)[1:-1] for each in text)
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'


async def _disconnected(proto: Any) -> None:
    """granian's awaitables are no futures; only a coroutine around one makes a task that can be cancelled."""
    await proto.client_disconnect()


async def _pump(transport: Any, chunks: AsyncIterator[bytes], pace: Pace) -> None:
    """Hands chunks over as the client reads them. One that reads nothing for long is let go; it will come again."""
    async for chunk in chunks:
        if not await pace.may_go_on():
            return
        await transport.send_bytes(chunk)
        pace.sent(len(chunk))


def allow_many_connections() -> None:
    """Every connection is a descriptor, and silent ones are cheap: take as many as this process may have."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@asynccontextmanager
async def listening(front: Front, where: Listening) -> AsyncIterator[int]:
    """Serves while the context lasts; yields the port. Leaving it finishes the requests under way."""
    allow_many_connections()
    server = Server(
        front,
        address=where.address,
        port=where.port,
        http=HTTPModes.auto,
        websockets=False,
        backlog=1024,
        backpressure=MAX_CONNECTIONS,
        log_enabled=False,
        ssl_cert=where.cert_file,
        ssl_key=where.key_file,
        http1_settings=HTTP1Settings(max_buffer_size=HEADER_BYTES, header_read_timeout=HEADER_MILLISECONDS),
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
