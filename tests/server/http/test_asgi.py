"""The front of the server: what it makes of a request, and which headers leave with an answer."""

from typing import Any

import pytest

from fairlead.core.call import Call, Reply
from fairlead.server.api.errors import render_errors
from fairlead.server.http.asgi import AsgiApp
from fairlead.server.http.pipeline import build_pipeline

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
    await AsgiApp(build_pipeline((render_errors,), serve), 1024)({**request, **scope}, receive, send)
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
