"""Tests of `fairlead.upstream.messages`: how a buffered body is split into chunks, and when its source is paused."""

import asyncio

from fairlead.upstream.messages import HIGH_WATER_BYTES, MAX_JOINED_BYTES, Response


class RecordingSource:
    """A source that records the calls it gets."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def pause(self) -> None:
        self.calls.append("pause")

    def resume(self) -> None:
        self.calls.append("resume")

    def abort(self) -> None:
        self.calls.append("abort")


def feed(response: Response, *chunks: bytes) -> Response:
    for chunk in chunks:
        response.feed(chunk)
    return response


def build_response(source: RecordingSource) -> Response:
    return Response(source, asyncio.get_running_loop().create_future())


async def test_small_chunks_are_joined() -> None:
    response = feed(build_response(RecordingSource()), b"a", b"b", b"c")
    assert await response.read_chunk() == b"abc"


async def test_large_chunks_are_returned_unchanged_and_in_order() -> None:
    first, second = b"1" * MAX_JOINED_BYTES, b"2" * MAX_JOINED_BYTES
    response = feed(build_response(RecordingSource()), first, second, b"end")
    response.finish()
    assert [await response.read_chunk(), await response.read_chunk(), await response.read_chunk()] == [
        first,
        second,
        b"end",
    ]
    assert await response.read_chunk() == b""


async def test_the_rest_of_a_finished_body_is_returned_at_once() -> None:
    chunk = b"1" * MAX_JOINED_BYTES
    response = feed(build_response(RecordingSource()), chunk, chunk, b"end")
    response.finish()
    assert await response.read_chunk() == chunk
    assert response.buffered_body() == chunk + b"end"


async def test_the_source_is_paused_until_the_buffer_is_below_its_limit() -> None:
    source = RecordingSource()
    response = feed(build_response(source), b"1" * HIGH_WATER_BYTES)
    assert source.calls == []
    feed(response, b"2" * HIGH_WATER_BYTES, b"3" * MAX_JOINED_BYTES)
    assert source.calls == ["pause"]
    await response.read_chunk()
    assert source.calls == ["pause"]
    await response.read_chunk()
    assert source.calls == ["pause", "resume"]
