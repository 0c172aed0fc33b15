"""The order in which the streams of a link send: one frame each in turn, and first those that had nothing to send.

So a keystroke or a line of output does not wait behind bulk transfers, however many there are. A stream keeps its place
in the round after its last frame. Otherwise a stream with many small frames would always be served first.
"""

from collections import deque

from fairlead.links.streams import StreamState


class SendQueue:
    def __init__(self) -> None:
        self._fresh: deque[StreamState] = deque()
        self._in_turn: deque[StreamState] = deque()

    def add(self, stream: StreamState, frame: bytes, cost: int = 0) -> None:
        stream.outgoing.append((frame, cost))
        stream.queued_cost += cost
        if not stream.is_listed:
            stream.is_listed = True
            self._fresh.append(stream)

    def pop(self) -> tuple[StreamState, bytes] | None:
        while self._fresh or self._in_turn:
            stream = (self._fresh or self._in_turn).popleft()
            if not stream.outgoing:
                stream.is_listed = False
                continue
            frame, cost = stream.outgoing.popleft()
            stream.queued_cost -= cost
            self._in_turn.append(stream)
            return stream, frame
        return None
