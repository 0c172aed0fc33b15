"""Requests and answers as bytes: a client that sends what no polite one would, over TLS and HTTP/1.1.

Connections are kept alive as long as the server lets them. Nothing is checked, escaped or mended on the way out.
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

PATIENCE = 10.0
"""Seconds without an answer after which a request counts as hanging. Nothing is measured with it."""

_LARGEST_HEAD = 4 * 1024 * 1024

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True, slots=True)
class Ask:
    """A request. Texts go out byte by byte (latin-1), so they can hold what is not UTF-8."""

    method: str
    path: str
    query: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    chunked: bool = False

    def wire(self) -> bytes:
        target = f"{self.path}?{'&'.join(self.query)}" if self.query else self.path
        lines = [f"{self.method} {target} HTTP/1.1", "Host: hostile.test"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        if self.chunked:
            lines.append("Transfer-Encoding: chunked")
        elif self.body:
            lines.append(f"Content-Length: {len(self.body)}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + (_chunks(self.body) if self.chunked else self.body)

    def simpler(self) -> Iterator["Ask"]:
        """The same with one thing less."""
        for at in range(len(self.query)):
            yield replace(self, query=self.query[:at] + self.query[at + 1 :])
        for at in range(len(self.headers)):
            yield replace(self, headers=self.headers[:at] + self.headers[at + 1 :])
        if self.chunked:
            yield replace(self, chunked=False)
        if self.body:
            yield replace(self, body=b"")


async def connected(server: Server) -> Streams:
    parts = urlsplit(server.url)
    host, trust = parts.hostname or "", _trusting(server.ca_file)
    return await asyncio.open_connection(host, parts.port, ssl=trust, server_hostname=host, limit=_LARGEST_HEAD)


@cache
def _trusting(ca_file: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=ca_file)
    context.set_alpn_protocols(["http/1.1"])
    return context


def _chunks(body: bytes) -> bytes:
    half = len(body) // 2
    pieces = [piece for piece in (body[:half], body[half:]) if piece]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. Of a stream only the head is read. A status of 0 is no answer, and `body` says why."""

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
    def ends_connection(self) -> bool:
        return self.is_stream or not self.status or self.header("connection") == "close"


class Line:
    """One client's connection, made when it is needed and made again when the server has closed it."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._streams: Streams | None = None

    async def __aenter__(self) -> "Line":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.hang_up()

    async def ask(self, ask: Ask) -> Answer:
        """The answer, whatever becomes of the connection."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(PATIENCE):
                answer = await self._exchange(ask)
        except TimeoutError:
            answer = Answer(0, body=b"no answer")
        except (OSError, asyncio.IncompleteReadError, ValueError) as error:
            answer = Answer(0, body=repr(error).encode())
        if answer.ends_connection:
            await self.hang_up()
        return replace(answer, seconds=time.monotonic() - began)

    async def _exchange(self, ask: Ask) -> Answer:
        reused = self._streams is not None
        try:
            return await self._once(ask)
        except (OSError, asyncio.IncompleteReadError):
            # The server may close an idle connection at any time, which a client learns only by using it.
            if not reused:
                raise
        await self.hang_up()
        return await self._once(ask)

    async def _once(self, ask: Ask) -> Answer:
        if self._streams is None:
            self._streams = await connected(self._server)
        reader, writer = self._streams
        writer.write(ask.wire())
        return await _read(reader, bodiless=ask.method == "HEAD")

    async def hang_up(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None


def answers(server: Server, *asks: Ask) -> list[Answer]:
    """What each of the requests gets, one after the other."""

    async def all_of_them() -> list[Answer]:
        async with Line(server) as line:
            return [await line.ask(each) for each in asks]

    return asyncio.run(all_of_them())


async def _read(reader: asyncio.StreamReader, *, bodiless: bool) -> Answer:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    status = int(head[0].split(" ")[1])
    headers = tuple((name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in head[1:-2]))
    answer = Answer(status, headers)
    if status == 100:
        return await _read(reader, bodiless=bodiless)
    if bodiless or answer.is_stream or status in (204, 304):
        return answer
    return replace(answer, body=await reader.readexactly(int(answer.header("content-length") or 0)))
