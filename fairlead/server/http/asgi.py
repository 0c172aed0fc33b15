"""The only module that speaks to the HTTP server: its request becomes a Call, our Reply its response or stream.

granian runs embedded, in our own event loop and process: TLS, HTTP/1.1 and HTTP/2 are handled by its threads, and
what reaches Python is one coroutine per request. Of its interfaces this is ASGI: its own, RSGI, is a little faster, but
knows neither a path as it was sent nor the subprotocols of WebSockets, which gateways need, and takes streams into
memory as fast as they are made. Here, to send waits until the client has read.
"""

import asyncio
import os
import resource
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings, HTTP2Settings
from granian.server.embed import Server

from fairlead.core.call import Call, Reply
from fairlead.server.http.disconnect import sever
from fairlead.server.http.memory_budgets import WholeAnswers
from fairlead.server.http.pipeline import Proceed
from fairlead.server.http.request import Body, Receive, ReceivedHeaders
from fairlead.server.http.slow_clients import SlowClient
from fairlead.server.http.unsent import LONGEST_STALL, SINGLE_BYTES, SMALL_BYTES, YIELD_PIECES, Unsent, send_in_pieces
from fairlead.server.http.websocket import Send, go_on

HEADER_BYTES = 64 * 1024
HEADER_MILLISECONDS = 10_000
WARNINGS_BYTES = 4 * 1024
MAX_CONNECTIONS = 65_536
"""Far more than there are file descriptors, so that silent connections do not keep the others from being served."""
MAX_STREAMS = 100
"""Requests at once on one connection of HTTP/2, as many as kube-apiserver allows. Clients open another one for more."""
WINDOW_BYTES = 256 * 1024
"""What may come in over one connection of HTTP/2 before anybody asks for it."""
SEND_BUFFER_BYTES = 64 * 1024
"""What waits in the HTTP server of one answer over HTTP/2."""
AUDIT_IDS = 256
LOOK_SECONDS = 5.0
"""How often a stream is looked at: a client that has taken in nothing meanwhile is let go; it will come again."""

PIECE_BYTES = 32 * 1024
"""What is handed over of a stream at once: the HTTP server takes several of these before the client has read any."""

NOT_MODIFIED = 304
NO_CONTENT = frozenset({204, NOT_MODIFIED})
"""Answers without a body, and so without its type: clients write that of a 304 into the answer that they have kept."""

NOSNIFF = (b"x-content-type-options", b"nosniff")
"""On every answer, so that no browser takes it for something else than it says; an installation may set its own."""

Scope = dict[str, Any]
"""What granian tells of a request, as ASGI has it."""


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

    def __init__(self, handle: Proceed, body_limit: int, unsent: Unsent | None = None) -> None:
        self._handle = handle
        self._unsent = unsent or Unsent()
        self._whole = WholeAnswers()
        self._body_limit = body_limit
        self._streaming = 0
        self._stream_ended = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._socket(scope, receive, send)
            return
        headers, is_framed = ReceivedHeaders(scope["headers"]), scope["http_version"].startswith("1")
        body = Body(headers, receive, self._body_limit, is_framed)
        call = _call(scope, scope["method"], headers, body)
        call.fault = headers.find_ambiguity(call.method, call.path, scope["http_version"])
        if self._whole.unread and is_framed:
            self._whole.unread.pop(call.client, None)
        answer = self._handle(call)
        reply = answer if isinstance(answer, Reply) else await answer
        if headers.announce_a_body:
            await body.discard()
        if is_framed and (call.fault or (headers.announce_a_body and body.is_unfinished)):
            reply.headers = [*reply.headers, ("connection", "close")]
        if len(reply.body) > SMALL_BYTES and self._goes_in_pieces(call, reply, is_framed):
            await self._send_large(send, call, reply)
        elif reply.stream is None or call.method == "HEAD":
            content = b"" if call.method == "HEAD" else reply.body
            await send({"type": "http.response.start", "status": reply.status, "headers": _headers(call, reply)})
            await send({"type": "http.response.body", "body": content, "more_body": False})
        else:
            await send({"type": "http.response.start", "status": reply.status, "headers": _headers(call, reply)})
            # The head waits for a first chunk. A watch may have none for long, and its client wants to know it stands.
            await send({"type": "http.response.body", "body": b"", "more_body": True})
            self._streaming += 1
            try:
                await _stream(receive, send, call, reply.stream, self._unsent)
            finally:
                self._streaming -= 1
                self._stream_ended.set()

    def _goes_in_pieces(self, call: Call, reply: Reply, is_framed: bool) -> bool:
        """Whether an answer is too large to be left to the HTTP server as a whole."""
        if call.method == "HEAD":
            return False
        size = len(reply.body)
        return not is_framed or (size > SINGLE_BYTES and not self._whole.admit(call.client, size))

    async def _send_large(self, send: Send, call: Call, reply: Reply) -> None:
        holding = self._unsent.hold_reply(call, reply)
        headers = [*_headers(call, reply), (b"content-length", b"%d" % len(reply.body))]
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send_in_pieces(send, reply.body, holding)

    async def finish_streams(self, seconds: float) -> None:
        """Waits for all streams to come to their ends, which somebody has told them to; not longer than this."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._streaming:
                    self._stream_ended.clear()
                    await self._stream_ended.wait()

    async def _socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A request to go on as a WebSocket: it passes the same stages, and is answered like any other if refused."""
        await receive()
        headers = ReceivedHeaders(scope["headers"])
        call = _call(scope, "GET", headers, Body(headers, _nothing, self._body_limit))
        call.fault = headers.find_ambiguity("GET", call.path, scope["http_version"])
        call.wants_socket = True
        offered = (each.strip() for each in ",".join(headers.get_all("sec-websocket-protocol")).split(","))
        call.protocols = tuple(each for each in offered if each)
        reply = await self._handle(call)
        if reply.upgrade is not None:
            await go_on(reply.upgrade, receive, send, call.client)
            return
        kind = "websocket.http.response"
        await send({"type": f"{kind}.start", "status": reply.status, "headers": _headers(call, reply)})
        await send({"type": f"{kind}.body", "body": reply.body, "more_body": False})


async def _nothing() -> dict[str, Any]:
    return {"type": "http.request", "body": b"", "more_body": False}


def _call(scope: Scope, method: str, headers: ReceivedHeaders, body: Body) -> Call:
    query = scope["query_string"].decode("latin-1")
    host, port = scope["client"]
    return Call(
        method,
        scope["path"],
        parse_qs(query, keep_blank_values=True) if query else {},
        headers,
        body.read,
        f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
        _next_audit_id(),
        scope["raw_path"].decode("latin-1") + ("?" + query if query else ""),
        body.stream,
    )


async def _stream(receive: Receive, send: Send, call: Call, chunks: AsyncIterator[bytes], unsent: Unsent) -> None:
    """Sends until the stream ends or the client goes away, whichever is first."""
    pump, slow, stalled = _Pump(send, chunks, call, unsent), SlowClient(call.client), 0.0
    sending = asyncio.ensure_future(pump.run())
    gone = asyncio.ensure_future(_disconnected(receive))
    try:
        while True:
            before = pump.sent
            done, _ = await asyncio.wait((sending, gone), timeout=LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if done:
                break
            if pump.sent != before or not pump.is_waiting:
                slow.go_on()
                stalled = 0.0
            else:
                stalled += LOOK_SECONDS
                # What arrives on the connection may be other streams of HTTP/2, so this is not asked for ever.
                if stalled > LONGEST_STALL or not await slow.takes_enough():
                    break
            if not pump.is_waiting:
                # Nothing is sent by this, but a stream of HTTP/2 that was reset is only noticed by whoever sends.
                await send({"type": "http.response.body", "body": b"", "more_body": True})
        is_cut_short = not gone.done() and (not sending.done() or sending.exception() is not None)
        if is_cut_short and not slow.cut():
            sever(call.client)
    finally:
        slow.close()
        for task in (sending, gone):
            task.cancel()
        await asyncio.gather(sending, gone, return_exceptions=True)
        await pump.close()


class _Pump:
    """Hands chunks over as the client reads them."""

    __slots__ = ("_call", "_chunks", "_send", "_unsent", "is_waiting", "sent")

    def __init__(self, send: Send, chunks: AsyncIterator[bytes], call: Call, unsent: Unsent) -> None:
        self._send = send
        self._chunks = chunks
        self._call = call
        self._unsent = unsent
        self.sent = 0
        self.is_waiting = False

    async def run(self) -> None:
        # Chunks are made when they are asked for, and in memory from then on: nobody gets one more than he may have.
        if self._unsent.is_used:
            await self._unsent.wait_for_room(self._call)
        async for chunk in self._chunks:
            self.is_waiting = True
            if len(chunk) <= PIECE_BYTES:
                await self._send({"type": "http.response.body", "body": chunk, "more_body": True})
            else:
                await self._hand_over_in_pieces(chunk)
            self.is_waiting = False
            self.sent += 1
            if self._unsent.is_used:
                await self._unsent.wait_for_room(self._call)
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _hand_over_in_pieces(self, chunk: bytes) -> None:
        """The HTTP server copies some of what it is given before the client reads; of large chunks not more, either."""
        holding = self._unsent.hold_chunk(self._call, chunk)
        try:
            for at in range(0, len(chunk), PIECE_BYTES):
                piece = chunk[at : at + PIECE_BYTES]
                await self._send({"type": "http.response.body", "body": piece, "more_body": True})
                self.sent += 1
                holding.held.sent = self.sent
                if self.sent % YIELD_PIECES == 0:
                    await asyncio.sleep(0)
        finally:
            holding.release()

    async def close(self) -> None:
        """Lets go of the source, which may be waiting in the middle of a chunk that nobody took."""
        if isinstance(self._chunks, AsyncGenerator):
            with suppress(Exception):  # it has been given up already
                await self._chunks.aclose()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _audit_ids() -> Iterator[str]:
    """Random names for requests, in the shape of UUIDs. The kernel is asked for many at once, which costs the same."""
    while True:
        text = os.urandom(16 * AUDIT_IDS).hex()
        yield from [
            f"{text[at : at + 8]}-{text[at + 8 : at + 12]}-4{text[at + 13 : at + 16]}"
            f"-a{text[at + 17 : at + 20]}-{text[at + 20 : at + 32]}"
            for at in range(0, len(text), 32)
        ]


_next_audit_id = _audit_ids().__next__


def _headers(call: Call, reply: Reply) -> list[tuple[bytes, bytes]]:
    headers = [(b"audit-id", call.audit_id.encode())]
    if reply.status != NOT_MODIFIED:
        headers.append(NOSNIFF)
    if reply.content_type and reply.status not in NO_CONTENT:
        headers.append((b"content-type", reply.content_type.encode("latin-1")))
    if not reply.cacheable:
        headers.append((b"cache-control", b"no-cache, private"))
    if reply.headers:
        given = [(name.encode(), value.encode("latin-1")) for name, value in reply.headers]
        if reply.status != NOT_MODIFIED and any(name == NOSNIFF[0] for name, _ in given):
            headers.remove(NOSNIFF)
        headers += given
    if call.warnings:
        headers += [(b"warning", f"299 - {warning}".encode()) for warning in _told(call.warnings)]
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


def _quoted(text: str) -> str:
    """Text for a header: printable ASCII only, the rest written as escapes."""
    plain = "".join(each if each.isascii() and each.isprintable() else ascii(each)[1:-1] for each in text)
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'


def allow_many_connections() -> None:
    """Every connection is a descriptor, and silent ones are cheap: take as many as this process may have."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@asynccontextmanager
async def listening(front: Front, where: Listening, interface: Interfaces = Interfaces.ASGINL) -> AsyncIterator[int]:
    """Serves while the context lasts; yields the port. Leaving it finishes the requests under way.

    `interface` is another one only for what the benchmarks hold us against.
    """
    allow_many_connections()
    server = Server(
        front,
        interface=interface,
        address=where.address,
        port=where.port,
        http=HTTPModes.auto,
        websockets=True,
        backlog=1024,
        backpressure=MAX_CONNECTIONS,
        log_enabled=False,
        ssl_cert=where.cert_file,
        ssl_key=where.key_file,
        http1_settings=HTTP1Settings(max_buffer_size=HEADER_BYTES, header_read_timeout=HEADER_MILLISECONDS),
        http2_settings=HTTP2Settings(
            initial_connection_window_size=WINDOW_BYTES,
            initial_stream_window_size=WINDOW_BYTES,
            max_concurrent_streams=MAX_STREAMS,
            max_headers_size=HEADER_BYTES,
            max_send_buffer_size=SEND_BUFFER_BYTES,
        ),
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
