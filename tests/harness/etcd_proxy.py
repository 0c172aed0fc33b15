"""A wire between the store and etcd that tests can cut: before a request gets through, or before its answer does."""

import asyncio
from contextlib import suppress


class EtcdProxy:
    """Listens on a loopback port and passes everything on to etcd, until told otherwise."""

    def __init__(self, port: int) -> None:
        self._upstream = port
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.requests = asyncio.Event()
        """Set: what the client sends is passed on."""
        self.responses = asyncio.Event()
        """Set: what etcd answers is passed on."""
        self.requests.set()
        self.responses.set()
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Nobody can connect any more, and everybody is hung up on."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.abort_connections()
        self.requests.set()
        self.responses.set()
        # Hung up on at both ends, they end by themselves.
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def abort_connections(self) -> None:
        """Hangs up on everybody; what was held back is lost."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._writers.add(writer)
        with suppress(OSError):
            upstream, onward = await asyncio.open_connection("127.0.0.1", self._upstream)
            self._writers.add(onward)
            await asyncio.gather(
                self._pass_on(reader, onward, self.requests), self._pass_on(upstream, writer, self.responses)
            )

    async def _pass_on(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, gate: asyncio.Event) -> None:
        with suppress(OSError):
            while data := await source.read(65536):
                await gate.wait()
                sink.write(data)
                await sink.drain()
        sink.close()
