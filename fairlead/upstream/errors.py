"""Everything that can go wrong between us and a connected cluster, short of an HTTP answer.

`message` is for people, and may be shown to any user of the cluster: it has no credential, no address and nothing of
what the other side wrote. `reason` is one word, for conditions and Events.

UpstreamError
├── Blocked         the address is none that clusters may be at
├── Unreachable     no such name, refused, reset: nobody there
├── Untrusted       TLS failed: the certificate is for another name, from a stranger, or has run out
├── TimedOut        nothing came for too long
├── Busy            too much is under way to this cluster already
├── Crowding        one user has too much under way to it
├── Broken          not HTTP, or broke off in the middle
│   └── TooLarge    more than was to be read of one answer
├── Refused         a WebSocket was wanted, and an ordinary answer came, which is carried along
└── NotConnected    the object says of no cluster how to reach it (`connected.py`)
"""

from collections.abc import Sequence


class UpstreamError(Exception):
    reason = "UpstreamError"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Blocked(UpstreamError):
    reason = "Blocked"


class Unreachable(UpstreamError):
    reason = "Unreachable"


class Untrusted(UpstreamError):
    reason = "Untrusted"


class TimedOut(UpstreamError):
    reason = "TimedOut"


class Busy(UpstreamError):
    reason = "Busy"


class Crowding(UpstreamError):
    reason = "TooManyRequests"


class Broken(UpstreamError):
    reason = "Broken"


class TooLarge(Broken):
    """The answer was broken off. The same may be had in smaller parts."""


class Refused(UpstreamError):
    """Only a 101 opens a WebSocket. This was another answer, and its connection has been closed."""

    reason = "Refused"

    def __init__(self, status: int, headers: Sequence[tuple[str, str]], body: bytes) -> None:
        super().__init__(f"the cluster answered {status} where a WebSocket was asked for")
        self.status = status
        self.headers = headers
        self.body = body
