"""Large answers, compressed for those who can read them."""

import gzip

import pytest

from fairlead.core.call import Call, Reply
from fairlead.server.http.pipeline import MIN_GZIP_BYTES, accepts_gzip, compress

LARGE = b"x" * (MIN_GZIP_BYTES + 1)


class Headers(dict[str, str]):
    def get_all(self, key: str) -> list[str]:
        return [self[key]] if key in self else []


async def answered(body: bytes, accept_encoding: str) -> Reply:
    async def no_body() -> bytes:
        return b""

    async def proceed(call: Call) -> Reply:
        return Reply(200, body)

    call = Call("GET", "/", {}, Headers({"accept-encoding": accept_encoding}), no_body)  # type: ignore[arg-type]
    return await compress(call, proceed)


async def test_a_large_answer_is_compressed_for_a_client_that_asks() -> None:
    reply = await answered(LARGE, "gzip, deflate")
    assert gzip.decompress(reply.body) == LARGE
    assert ("content-encoding", "gzip") in reply.headers
    assert ("vary", "Accept-Encoding") in reply.headers


async def test_a_client_that_does_not_ask_gets_it_as_it_is() -> None:
    reply = await answered(LARGE, "")
    assert (reply.body, reply.headers) == (LARGE, [])


async def test_a_small_answer_is_left_as_it_is() -> None:
    reply = await answered(b"x" * MIN_GZIP_BYTES, "gzip")
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
def test_accept_encoding_is_read_with_its_qualities(header: str, accepts: bool) -> None:
    assert accepts_gzip(header) is accepts
