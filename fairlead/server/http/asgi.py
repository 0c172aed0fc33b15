"""The ASGI application: turns requests into a `Call`, and a `Reply` into a response, stream or WebSocket.

`http_server.py` runs the HTTP server, which runs one coroutine for each request. We use its ASGI interface. RSGI, its
own one, is slightly faster, but exposes neither the raw path nor the WebSocket subprotocols, which the gateways need,
and it buffers streams in memory without back pressure. With ASGI, `send` waits until the client has read.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs

from fairlead.core.call import Call, Handler, Reply, empty_stream
from fairlead.core.waiting import end_tasks
from fairlead.server.http.disconnect import close_connection
from fairlead.server.http.origins import Origins, format_address
from fairlead.server.http.request import (
    HEADERS_TOO_LARGE,
    Receive,
    RequestBody,
    RequestHeaders,
    are_headers_too_large,
)
from fairlead.server.http.response import build_headers
from fairlead.server.http.slow_clients import StallDetector
from fairlead.server.http.unsent import (
    CHUNKS_PER_YIELD,
    MAX_SMALL_BYTES,
    MAX_SMALL_HTTP1_BYTES,
    MAX_STALL_SECONDS,
    ClientMemoryLimiter,
    send_in_chunks,
)
from fairlead.server.http.websocket import MessageIntake, Send, run_websocket

FLUSH_SECONDS = 0.25
"""How long granian gets to send the end of the last streams before it is stopped."""
AUDIT_ID_BATCH_SIZE = 256
STALL_CHECK_SECONDS = 5.0
"""How often a stream is checked for progress. A client that has read nothing since is disconnected, and reconnects."""

MAX_STREAM_CHUNK_BYTES = 32 * 1024
"""Bytes of a stream passed to one `send`. The HTTP server buffers several of them before the client reads any."""


AsgiScope = dict[str, Any]
"""The connection scope of ASGI."""


FastAnswer = Callable[[AsgiScope], tuple[Call, Reply] | None]
"""Answers a GET without a query at once, or leaves it to the pipeline. Implemented in `server/fast_reads.py`."""


class AsgiApp:
    """The ASGI application. `limiter` bounds the memory of responses that clients have not read. `origins` knows where
    requests come from."""

    def __init__(
        self,
        handle: Handler,
        body_limit: int,
        limiter: ClientMemoryLimiter | None = None,
        origins: Origins | None = None,
        answer_fast: FastAnswer | None = None,
    ) -> None:
        self._handle = handle
        self._answer_fast = answer_fast
        self._origins = origins or Origins()
        self._limiter = limiter or ClientMemoryLimiter()
        self._whole_responses = self._limiter.whole_responses
        self._body_limit = body_limit
        self._open_streams = 0
        self._stream_ended = asyncio.Event()
        self._messages = MessageIntake(self._limiter.message_limits)

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._serve_websocket(scope, receive, send)
            return
        if (
            self._answer_fast is not None
            and scope["method"] == "GET"
            and not scope["query_string"]
            and not self._whole_responses.unread_since
            and (answer := self._answer_fast(scope)) is not None
        ):
            call, reply = answer
            await send({"type": "http.response.start", "status": reply.status, "headers": build_headers(call, reply)})
            await send({"type": "http.response.body", "body": reply.body, "more_body": False})
            return
        call, headers = self._read_request(scope, scope["method"])
        version = scope["http_version"]
        is_http1 = version != "2"
        has_body = headers.has_body
        if has_body or not is_http1:  # in HTTP/2, a body needs no header
            body = RequestBody(headers, receive, self._body_limit, is_http1)
            call.read_body, call.stream_body = body.read, body.stream
        call.malformed_reason = call.malformed_reason or headers.find_ambiguity(call.method, call.path, version)
        if self._whole_responses.unread_since and is_http1:
            self._whole_responses.unread_since.pop(call.client, None)
        reply = await self._handle(call)
        try:
            if has_body:
                await body.discard()
            if is_http1 and (call.malformed_reason or (has_body and body.is_unfinished)):
                reply.headers = [*reply.headers, ("connection", "close")]
            if len(reply.body) > MAX_SMALL_BYTES and self._needs_chunking(call, reply, is_http1):
                await self._send_in_chunks(send, call, reply)
                return
            await send({"type": "http.response.start", "status": reply.status, "headers": build_headers(call, reply)})
            if reply.stream is None or call.method == "HEAD":
                content = b"" if call.method == "HEAD" else reply.body
                await send({"type": "http.response.body", "body": content, "more_body": False})
            else:
                await self._send_stream(receive, send, call, reply)
        finally:
            for close in reply.on_close:
                close()

    def _read_request(self, scope: AsgiScope, method: str) -> tuple[Call, RequestHeaders]:
        """The request, still without a body."""
        origins, query, (host, port) = self._origins, scope["query_string"].decode("latin-1"), scope["client"]
        target = scope["raw_path"].decode("latin-1") + ("?" + query if query else "")
        connection = origins.connections.get(host)
        headers = origins.read_headers(scope, connection)
        call = Call(
            method,
            scope["path"],
            parse_qs(query, keep_blank_values=True) if query else {},
            headers,
            read_no_body,
            format_address(host, port) if connection is None else format_address(connection.host, connection.port),
            next_audit_id(),
            target,
        )
        origins.describe(call, headers, host, connection)
        if are_headers_too_large(target, scope["headers"]):
            call.malformed_reason = HEADERS_TOO_LARGE
        return call, headers

    async def _send_stream(self, receive: Receive, send: Send, call: Call, reply: Reply) -> None:
        # granian sends the response head with the first chunk. A watch may be quiet for long, so send an empty one.
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        self._open_streams += 1
        try:
            await _send_stream(receive, send, call, reply, self._limiter)
        finally:
            self._open_streams -= 1
            self._stream_ended.set()

    def _needs_chunking(self, call: Call, reply: Reply, is_http1: bool) -> bool:
        """Whether a response is too large to pass to the HTTP server in one piece."""
        if call.method == "HEAD":
            return False
        size = len(reply.body)
        return not is_http1 or (size > MAX_SMALL_HTTP1_BYTES and not self._whole_responses.admit(call.client, size))

    async def _send_in_chunks(self, send: Send, call: Call, reply: Reply) -> None:
        handle = self._limiter.reserve_reply(call, reply)
        headers = [*build_headers(call, reply), (b"content-length", b"%d" % len(reply.body))]
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send_in_chunks(send, reply.body, handle)

    async def wait_for_streams(self, seconds: float) -> None:
        """Waits until all streams have ended, at most `seconds`. The caller has already asked them to end."""
        if not self._open_streams:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._open_streams:
                    self._stream_ended.clear()
                    await self._stream_ended.wait()
        # granian's threads still have to send the last frames; stopping it now would cut them off.
        await asyncio.sleep(FLUSH_SECONDS)

    async def _serve_websocket(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Runs a WebSocket handshake through the same pipeline. If rejected, it gets an ordinary HTTP response."""
        await receive()
        call, headers = self._read_request(scope, "GET")
        call.malformed_reason = call.malformed_reason or headers.find_ambiguity("GET", call.path, scope["http_version"])
        call.is_websocket = True
        offered = (name.strip() for name in ",".join(headers.get_all("sec-websocket-protocol")).split(","))
        call.subprotocols = tuple(name for name in offered if name)
        reply = await self._handle(call)
        if reply.upgrade is not None:
            try:
                incoming = await self._messages.add(call.client, call.user.name if call.user is not None else "")
                try:
                    await run_websocket(reply.upgrade, receive, send, incoming)
                finally:
                    self._messages.remove(incoming)
            finally:
                for close in reply.on_close:
                    close()
            return
        message = "websocket.http.response"
        await send({"type": f"{message}.start", "status": reply.status, "headers": build_headers(call, reply)})
        await send({"type": f"{message}.body", "body": reply.body, "more_body": False})


async def read_no_body() -> bytes:
    return b""


async def _send_stream(receive: Receive, send: Send, call: Call, reply: Reply, limiter: ClientMemoryLimiter) -> None:
    """Sends chunks until the stream ends, the client disconnects, or it stops reading."""
    sender = _StreamSender(send, reply, call, limiter)
    detector = StallDetector(call.client)
    stalled = 0.0
    sending = asyncio.ensure_future(sender.run())
    disconnect = asyncio.ensure_future(_wait_for_disconnect(receive))
    try:
        while True:
            before = sender.chunks_sent
            done, _ = await asyncio.wait(
                (sending, disconnect), timeout=STALL_CHECK_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            if done:
                break
            if sender.chunks_sent != before or not sender.is_sending:
                detector.reset()
                stalled = 0.0
            else:
                stalled += STALL_CHECK_SECONDS
                # Acknowledged bytes may belong to other HTTP/2 streams of the connection, hence the upper bound.
                if stalled > MAX_STALL_SECONDS or not await detector.is_making_progress():
                    break
            if not sender.is_sending:
                # Sends nothing, but only a send detects that the HTTP/2 stream was reset.
                await send({"type": "http.response.body", "body": b"", "more_body": True})
        is_aborted = not disconnect.done() and (not sending.done() or sending.exception() is not None)
        if is_aborted and not detector.shut_down():
            close_connection(call.client)
    finally:
        detector.close()
        await end_tasks(sending, disconnect)
        await sender.close()


class _StreamSender:
    """Sends the chunks of a stream at the pace at which the client reads them."""

    __slots__ = ("_call", "_limiter", "_reply", "_send", "chunks_sent", "is_sending")

    def __init__(self, send: Send, reply: Reply, call: Call, limiter: ClientMemoryLimiter) -> None:
        self._send = send
        self._reply = reply
        self._call = call
        self._limiter = limiter
        self.chunks_sent = 0
        self.is_sending = False

    async def run(self) -> None:
        # The iterator allocates a chunk when it is asked for the next one, so check the memory limits first.
        if self._limiter.has_reservations:
            await self._limiter.wait_for_room(self._call)
        chunks, observers = self._reply.stream or empty_stream(), self._reply.on_chunk
        async for chunk in chunks:
            for observe in observers:
                observe(chunk)
            self.is_sending = True
            if len(chunk) <= MAX_STREAM_CHUNK_BYTES:
                await self._send({"type": "http.response.body", "body": chunk, "more_body": True})
            else:
                await self._send_large_chunk(chunk)
            self.is_sending = False
            self.chunks_sent += 1
            if self.chunks_sent % CHUNKS_PER_YIELD == 0:
                await asyncio.sleep(0)
            if self._limiter.has_reservations:
                await self._limiter.wait_for_room(self._call)
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_large_chunk(self, chunk: bytes) -> None:
        """Splits a large chunk, because the HTTP server buffers several sends before the client has read any."""
        handle = self._limiter.reserve_chunk(self._call, chunk)
        try:
            for at in range(0, len(chunk), MAX_STREAM_CHUNK_BYTES):
                piece = chunk[at : at + MAX_STREAM_CHUNK_BYTES]
                await self._send({"type": "http.response.body", "body": piece, "more_body": True})
                self.chunks_sent += 1
                handle.reservation.chunks_sent = self.chunks_sent
                if self.chunks_sent % CHUNKS_PER_YIELD == 0:
                    await asyncio.sleep(0)
        finally:
            handle.release()

    async def close(self) -> None:
        """Closes the source, which may be suspended at a chunk that was never sent."""
        if isinstance(self._reply.stream, AsyncGenerator):
            with suppress(Exception):  # the stream is already abandoned
                await self._reply.stream.aclose()


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _generate_audit_ids() -> Iterator[str]:
    """Random audit IDs in UUID format, generated in batches to save system calls."""
    while True:
        text = os.urandom(16 * AUDIT_ID_BATCH_SIZE).hex()
        yield from [
            f"{text[at : at + 8]}-{text[at + 8 : at + 12]}-4{text[at + 13 : at + 16]}"
            f"-a{text[at + 17 : at + 20]}-{text[at + 20 : at + 32]}"
            for at in range(0, len(text), 32)
        ]


next_audit_id = _generate_audit_ids().__next__
