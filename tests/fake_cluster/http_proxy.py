"""An HTTP proxy for tests: connects to what CONNECT names, and joins both connections."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass
class FakeProxy:
    """`hosts`: where names lead to, which only this proxy knows. `authorization`: the value that clients must send."""

    hosts: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    authorization: str = ""
    answer: bytes = b""
    """What it answers instead."""
    port: int = 0
    heads: list[str] = field(default_factory=list)
    """The heads of requests."""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.heads.append(head)
            if self.answer:
                writer.write(self.answer)
            elif self.authorization and f"Proxy-Authorization: {self.authorization}\r\n" not in head:
                writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            else:
                await self._join(head.split(" ")[1], reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _join(self, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = target.rpartition(":")
        source, sink = await asyncio.open_connection(*self.hosts.get(target, (host, int(port))))
        writer.write(b"HTTP/1.1 200 Connection established\r\nVia: 1.1 fake\r\n\r\n")
        try:
            await asyncio.gather(_copy(reader, sink), _copy(source, writer))
        finally:
            sink.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


@asynccontextmanager
async def running_proxy(proxy: FakeProxy) -> AsyncIterator[FakeProxy]:
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        await proxy.serve(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()
