"""A small runner for tests of the server: dials the server's link, and serves each action with a few lines."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from fairlead.links.connection import Link
from fairlead.links.contract import Stream
from fairlead.links.dialing import LinkAddress, LinkObserver, Superseded, keep_link
from fairlead.links.frames import STDERR, STDOUT
from fairlead.links.requests import OpenRequest, Refused
from fairlead.links.streams import Data, Eof
from tests.harness.server_process import MANAGEMENT, Server, build_tls_context

LOG = b"".join(b'{"message":"line %d"}\n' % number for number in range(5000))
HOST_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMo+xRvRvp3ltelJEoqZhLmMz2GTy5hfERQvnv04OuRi"


class FakeRunner:
    """`requests` has all requests in order. `up` writes its log until `finish_up` is set."""

    def __init__(self, boot_id: str = "boot-1") -> None:
        self.boot_id = boot_id
        self.requests: list[OpenRequest] = []
        self.finish_up = asyncio.Event()
        self.connected = asyncio.Event()
        self.superseded = asyncio.Event()
        self.link_count = 0
        self.state = ""
        self.ssh_endpoint: dict[str, Any] = {"hostKeys": [HOST_KEY], "user": "dev"}
        self.was_reset = asyncio.Event()

    async def serve(self, request: OpenRequest, stream: Stream) -> None:
        self.requests.append(request)
        handler = getattr(self, f"_{request.action.replace('-', '_')}", None)
        if handler is None:
            raise Refused(501, f"this runner does not support {request.action}")
        await handler(request, stream)

    async def _status(self, request: OpenRequest, stream: Stream) -> None:
        status = {"id": request.name, "context": "default", "provider": "fake", "state": "Running"}
        await self._respond(stream, status)

    async def _up(self, request: OpenRequest, stream: Stream) -> None:
        if request.detach:
            return await self._respond(stream, {"taskId": "task-1"})
        await stream.send(STDOUT, b'{"message":"building"}\n')
        try:
            await self.finish_up.wait()
        except asyncio.CancelledError:
            self.was_reset.set()
            raise
        await stream.send(STDERR, b'{"message":"a warning"}\n')
        await stream.send_exit(0)
        return None

    async def _stop(self, request: OpenRequest, stream: Stream) -> None:
        await (self._respond(stream, {"taskId": "task-2"}) if request.detach else stream.send_exit(-3))

    async def _ssh(self, request: OpenRequest, stream: Stream) -> None:
        """Sends back what arrives, and exits with 7 at the end of stdin."""
        try:
            while isinstance(message := await stream.receive(), Data):
                await stream.send(STDOUT, message.content)
        except asyncio.CancelledError:
            self.was_reset.set()
            raise
        assert isinstance(message, Eof)
        await stream.send_eof(STDOUT)
        await stream.send_exit(7)

    async def _ssh_endpoint(self, request: OpenRequest, stream: Stream) -> None:
        await self._respond(stream, self.ssh_endpoint)

    async def _ports(self, request: OpenRequest, stream: Stream) -> None:
        await self._respond(stream, {"ports": [{"port": 8080, "address": "127.0.0.1", "process": "node"}]})

    async def _snapshots(self, request: OpenRequest, stream: Stream) -> None:
        await self._respond(stream, {"snapshots": [{"id": "s1", "createdAt": "2026-01-02T00:00:00Z", "bytes": 5}]})

    async def _restore(self, request: OpenRequest, stream: Stream) -> None:
        await self._respond(stream, {"taskId": "task-3"})

    async def _delete_snapshot(self, request: OpenRequest, stream: Stream) -> None:
        if request.options["snapshot"] != "s1":
            raise Refused(404, f"there is no snapshot {request.options['snapshot']}")
        await stream.send_exit(0)

    async def _port(self, request: OpenRequest, stream: Stream) -> None:
        await self._ssh(request, stream)

    async def _log(self, request: OpenRequest, stream: Stream) -> None:
        if request.task_id not in ("", "task-1"):
            raise Refused(404, f"there is no task {request.task_id}")
        await stream.send(STDOUT, LOG[request.options["offset"] :])
        await stream.send_exit(0)

    async def _service_log(self, request: OpenRequest, stream: Stream) -> None:
        await stream.send(STDOUT, f"log of {request.options['service']}\n".encode())
        await stream.send_exit(0)

    async def _tasks(self, request: OpenRequest, stream: Stream) -> None:
        await self._respond(stream, {"tasks": [{"id": "task-1", "type": "up", "status": "Running"}]})

    async def _cancel(self, request: OpenRequest, stream: Stream) -> None:
        if request.task_id != "task-1":
            raise Refused(404, f"there is no task {request.task_id}")
        await stream.send_exit(0)

    async def _state(self, request: OpenRequest, stream: Stream) -> None:
        await self._respond(stream, {"state": self.state})

    async def _set_state(self, request: OpenRequest, stream: Stream) -> None:
        content = bytearray()
        while isinstance(message := await stream.receive(), Data):
            content += message.content
        self.state = content.decode()
        await stream.send_exit(0)

    async def _troubleshoot(self, request: OpenRequest, stream: Stream) -> None:
        await self._respond(stream, {"engine": "fake"})

    async def _download(self, request: OpenRequest, stream: Stream) -> None:
        if request.options["path"] == "/missing":
            await stream.send(STDERR, b"tar: /missing: no such file")
            await stream.send_exit(2)
        else:
            await stream.send(STDOUT, bytes(3_000_000))
            await stream.send_exit(0 if request.options["path"] == "/whole" else 1)

    async def _respond(self, stream: Stream, value: dict[str, Any]) -> None:
        await stream.send(STDOUT, json.dumps(value).encode())
        await stream.send_exit(0)

    def on_up(self, link: Link) -> None:
        self.link_count += 1
        self.connected.set()

    def on_down(self, reason: str) -> None:
        self.connected.clear()

    async def run(self, server: Callable[[], Server], name: str, key: str) -> None:
        def address() -> LinkAddress:
            url = server().url.replace("https", "wss", 1)
            path = f"{MANAGEMENT}/apis/management.service.sh/v1/runners/{name}/link"
            return LinkAddress(url + path, key, build_tls_context(server().ca_file))

        try:
            await keep_link(address, self.serve, self.boot_id, LinkObserver(self.on_up, self.on_down))
        except Superseded:
            self.connected.clear()
            self.superseded.set()


@asynccontextmanager
async def connected_runner(
    server: Server | Callable[[], Server], name: str, key: str, boot_id: str = "boot-1"
) -> AsyncIterator[FakeRunner]:
    """`server` may be a function, for a runner that outlives its server."""
    runner = FakeRunner(boot_id)
    find_server = server if callable(server) else lambda: server
    running = asyncio.create_task(runner.run(find_server, name, key))
    try:
        async with asyncio.timeout(20):
            await runner.connected.wait()
        yield runner
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
