"""A runner that sends what it wants over its link: a WebSocket of a real server, and frames from tests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from fairlead.links import frames
from fairlead.links.frames import FrameType, Hello
from tests.harness.server_process import TIMEOUT_SECONDS, Server, build_tls_context
from tests.live.workspace_setup import M

HELLO = frames.encode_hello(Hello(1, 1, "hostile"))


class HostileRunner:
    """The runner has opened the connection, so its own streams are odd and those of the server even."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    async def send(self, *messages: bytes) -> None:
        for message in messages:
            await self.connection.send(message)

    async def receive(self, kind: FrameType) -> tuple[int, bytes]:
        """The stream and the payload of the next frame of this type."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while True:
                message = await self.connection.recv()
                assert isinstance(message, bytes)
                found, stream, payload = frames.decode_frame(message)
                if found is kind:
                    return stream, payload

    async def answer_pings(self) -> None:
        """Keeps the link alive, until it is closed."""
        while True:
            _, payload = await self.receive(FrameType.PING)
            await self.send(frames.encode_ping(FrameType.PONG, payload))

    async def read_until_closed(self) -> list[tuple[FrameType, int, bytes]]:
        received = []
        with suppress(ConnectionClosed):
            async with asyncio.timeout(TIMEOUT_SECONDS):
                while True:
                    message = await self.connection.recv()
                    assert isinstance(message, bytes)
                    received.append(frames.decode_frame(message))
        return received


@asynccontextmanager
async def hostile_runner(server: Server, key: str, name: str = "local") -> AsyncIterator[HostileRunner]:
    """Says hello already."""
    url = f"wss{server.url.removeprefix('https')}{M}/runners/{name}/link"
    headers = {"Authorization": f"Bearer {key}"}
    context = build_tls_context(server.ca_file)
    async with connect(url, ssl=context, additional_headers=headers, compression=None, max_size=2**20) as connection:
        runner = HostileRunner(connection)
        await runner.send(HELLO)
        await runner.receive(FrameType.HELLO)
        yield runner
