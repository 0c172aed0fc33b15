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
└── NotConnected    the object says of no cluster how to reach it (`clusters.py`)
"""

from collections.abc import Callable, Sequence

from fairlead.storage.contract import Key


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


# DOC-MERGED upstream/failures
# Tells who wants to know that requests to a remote cluster fail, so that its health is probed at once.
#
# `clusters.py` owns one and hands it to every Upstream that people and controllers use; the Cluster controller
# subscribes while it runs. A replica that does not lead runs no controllers, so nobody has subscribed there and a
# notification does nothing. Notifying costs a call per failed request and keeps nothing: the subscriber sets the pace.


UNAUTHORIZED = 401
"""The status of an answer that is about the stored credential."""
FAILURES = (Broken, TimedOut, Unreachable, Untrusted)
"""What may be the remote cluster's fault. Busy and Crowding are limits of our own, Refused is an answer."""

Subscriber = Callable[[Key], None]


class FailureNotifier:
    def __init__(self) -> None:
        self._subscribers: list[Subscriber] = []

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Calls `subscriber` with the key of each object whose requests fail. Returns what ends the subscription."""
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber)

    def notify(self, key: Key) -> None:
        for subscriber in self._subscribers:
            subscriber(key)


def ignore_failure() -> None:
    """For an Upstream whose failures nobody has to hear of."""
