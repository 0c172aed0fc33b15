"""A TCP proxy between the store and etcd that can hold back requests or responses, and abort connections."""

import asyncio
from contextlib import suppress


class EtcdProxy:
    """Listens on a loopback port and forwards everything to etcd while `requests` and `responses` are set."""

    def __init__(self, port: int) -> None:
        self._upstream = port
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.requests = asyncio.Event()
        """While set, requests are forwarded."""
        self.responses = asyncio.Event()
        """While set, responses are forwarded."""
        self.requests.set()
        self.responses.set()
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stops listening and aborts all connections."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.abort_connections()
        self.requests.set()
        self.responses.set()
        # The tasks end by themselves, as their connections are closed.
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def abort_connections(self) -> None:
        """Aborts all connections; data that was held back is lost."""
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
                self._forward(reader, onward, self.requests), self._forward(upstream, writer, self.responses)
            )

    async def _forward(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, gate: asyncio.Event) -> None:
        with suppress(OSError):
            while data := await source.read(65536):
                await gate.wait()
                sink.write(data)
                await sink.drain()
        sink.close()
