"""Two muxes with a pipe in each direction, whose frames are delivered when the test wants it."""

from collections import Counter, deque

from fairlead.links import frames
from fairlead.links.frames import FrameType
from fairlead.links.limits import INITIAL_WINDOW, LinkLimits
from fairlead.links.mux import Mux
from fairlead.links.requests import OpenRequest
from fairlead.links.streams import StreamState

SERVER, RUNNER = 0, 1


class MuxPair:
    """`ends[0]` is the server and `ends[1]` the runner, which has opened the connection."""

    def __init__(self, limits: LinkLimits | None = None, *, greeted: bool = True) -> None:
        limits = limits or LinkLimits()
        self.now = 0.0
        self.ends = [Mux(f"boot-{side}", limits, 0.0, is_dialer=bool(side)) for side in (SERVER, RUNNER)]
        self.pipes: list[deque[bytes]] = [deque(), deque()]
        """Frames under way from each end."""
        self.credit: Counter[tuple[int, int]] = Counter()
        """By sending end and stream: the credit according to the frames that have passed."""
        if greeted:
            self.deliver_all()

    def transmit(self, side: int) -> bool:
        """Moves one frame from an end into its pipe."""
        frame = self.ends[side].next_frame()
        if frame is None:
            return False
        kind, number, payload = frames.decode_frame(frame)
        if kind is FrameType.DATA:
            self.credit[side, number] -= frames.data_cost(len(payload) - 1)
            assert self.credit[side, number] >= 0, "more DATA than credit"
        self.pipes[side].append(frame)
        return True

    def deliver(self, side: int) -> bool:
        """Moves one frame from the pipe of an end to the other end."""
        if not self.pipes[side]:
            return False
        frame = self.pipes[side].popleft()
        kind, number, payload = frames.decode_frame(frame)
        if kind is FrameType.OPEN:
            self.credit[SERVER, number] = self.credit[RUNNER, number] = INITIAL_WINDOW
        if kind is FrameType.CREDIT:
            self.credit[1 - side, number] += frames.decode_credit(payload)
        self.ends[1 - side].receive(frame, self.now)
        return True

    def deliver_all(self) -> None:
        while sum(self.transmit(side) or self.deliver(side) for side in (SERVER, RUNNER)):
            pass

    def open(self, action: str = "ssh") -> tuple[StreamState, StreamState]:
        """A stream that the server has opened and the runner has accepted: both of its ends."""
        near = self.ends[SERVER].open(OpenRequest(action))
        self.deliver_all()
        far = self.ends[RUNNER].opened.pop()
        self.ends[RUNNER].accept(far, {})
        self.deliver_all()
        return near, far

    def tick(self, seconds: float) -> None:
        self.now += seconds
        for end in self.ends:
            end.tick(self.now)
