"""The limits of a link: what one end accepts of the other, and how long it waits for it."""

from dataclasses import dataclass

INITIAL_WINDOW = 256 * 1024
"""The credit of a new stream, in each direction. Part of the protocol."""
MAX_WINDOW = 1024 * 1024
"""The credit of a stream never exceeds this. Part of the protocol."""
MIN_CREDIT = 16 * 1024
"""A CREDIT frame with less counts as a frame without content."""

MAX_STREAMS = 256
TOTAL_WINDOW = 64 * 1024 * 1024
IDLE_FRAMES_PER_SECOND = 500
DEAD_SECONDS = 25.0
"""With the interval of the checks, a dead link is noticed within 30 seconds."""


@dataclass(frozen=True, slots=True)
class LinkLimits:
    max_streams: int = MAX_STREAMS
    """Streams that the other end may have open, and those that this end opens."""
    total_window: int = TOTAL_WINDOW
    """The windows of all streams together. Beyond, windows do not grow."""
    max_queued_bytes: int = 64 * 1024
    """What one stream may have waiting to be sent."""
    max_control_frames: int = 4096
    """Frames other than DATA that wait to be sent, because the other end does not read."""
    idle_frames_per_second: int = IDLE_FRAMES_PER_SECOND
    """Frames without content (PING, OPEN, RESET, small CREDIT) that the other end may send on average."""
    idle_frames_burst: int = 2000
    ping_seconds: float = 10.0
    dead_seconds: float = DEAD_SECONDS
    """The link is dead if nothing was received for this time, or a message could not be sent."""
    waiting_ping_seconds: float = 0.0
    """While a reply is owed, a PING is sent each second after this time without any frame. 0 switches it off."""
    waiting_dead_seconds: float = 0.0
    """While a reply is owed, the link is dead after this time without any frame. 0 switches it off."""
    hello_seconds: float = 10.0
    open_seconds: float = 20.0
    """How long an OPEN may remain without ACCEPT or REFUSE."""
    stall_seconds: float = 600.0
    """A stream that wants to send and gets no credit for this time is reset."""
    reset_seconds: float = 25.0
    """How long the other end may take to confirm the end of a stream."""


class FrameBudget:
    """Limits the frames without content that the other end sends, by a token bucket."""

    def __init__(self, per_second: int, burst: int) -> None:
        self._per_second = per_second
        self._burst = burst
        self._left = float(burst)
        self._since = 0.0

    def spend(self, now: float) -> bool:
        """Counts one frame. Returns whether it was within the limit."""
        self._left = min(self._burst, self._left + (now - self._since) * self._per_second)
        self._since = now
        if self._left < 1:
            return False  # and not counted: there is room again at once for those that wait
        self._left -= 1
        return True
