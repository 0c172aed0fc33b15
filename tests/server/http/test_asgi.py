"""server.http.asgi: parsing of requests, and the headers of responses."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from fairlead.core.call import Call, Reply, Upgrade, WebSocket
from fairlead.server.http.asgi import AsgiApp
from fairlead.server.http.origins import Origins, TrustedProxies
from fairlead.server.pipeline import Pipeline, reject_malformed

NOSNIFF = b"x-content-type-options"


async def serve_with(
    serve: Callable[[Call], Reply], proxies: TrustedProxies | None = None, **scope: Any
) -> list[dict[str, Any]]:
    """The messages of the response to a request."""
    messages: list[dict[str, Any]] = []

    async def handle(call: Call) -> Reply:
        return serve(call)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        messages.append(message)

    default_scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "path": "/version",
        "raw_path": b"/version",
        "query_string": b"",
        "client": ("192.0.2.7", "4711"),
        "headers": [(b"host", b"x")],
    }
    origins = Origins(proxies) if proxies is not None else None
    app = AsgiApp(Pipeline((reject_malformed,), handle), 1024, origins=origins)
    await app({**default_scope, **scope}, receive, send)
    return messages


async def send_request(reply: Reply, **scope: Any) -> dict[str, Any]:
    """The start message of the response to a request."""
    return (await serve_with(lambda _: reply, **scope))[0]


def get_header_values(start: dict[str, Any], name: bytes) -> list[bytes]:
    return [value for header, value in start["headers"] if header == name]


@pytest.mark.parametrize("status", [200, 201, 204, 404, 500])
async def test_responses_have_the_nosniff_header(status: int) -> None:
    assert get_header_values(await send_request(Reply(status, b"{}")), NOSNIFF) == [b"nosniff"]


async def test_a_nosniff_header_of_the_reply_is_not_repeated_or_overridden() -> None:
    for value in ("nosniff", "none"):
        reply = Reply(200, b"{}", headers=[("x-other", "a"), ("x-content-type-options", value)])
        assert get_header_values(await send_request(reply), NOSNIFF) == [value.encode()]


async def test_a_304_has_no_nosniff_header() -> None:
    assert get_header_values(await send_request(Reply(304)), NOSNIFF) == []


async def test_an_ambiguous_request_gets_400_and_closes_the_connection() -> None:
    duplicate_hosts = [(b"host", b"x"), (b"host", b"y")]
    start = await send_request(Reply(200, b"{}"), headers=duplicate_hosts)
    assert (start["status"], get_header_values(start, b"connection")) == (400, [b"close"])
    start = await send_request(Reply(200, b"{}"), headers=duplicate_hosts, http_version="2")
    assert (start["status"], get_header_values(start, b"connection")) == (400, [])


async def test_a_valid_request_does_not_close_the_connection() -> None:
    start = await send_request(Reply(200, b"{}"))
    assert (start["status"], get_header_values(start, b"connection")) == (200, [])


@pytest.mark.parametrize("reply", [Reply(200, b"{}"), Reply(200, b"x" * 200_000)], ids=["small", "large"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_on_close_is_called_once_the_response_was_sent(reply: Reply, method: str) -> None:
    closed: list[str] = []
    reply.on_close = (lambda: closed.append("one"), lambda: closed.append("two"))
    await send_request(reply, method=method)
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
        await send_request(reply, type="websocket")
    assert closed == ["closed"]


@pytest.mark.parametrize(
    ("peer", "source", "proxies"),
    [
        (("10.1.1.1", 4711), "192.0.2.9:0", ("10.1.1.1",)),
        (("192.0.2.7", 4711), "192.0.2.7:4711", ()),
        (("2001:db8::1", 4711), "[2001:db8::1]:4711", ()),
    ],
)
async def test_the_source_of_a_request_is_the_client_behind_trusted_proxies(
    peer: tuple[str, int], source: str, proxies: tuple[str, ...]
) -> None:
    seen: list[Call] = []

    def serve(call: Call) -> Reply:
        seen.append(call)
        return Reply(200)

    headers = [(b"host", b"x"), (b"x-forwarded-for", b"203.0.113.9, 192.0.2.9")]
    await serve_with(serve, TrustedProxies(("10.0.0.0/8",)), client=peer, headers=headers)
    await serve_with(serve, client=peer, headers=headers)
    trusted, untrusted = seen
    assert (trusted.source, trusted.proxies) == (source, proxies)
    assert trusted.client == untrusted.client == untrusted.source  # connections are found by their peer
    assert untrusted.proxies == ()
