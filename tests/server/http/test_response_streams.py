"""server.http.asgi: streamed responses wait for slow clients, and disconnect clients that have stalled."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.core.call import Reply
from fairlead.server.http import asgi
from fairlead.server.http.slow_clients import StallDetector
from fairlead.server.http.unsent import ClientMemoryLimiter
from tests.harness.calls import call
from tests.harness.virtual_time import on_virtual_time


class FakeClient:
    """Accepts chunks once `room` is set."""

    def __init__(self) -> None:
        self.room = asyncio.Event()
        self.received: list[bytes] = []

    async def receive(self) -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    async def send(self, message: dict[str, Any]) -> None:
        if message["body"]:
            await self.room.wait()
            self.received.append(message["body"])


async def chunks() -> AsyncIterator[bytes]:
    yield b"one"
    yield b"two"


async def stream_to_client(client: FakeClient, monkeypatch: pytest.MonkeyPatch, progress: list[bool]) -> list[str]:
    """The clients that were disconnected. `progress`: results of the progress checks; the last one makes room."""
    disconnected = list[str]()

    async def is_making_progress(detector: StallDetector) -> bool:
        if len(progress) == 1:
            client.room.set()
        return progress.pop(0)

    monkeypatch.setattr(asgi, "STALL_CHECK_SECONDS", 0.001)
    monkeypatch.setattr(StallDetector, "is_making_progress", is_making_progress)
    monkeypatch.setattr(asgi, "close_connection", disconnected.append)
    request = call()
    request.client = "192.0.2.1:4711"
    await asyncio.wait_for(
        asgi._send_stream(client.receive, client.send, request, Reply(200, stream=chunks()), ClientMemoryLimiter()), 10
    )
    return disconnected


async def test_a_slow_client_gets_the_whole_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    client = FakeClient()
    assert await stream_to_client(client, monkeypatch, [True] * 5) == []
    assert client.received == [b"one", b"two"]


async def test_a_stalled_client_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    client = FakeClient()
    client.room = asyncio.Event()
    assert await stream_to_client(client, monkeypatch, [True, False, False]) == ["192.0.2.1:4711"]
    assert client.received == []


@on_virtual_time
async def test_the_server_waits_for_the_last_frames_of_streams_before_it_stops() -> None:
    loop, ended, messages = asyncio.get_running_loop(), asyncio.Event(), list[dict[str, Any]]()

    async def send(message: dict[str, Any]) -> None:
        messages.append(message)

    async def stream_until_ended() -> AsyncIterator[bytes]:
        yield b"one"
        await ended.wait()

    app = asgi.AsgiApp(lambda _: Reply(200, stream=stream_until_ended()), 1000)
    started_at = loop.time()
    await app.wait_for_streams(2.0)
    assert loop.time() == started_at, "without streams there is nothing to wait for"
    scope = {"type": "http", "http_version": "1.1", "method": "GET", "path": "/", "raw_path": b"/", "query_string": b""}
    scope |= {"headers": [], "client": ("192.0.2.1", 1)}
    task = asyncio.create_task(app(scope, FakeClient().receive, send))
    await asyncio.sleep(0.01)
    ended.set()
    ended_at = loop.time()
    await app.wait_for_streams(2.0)
    assert loop.time() - ended_at >= asgi.FLUSH_SECONDS
    assert messages[-1] == {"type": "http.response.body", "body": b"", "more_body": False}
    await task


async def test_a_stream_that_never_waits_does_not_block_the_event_loop() -> None:
    """`send` does not wait for a client that has disconnected."""
    disconnected, sent = asyncio.Event(), 0

    async def receive() -> dict[str, Any]:
        await disconnected.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        nonlocal sent
        sent += 1

    async def endless() -> AsyncIterator[bytes]:
        while sent < 100_000:
            yield b"x"

    asyncio.get_running_loop().call_soon(disconnected.set)
    await asgi._send_stream(receive, send, call(), Reply(200, stream=endless()), ClientMemoryLimiter())
    assert sent < 1_000
