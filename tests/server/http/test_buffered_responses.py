"""Large answers that are handed over whole: as many as there may be, and what makes room for more of them."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from fairlead.core.call import Call, Reply
from fairlead.server.http import memory_budgets
from fairlead.server.http.asgi import AsgiApp
from fairlead.server.http.memory_budgets import (
    MAX_UNREAD_CONNECTIONS,
    MAX_WHOLE_BYTES,
    UNREAD_CHECK_SECONDS,
    WRITE_SETTLE_SECONDS,
    WholeResponses,
)
from fairlead.server.http.unsent import MAX_SMALL_HTTP1_BYTES

LARGE = bytes(MAX_SMALL_HTTP1_BYTES + 1)


class Clock:
    seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


async def sent(front: AsgiApp, port: int, version: str = "1.1") -> list[bytes]:
    """The pieces of a body."""
    messages: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        messages.append(message)

    scope = {
        **{"type": "http", "http_version": version, "method": "GET", "path": "/x", "raw_path": b"/x"},
        **{"query_string": b"", "client": ("192.0.2.7", port), "headers": [(b"host", b"x")]},
    }
    await front(scope, receive, send)
    return [each["body"] for each in messages if each["type"] == "http.response.body"]


def front_for(body: bytes) -> AsgiApp:
    async def serve(call: Call) -> Reply:
        return Reply(200, body)

    return AsgiApp(serve, 1024)


async def test_the_answer_of_a_connection_is_whole_while_few_have_one_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_budgets, "MAX_UNREAD_CONNECTIONS", 2)
    front = front_for(LARGE)
    for port in (1, 2, 1, 2):
        assert await sent(front, port) == [LARGE]
    pieces = await sent(front, 3)
    assert len(pieces) > 1
    assert b"".join(pieces) == LARGE
    assert await sent(front, 1) == [LARGE]


async def test_what_shares_its_connection_or_is_very_large_goes_in_pieces() -> None:
    assert len(await sent(front_for(LARGE), 1, "2")) > 1
    assert len(await sent(front_for(bytes(MAX_WHOLE_BYTES + 1)), 1)) > 1
    assert len(await sent(front_for(bytes(MAX_WHOLE_BYTES)), 1)) == 1


class Ends:
    """Both ends of a connection on this machine, and what the server calls it."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.client = socket.create_connection(listener.getsockname())
            self.server, address = listener.accept()
        self.name = f"{address[0]}:{address[1]}"
        self.server.setblocking(False)

    def fill(self) -> None:
        """Sends until neither side takes any more."""
        try:
            while True:
                self.server.send(bytes(1 << 20))
        except BlockingIOError:
            pass


@pytest.fixture
def three() -> Iterator[tuple[Ends, Ends, Ends]]:
    with ExitStack() as stack:
        ends = Ends(), Ends(), Ends()
        for each in ends:
            stack.enter_context(each.client)
            stack.enter_context(each.server)
        yield ends


async def test_the_kernel_says_who_has_read_and_who_is_gone(three: tuple[Ends, Ends, Ends]) -> None:
    reader, sleeper, gone = three
    sleeper.fill()
    gone.client.close()
    gone.server.close()
    clock = Clock()
    whole = WholeResponses(clock)
    names = [each.name for each in three] + [f"192.0.2.1:{port}" for port in range(MAX_UNREAD_CONNECTIONS - 3)]
    assert all(whole.admit(name, len(LARGE)) for name in names)
    clock.seconds += WRITE_SETTLE_SECONDS
    assert not whole.admit("192.0.2.2:1", len(LARGE))
    await _until_looked(whole)
    assert list(whole.unread_since) == [sleeper.name]
    assert whole.admit("192.0.2.2:1", len(LARGE))
    assert reader.name not in whole.unread_since


async def test_the_kernel_is_not_asked_about_what_is_being_written_nor_all_the_time() -> None:
    clock = Clock()
    whole = WholeResponses(clock)
    assert all(whole.admit(f"192.0.2.1:{port}", len(LARGE)) for port in range(MAX_UNREAD_CONNECTIONS))
    for wait in (0.0, WRITE_SETTLE_SECONDS):  # too early, and too soon afterwards
        clock.seconds += wait
        assert not whole.admit("192.0.2.2:1", len(LARGE))
        await _until_looked(whole)
        assert len(whole.unread_since) == MAX_UNREAD_CONNECTIONS
    clock.seconds += UNREAD_CHECK_SECONDS
    assert not whole.admit("192.0.2.2:1", len(LARGE))
    await _until_looked(whole)
    assert not whole.unread_since


async def _until_looked(whole: WholeResponses) -> None:
    if whole._check_task is not None:
        await whole._check_task
