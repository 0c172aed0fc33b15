"""A body on its way to a client: slow ones are waited for, silent ones are not."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.server.http import asgi
from fairlead.server.http.slow_clients import StallDetector
from fairlead.server.http.unsent import ClientMemoryLimiter
from tests.authn.calls import call


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
    await asyncio.wait_for(asgi._send_stream(client.receive, client.send, asked, chunks(), ClientMemoryLimiter()), 10)
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
