"""HTTP streams: heads, versions, the order between users, the end of a link with its streams, and what is noticed while
a reply is owed. `test_simulation.py` runs requests in any order."""

import pytest

from fairlead.links import frames
from fairlead.links.contract import DRAINING
from fairlead.links.frames import STDOUT, FrameError, FrameType, Hello
from fairlead.links.limits import LinkLimits
from fairlead.links.mux import LinkDead, Mux
from fairlead.links.requests import HTTP, NOT_SUPPORTED, UNAVAILABLE, OpenRequest, Refused, RequestHead, ResponseHead
from fairlead.links.streams import Data, Exit, Message, StreamReset, StreamState
from tests.links.mux_pair import RUNNER, SERVER, MuxPair

HEAD = RequestHead("GET", "/api/v1/pods?watch=1", (("accept", "application/json"),))
OK = ResponseHead(200, (("content-type", "text/plain"),))


def get(user: str = "", **fields: object) -> OpenRequest:
    return OpenRequest(HTTP, user=user, http=HEAD, **fields)  # type: ignore[arg-type]


def read_all(mux: Mux, stream: StreamState) -> list[Message]:
    messages = []
    while (message := mux.read(stream)) is not None:
        messages.append(message)
    return messages


def opened(pair: MuxPair, request: OpenRequest) -> tuple[StreamState, StreamState]:
    near = pair.ends[SERVER].open(request)
    pair.deliver_all()
    far = pair.ends[RUNNER].opened.pop()
    pair.ends[RUNNER].accept(far, {})
    pair.deliver_all()
    return near, far


def test_a_response_is_a_head_then_data_then_the_exit_that_completes_it() -> None:
    pair = MuxPair()
    near, far = opened(pair, get())
    assert far.request.http == HEAD
    pair.ends[RUNNER].send_head(far, OK)
    pair.ends[RUNNER].send(far, STDOUT, b"body")
    pair.ends[RUNNER].send_exit(far, 0)
    pair.deliver_all()
    assert read_all(pair.ends[SERVER], near) == [OK, Data(STDOUT, b"body"), Exit(0)]
    assert not pair.ends[SERVER].streams
    assert not pair.ends[RUNNER].streams


def test_heads_may_be_larger_than_other_frames() -> None:
    pair = MuxPair()
    groups = tuple(("impersonate-group", f"g{number:05}" * 5) for number in range(1000))
    near, far = opened(pair, OpenRequest(HTTP, http=RequestHead("GET", "/", groups)))
    assert far.request.http is not None
    assert far.request.http.headers == groups
    with pytest.raises(FrameError, match="HEAD has"):
        pair.ends[RUNNER].send_head(far, ResponseHead(200, groups * 2))
    assert not near.has_ended


def test_data_before_the_head_resets_the_stream_and_no_other() -> None:
    pair = MuxPair()
    near, far = opened(pair, get())
    other, _ = opened(pair, get())
    pair.ends[RUNNER].send(far, STDOUT, b"body")
    pair.deliver_all()
    assert isinstance(near.end, StreamReset)
    assert "before HEAD" in near.end.reason
    assert not other.has_ended


@pytest.mark.parametrize("case", ["twice", "of a stream of a workspace", "before it is accepted", "invalid"])
def test_a_head_that_is_not_expected_ends_the_link(case: str) -> None:
    pair = MuxPair()
    near, far = opened(pair, OpenRequest("ssh") if "workspace" in case else get())
    frame = frames.encode_head(near.number, OK)
    if case == "twice":
        pair.ends[RUNNER].send_head(far, OK)
        pair.deliver_all()
    if case == "before it is accepted":
        near.is_accepted = False
    if case == "invalid":
        frame = frames.encode_frame(FrameType.HEAD, near.number, b'{"status": 7}')
    with pytest.raises(FrameError):
        pair.ends[SERVER].receive(frame, pair.now)


def test_the_end_that_accepts_a_stream_receives_no_head() -> None:
    pair = MuxPair()
    _, far = opened(pair, get())
    with pytest.raises(FrameError, match="no HTTP request of this end"):
        pair.ends[RUNNER].receive(frames.encode_head(far.number, OK), pair.now)


def old_peer(pair: MuxPair) -> Mux:
    """The server's end, whose other end speaks version 1 only."""
    server = Mux("boot", LinkLimits(), 0.0, is_dialer=False)
    server.receive(frames.encode_hello(Hello(1, 1, "old")), 0.0)
    return server


def test_an_old_peer_is_served_without_http_streams_and_large_requests() -> None:
    server = old_peer(MuxPair())
    assert server.version == 1
    with pytest.raises(Refused, match="older version") as refused:
        server.open(get())
    assert refused.value.code == NOT_SUPPORTED
    with pytest.raises(FrameError, match="OPEN has"):
        server.open(OpenRequest("up", options={"x": "x" * 20_000}))
    assert server.open(OpenRequest("up")).number == 2


def test_an_old_peer_gets_no_fields_that_it_does_not_know() -> None:
    assert frames.encode_json(OpenRequest("up", "local")) == b'{"action":"up","runner":"local"}'


def test_a_draining_end_refuses_streams_as_not_begun_and_completes_those_that_are_open() -> None:
    pair = MuxPair()
    near, far = opened(pair, get())
    crossing = pair.ends[SERVER].open(get())
    pair.ends[RUNNER].drain("a new connection takes over")
    pair.deliver_all()
    assert isinstance(crossing.end, Refused)
    assert crossing.end.code == UNAVAILABLE
    goaway = pair.ends[SERVER].peer_goaway
    assert goaway is not None
    assert goaway.code == DRAINING
    assert not pair.ends[SERVER].takes_streams
    with pytest.raises(Refused):
        pair.ends[SERVER].open(get())
    pair.ends[RUNNER].send_head(far, OK)
    pair.ends[RUNNER].send_exit(far, 0)
    pair.deliver_all()
    assert read_all(pair.ends[SERVER], near) == [OK, Exit(0)]


WAITING = LinkLimits(waiting_ping_seconds=2.0, waiting_dead_seconds=4.0)


def test_a_request_notices_a_dead_link_within_five_seconds() -> None:
    pair = MuxPair(WAITING)
    opened(pair, get())
    server = pair.ends[SERVER]
    for second in (1, 2, 3):
        server.tick(second)
    pings = [frame for frame in iter(server.next_frame, None) if frame[0] == FrameType.PING]
    assert len(pings) == 2
    with pytest.raises(LinkDead, match="with requests under way"):
        server.tick(4.5)


def test_a_link_without_requests_is_not_given_up_so_soon() -> None:
    pair = MuxPair(WAITING)
    near, far = opened(pair, get())
    pair.ends[RUNNER].send_head(far, OK)  # a watch that has begun owes nothing
    pair.deliver_all()
    for second in range(20):
        pair.ends[SERVER].tick(float(second))
    assert not near.has_ended


def test_an_end_that_was_busy_itself_does_not_take_the_other_one_for_dead() -> None:
    pair = MuxPair(WAITING)
    opened(pair, get())
    pair.ends[SERVER].forgive(30.0)
    pair.ends[SERVER].tick(30.0)


def test_users_take_turns_however_many_streams_they_have() -> None:
    pair = MuxPair()
    many = [opened(pair, get("many")) for _ in range(8)]
    one = opened(pair, get("one"))
    runner = pair.ends[RUNNER]
    for _, far in (*many, one):
        runner.send_head(far, OK)
    pair.deliver_all()
    for _, far in (*many, one):
        while room := runner.room(far):
            runner.send(far, STDOUT, bytes(room))
    order = []
    while (frame := runner.next_frame()) is not None:
        kind, number, _ = frames.decode_frame(frame)
        if kind is FrameType.DATA:
            order.append(number)
    rounds = order[9:15]  # after one frame of each stream that had nothing to send before
    assert rounds.count(one[0].number) == 3
