"""A link whose other end violates the protocol: one stream is reset, or the link ends, and memory is bounded."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.links import frames
from fairlead.links.frames import FrameError, FrameType, Hello
from fairlead.links.limits import INITIAL_WINDOW, LinkLimits
from fairlead.links.mux import Mux
from fairlead.links.requests import HTTP, OpenRequest, Refused, RequestHead
from fairlead.links.streams import ResetCode, StreamReset, StreamState
from tests.harness.properties import examples
from tests.links.mux_pair import SERVER, MuxPair


@pytest.fixture
def pair() -> MuxPair:
    return MuxPair(LinkLimits(max_streams=3, idle_frames_burst=50, idle_frames_per_second=10))


def test_more_data_than_credit_resets_that_stream_only(pair: MuxPair) -> None:
    (near, _), (other, _) = pair.open(), pair.open()
    server, content = pair.ends[SERVER], bytes(frames.MAX_DATA_BYTES)
    for _ in range(INITIAL_WINDOW // len(content) + 1):
        server.receive(frames.encode_data(near.number, 1, content), pair.now)
    assert isinstance(near.end, StreamReset)
    assert near.end.code == ResetCode.OVER_CREDIT
    assert not near.received
    assert other.end is None


def test_a_flood_on_a_stream_after_its_reset_ends_the_link(pair: MuxPair) -> None:
    near, _ = pair.open()
    server, content = pair.ends[SERVER], bytes(frames.MAX_DATA_BYTES)
    server.reset(near, ResetCode.CANCELLED, "")
    with pytest.raises(FrameError, match="more than its credit"):
        for _ in range(INITIAL_WINDOW // len(content) + 2):
            server.receive(frames.encode_data(near.number, 1, content), pair.now)


def test_tiny_frames_use_credit_for_their_memory(pair: MuxPair) -> None:
    near, _ = pair.open()
    for _ in range(INITIAL_WINDOW // frames.MIN_DATA_COST):
        pair.ends[SERVER].receive(frames.encode_data(near.number, 1, b"x"), pair.now)
    assert near.end is None
    pair.ends[SERVER].receive(frames.encode_data(near.number, 1, b"x"), pair.now)
    assert isinstance(near.end, StreamReset)


def test_credit_beyond_the_maximum_resets_the_stream(pair: MuxPair) -> None:
    near, _ = pair.open()
    pair.ends[SERVER].receive(frames.encode_credit(near.number, 2**32 - 1), pair.now)
    assert isinstance(near.end, StreamReset)
    assert near.end.code == ResetCode.PROTOCOL


def test_data_after_the_end_of_its_channel_resets_the_stream(pair: MuxPair) -> None:
    near, _ = pair.open()
    pair.ends[SERVER].receive(frames.encode_eof(near.number, 1), pair.now)
    pair.ends[SERVER].receive(frames.encode_data(near.number, 1, b"x"), pair.now)
    assert isinstance(near.end, StreamReset)


def test_streams_beyond_the_limit_are_refused_and_the_others_stay(pair: MuxPair) -> None:
    server = pair.ends[SERVER]
    for number in range(1, 12, 2):
        server.receive(frames.encode_open(number, OpenRequest("x")), pair.now)
    assert [stream.number for stream in server.opened] == [1, 3, 5]
    refused = [frames.decode_frame(frame) for frame in iter(server.next_frame, None)]
    assert [(kind, number) for kind, number, _ in refused] == [(FrameType.REFUSE, number) for number in (7, 9, 11)]
    assert frames.decode_refuse(refused[0][2]).code == 429


def test_own_streams_are_limited_as_well(pair: MuxPair) -> None:
    for _ in range(3):
        pair.open()
    with pytest.raises(Refused, match="3 streams are open"):
        pair.ends[SERVER].open(OpenRequest("ssh"))


FLOODS: dict[str, Callable[[StreamState, int], bytes]] = {
    "PING": lambda stream, _: frames.encode_ping(FrameType.PING, bytes(8)),
    "PONG": lambda stream, _: frames.encode_ping(FrameType.PONG, bytes(8)),
    "GOAWAY": lambda stream, _: frames.encode_reason(FrameType.GOAWAY, 0, 0, ""),
    "CREDIT": lambda stream, _: frames.encode_credit(stream.number, 0),
    "EOF": lambda stream, _: frames.encode_eof(stream.number, 1),
    "OPEN": lambda stream, index: frames.encode_open(2 * index + 1, OpenRequest("x")),
    "RESET": lambda stream, index: frames.encode_reason(FrameType.RESET, stream.number, 1, ""),
}


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_of_frames_without_content_ends_the_link(pair: MuxPair, name: str) -> None:
    near, _ = pair.open()
    server = pair.ends[SERVER]
    with pytest.raises(FrameError, match="without content"):
        for index in range(200):
            server.receive(FLOODS[name](near, index), pair.now)


def test_pings_at_a_normal_rate_are_no_flood(pair: MuxPair) -> None:
    for _ in range(500):
        pair.now += 1
        for _ in range(5):
            pair.ends[SERVER].receive(frames.encode_ping(FrameType.PING, bytes(8)), pair.now)
        while pair.ends[SERVER].next_frame() is not None:
            pass


def test_an_end_that_does_not_read_gets_one_pong_for_many_pings(pair: MuxPair) -> None:
    for index in range(20):
        pair.ends[SERVER].receive(frames.encode_ping(FrameType.PING, bytes((index,)) * 8), pair.now)
    assert list(iter(pair.ends[SERVER].next_frame, None)) == [frames.encode_ping(FrameType.PONG, bytes((19,)) * 8)]


def test_replies_to_an_end_that_does_not_read_are_bounded() -> None:
    pair = MuxPair(LinkLimits(max_streams=1, max_control_frames=10))
    server = pair.ends[SERVER]
    with pytest.raises(FrameError, match="does not read"):
        for number in range(1, 101, 2):
            server.receive(frames.encode_open(number, OpenRequest("x")), pair.now)


@pytest.mark.parametrize(
    "frame",
    [
        frames.encode_data(99, 1, b"x"),
        frames.encode_exit(98, 0),
        frames.encode_open(2, OpenRequest("x")),
        frames.encode_hello(Hello(1, 1, "again")),
        frames.encode_accept(97, {}),
        frames.encode_reason(FrameType.RESET, 4, 1, "never opened"),
    ],
)
def test_frames_that_fit_no_stream_end_the_link(pair: MuxPair, frame: bytes) -> None:
    with pytest.raises(FrameError):
        pair.ends[SERVER].receive(frame, pair.now)


def test_nothing_but_a_reset_is_allowed_before_a_stream_is_accepted(pair: MuxPair) -> None:
    pair.ends[SERVER].receive(frames.encode_open(1, OpenRequest("x")), pair.now)
    with pytest.raises(FrameError, match="before ACCEPT"):
        pair.ends[SERVER].receive(frames.encode_data(1, 0, b"x"), pair.now)


@settings(max_examples=examples(300))
@given(
    st.lists(
        st.binary(max_size=40)
        | st.integers(1, 13).flatmap(
            lambda kind: st.binary(max_size=12).map(lambda rest: bytes((kind, 0, 0, 0)) + rest)
        ),
        max_size=20,
    )
)
def test_any_frames_are_handled_or_end_the_link_with_a_frame_error(messages: list[bytes]) -> None:
    pair = MuxPair()
    pair.open()
    pair.ends[SERVER].open(OpenRequest(HTTP, http=RequestHead("GET", "/")))
    for message in messages:
        try:
            pair.ends[SERVER].receive(message, 0.0)
        except FrameError:
            return
        while pair.ends[SERVER].next_frame() is not None:
            pass


def test_a_version_that_is_too_new_is_rejected_with_what_to_do() -> None:
    mux = Mux("boot", LinkLimits(), 0.0, is_dialer=False)
    with pytest.raises(FrameError, match="versions 7 to 9 of the protocol; update one of both"):
        mux.receive(frames.encode_hello(Hello(7, 9, "b")), 0.0)
