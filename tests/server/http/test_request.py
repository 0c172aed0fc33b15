"""server.http.request: headers, and bodies that are either complete or an error."""

import asyncio
from typing import Any

import pytest

from fairlead.core.errors import BadRequest, Timeout, TooLarge
from fairlead.server.http import request
from fairlead.server.http.request import DRAIN_FACTOR, MAX_EMPTY_CHUNKS, RequestBody, RequestHeaders

LIMIT = 100


def build_chunk(body: bytes, more: bool = True) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


DISCONNECT = {"type": "http.disconnect"}


class FakeClient:
    """A client that sends these messages, and nothing after them."""

    def __init__(self, *messages: dict[str, Any]) -> None:
        self.unsent = list(messages)

    async def __call__(self) -> dict[str, Any]:
        if not self.unsent:
            await asyncio.sleep(3600)
        return self.unsent.pop(0)


def build_body(
    *messages: dict[str, Any], headers: tuple[tuple[bytes, bytes], ...] = (), is_framed: bool = True
) -> tuple[RequestBody, FakeClient]:
    client = FakeClient(*messages)
    return RequestBody(RequestHeaders(headers), client, LIMIT, is_framed), client


def test_headers_are_found_by_name_and_get_returns_the_first_value() -> None:
    headers = RequestHeaders([(b"host", b"a"), (b"x", b"1"), (b"x", b"2")])
    assert headers.get("x") == "1" and headers.get_all("x") == ["1", "2"]
    assert (headers.find_single(b"host"), headers.find_single(b"x"), headers.find_single(b"y")) == (b"a", None, None)
    assert headers.get("y") == "" and headers.get("y", "-") == "-" and headers.get_all("y") == []
    assert set(headers.keys()) == {"host", "x"} and "y" not in list(headers.keys())
    assert headers.has_prefix("ho") and not headers.has_prefix("os") and not RequestHeaders([]).has_prefix("ho")


def test_a_value_that_is_not_ascii_is_listed_but_not_returned() -> None:
    headers = RequestHeaders([(b"x", "ä".encode()), (b"x", b"1"), (b"y", b"\xff")])
    assert headers.get("x") == "" and headers.get_all("x") == [] and "x" in list(headers.keys())
    assert headers.get("y", "-") == "-" and headers.get_all("y") == [] and "y" in list(headers.keys())


async def test_a_body_is_read_completely() -> None:
    body, _ = build_body(build_chunk(b"ab"), build_chunk(b""), build_chunk(b"c"), build_chunk(b"", more=False))
    assert await body.read() == b"abc"


async def test_a_body_is_complete_when_the_content_length_has_arrived() -> None:
    body, client = build_body(
        build_chunk(b"ab"), build_chunk(b"c"), build_chunk(b"", more=False), headers=((b"content-length", b"3"),)
    )
    assert await body.read() == b"abc"
    assert not body.is_unfinished and len(client.unsent) == 1


@pytest.mark.parametrize(("length", "is_framed"), [(b"2", False), (b"", True), (b"two", True), (b"-1", True)])
async def test_without_a_usable_content_length_the_body_ends_with_the_last_chunk(
    length: bytes, is_framed: bool
) -> None:
    messages = (build_chunk(b"ab"), build_chunk(b"c"), build_chunk(b"", more=False))
    body, _ = build_body(*messages, headers=((b"content-length", length),), is_framed=is_framed)
    assert await body.read() == b"abc"


async def test_a_body_shorter_than_its_content_length_is_a_bad_request() -> None:
    body, _ = build_body(build_chunk(b"ab"), {"type": "http.disconnect"}, headers=((b"content-length", b"3"),))
    with pytest.raises(BadRequest):
        await body.read()


async def test_a_body_is_streamed_past_the_limit() -> None:
    body, _ = build_body(*[build_chunk(b"x" * LIMIT)] * 10, build_chunk(b"y", more=False))
    assert [len(piece) async for piece in body.stream()] == [*[LIMIT] * 10, 1]


@pytest.mark.parametrize(
    "messages",
    [
        (DISCONNECT,),
        (build_chunk(b"ab"), DISCONNECT),
        (build_chunk(b"ab"), *[build_chunk(b"")] * (MAX_EMPTY_CHUNKS + 1)),
    ],
)
async def test_a_truncated_body_is_a_bad_request(messages: tuple[dict[str, Any], ...]) -> None:
    body, _ = build_body(*messages)
    with pytest.raises(BadRequest):
        await body.read()
    body, _ = build_body(*messages)
    with pytest.raises(BadRequest):
        assert [piece async for piece in body.stream()]


async def test_a_body_over_the_limit_is_drained_so_that_its_client_reads_the_response() -> None:
    body, client = build_body(*[build_chunk(b"x" * LIMIT)] * 100)
    with pytest.raises(TooLarge):
        await body.read()
    assert 100 - len(client.unsent) == DRAIN_FACTOR + 1


async def test_an_unread_body_is_discarded() -> None:
    headers = ((b"content-length", b"4"),)
    body, client = build_body(build_chunk(b"ab"), build_chunk(b"cd", more=False), headers=headers)
    await body.discard()
    assert not client.unsent
    body, client = build_body(build_chunk(b"ab"), DISCONNECT, headers=((b"transfer-encoding", b"chunked"),))
    await body.discard()
    assert not client.unsent


async def test_an_incomplete_body_is_marked_as_unfinished() -> None:
    headers = ((b"transfer-encoding", b"chunked"),)
    for messages, is_unfinished in (
        ((build_chunk(b"ab"), DISCONNECT), True),
        ((build_chunk(b"ab"), build_chunk(b"", more=False)), False),
    ):
        body, _ = build_body(*messages, headers=headers)
        assert body.is_unfinished, "nothing has been read yet"
        await body.discard()
        assert body.is_unfinished is is_unfinished
    body, _ = build_body()
    assert not body.is_unfinished, "there is no body"


async def test_discard_does_not_wait_without_a_body() -> None:
    for headers in ((), ((b"content-length", b"0"),)):
        body, client = build_body(build_chunk(b"", more=False), headers=headers)
        await body.discard()
        assert client.unsent


async def test_discard_times_out_if_the_body_never_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "DISCARD_TIMEOUT", 0.01)
    body, _ = build_body(headers=((b"content-length", b"4"),))
    await asyncio.wait_for(body.discard(), 40)


@pytest.mark.parametrize("headers", [((b"content-length", b"4"),), ((b"transfer-encoding", b"chunked"),)])
async def test_a_body_that_arrives_too_slowly_times_out(
    monkeypatch: pytest.MonkeyPatch, headers: tuple[tuple[bytes, bytes], ...]
) -> None:
    monkeypatch.setattr(request, "BODY_TIMEOUT", 0.01)
    body, _ = build_body(build_chunk(b"ab"), headers=headers)
    with pytest.raises(Timeout, match="the body was not complete after"):
        await asyncio.wait_for(body.read(), 40)
    assert body.is_unfinished
