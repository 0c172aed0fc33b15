"""A server that sends requests over one link, and an agent that executes them, in an order from a seed.

The order of what the two ends do, the pieces in which bytes arrive, how many bytes are carried before the connection is
cut, and what a hostile end does to its frames are all decided by the seed. So a failure replays:

    .venv/bin/python -m tests.links.simulation SEED [--cut BYTES] [--hostile server|agent]
"""

import argparse
import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fairlead.core.framed_socket import FramedConnection, encode_frame
from fairlead.links import frames
from fairlead.links.frames import STDIN, STDOUT, FrameError, FrameType, Hello
from fairlead.links.limits import MAX_WINDOW, LinkLimits
from fairlead.links.mux import LinkDead, Mux
from fairlead.links.requests import HTTP, UNAVAILABLE, OpenRequest, Refused, RequestHead, ResponseHead
from fairlead.links.streams import Data, Exit, Message, ResetCode, StreamState

SERVER, AGENT = SIDES = range(2)
NAMES = ("server", "agent")
OK = ResponseHead(200, (("content-type", "text/plain"),))
LIMITS = LinkLimits(max_streams=20, max_control_frames=500, stall_seconds=60.0)
SIZES, SMALL_SIZES = (0, 10, 40_000, 400_000), (0, 1, 70)
MAX_SECONDS = 300.0
"""After this virtual time, whatever happened, nothing may be open."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What happens besides the seed: after how many bytes the connection is cut, and which end is hostile."""

    cut: int | None = None
    hostile: int | None = None
    requests: int = 8
    sizes: Sequence[int] = SIZES

    @property
    def arguments(self) -> str:
        cut = f" --cut {self.cut}" if self.cut is not None else ""
        small = " --small" if self.sizes == SMALL_SIZES else ""
        return cut + small + (f" --hostile {NAMES[self.hostile]}" if self.hostile is not None else "")


class Wire:
    """One direction of the connection: bytes, which the other end gets in pieces and puts together again."""

    def __init__(self) -> None:
        self.bytes = bytearray()
        self.frames: list[bytes] = []
        self._reader = FramedConnection(lambda _: self, frames.MAX_FRAME_BYTES, is_accepted=False)
        self._reader.connection_made(_NoTransport())
        self.is_broken = False
        """Whether the reader has given up."""

    def on_frames(self, received: list[bytes]) -> None:
        self.frames += received

    def on_closed(self) -> None:
        """The `FrameHandler` of the reader."""

    def put(self, frame: bytes) -> None:
        self.bytes += encode_frame(frame)

    def carry(self, size: int) -> int:
        piece = bytes(self.bytes[:size])
        del self.bytes[: len(piece)]
        if piece:
            self._reader.data_received(piece)
        return len(piece)


class _NoTransport(asyncio.Transport):
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def abort(self) -> None:
        raise FrameError("a frame is too large")

    def is_closing(self) -> bool:
        return False


class Hostility:
    """What an end does that does not keep to the protocol, to the frames that its own `Mux` has made."""

    def __init__(self, source: random.Random) -> None:
        self._random = source
        self._rate = source.choice((0.01, 0.05, 0.2))
        self._seen: list[bytes] = []

    def distort(self, frame: bytes) -> list[bytes]:
        """The frames that are sent instead."""
        self._seen.append(frame)
        if self._random.random() > self._rate:
            return [frame]
        kind, number = frame[0], int.from_bytes(frame[1:5], "big")
        choices: tuple[Callable[[], list[bytes]], ...] = (
            lambda: [],  # swallowed
            lambda: [frame, frame],
            lambda: [frame, self._random.choice(self._seen)],  # of the past
            lambda: [bytes((kind,)) + self._number().to_bytes(4, "big") + frame[5:]],  # of another stream
            lambda: [bytes((self._random.randrange(1, 14),)) + frame[1:]],
            lambda: [frame[: self._random.randrange(len(frame))]],
            lambda: [frame + self._random.randbytes(20)],
            lambda: [frame, self._random.randbytes(self._random.randrange(80))],
            lambda: [frame, *self._forge(number or 2)],
        )
        return self._random.choice(choices)()

    def _number(self) -> int:
        return self._random.choice((0, 1, 2, 3, 4, 6, 8, 98, 99, 2**31 - 1, 2**31, 2**32 - 1))

    def _forge(self, number: int) -> list[bytes]:
        credit = self._random.choice((0, 1, MAX_WINDOW, 2**31, 2**32 - 1))
        return self._random.choice(
            (
                [frames.encode_credit(number, credit)] * self._random.choice((1, 50)),
                [frames.encode_data(number, STDOUT, bytes(frames.MAX_DATA_BYTES))] * 80,
                [frames.encode_data(number, STDOUT, b"x")] * 80,
                [frames.encode_exit(number, 0)],
                [frames.encode_accept(number, {})],
                [frames.encode_head(number, OK)],
                [frames.encode_refuse(number, UNAVAILABLE, "not begun")],
                [frames.encode_reason(FrameType.RESET, number, 0, "")],
                [frames.encode_open(self._number() % 2**31 or 1, OpenRequest(HTTP, cluster="oslo"))],
                [frames.encode_ping(FrameType.PING, bytes(8))] * self._random.choice((1, 3000)),
                [frames.encode_hello(Hello(1, 2, "again"))],
                [b"\x05" + number.to_bytes(4, "big") + bytes(70_000)],
            )
        )


class Simulation:
    """`run` until all requests have ended; then `check`."""

    def __init__(self, seed: int, plan: Plan) -> None:
        self.random = random.Random(seed)
        self.plan = plan
        self.now = 0.0
        self.carried = 0
        self.ends = [Mux(name, LIMITS, 0.0, is_dialer=bool(side)) for side, name in enumerate(NAMES)]
        self.wires = [Wire(), Wire()]
        """From each end."""
        self.hostility = Hostility(self.random)
        self.is_cut = False
        self.requests: dict[int, StreamState] = {}
        self.unsent: dict[int, bytes] = {}
        self.bodies: dict[int, bytes] = {}
        self.begun: Counter[int] = Counter()
        self.answers: dict[int, bytearray] = {}
        self.received: dict[int, bytearray] = {}
        self.outcomes: dict[int, str] = {}
        self.serving: dict[int, tuple[StreamState, bytearray]] = {}

    def run(self) -> None:
        for _ in range(self.plan.requests):
            self._open()
        while not self.is_cut and not self._is_over():
            step = self.random.choice((self._carry, self._carry, self._carry, self._carry, self._serve, self._use))
            try:
                step()
                if self.random.random() < 0.02:
                    self._tick()
            except (FrameError, LinkDead):  # an end ends the link
                assert self.plan.hostile is not None, "an honest end was rejected"
                self.is_cut = True
            self._check_bounds()
        for end in self.ends:
            end.fail("the connection was cut")
        self._collect()

    def check(self) -> None:
        assert self.outcomes.keys() == self.requests.keys(), "a request has not ended"
        assert not any(end.streams for end in self.ends), "a stream is left"
        assert all(count == 1 for count in self.begun.values()), "a request was begun twice"
        for number, outcome in self.outcomes.items() if self.plan.hostile is None else ():
            if outcome == "refused":
                assert number not in self.begun, "what was refused has begun"
            if outcome == "complete":
                assert self.received[number] == self.bodies[number], "an answer has other content"

    def _is_over(self) -> bool:
        return len(self.outcomes) == len(self.requests) and not any(end.streams for end in self.ends)

    def _open(self) -> None:
        body = self.random.randbytes(self.random.choice(self.plan.sizes))
        head = RequestHead("POST", "/", has_body=bool(body))
        stream = self.ends[SERVER].open(OpenRequest(HTTP, http=head))
        self.requests[stream.number] = stream
        self.unsent[stream.number] = self.bodies[stream.number] = body
        self.received[stream.number] = bytearray()

    def _carry(self) -> None:
        side = self.random.choice(SIDES)
        frame = self.ends[side].next_frame()
        if frame is not None:
            for each in self.hostility.distort(frame) if side == self.plan.hostile else (frame,):
                self.wires[side].put(each)
        side = self.random.choice(SIDES)
        size = self.random.choice((1, 7, 100, 20_000, 100_000))
        if self.plan.cut is not None:
            size = min(size, self.plan.cut - self.carried)
        self.carried += self.wires[side].carry(size)
        self.is_cut = self.carried == self.plan.cut
        received, self.wires[side].frames = self.wires[side].frames, []
        for each in received:
            self.ends[1 - side].receive(each, self.now)

    def _tick(self) -> None:
        self.now += self.random.choice((0.1, 1.0))
        assert self.now < MAX_SECONDS, "something hangs"
        for end in self.ends:
            end.tick(self.now)

    def _serve(self) -> None:
        """The agent: refuses some requests, executes the others once they have arrived, and answers with an echo."""
        agent = self.ends[AGENT]
        opened, agent.opened = agent.opened, []
        for stream in opened:
            if self.random.random() < 0.2:
                agent.refuse(stream, UNAVAILABLE, "not begun")
                continue
            self.begun[stream.number] += 1
            agent.accept(stream, {})
            self.serving[stream.number] = stream, bytearray()
        for number, (stream, body) in list(self.serving.items()):
            for message in read_all(agent, stream):
                if isinstance(message, Data):
                    body.extend(message.content)
            if stream.has_ended:
                del self.serving[number]
                continue
            has_body = stream.request.http is not None and stream.request.http.has_body
            if number not in self.answers and (not has_body or STDIN in stream.eof_received):
                if stream.request.http is not None:
                    agent.send_head(stream, OK)
                self.answers[number] = body
            if number in self.answers and not stream.has_exited:
                self._answer(agent, stream, self.answers[number])

    def _answer(self, agent: Mux, stream: StreamState, answer: bytearray) -> None:
        while answer and (room := agent.room(stream)):
            agent.send(stream, STDOUT, bytes(answer[:room]))
            del answer[:room]
        if not answer:
            agent.send_exit(stream, 0)

    def _use(self) -> None:
        """The server: sends bodies, cancels some requests, and reads responses."""
        server = self.ends[SERVER]
        opened, server.opened = server.opened, []
        for stream in opened:
            server.refuse(stream, UNAVAILABLE, "this end serves no streams")
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
        server = self.ends[SERVER]
        for number, stream in self.requests.items():
            for message in read_all(server, stream):
                if isinstance(message, Data):
                    self.received[number].extend(message.content)
                elif isinstance(message, Exit):
                    self._end(number, "complete")
            if stream.end is not None and number not in self.outcomes:
                self._end(number, "refused" if isinstance(stream.end, Refused) else "reset")

    def _end(self, number: int, outcome: str) -> None:
        assert number not in self.outcomes, "a request has ended twice"
        self.outcomes[number] = outcome

    def _check_bounds(self) -> None:
        """An end keeps no more of what the other one sends than the protocol allows, whatever that is."""
        for side, end in enumerate(self.ends):
            if side != self.plan.hostile:
                assert len(end._control) <= LIMITS.max_control_frames + LIMITS.max_streams
                assert len(end.streams) <= 2 * LIMITS.max_streams
        for stream in self.ends[SERVER].streams.values() if self.plan.hostile == AGENT else ():
            assert sum(len(each.content) for each in stream.received if isinstance(each, Data)) <= MAX_WINDOW


def read_all(mux: Mux, stream: StreamState) -> list[Message]:
    messages = []
    while (message := mux.read(stream)) is not None:
        messages.append(message)
    return messages


async def simulate(seed: int, plan: Plan) -> Simulation:
    """Runs and checks one; a failure says how to replay it. A coroutine, because the reader of bytes wants a loop."""
    simulation = Simulation(seed, plan)
    try:
        simulation.run()
        simulation.check()
    except BaseException as error:
        error.add_note(f"replay it: .venv/bin/python -m tests.links.simulation {seed}{plan.arguments}")
        raise
    return simulation


def main() -> None:
    parser = argparse.ArgumentParser(description="Replays a simulation of a link.")
    parser.add_argument("seed", type=int)
    parser.add_argument("--cut", type=int, help="cut the connection after so many bytes")
    parser.add_argument("--hostile", choices=NAMES, help="which end distorts its frames")
    parser.add_argument("--small", action="store_true", help="three requests with small bodies")
    options = parser.parse_args()
    hostile = NAMES.index(options.hostile) if options.hostile else None
    plan = Plan(options.cut, hostile, 3, SMALL_SIZES) if options.small else Plan(options.cut, hostile)
    simulation = asyncio.run(simulate(options.seed, plan))
    outcomes = Counter(simulation.outcomes.values())
    print(f"seed {options.seed}: {simulation.carried} bytes, {simulation.now:.1f} seconds, {dict(outcomes)}")


if __name__ == "__main__":
    main()
