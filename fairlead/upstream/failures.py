"""Tells who wants to know that requests to a remote cluster fail, so that its health is probed at once.

`connected.py` owns one and hands it to every Upstream that people and controllers use; the Cluster controller
subscribes while it runs. A replica that does not lead runs no controllers, so nobody has subscribed there and a
notification does nothing. Notifying costs a call per failed request and keeps nothing: the subscriber sets the pace.
"""

from collections.abc import Callable

from fairlead.storage.contract import Key
from fairlead.upstream.errors import Broken, TimedOut, Unreachable, Untrusted

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
