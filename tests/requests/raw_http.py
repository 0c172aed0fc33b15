"""An HTTP/1.1 client over TLS that sends requests unchecked, so that tests can send malformed ones.

Connections are kept alive as long as the server allows. Nothing is checked, escaped or repaired.
"""

import asyncio
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from types import TracebackType
from urllib.parse import urlsplit

from tests.harness.server_process import Server

RESPONSE_TIMEOUT_SECONDS = 30.0
"""Seconds without a response after which a request counts as hanging. It is no performance limit."""

_MAX_HEAD_BYTES = 4 * 1024 * 1024

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True, slots=True)
class RawRequest:
    """A request. Texts are encoded as latin-1, so they can hold invalid UTF-8."""

    method: str
    path: str
    query: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    chunked: bool = False

    def to_bytes(self) -> bytes:
        target = f"{self.path}?{'&'.join(self.query)}" if self.query else self.path
        lines = [f"{self.method} {target} HTTP/1.1", "Host: hostile.test"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        if self.chunked:
            lines.append("Transfer-Encoding: chunked")
        elif self.body:
            lines.append(f"Content-Length: {len(self.body)}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + (
            _encode_chunks(self.body) if self.chunked else self.body
        )

    def iter_simplified(self) -> Iterator["RawRequest"]:
        """The same request without one of its parts."""
        for at in range(len(self.query)):
            yield replace(self, query=self.query[:at] + self.query[at + 1 :])
        for at in range(len(self.headers)):
            yield replace(self, headers=self.headers[:at] + self.headers[at + 1 :])
        if self.chunked:
            yield replace(self, chunked=False)
        if self.body:
            yield replace(self, body=b"")


async def open_connection(server: Server) -> Streams:
    parts = urlsplit(server.url)
    host, tls_context = parts.hostname or "", _build_tls_context(server.ca_file)
    return await asyncio.open_connection(host, parts.port, ssl=tls_context, server_hostname=host, limit=_MAX_HEAD_BYTES)


@cache
def _build_tls_context(ca_file: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=ca_file)
    context.set_alpn_protocols(["http/1.1"])
    return context


def _encode_chunks(body: bytes) -> bytes:
    half = len(body) // 2
    parts = [part for part in (body[:half], body[half:]) if part]
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class RawResponse:
    """A response. Of a stream only the head is read. A status of 0 means no response, and `body` says why."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    seconds: float = 0.0

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key == name), "")

    @property
    def is_stream(self) -> bool:
        return self.header("transfer-encoding") == "chunked"

    @property
    def closes_connection(self) -> bool:
        return self.is_stream or not self.status or self.header("connection") == "close"


class RawConnection:
    """One client's connection, opened on demand and reopened after the server has closed it."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._streams: Streams | None = None

    async def __aenter__(self) -> "RawConnection":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def send(self, request: RawRequest) -> RawResponse:
        """Sends a request and returns the response, or status 0 if the connection fails."""
        start = time.monotonic()
        try:
            async with asyncio.timeout(RESPONSE_TIMEOUT_SECONDS):
                response = await self._exchange(request)
        except TimeoutError:
            response = RawResponse(0, body=b"no response")
        except (OSError, asyncio.IncompleteReadError, ValueError) as error:
            response = RawResponse(0, body=repr(error).encode())
        if response.closes_connection:
            await self.close()
        return replace(response, seconds=time.monotonic() - start)

    async def _exchange(self, request: RawRequest) -> RawResponse:
        is_reused = self._streams is not None
        try:
            return await self._exchange_once(request)
        except (OSError, asyncio.IncompleteReadError):
            # The server may close an idle connection at any time, which a client learns only by using it.
            if not is_reused:
                raise
        await self.close()
        return await self._exchange_once(request)

    async def _exchange_once(self, request: RawRequest) -> RawResponse:
        if self._streams is None:
            self._streams = await open_connection(self._server)
        reader, writer = self._streams
        writer.write(request.to_bytes())
        return await _read_response(reader, has_no_body=request.method == "HEAD")

    async def close(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None


def send_requests(server: Server, *requests: RawRequest) -> list[RawResponse]:
    """Sends the requests one after the other and returns their responses."""

    async def send_all() -> list[RawResponse]:
        async with RawConnection(server) as connection:
            return [await connection.send(each) for each in requests]

    return asyncio.run(send_all())


async def _read_response(reader: asyncio.StreamReader, *, has_no_body: bool) -> RawResponse:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    status = int(head[0].split(" ")[1])
    headers = tuple((name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in head[1:-2]))
    response = RawResponse(status, headers)
    if status == 100:
        return await _read_response(reader, has_no_body=has_no_body)
    if has_no_body or response.is_stream or status in (204, 304):
        return response
    return replace(response, body=await reader.readexactly(int(response.header("content-length") or 0)))
