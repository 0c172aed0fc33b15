"""An API server on a local address that passes requests on to a cluster, for another program: Helm.

It has a certificate and a token of its own, which end with it. The program sends HTTP/1.1; each request goes through
`sender`, which attaches the cluster's credential or leaves that to its agent, and dials allowed addresses only.
Redirects do not reach the program, which would follow them to any address that this machine reaches: users choose the
API servers of virtual clusters. Bodies of requests are read whole, as those of Helm are objects; responses are
streamed, as some are watches.
"""

import asyncio
import secrets
import ssl
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from pathlib import Path

import orjson
from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from fairlead.core.crypto.certificates import ensure_certificates
from fairlead.core.errors import ApiError
from fairlead.core.waiting import end_tasks
from fairlead.upstream.access import ClusterEndpoint, Request
from fairlead.upstream.errors import UpstreamError
from fairlead.upstream.kube_client import RequestSender
from fairlead.upstream.messages import BODYLESS_STATUSES, NEVER_FORWARDED, Response, select_headers

MAX_HEAD_BYTES = 64 * 1024
MAX_BODY_BYTES = 8 * 1024 * 1024
"""Larger than any object that an API server accepts."""
MAX_CONNECTIONS = 256
READ_BYTES = 64 * 1024
IDLE_SECONDS = 120.0
CLOSE_SECONDS = 5.0
_KNOWN_STATUSES = frozenset(map(int, HTTPStatus))
_DROPPED = NEVER_FORWARDED - {"content-length"}
"""Of the response: hop-by-hop headers. Its length is kept."""


@asynccontextmanager
async def local_gateway(sender: RequestSender) -> AsyncIterator[ClusterEndpoint]:
    """Listens on 127.0.0.1 until the exit. Yields the endpoint for the program."""
    context, authority = await asyncio.to_thread(_issue_certificate)
    token = secrets.token_urlsafe(32)
    connections = _Connections(sender, token)
    server = await asyncio.start_server(connections.serve, "127.0.0.1", 0, ssl=context, limit=READ_BYTES)
    host, port = server.sockets[0].getsockname()
    try:
        yield ClusterEndpoint(host, port, "", "localhost", authority, token)
    finally:
        server.close()
        await connections.close()


def _issue_certificate() -> tuple[ssl.SSLContext, str]:
    """A server context with a new certificate, and its CA as PEM. No file of either is left."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(["http/1.1"])
    with tempfile.TemporaryDirectory(prefix="fairlead-gateway-") as folder:
        created = ensure_certificates(Path(folder))
        context.load_cert_chain(created.cert_file, created.key_file)
        return context, (created.ca_file or created.cert_file).read_text()


class _Connections:
    """The connections of the program, each a task."""

    def __init__(self, sender: RequestSender, token: str) -> None:
        self._sender = sender
        self._authorization = f"Bearer {token}".encode()
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if len(self._tasks) <= MAX_CONNECTIONS:
                with suppress(OSError, TimeoutError):
                    while await self._serve_request(_RequestReader(reader), writer):
                        pass
                    writer.close()
                    async with asyncio.timeout(CLOSE_SECONDS):
                        await writer.wait_closed()
        except asyncio.CancelledError:
            return  # the gateway has ended, and waits for this task
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def close(self) -> None:
        await end_tasks(*self._tasks)

    async def _serve_request(self, request: "_RequestReader", writer: asyncio.StreamWriter) -> bool:
        """Answers one request. Returns whether the connection can have another."""
        try:
            if not await request.read_head():
                return False
        except HttpParserError:
            await _send_error(
                writer, HTTPStatus.BAD_REQUEST, "the request is not valid HTTP/1.1, or asks for an upgrade"
            )
            return False
        if not secrets.compare_digest(request.authorization, self._authorization):
            await _send_error(
                writer, HTTPStatus.UNAUTHORIZED, "the bearer token of this local gateway is missing or wrong"
            )
            return False
        try:
            response = await self._sender.send(await request.read())
        except HttpParserError:
            await _send_error(writer, HTTPStatus.BAD_REQUEST, "the body of the request is not valid, or too large")
            return False
        except ApiError as error:
            await _send_error(writer, HTTPStatus(error.code), error.message)
            return False
        except UpstreamError as error:
            await _send_error(writer, HTTPStatus.SERVICE_UNAVAILABLE, error.message)
            return False
        try:
            if 300 <= response.status < 400 and response.status != HTTPStatus.NOT_MODIFIED:
                message = "the cluster responded with a redirect, which is not followed"
                await _send_error(writer, HTTPStatus.BAD_GATEWAY, message)
                return False
            await _send_response(writer, response, request.method)
            return request.keeps_alive
        except UpstreamError:  # in the middle of the body: the program sees a closed connection
            return False
        finally:
            await response.close()


class _RequestReader:
    """Reads one request. The callbacks are those of the parser."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._parser = HttpRequestParser(self)
        self._target = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._body = bytearray()
        self._size = 0
        self._has_head = self._is_complete = False

    def on_url(self, url: bytes) -> None:
        if self._is_complete:
            raise ValueError("the next request has begun before this one was answered")
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._has_head = True

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        self._is_complete = True

    @property
    def method(self) -> str:
        return str(self._parser.get_method().decode("latin-1"))

    @property
    def keeps_alive(self) -> bool:
        return bool(self._parser.should_keep_alive())

    @property
    def authorization(self) -> bytes:
        values = [value for name, value in self._headers if name == b"authorization"]
        return values[0] if len(values) == 1 else b""

    async def read_head(self) -> bool:
        """Whether there is a request. Raises HttpParserError, TimeoutError."""
        while not self._has_head:
            async with asyncio.timeout(IDLE_SECONDS):
                if not await self._feed(MAX_HEAD_BYTES):
                    return False
        return True

    async def read(self) -> Request:
        """The request with its body. Raises HttpParserError, TimeoutError."""
        while not self._is_complete:
            async with asyncio.timeout(IDLE_SECONDS):
                if not await self._feed(MAX_BODY_BYTES + MAX_HEAD_BYTES):
                    raise HttpParserError("the request has no end")
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in self._headers]
        target = self._target.decode("latin-1")
        return Request(self.method, target, select_headers(headers), bytes(self._body))

    async def _feed(self, limit: int) -> bool:
        data = await self._reader.read(READ_BYTES)
        self._size += len(data)
        if self._size > limit:
            raise HttpParserError("the request is too large")
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            raise HttpParserError("upgrades are not carried") from None
        return bool(data)


async def _send_response(writer: asyncio.StreamWriter, response: Response, method: str) -> None:
    headers = select_headers(response.headers, _DROPPED)
    has_length = any(name == "content-length" for name, _ in headers)
    has_body = method != "HEAD" and response.status not in BODYLESS_STATUSES
    is_chunked = has_body and not has_length
    writer.write(_encode_head(response.status, [*headers, *([("transfer-encoding", "chunked")] if is_chunked else [])]))
    while chunk := await response.read_chunk():
        writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk) if is_chunked else chunk)
        await writer.drain()
    if is_chunked:
        writer.write(b"0\r\n\r\n")
    await writer.drain()


async def _send_error(writer: asyncio.StreamWriter, code: HTTPStatus, message: str) -> None:
    """As an API server says it, so that the program repeats the message."""
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": int(code)}
    body = orjson.dumps(status)
    headers = [("content-type", "application/json"), ("content-length", str(len(body))), ("connection", "close")]
    writer.write(_encode_head(int(code), headers) + body)
    await writer.drain()


def _encode_head(status: int, headers: Sequence[tuple[str, str]]) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    phrase = HTTPStatus(status).phrase if status in _KNOWN_STATUSES else ""
    return f"HTTP/1.1 {status} {phrase}\r\n{lines}\r\n".encode("latin-1")
