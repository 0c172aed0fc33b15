"""One HTTP/1.1 connection over TLS, for what wrk cannot do. Small, because its cost is part of what is measured."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench.failure import Failure
from bench.servers import Server

ANSWER_SECONDS = 20.0
SHOWN_BYTES = 300


class Connection:
    """Asks one thing after the other. Whatever is not answered with success is the end of the run."""

    def __init__(self, server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._server = server
        self._reader = reader
        self._writer = writer

    @classmethod
    @asynccontextmanager
    async def to(cls, server: Server) -> AsyncIterator["Connection"]:
        try:
            reader, writer = await asyncio.open_connection(server.host, server.port, ssl=trusting(server))
        except OSError as error:
            raise Failure(f"{server.name} takes no connection ({error})") from None
        try:
            yield cls(server, reader, writer)
        finally:
            writer.close()

    async def ask(self, method: str, path: str, body: bytes = b"", content_type: str = "application/json") -> bytes:
        """The body of the answer."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                self._writer.write(head(self._server, method, path, content_type, len(body)) + body)
                status, answer = await self._answer()
        except (OSError, EOFError, TimeoutError) as error:
            raise Failure(f"{method} {path}: no answer from {self._server.name} ({error!r})") from None
        if not 200 <= status < 300:
            raise Failure(f"{method} {path}: {self._server.name} answered {status} {answer[:SHOWN_BYTES]!r}")
        return answer

    async def _answer(self) -> tuple[int, bytes]:
        lines = (await self._reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
        lengths = [line for line in lines if line.startswith(b"content-length:")]
        if not lengths:
            raise Failure(f"an answer of {self._server.name} has no length; a stream cannot be asked for here")
        length = int(lengths[0].partition(b":")[2])
        return int(lines[0].split(b" ")[1]), await self._reader.readexactly(length)


def head(server: Server, method: str, path: str, content_type: str, length: int) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"host: {server.host}:{server.port}"]
    lines += [f"{name}: {value}" for name, value in server.headers.items()]
    if length:
        lines += [f"content-type: {content_type}", f"content-length: {length}"]
    return "\r\n".join([*lines, "", ""]).encode()


def trusting(server: Server) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=server.ca_file)
