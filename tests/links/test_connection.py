"""Links with two real ends: streams, deadlines, and what happens when one end or the connection dies."""

import asyncio
from hashlib import sha256

import pytest

from fairlead.links import frames
from fairlead.links.connection import Link
from fairlead.links.contract import DEAD, GOING_AWAY, PROTOCOL_ERROR, Stream
from fairlead.links.frames import STDERR, STDIN, STDOUT
from fairlead.links.limits import LinkLimits
from fairlead.links.requests import OpenRequest, Refused
from fairlead.links.streams import Data, Eof, Exit, ResetCode, StreamReset
from tests.links.pipes import Pipe, linked, pipe_pair

STATUS = OpenRequest("status")


async def echo(request: OpenRequest, stream: Stream) -> None:
    """Sends back what it gets on stdin, and exits with the number of bytes."""
    total = 0
    while not isinstance(message := await stream.receive(), Eof):
        assert isinstance(message, Data)
        total += len(message.content)
        await stream.send(STDOUT, message.content)
    await stream.send_eof(STDOUT)
    await stream.send_exit(total)


async def read_all(stream: Stream) -> tuple[bytes, int]:
    """What arrives on stdout, and the exit code."""
    output = bytearray()
    while (message := await stream.receive()) is not None:
        if isinstance(message, Data):
            output += message.content
        elif isinstance(message, Exit):
            return bytes(output), message.code
    raise AssertionError("no exit code")


async def test_megabytes_pass_in_both_directions_at_once() -> None:
    content = b"".join(sha256(b"%d" % index).digest() for index in range(100_000))
    async with linked(echo) as pair:
        stream = await pair.server.open(OpenRequest("exec"))

        async def write() -> None:
            await stream.send(STDIN, content)
            await stream.send_eof(STDIN)

        writing = asyncio.create_task(write())
        assert await read_all(stream) == (content, len(content))
        await writing
        assert await stream.receive() is None
        await asyncio.sleep(0.01)  # the confirmation of the end is under way
        assert pair.server.stream_count == pair.runner.stream_count == 0


async def test_a_stalled_reader_does_not_delay_other_streams() -> None:
    async def flood(request: OpenRequest, stream: Stream) -> None:
        if request.action != "flood":
            return await echo(request, stream)
        while True:
            await stream.send(STDOUT, bytes(100_000))

    async with linked(flood) as pair:
        stalled = [await pair.server.open(OpenRequest("flood")) for _ in range(10)]
        before = asyncio.get_running_loop().time()
        for _ in range(50):
            stream = await pair.server.open(OpenRequest("echo"))
            await stream.send(STDIN, b"hello")
            await stream.send_eof(STDIN)
            assert await read_all(stream) == (b"hello", 5)
        assert asyncio.get_running_loop().time() == before, "a stream had to wait for a timer"
        for stream in stalled:
            await stream.reset("enough")


async def test_output_and_errors_may_be_sent_by_two_tasks() -> None:
    async def serve(request: OpenRequest, stream: Stream) -> None:
        await asyncio.gather(stream.send(STDOUT, b"o" * 600_000), stream.send(STDERR, b"e" * 600_000))
        await stream.send_exit(0)

    async with linked(serve) as pair:
        stream = await pair.server.open(STATUS)
        sizes = {STDOUT: 0, STDERR: 0}
        while isinstance(message := await stream.receive(), Data):
            sizes[message.channel] += len(message.content)
        assert message == Exit(0)
        assert sizes == {STDOUT: 600_000, STDERR: 600_000}


async def test_a_refusal_reaches_the_opener_with_its_code() -> None:
    async def refuse(request: OpenRequest, stream: Stream) -> None:
        raise Refused(404, f"there is no task {request.task_id}")

    async with linked(refuse) as pair:
        with pytest.raises(Refused, match="there is no task t-1") as refused:
            await pair.server.open(OpenRequest("log", task_id="t-1"))
        assert refused.value.code == 404


async def test_details_of_the_acceptance_reach_the_opener() -> None:
    async def serve(request: OpenRequest, stream: Stream) -> None:
        await stream.accept({"offset": 4096})
        await stream.send_exit(0)

    async with linked(serve) as pair:
        assert (await pair.server.open(STATUS)).details == {"offset": 4096}


async def test_a_failing_handler_resets_its_stream_and_not_the_link() -> None:
    async def fail(request: OpenRequest, stream: Stream) -> None:
        await stream.accept({})
        if request.action == "fail":
            raise RuntimeError("bug")

    async with linked(fail) as pair:
        for action in ("fail", "leave"):
            stream = await pair.server.open(OpenRequest(action))
            with pytest.raises(StreamReset) as reset:
                await stream.receive()
            assert reset.value.code == ResetCode.INTERNAL
        assert not pair.server_end.done()


async def test_a_handler_is_cancelled_when_its_stream_is_reset() -> None:
    cancelled = asyncio.Event()

    async def serve(request: OpenRequest, stream: Stream) -> None:
        await stream.accept({})
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with linked(serve) as pair:
        stream = await pair.server.open(STATUS)
        await stream.reset("the client has disconnected")
        await cancelled.wait()


async def test_a_stream_that_is_not_accepted_in_time_is_refused() -> None:
    async def hang(request: OpenRequest, stream: Stream) -> None:
        await asyncio.Event().wait()

    async with linked(hang) as pair:
        with pytest.raises(Refused, match="did not respond within 20 seconds") as refused:
            await pair.server.open(STATUS)
        assert refused.value.code == 504
        assert not pair.server_end.done()


async def test_a_request_that_is_too_large_is_refused() -> None:
    async with linked(echo) as pair:
        with pytest.raises(Refused, match="too large"):
            await pair.server.open(OpenRequest("up", options={"x": "x" * 80_000}))


@pytest.mark.parametrize("silent_end", ["server", "runner", "both"])
async def test_both_ends_notice_within_thirty_seconds_that_messages_are_lost(silent_end: str) -> None:
    async def hang(request: OpenRequest, stream: Stream) -> None:
        await stream.receive()

    async with linked(hang) as pair:
        stream = await pair.server.open(STATUS)
        before = asyncio.get_running_loop().time()
        pair.server_pipe.is_silent = silent_end in ("server", "both")
        pair.runner_pipe.is_silent = silent_end in ("runner", "both")
        with pytest.raises(StreamReset):
            await stream.receive()
        ends = await asyncio.gather(pair.server_end, pair.runner_end)
        assert DEAD in {end.code for end in ends}
        assert asyncio.get_running_loop().time() - before <= 30


async def test_a_connection_that_accepts_no_more_bytes_is_dead_within_thirty_seconds() -> None:
    async with linked(echo) as pair:
        await pair.server.wait_ready()
        before = asyncio.get_running_loop().time()
        pair.server_pipe.writable.clear()
        await asyncio.gather(pair.server_end, pair.runner_end)
        assert asyncio.get_running_loop().time() - before <= 30


async def test_a_quiet_stream_lasts_for_hours() -> None:
    async def wait(request: OpenRequest, stream: Stream) -> None:
        await stream.accept({})
        await asyncio.sleep(5 * 3600)
        await stream.send_exit(0)

    async with linked(wait) as pair:
        stream = await pair.server.open(OpenRequest("exec"))
        assert await stream.receive() == Exit(0)


async def test_lost_credit_resets_the_stream_and_does_not_hang() -> None:
    async def flood(request: OpenRequest, stream: Stream) -> None:
        while True:
            await stream.send(STDOUT, bytes(100_000))

    async with linked(flood, LinkLimits(stall_seconds=60)) as pair:
        stream = await pair.server.open(STATUS)
        await asyncio.sleep(1)
        pair.server.mux._grant_credit = lambda stream: None  # type: ignore[method-assign]  # CREDIT frames get lost
        with pytest.raises(StreamReset) as reset:
            while True:
                await stream.receive()
        assert reset.value.code == ResetCode.STALLED


async def test_the_other_end_learns_why_a_link_is_closed() -> None:
    async with linked(echo) as pair:
        await pair.server.wait_ready()
        await pair.server.close(GOING_AWAY, "the server restarts")
        end = await pair.runner_end
        assert (end.code, end.reason) == (GOING_AWAY, "the server restarts")


async def test_streams_of_a_closed_link_are_reset_and_new_ones_refused() -> None:
    async with linked(echo) as pair:
        stream = await pair.server.open(STATUS)
        await pair.runner.close(GOING_AWAY, "the runner stops")
        await pair.server_end
        with pytest.raises(StreamReset, match="the runner stops"):
            await stream.receive()
        with pytest.raises(StreamReset):
            await stream.send(STDIN, b"x")
        with pytest.raises(Refused, match="the runner stops") as refused:
            await pair.server.open(STATUS)
        assert refused.value.code == 503


async def test_a_violation_of_the_protocol_ends_the_link_with_its_reason() -> None:
    near, far = pipe_pair()
    link = Link(near, boot_id="server", is_dialer=False)
    running = asyncio.create_task(link.run())
    await far.send(frames.encode_data(1, 1, b"before hello"))
    end = await running
    assert end.code == PROTOCOL_ERROR
    goaway = await _last_frame(far)
    assert goaway[0] is frames.FrameType.GOAWAY
    assert b"the first frame" in goaway[2]


async def _last_frame(pipe: Pipe) -> tuple[frames.FrameType, int, bytes]:
    received = []
    while (message := await pipe.receive()) is not None:
        received.append(frames.decode_frame(message))
    return received[-1]
