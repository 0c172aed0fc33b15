"""HTTP streams: heads, versions, the order between users, the end of a link with its streams, and what is noticed while
a reply is owed. And a simulation from a seed, whose connection is cut after each frame."""

import random

import pytest

from fairlead.links import frames
from fairlead.links.contract import DRAINING
from fairlead.links.frames import STDIN, STDOUT, FrameError, FrameType, Hello
from fairlead.links.limits import LinkLimits
from fairlead.links.mux import LinkDead, Mux
from fairlead.links.requests import HTTP, NOT_SUPPORTED, UNAVAILABLE, OpenRequest, Refused, RequestHead, ResponseHead
from fairlead.links.streams import Data, Exit, Message, ResetCode, StreamReset, StreamState
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


# --- the simulation --------------------------------------------------------------------------------------------------


class Simulation:
    """A server that sends requests, and an agent that executes them, in an order from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.pair = MuxPair()
        self.requests: dict[int, StreamState] = {}
        self.unsent: dict[int, bytes] = {}
        self.bodies: dict[int, bytes] = {}
        self.executed: set[int] = set()
        self.answers: dict[int, bytearray] = {}
        self.received: dict[int, bytearray] = {}
        self.outcomes: dict[int, str] = {}
        self.serving: dict[int, tuple[StreamState, bytearray]] = {}

    def run(self, frames_left: int) -> int:
        """Runs until all requests have ended, or the connection is cut after so many frames. Returns the frames that
        were carried."""
        carried = 0
        for _ in range(8):
            self._open()
        while len(self.outcomes) < len(self.requests) or any(end.streams for end in self.pair.ends):
            step = self.random.choice((self._carry, self._carry, self._carry, self._serve, self._use))
            if step == self._carry:
                carried += self._carry()
                if carried == frames_left:
                    break
            else:
                step()
        for end in self.pair.ends:
            end.fail("the connection was cut")
        self._collect()
        return carried

    def _open(self) -> None:
        body = self.random.randbytes(self.random.choice((0, 10, 40_000, 400_000)))
        head = RequestHead("POST", "/", has_body=bool(body))
        stream = self.pair.ends[SERVER].open(OpenRequest(HTTP, http=head))
        self.requests[stream.number] = stream
        self.unsent[stream.number] = self.bodies[stream.number] = body
        self.received[stream.number] = bytearray()

    def _carry(self) -> int:
        side = self.random.choice((SERVER, RUNNER))
        self.pair.transmit(side)
        return int(self.pair.deliver(self.random.choice((SERVER, RUNNER))))

    def _serve(self) -> None:
        """The agent: refuses some requests, executes the others once they have arrived, and answers with an echo."""
        agent = self.pair.ends[RUNNER]
        while agent.opened:
            stream = agent.opened.pop(0)
            if self.random.random() < 0.2:
                agent.refuse(stream, UNAVAILABLE, "not begun")
                continue
            agent.accept(stream, {})
            self.serving[stream.number] = stream, bytearray()
        for number, (stream, body) in list(self.serving.items()):
            for message in read_all(agent, stream):
                if isinstance(message, Data):
                    body.extend(message.content)
            assert stream.request.http is not None
            is_complete = not stream.request.http.has_body or STDIN in stream.eof_received
            if number not in self.executed and is_complete:
                assert number not in self.executed, "executed twice"
                self.executed.add(number)
                agent.send_head(stream, OK)
                self.answers[number] = body
            if number in self.executed and not stream.has_exited:
                answer = self.answers[number]
                while answer and (room := agent.room(stream)):
                    agent.send(stream, STDOUT, bytes(answer[:room]))
                    del answer[:room]
                if not answer:
                    agent.send_exit(stream, 0)

    def _use(self) -> None:
        """The server: sends bodies, cancels some requests, and reads responses."""
        server = self.pair.ends[SERVER]
        for number, stream in self.requests.items():
            body = self.unsent[number]
            while body and stream.is_accepted and not stream.has_ended and (room := server.room(stream)):
                server.send(stream, STDIN, body[:room])
                body = self.unsent[number] = body[room:]
            if not body and stream.is_accepted and not stream.has_ended:
                server.send_eof(stream, STDIN)
            if self.random.random() < 0.005:
                server.reset(stream, ResetCode.CANCELLED, "the client has gone")
        self._collect()

    def _collect(self) -> None:
        server = self.pair.ends[SERVER]
        for number, stream in self.requests.items():
            for message in read_all(server, stream):
                if isinstance(message, Data):
                    self.received[number].extend(message.content)
                elif isinstance(message, Exit):
                    self._end(number, "complete")
            if stream.end is not None and number not in self.outcomes:
                self._end(number, "refused" if isinstance(stream.end, Refused) else "reset")

    def _end(self, number: int, outcome: str) -> None:
        assert number not in self.outcomes, "ended twice"
        self.outcomes[number] = outcome


def check(simulation: Simulation) -> None:
    for number, outcome in simulation.outcomes.items():
        if outcome == "refused":
            assert number not in simulation.executed, "what was refused must not have begun"
        if outcome == "complete":
            assert number in simulation.executed
            assert simulation.received[number] == simulation.bodies[number]
    assert simulation.outcomes.keys() == simulation.requests.keys(), "every request ends"
    assert not any(end.streams for end in simulation.pair.ends)


@pytest.mark.parametrize("seed", range(3))
def test_a_connection_that_is_cut_after_any_frame_ends_every_request_once(seed: int) -> None:
    whole = Simulation(seed)
    carried = whole.run(-1)
    check(whole)
    assert carried > 40
    for cut in range(1, carried):
        simulation = Simulation(seed)
        simulation.run(cut)
        check(simulation)
