"""What the HTTP server hands over: headers that are read as they were sent, and bodies that are whole or none."""

import asyncio
from typing import Any

import pytest

from fairlead.core.errors import BadRequest, Timeout, TooLarge
from fairlead.server.http import request
from fairlead.server.http.request import DRAIN_FACTOR, MAX_EMPTY_CHUNKS, RequestBody, RequestHeaders

LIMIT = 100


def chunk(body: bytes, more: bool = True) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


GONE = {"type": "http.disconnect"}


class Sender:
    """A client that sends these messages, and nothing after them."""

    def __init__(self, *messages: dict[str, Any]) -> None:
        self.left = list(messages)

    async def __call__(self) -> dict[str, Any]:
        if not self.left:
            await asyncio.sleep(3600)
        return self.left.pop(0)


def body_of(
    *messages: dict[str, Any], headers: tuple[tuple[bytes, bytes], ...] = (), is_framed: bool = True
) -> tuple[RequestBody, Sender]:
    sender = Sender(*messages)
    return RequestBody(RequestHeaders(headers), sender, LIMIT, is_framed), sender


def test_headers_are_found_by_name_the_first_of_several_first() -> None:
    headers = RequestHeaders([(b"host", b"a"), (b"x", b"1"), (b"x", b"2")])
    assert headers.get("x") == "1" and headers.get_all("x") == ["1", "2"]
    assert headers.get("y") == "" and headers.get("y", "-") == "-" and headers.get_all("y") == []
    assert set(headers.keys()) == {"host", "x"} and "y" not in list(headers.keys())
    assert headers.has_prefix("ho") and not headers.has_prefix("os") and not RequestHeaders([]).has_prefix("ho")


def test_a_value_that_is_no_ascii_is_named_but_cannot_be_read() -> None:
    headers = RequestHeaders([(b"x", "ä".encode()), (b"x", b"1"), (b"y", b"\xff")])
    assert headers.get("x") == "" and headers.get_all("x") == [] and "x" in list(headers.keys())
    assert headers.get("y", "-") == "-" and headers.get_all("y") == [] and "y" in list(headers.keys())


async def test_a_body_is_read_whole() -> None:
    body, _ = body_of(chunk(b"ab"), chunk(b""), chunk(b"c"), chunk(b"", more=False))
    assert await body.read() == b"abc"


async def test_a_body_is_whole_when_all_that_was_announced_has_come() -> None:
    body, sender = body_of(chunk(b"ab"), chunk(b"c"), chunk(b"", more=False), headers=((b"content-length", b"3"),))
    assert await body.read() == b"abc"
    assert not body.is_unfinished and len(sender.left) == 1


@pytest.mark.parametrize(("length", "is_framed"), [(b"2", False), (b"", True), (b"two", True), (b"-1", True)])
async def test_where_the_length_says_nothing_the_body_ends_when_it_ends(length: bytes, is_framed: bool) -> None:
    sent = (chunk(b"ab"), chunk(b"c"), chunk(b"", more=False))
    body, _ = body_of(*sent, headers=((b"content-length", length),), is_framed=is_framed)
    assert await body.read() == b"abc"


async def test_a_body_that_is_shorter_than_announced_is_not_waited_for_in_vain() -> None:
    body, _ = body_of(chunk(b"ab"), {"type": "http.disconnect"}, headers=((b"content-length", b"3"),))
    with pytest.raises(BadRequest):
        await body.read()


async def test_a_body_is_streamed_past_the_limit() -> None:
    body, _ = body_of(*[chunk(b"x" * LIMIT)] * 10, chunk(b"y", more=False))
    assert [len(piece) async for piece in body.stream()] == [*[LIMIT] * 10, 1]


@pytest.mark.parametrize(
    "messages", [(GONE,), (chunk(b"ab"), GONE), (chunk(b"ab"), *[chunk(b"")] * (MAX_EMPTY_CHUNKS + 1))]
)
async def test_a_body_that_breaks_off_is_never_taken_for_a_whole_one(messages: tuple[dict[str, Any], ...]) -> None:
    body, _ = body_of(*messages)
    with pytest.raises(BadRequest):
        await body.read()
    body, _ = body_of(*messages)
    with pytest.raises(BadRequest):
        assert [piece async for piece in body.stream()]


async def test_one_that_is_too_large_is_read_on_for_a_while_so_that_its_sender_sees_the_answer() -> None:
    body, sender = body_of(*[chunk(b"x" * LIMIT)] * 100)
    with pytest.raises(TooLarge):
        await body.read()
    assert 100 - len(sender.left) == DRAIN_FACTOR + 1


async def test_what_nobody_asked_for_is_taken_in_and_thrown_away() -> None:
    announced = ((b"content-length", b"4"),)
    body, sender = body_of(chunk(b"ab"), chunk(b"cd", more=False), headers=announced)
    await body.discard()
    assert not sender.left
    body, sender = body_of(chunk(b"ab"), GONE, headers=((b"transfer-encoding", b"chunked"),))
    await body.discard()
    assert not sender.left


async def test_a_body_of_which_a_part_is_missing_is_known_as_such() -> None:
    announced = ((b"transfer-encoding", b"chunked"),)
    for messages, unfinished in (((chunk(b"ab"), GONE), True), ((chunk(b"ab"), chunk(b"", more=False)), False)):
        body, _ = body_of(*messages, headers=announced)
        assert body.is_unfinished, "nobody has looked yet"
        await body.discard()
        assert body.is_unfinished is unfinished
    body, _ = body_of()
    assert not body.is_unfinished, "there is none"


async def test_where_there_is_no_body_nothing_is_waited_for() -> None:
    for headers in ((), ((b"content-length", b"0"),)):
        body, sender = body_of(chunk(b"", more=False), headers=headers)
        await body.discard()
        assert sender.left


async def test_who_never_sends_what_was_announced_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "DISCARD_TIMEOUT", 0.01)
    body, _ = body_of(headers=((b"content-length", b"4"),))
    await asyncio.wait_for(body.discard(), 5)


@pytest.mark.parametrize("headers", [((b"content-length", b"4"),), ((b"transfer-encoding", b"chunked"),)])
async def test_a_body_that_comes_too_slowly_is_given_up(
    monkeypatch: pytest.MonkeyPatch, headers: tuple[tuple[bytes, bytes], ...]
) -> None:
    monkeypatch.setattr(request, "BODY_TIMEOUT", 0.01)
    body, _ = body_of(chunk(b"ab"), headers=headers)
    with pytest.raises(Timeout, match="the body was not complete after"):
        await asyncio.wait_for(body.read(), 5)
    assert body.is_unfinished
