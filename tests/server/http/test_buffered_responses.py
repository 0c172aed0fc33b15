"""server.http.memory_budgets: large responses that are sent as a whole, and when the limit on them is checked."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from fairlead.core.call import Call, Reply
from fairlead.server.http.asgi import AsgiApp
from fairlead.server.http.memory_budgets import (
    MAX_UNREAD_CONNECTIONS,
    MAX_WHOLE_BYTES,
    UNREAD_CHECK_SECONDS,
    WRITE_SETTLE_SECONDS,
    WholeResponses,
)
from fairlead.server.http.unsent import MAX_SMALL_HTTP1_BYTES, ClientMemoryLimiter

LARGE = bytes(MAX_SMALL_HTTP1_BYTES + 1)


class FakeClock:
    seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


async def send_request(app: AsgiApp, port: int, version: str = "1.1") -> list[bytes]:
    """The chunks of a response body."""
    messages: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        messages.append(message)

    scope = {
        **{"type": "http", "http_version": version, "method": "GET", "path": "/x", "raw_path": b"/x"},
        **{"query_string": b"", "client": ("192.0.2.7", port), "headers": [(b"host", b"x")]},
    }
    await app(scope, receive, send)
    return [message["body"] for message in messages if message["type"] == "http.response.body"]


def build_app(body: bytes, max_unread: int = MAX_UNREAD_CONNECTIONS) -> AsgiApp:
    async def serve(call: Call) -> Reply:
        return Reply(200, body)

    return AsgiApp(serve, 1024, ClientMemoryLimiter(max_unread_connections=max_unread))


async def test_a_response_is_sent_whole_while_few_connections_have_an_unread_one() -> None:
    app = build_app(LARGE, max_unread=2)
    for port in (1, 2, 1, 2):
        assert await send_request(app, port) == [LARGE]
    chunks = await send_request(app, 3)
    assert len(chunks) > 1
    assert b"".join(chunks) == LARGE
    assert await send_request(app, 1) == [LARGE]


async def test_http2_responses_and_very_large_ones_are_sent_in_chunks() -> None:
    assert len(await send_request(build_app(LARGE), 1, "2")) > 1
    assert len(await send_request(build_app(bytes(MAX_WHOLE_BYTES + 1)), 1)) > 1
    assert len(await send_request(build_app(bytes(MAX_WHOLE_BYTES)), 1)) == 1


class Connection:
    """Both ends of a connection on this machine, and its name in the server."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.client = socket.create_connection(listener.getsockname())
            self.server, address = listener.accept()
        self.name = f"{address[0]}:{address[1]}"
        self.server.setblocking(False)

    def fill(self) -> None:
        """Sends until all buffers are full."""
        try:
            while True:
                self.server.send(bytes(1 << 20))
        except BlockingIOError:
            pass


@pytest.fixture
def three_connections() -> Iterator[tuple[Connection, Connection, Connection]]:
    with ExitStack() as stack:
        connections = Connection(), Connection(), Connection()
        for connection in connections:
            stack.enter_context(connection.client)
            stack.enter_context(connection.server)
        yield connections


async def test_connections_that_have_read_or_closed_are_removed_by_asking_the_kernel(
    three_connections: tuple[Connection, Connection, Connection],
) -> None:
    reader, unread, closed = three_connections
    unread.fill()
    closed.client.close()
    closed.server.close()
    clock = FakeClock()
    responses = WholeResponses(clock)
    names = [connection.name for connection in three_connections] + [
        f"192.0.2.1:{port}" for port in range(MAX_UNREAD_CONNECTIONS - 3)
    ]
    assert all(responses.admit(name, len(LARGE)) for name in names)
    clock.seconds += WRITE_SETTLE_SECONDS
    assert not responses.admit("192.0.2.2:1", len(LARGE))
    await wait_for_check(responses)
    assert list(responses.unread_since) == [unread.name]
    assert responses.admit("192.0.2.2:1", len(LARGE))
    assert reader.name not in responses.unread_since


async def test_the_kernel_is_not_queried_during_writes_or_too_often() -> None:
    clock = FakeClock()
    responses = WholeResponses(clock)
    assert all(responses.admit(f"192.0.2.1:{port}", len(LARGE)) for port in range(MAX_UNREAD_CONNECTIONS))
    for delay in (0.0, WRITE_SETTLE_SECONDS):  # too early, and too soon afterwards
        clock.seconds += delay
        assert not responses.admit("192.0.2.2:1", len(LARGE))
        await wait_for_check(responses)
        assert len(responses.unread_since) == MAX_UNREAD_CONNECTIONS
    clock.seconds += UNREAD_CHECK_SECONDS
    assert not responses.admit("192.0.2.2:1", len(LARGE))
    await wait_for_check(responses)
    assert not responses.unread_since


async def wait_for_check(responses: WholeResponses) -> None:
    if responses._check_task is not None:
        await responses._check_task
