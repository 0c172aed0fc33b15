"""The streams of a link: under random interleavings, in which order they send, how they end, and what time does."""

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.links import frames
from fairlead.links.frames import FrameError, FrameType
from fairlead.links.limits import INITIAL_WINDOW, MAX_WINDOW, LinkLimits
from fairlead.links.mux import LinkDead, Mux
from fairlead.links.requests import OpenRequest, Refused
from fairlead.links.streams import Data, Eof, Exit, Message, ResetCode, StreamReset, StreamState
from tests.harness.properties import examples
from tests.links.mux_pair import RUNNER, SERVER, MuxPair


def drain(mux: Mux, stream: StreamState) -> list[Message]:
    messages = []
    while (message := mux.read(stream)) is not None:
        messages.append(message)
    return messages


def fill(mux: Mux, stream: StreamState, channel: int = frames.STDOUT) -> int:
    """Sends until there is no room. Returns the number of bytes."""
    total = 0
    while room := mux.room(stream):
        mux.send(stream, channel, bytes(room))
        total += room
    return total


# --- random interleavings --------------------------------------------------------------------------------------------

STREAMS = 4
STEPS = st.tuples(
    st.sampled_from(["transmit", "deliver", "send", "read"]),
    st.sampled_from([SERVER, RUNNER]),
    st.integers(0, STREAMS - 1),
    st.sampled_from(frames.CHANNELS),
    st.integers(1, 70_000),
)


@settings(max_examples=examples(150))
@given(st.lists(STEPS, max_size=300), st.randoms(use_true_random=False))
def test_no_interleaving_loses_or_reorders_bytes_or_exceeds_credit(steps: list[tuple], random: object) -> None:
    pair = MuxPair()
    streams = [pair.open() for _ in range(STREAMS)]
    sent: dict[tuple[int, int, int], bytearray] = {}
    received: dict[tuple[int, int, int], bytearray] = {}

    def read(side: int, index: int) -> bool:
        message = pair.ends[side].read(streams[index][side])
        if isinstance(message, Data):
            received.setdefault((1 - side, index, message.channel), bytearray()).extend(message.content)
        return message is not None

    for number, (action, side, index, channel, size) in enumerate(steps):
        mux, stream = pair.ends[side], streams[index][side]
        if action == "transmit":
            pair.transmit(side)
        elif action == "deliver":
            pair.deliver(side)
        elif action == "read":
            read(side, index)
        elif room := mux.room(stream):
            content = hashlib.sha256(b"%d" % number).digest() * 600
            content = content[: min(size, room)]
            mux.send(stream, channel, content)
            sent.setdefault((side, index, channel), bytearray()).extend(content)
        for end in range(2):
            for both in streams:
                unread = sum(len(each.content) for each in both[end].received if isinstance(each, Data))
                assert unread + both[end].receive_credit <= both[end].window <= MAX_WINDOW
    pair.deliver_all()
    while sum(read(side, index) for side in (SERVER, RUNNER) for index in range(STREAMS)):
        pair.deliver_all()
    assert received == sent
    assert all(stream.end is None for both in streams for stream in both)


@settings(max_examples=examples(100))
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["reset", "exit", "send", "transmit", "deliver"]), st.integers(0, 1), st.integers(0, 2)
        ),
        max_size=80,
    )
)
def test_streams_end_in_any_order_of_events_without_an_error_of_the_link(steps: list[tuple[str, int, int]]) -> None:
    pair = MuxPair()
    streams = [pair.open() for _ in range(3)]
    for action, side, index in steps:
        mux, stream = pair.ends[side], streams[index][side]
        if action == "transmit":
            pair.transmit(side)
        elif action == "deliver":
            pair.deliver(side)
        elif action == "reset":
            mux.reset(stream, ResetCode.CANCELLED, "test")
        elif action == "exit":
            mux.send_exit(stream, 3)
        elif not stream.has_ended and not stream.has_exited and mux.room(stream):
            mux.send(stream, 1, b"x" * 500)
    pair.deliver_all()
    for near, far in streams:
        known = [stream.number in pair.ends[side].streams for side, stream in enumerate((near, far))]
        assert known[0] == known[1], "only one end knows the stream"
        if not any(known):
            assert not near.outgoing
            assert not far.outgoing
    pair.tick(24)
    assert pair.ends[SERVER].open(OpenRequest("ssh")).number not in {near.number for near, _ in streams}


# --- ends of streams -------------------------------------------------------------------------------------------------


def test_each_channel_is_closed_on_its_own_and_the_other_direction_stays_open() -> None:
    pair = MuxPair()
    near, far = pair.open()
    server, runner = pair.ends
    server.send(near, frames.STDIN, b"archive")
    server.send_eof(near, frames.STDIN)
    pair.deliver_all()
    assert drain(runner, far) == [Data(0, b"archive"), Eof(0)]
    runner.send(far, frames.STDOUT, b"unpacked")
    runner.send_eof(far, frames.STDOUT)
    runner.send(far, frames.STDERR, b"warning")
    runner.send_exit(far, -7)
    pair.deliver_all()
    assert drain(server, near) == [Data(1, b"unpacked"), Eof(1), Data(2, b"warning"), Exit(-7)]
    assert not server.streams
    assert not runner.streams


def test_an_exit_code_arrives_after_all_output_even_if_it_has_to_wait_for_its_turn() -> None:
    pair = MuxPair()
    near, far = pair.open()
    size = fill(pair.ends[RUNNER], far)
    pair.ends[RUNNER].send_exit(far, 0)
    pair.deliver_all()
    messages = drain(pair.ends[SERVER], near)
    assert sum(len(each.content) for each in messages if isinstance(each, Data)) == size
    assert messages[-1] == Exit(0)


def test_a_reset_ends_only_its_stream() -> None:
    pair = MuxPair()
    (near, far), (other_near, other_far) = pair.open(), pair.open()
    pair.ends[RUNNER].send(other_far, 1, b"before")
    fill(pair.ends[RUNNER], far)
    pair.ends[SERVER].reset(near, ResetCode.CANCELLED, "the client is gone")
    pair.deliver_all()
    assert isinstance(far.end, StreamReset)
    assert (far.end.code, far.end.reason) == (ResetCode.CANCELLED, "the client is gone")
    with pytest.raises(StreamReset):
        pair.ends[RUNNER].send(far, 1, b"x")
    pair.ends[RUNNER].send(other_far, 1, b"after")
    pair.deliver_all()
    assert drain(pair.ends[SERVER], other_near) == [Data(1, b"before"), Data(1, b"after")]


def test_a_refusal_and_a_reset_that_cross_end_the_stream_on_both_sides() -> None:
    pair = MuxPair()
    near = pair.ends[SERVER].open(OpenRequest("up"))
    pair.deliver_all()
    far = pair.ends[RUNNER].opened.pop()
    pair.ends[SERVER].reset(near, ResetCode.CANCELLED, "not accepted in time")
    pair.ends[RUNNER].refuse(far, 409, "busy")
    pair.deliver_all()
    assert not pair.ends[SERVER].streams
    assert not pair.ends[RUNNER].streams


def test_a_refusal_has_its_code_and_message() -> None:
    pair = MuxPair()
    near = pair.ends[SERVER].open(OpenRequest("up"))
    pair.deliver_all()
    pair.ends[RUNNER].refuse(pair.ends[RUNNER].opened.pop(), 409, "another task runs")
    pair.deliver_all()
    assert isinstance(near.end, Refused)
    assert (near.end.code, near.end.message) == (409, "another task runs")


# --- credit and order of sending -------------------------------------------------------------------------------------


def test_a_stream_that_is_not_read_stops_at_its_credit_and_the_others_go_on() -> None:
    pair = MuxPair()
    (_, slow), (near, far) = pair.open(), pair.open()
    stalled = 0
    for _ in range(200):
        stalled += fill(pair.ends[RUNNER], slow)
        fill(pair.ends[RUNNER], far)
        pair.deliver_all()
        drain(pair.ends[SERVER], near)
    assert INITIAL_WINDOW - frames.MIN_DATA_COST < stalled <= INITIAL_WINDOW
    assert near.window == MAX_WINDOW


def test_bulk_data_is_sent_in_full_frames_whatever_the_sizes_of_its_parts() -> None:
    """Small pieces of room in the queue are not filled with small frames: these would leave small pieces again."""
    pair = MuxPair()
    near, far = pair.open()
    server, runner = pair.ends
    part, part_count, frame_count, rest = 2 * frames.MAX_DATA_BYTES + 1, 100, 0, 0
    while part_count or rest or near.outgoing:
        while (rest or part_count) and (room := server.room(near)):
            if not rest:
                rest, part_count = part, part_count - 1
            server.send(near, frames.STDIN, bytes(min(room, rest)))
            rest -= min(room, rest)
        pair.transmit(SERVER)
        pair.deliver(SERVER)
        while runner.read(far) is not None:
            frame_count += 1
        while pair.transmit(RUNNER) or pair.deliver(RUNNER):
            pass
    assert frame_count <= 3 * 100 + 30


def test_windows_grow_only_for_readers_that_keep_up_and_not_beyond_the_total() -> None:
    pair = MuxPair(LinkLimits(total_window=2 * INITIAL_WINDOW + 1000))
    (near, far), _ = pair.open(), pair.open()
    for _ in range(50):
        fill(pair.ends[RUNNER], far)
        pair.deliver_all()
        drain(pair.ends[SERVER], near)
    assert near.window == INITIAL_WINDOW


def test_a_small_message_is_sent_before_bulk_data_of_other_streams() -> None:
    pair = MuxPair()
    bulk = [pair.open()[1] for _ in range(5)]
    _, quiet = pair.open()
    runner = pair.ends[RUNNER]
    for stream in bulk:
        fill(runner, stream)
    for _ in range(7):
        runner.next_frame()
    runner.send(quiet, 1, b"keystroke")
    frame = runner.next_frame()
    assert frame is not None
    assert frames.decode_frame(frame)[1] == quiet.number


def test_streams_with_bulk_data_take_turns_even_beside_one_with_many_small_messages() -> None:
    pair = MuxPair()
    (_, bulk), (_, chatty) = pair.open(), pair.open()
    runner, order = pair.ends[RUNNER], []
    fill(runner, bulk)
    for _ in range(3):
        runner.send(chatty, 1, b"x")
        for _ in range(2):
            frame = runner.next_frame()
            assert frame is not None
            order.append(frames.decode_frame(frame)[1])
    assert order.count(bulk.number) == 3


# --- time ------------------------------------------------------------------------------------------------------------


def test_a_silent_end_is_dead_within_thirty_seconds() -> None:
    pair = MuxPair()
    with pytest.raises(LinkDead, match="nothing was received"):
        for _ in range(29):
            pair.tick(1)


def test_a_quiet_link_with_a_living_end_lasts() -> None:
    pair = MuxPair()
    near, _ = pair.open()
    for _ in range(4 * 3600):
        pair.tick(1)
        pair.deliver_all()
    assert near.end is None


def test_an_end_that_says_no_hello_is_dropped() -> None:
    pair = MuxPair(greeted=False)
    with pytest.raises(LinkDead, match="no HELLO"):
        for _ in range(11):
            pair.tick(1)


def test_a_stream_whose_credit_is_lost_is_reset_and_does_not_hang() -> None:
    pair = MuxPair(LinkLimits(stall_seconds=60))
    (near, far), (other_near, other_far) = pair.open(), pair.open()
    while fill(pair.ends[RUNNER], far):
        pair.deliver_all()
    for _ in range(62):
        drain(pair.ends[SERVER], near)
        pair.tick(1)
        for side in (SERVER, RUNNER):
            while pair.transmit(side):
                pass
        lost = [frame for frame in pair.pipes[SERVER] if frames.decode_frame(frame)[0] is FrameType.CREDIT]
        for frame in lost:
            pair.pipes[SERVER].remove(frame)
        pair.deliver_all()
    assert isinstance(far.end, StreamReset)
    assert far.end.code == ResetCode.STALLED
    assert isinstance(near.end, StreamReset)
    pair.ends[RUNNER].send(other_far, 1, b"alive")
    pair.deliver_all()
    assert drain(pair.ends[SERVER], other_near) == [Data(1, b"alive")]


def test_an_end_that_does_not_confirm_resets_is_dropped() -> None:
    pair = MuxPair()
    near, _ = pair.open()
    pair.ends[SERVER].reset(near, ResetCode.CANCELLED, "")
    with pytest.raises(FrameError, match="not confirmed"):
        for _ in range(40):
            pair.now += 1
            pair.ends[SERVER].receive(frames.encode_ping(FrameType.PONG, bytes(8)), pair.now)
            pair.ends[SERVER].tick(pair.now)


def test_after_goaway_no_stream_can_be_opened() -> None:
    pair = MuxPair()
    pair.ends[SERVER].go_away(3, "the server restarts")
    pair.deliver_all()
    with pytest.raises(Refused, match="about to end"):
        pair.ends[RUNNER].open(OpenRequest("x"))
    with pytest.raises(Refused, match="about to end"):
        pair.ends[SERVER].open(OpenRequest("x"))
