"""Errors of requests to connected clusters that got no HTTP response, and notification about failures.

`message` may be shown to any user of the cluster: it contains no credential, no address and nothing that the cluster
sent. `reason` is a CamelCase word for conditions and Events.

UpstreamError
├── AddressBlocked          the address policy does not allow the address
├── Unreachable             DNS failure, connection refused or reset
├── TlsError                TLS failed: wrong host name, unknown CA, expired certificate
├── TimedOut                connecting or responding took too long
├── ClusterLimitExceeded    the limit of this cluster is reached
├── UserLimitExceeded       the limit of one user in this cluster is reached
├── ProtocolError           invalid HTTP, or closed in the middle of a response
│   └── ResponseTooLarge    the body exceeds the caller's limit
├── HandshakeRejected       the cluster responded to a WebSocket handshake with something other than 101
├── AgentUnavailable        no agent of the cluster is connected, or it takes no more requests (`linked.py`)
├── TunnelError             the way to a virtual cluster through its cluster is closed (`tunnel.py`)
└── NotConnected            the object has no usable kubeconfig (`clusters.py`)
"""

from collections.abc import Callable, Sequence

from fairlead.storage.contract import Key


class UpstreamError(Exception):
    reason = "UpstreamError"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class AddressBlocked(UpstreamError):
    reason = "AddressNotAllowed"


class Unreachable(UpstreamError):
    reason = "Unreachable"


class TlsError(UpstreamError):
    reason = "CertificateNotTrusted"


class TimedOut(UpstreamError):
    reason = "TimedOut"


class ClusterLimitExceeded(UpstreamError):
    reason = "ClusterLimitExceeded"


class UserLimitExceeded(UpstreamError):
    reason = "TooManyRequests"


class ProtocolError(UpstreamError):
    reason = "ProtocolError"


class ResponseTooLarge(ProtocolError):
    """The response was aborted. The caller may retry with smaller pages."""


class HandshakeRejected(UpstreamError):
    """The response to a WebSocket handshake was not a 101. Carries that response; its connection is closed."""

    reason = "Rejected"

    def __init__(self, status: int, headers: Sequence[tuple[str, str]], body: bytes) -> None:
        super().__init__(f"the cluster responded to a WebSocket handshake with status {status}")
        self.status = status
        self.headers = headers
        self.body = body


class AgentUnavailable(UpstreamError):
    """No agent of the cluster took the request: it was not begun."""

    reason = "AgentNotConnected"


class TunnelError(UpstreamError):
    """The cluster that a virtual cluster runs in does not lead to it. `reason` says why."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


UNAUTHORIZED = 401
"""Means that the cluster rejects the stored credential."""
CLUSTER_FAILURES = (ProtocolError, TimedOut, Unreachable, TlsError, TunnelError, AgentUnavailable)
"""Failures of the remote cluster. ClusterLimitExceeded and UserLimitExceeded are our own limits, HandshakeRejected is
a response."""

Subscriber = Callable[[Key], None]


class FailureNotifier:
    """Notifies subscribers about failed requests to a remote cluster, so that its health is probed immediately.

    `clusters.py` passes one to the Upstreams of users and controllers; the Cluster controller subscribes to it. A
    replica that is not the leader runs no controllers and has no subscribers. Nothing is queued or deduplicated here:
    the subscriber limits its own rate.
    """

    def __init__(self) -> None:
        self._subscribers: list[Subscriber] = []

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Calls `subscriber` with the object key of each failed request. Returns a function that unsubscribes."""
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber)

    def notify(self, key: Key) -> None:
        for subscriber in self._subscribers:
            subscriber(key)


def ignore_failure() -> None:
    """The default `on_failure` of an Upstream."""
