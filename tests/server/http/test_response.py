"""The stages that change a response: gzip compression and custom headers."""

import gzip

import pytest

from fairlead.core.call import Reply
from fairlead.core.errors import NotFound
from fairlead.server.http.response import MIN_GZIP_BYTES, accepts_gzip, compress, custom_headers_stage
from fairlead.server.pipeline import Pipeline
from tests.harness.calls import always_raise, always_reply, call

LARGE = b"x" * (MIN_GZIP_BYTES + 1)


async def send_through_compression(body: bytes, accept_encoding: str) -> Reply:
    request = call(headers={"accept-encoding": accept_encoding})
    return await Pipeline((), always_reply(Reply(200, body)), (compress,))(request)


async def test_a_large_response_is_compressed_for_a_client_that_accepts_it() -> None:
    reply = await send_through_compression(LARGE, "gzip, deflate")
    assert gzip.decompress(reply.body) == LARGE
    assert ("content-encoding", "gzip") in reply.headers
    assert ("vary", "Accept-Encoding") in reply.headers


async def test_a_client_that_does_not_accept_gzip_gets_the_response_unchanged() -> None:
    reply = await send_through_compression(LARGE, "")
    assert (reply.body, reply.headers) == (LARGE, [])


async def test_a_response_that_is_compressed_already_is_left_alone() -> None:
    reply = Reply(200, LARGE, headers=[("content-encoding", "gzip")])
    compressed = await Pipeline((), always_reply(reply), (compress,))(call(headers={"accept-encoding": "gzip"}))
    assert (compressed.body, compressed.headers) == (LARGE, [("content-encoding", "gzip")])


async def test_a_small_response_is_not_compressed() -> None:
    reply = await send_through_compression(b"x" * MIN_GZIP_BYTES, "gzip")
    assert (len(reply.body), reply.headers) == (MIN_GZIP_BYTES, [])


@pytest.mark.parametrize(
    ("header", "accepts"),
    [
        ("gzip", True),
        ("GZIP;q=0.5", True),
        ("br, gzip ; q=1", True),
        ("gzip;q=0", False),
        ("deflate", False),
        ("gzipped", False),
    ],
)
def test_accept_encoding_is_parsed_with_qualities(header: str, accepts: bool) -> None:
    assert accepts_gzip(header) is accepts


async def test_every_response_has_the_custom_headers_and_they_can_change() -> None:
    custom: dict[str, str] = {}

    def serve(_: object) -> Reply:
        return Reply(200, headers=[("x-known", "ours")])

    pipeline = Pipeline((), serve, (custom_headers_stage(lambda: custom),))
    assert (await pipeline(call("/"))).headers == [("x-known", "ours")]
    custom.update({"X-Added": "a", "X-Known": "theirs"})
    assert (await pipeline(call("/"))).headers == [("x-known", "ours"), ("x-added", "a")]


async def test_error_responses_have_the_custom_headers_too() -> None:
    add_headers = custom_headers_stage(lambda: {"X-A": "b"})
    reply = await Pipeline((), always_raise(NotFound("nothing here")), (add_headers,))(call("/"))
    assert (reply.status, ("x-a", "b") in reply.headers) == (404, True)
