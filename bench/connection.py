"""One HTTP/1.1 connection over TLS, for what wrk cannot do. Minimal, because its cost is part of the figures."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench.failure import Failure
from bench.servers import Server

RESPONSE_SECONDS = 60.0
SHOWN_BYTES = 300


class Connection:
    """Sends requests one after the other. Any response but a success ends the run."""

    def __init__(self, server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._server = server
        self._reader = reader
        self._writer = writer

    @classmethod
    @asynccontextmanager
    async def to(cls, server: Server) -> AsyncIterator["Connection"]:
        try:
            reader, writer = await asyncio.open_connection(server.host, server.port, ssl=server.tls_context())
        except OSError as error:
            raise Failure(f"{server.name} refuses connections ({error})") from None
        try:
            yield cls(server, reader, writer)
        finally:
            writer.close()

    async def request(self, method: str, path: str, body: bytes = b"", content_type: str = "application/json") -> bytes:
        """Sends a request and returns the body of the response. The path is relative to the server's root."""
        try:
            async with asyncio.timeout(RESPONSE_SECONDS):
                self._writer.write(build_head(self._server, method, path, content_type, len(body)) + body)
                status, response = await self._read_response()
        except (OSError, EOFError, TimeoutError) as error:
            raise Failure(f"{method} {path}: no response from {self._server.name} ({error!r})") from None
        if not 200 <= status < 300:
            raise Failure(f"{method} {path}: {self._server.name} responded with {status} {response[:SHOWN_BYTES]!r}")
        return response

    async def _read_response(self) -> tuple[int, bytes]:
        lines = (await self._reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
        headers = dict(line.split(b":", 1) for line in lines[1:] if b":" in line)
        status = int(lines[0].split(b" ")[1])
        if b"content-length" in headers:
            return status, await self._reader.readexactly(int(headers[b"content-length"]))
        if headers.get(b"transfer-encoding", b"").strip() == b"chunked":
            return status, await self._read_chunks()
        raise Failure(f"a response of {self._server.name} has neither a length nor chunks")

    async def _read_chunks(self) -> bytes:
        chunks = []
        while size := int(await self._reader.readuntil(b"\r\n"), 16):
            chunks.append(await self._reader.readexactly(size))
            await self._reader.readexactly(len(b"\r\n"))
        await self._reader.readuntil(b"\r\n")
        return b"".join(chunks)


def build_head(server: Server, method: str, path: str, content_type: str, length: int) -> bytes:
    lines = [f"{method} {server.root}{path} HTTP/1.1", f"host: {server.host}:{server.port}"]
    lines += [f"{name}: {value}" for name, value in server.headers.items()]
    if length:
        lines += [f"content-type: {content_type}", f"content-length: {length}"]
    return "\r\n".join([*lines, "", ""]).encode()
