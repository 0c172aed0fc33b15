"""The front of the server: what it makes of a request, and which headers leave with an answer."""

from contextlib import suppress
from typing import Any

import pytest

from fairlead.core.call import Call, Reply, Upgrade, WebSocket
from fairlead.server.http.asgi import AsgiApp
from fairlead.server.pipeline import Pipeline, reject_malformed

NOSNIFF = b"x-content-type-options"


async def asked(reply: Reply, **scope: Any) -> dict[str, Any]:
    """The start of the answer to a request."""
    sent: list[dict[str, Any]] = []

    async def serve(call: Call) -> Reply:
        return reply

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    request = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "path": "/version",
        "raw_path": b"/version",
        "query_string": b"",
        "client": ("192.0.2.7", "4711"),
        "headers": [(b"host", b"x")],
    }
    await AsgiApp(Pipeline((reject_malformed,), serve), 1024)({**request, **scope}, receive, send)
    return sent[0]


def values(start: dict[str, Any], name: bytes) -> list[bytes]:
    return [value for each, value in start["headers"] if each == name]


@pytest.mark.parametrize("status", [200, 201, 204, 404, 500])
async def test_no_browser_is_left_to_guess(status: int) -> None:
    assert values(await asked(Reply(status, b"{}")), NOSNIFF) == [b"nosniff"]


async def test_it_is_said_once_and_another_value_wins() -> None:
    for value in ("nosniff", "none"):
        reply = Reply(200, b"{}", headers=[("x-other", "a"), ("x-content-type-options", value)])
        assert values(await asked(reply), NOSNIFF) == [value.encode()]


async def test_a_confirmation_changes_nothing_about_what_was_kept() -> None:
    assert values(await asked(Reply(304)), NOSNIFF) == []


async def test_what_can_be_read_in_two_ways_is_refused_and_ends_the_connection() -> None:
    two = [(b"host", b"x"), (b"host", b"y")]
    start = await asked(Reply(200, b"{}"), headers=two)
    assert (start["status"], values(start, b"connection")) == (400, [b"close"])
    start = await asked(Reply(200, b"{}"), headers=two, http_version="2")
    assert (start["status"], values(start, b"connection")) == (400, [])


async def test_a_request_in_order_does_not_end_the_connection() -> None:
    start = await asked(Reply(200, b"{}"))
    assert (start["status"], values(start, b"connection")) == (200, [])


@pytest.mark.parametrize("reply", [Reply(200, b"{}"), Reply(200, b"x" * 200_000)], ids=["small", "large"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_on_close_is_called_once_the_response_was_sent(reply: Reply, method: str) -> None:
    closed: list[str] = []
    reply.on_close = (lambda: closed.append("one"), lambda: closed.append("two"))
    await asked(reply, method=method)
    assert closed == ["one", "two"]


@pytest.mark.parametrize("fails", [False, True])
async def test_on_close_is_called_when_a_websocket_ends(fails: bool) -> None:
    closed: list[str] = []

    async def run(socket: WebSocket) -> None:
        assert closed == []
        if fails:
            raise ConnectionError

    reply = Reply(101, upgrade=Upgrade("", run), on_close=(lambda: closed.append("closed"),))
    with suppress(ConnectionError):
        await asked(reply, type="websocket")
    assert closed == ["closed"]
