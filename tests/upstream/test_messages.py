"""A body that waits to be taken: in which pieces, and when its source is held up."""

import asyncio

from fairlead.upstream.messages import HIGH_WATER_BYTES, MAX_JOINED_BYTES, Response


class Tap:
    """A source that notes what it is told."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def pause(self) -> None:
        self.heard.append("pause")

    def resume(self) -> None:
        self.heard.append("resume")

    def abort(self) -> None:
        self.heard.append("abandon")


def fed(response: Response, *chunks: bytes) -> Response:
    for chunk in chunks:
        response.feed(chunk)
    return response


def opened(tap: Tap) -> Response:
    return Response(tap, asyncio.get_running_loop().create_future())


async def test_small_chunks_are_handed_out_together() -> None:
    response = fed(opened(Tap()), b"a", b"b", b"c")
    assert await response.read_chunk() == b"abc"


async def test_large_chunks_are_handed_out_as_they_came_and_in_order() -> None:
    first, second = b"1" * MAX_JOINED_BYTES, b"2" * MAX_JOINED_BYTES
    response = fed(opened(Tap()), first, second, b"end")
    response.finish()
    assert [await response.read_chunk(), await response.read_chunk(), await response.read_chunk()] == [
        first,
        second,
        b"end",
    ]
    assert await response.read_chunk() == b""


async def test_all_that_is_left_of_a_body_that_has_ended_comes_whole() -> None:
    chunk = b"1" * MAX_JOINED_BYTES
    response = fed(opened(Tap()), chunk, chunk, b"end")
    response.finish()
    assert await response.read_chunk() == chunk
    assert response.buffered_body() == chunk + b"end"


async def test_the_source_is_held_up_until_little_enough_waits() -> None:
    tap = Tap()
    response = fed(opened(tap), b"1" * HIGH_WATER_BYTES)
    assert tap.heard == []
    fed(response, b"2" * HIGH_WATER_BYTES, b"3" * MAX_JOINED_BYTES)
    assert tap.heard == ["pause"]
    await response.read_chunk()
    assert tap.heard == ["pause"]
    await response.read_chunk()
    assert tap.heard == ["pause", "resume"]
