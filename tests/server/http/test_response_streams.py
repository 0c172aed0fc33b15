"""A body on its way to a client: slow ones are waited for, silent ones are not."""

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


class Client:
    """Takes a chunk when it is let."""

    def __init__(self) -> None:
        self.room = asyncio.Event()
        self.taken: list[bytes] = []

    async def receive(self) -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    async def send(self, message: dict[str, Any]) -> None:
        if message["body"]:
            await self.room.wait()
            self.taken.append(message["body"])


async def chunks() -> AsyncIterator[bytes]:
    yield b"one"
    yield b"two"


async def streamed(client: Client, monkeypatch: pytest.MonkeyPatch, answers: list[bool]) -> list[str]:
    """Who was cut off. `answers` are what is found out about the client, look by look; then it makes room."""
    cut = list[str]()

    async def takes_enough(slow: StallDetector) -> bool:
        if len(answers) == 1:
            client.room.set()
        return answers.pop(0)

    monkeypatch.setattr(asgi, "STALL_CHECK_SECONDS", 0.001)
    monkeypatch.setattr(StallDetector, "is_making_progress", takes_enough)
    monkeypatch.setattr(asgi, "close_connection", cut.append)
    asked = call()
    asked.client = "192.0.2.1:4711"
    await asyncio.wait_for(
        asgi._send_stream(client.receive, client.send, asked, Reply(200, stream=chunks()), ClientMemoryLimiter()), 10
    )
    return cut


async def test_a_client_that_is_slow_gets_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client()
    assert await streamed(client, monkeypatch, [True] * 5) == []
    assert client.taken == [b"one", b"two"]


async def test_a_client_that_takes_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client()
    client.room = asyncio.Event()
    assert await streamed(client, monkeypatch, [True, False, False]) == ["192.0.2.1:4711"]
    assert client.taken == []


@on_virtual_time
async def test_the_last_frames_of_streams_get_time_before_the_server_stops() -> None:
    loop, ended, sent = asyncio.get_running_loop(), asyncio.Event(), list[dict[str, Any]]()

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async def until_ended() -> AsyncIterator[bytes]:
        yield b"one"
        await ended.wait()

    app = asgi.AsgiApp(lambda _: Reply(200, stream=until_ended()), 1000)
    began = loop.time()
    await app.wait_for_streams(2.0)
    assert loop.time() == began, "without streams there is nothing to wait for"
    scope = {"type": "http", "http_version": "1.1", "method": "GET", "path": "/", "raw_path": b"/", "query_string": b""}
    scope |= {"headers": [], "client": ("192.0.2.1", 1)}
    serving = asyncio.create_task(app(scope, Client().receive, send))
    await asyncio.sleep(0.01)
    ended.set()
    ending = loop.time()
    await app.wait_for_streams(2.0)
    assert loop.time() - ending >= asgi.FLUSH_SECONDS
    assert sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}
    await serving
