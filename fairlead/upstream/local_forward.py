"""A local address for a cluster that only a dialer reaches, for another program: Helm inside a virtual cluster."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

from fairlead.upstream.access import ClusterEndpoint
from fairlead.upstream.dial import Dialer
from fairlead.upstream.errors import UpstreamError

COPY_BYTES = 64 * 1024


@asynccontextmanager
async def local_forward(dialer: Dialer, endpoint: ClusterEndpoint) -> AsyncIterator[ClusterEndpoint]:
    """Listens on 127.0.0.1 for another program, such as Helm, and connects it to the dialer's end. Yields the endpoint
    with that address. The program makes TLS itself, and verifies the same name."""
    tasks: set[asyncio.Task[None]] = set()
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)

    async def serve(client: socket.socket) -> None:
        with client, await dialer(is_exclusive=False) as server:
            await _copy_both_ways(client, server)

    async def accept() -> None:
        while True:
            client, _ = await asyncio.get_running_loop().sock_accept(listener)
            client.setblocking(False)
            task = asyncio.create_task(_ignore_failures(serve(client)), name="local forward to a virtual cluster")
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    accepting = asyncio.create_task(accept(), name="listener of a local forward")
    try:
        yield replace(endpoint, host="127.0.0.1", port=listener.getsockname()[1])
    finally:
        for task in (accepting, *tasks):
            task.cancel()
        await asyncio.gather(accepting, *tasks, return_exceptions=True)
        listener.close()


async def _ignore_failures(work: Awaitable[None]) -> None:
    """The program sees a closed connection, and reports that itself."""
    with suppress(OSError, UpstreamError):
        await work


async def _copy_both_ways(client: socket.socket, server: socket.socket) -> None:
    """Until either end closes. TLS marks its own end."""
    copies = [asyncio.create_task(_copy_one_way(*ends)) for ends in ((client, server), (server, client))]
    try:
        await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for copy in copies:
            copy.cancel()
        await asyncio.gather(*copies, return_exceptions=True)


async def _copy_one_way(source: socket.socket, target: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    while data := await loop.sock_recv(source, COPY_BYTES):
        await loop.sock_sendall(target, data)
