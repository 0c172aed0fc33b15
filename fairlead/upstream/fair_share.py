"""Limits per user for the requests and WebSockets to one cluster, and a limit for streams.

No user can occupy a whole cluster, and streams never take all connections. The gateways acquire a slot for each request
of a user before it is sent, and release it when the response has ended. Queued requests count, too, because the queue
is bounded. Controllers need no slot: they have their own connections (`clusters.py`).
"""

from collections.abc import Iterable

from fairlead.upstream.access import Limits
from fairlead.upstream.errors import ClusterLimitExceeded, UserLimitExceeded

USER_SHARE_DIVISOR = 4
"""One user may use a quarter of a limit."""
ALL_USERS = ""
"""The key under which the streams of all users are counted."""

Counts = dict[str, int]


class UserSlot:
    """A slot of a user. Released at the end of the `with` block, unless `transfer` was called in it."""

    __slots__ = ("_counters", "_is_transferred")

    def __init__(self, counters: Iterable[tuple[Counts, str]]) -> None:
        self._counters = tuple(counters)
        self._is_transferred = False
        for counts, name in self._counters:
            counts[name] = counts.get(name, 0) + 1

    def __enter__(self) -> "UserSlot":
        return self

    def __exit__(self, *error: object) -> None:
        if not self._is_transferred:
            self.release()

    def transfer(self) -> None:
        """Leaves the release to another owner, beyond the `with` block."""
        self._is_transferred = True

    def release(self) -> None:
        """Frees the slot. Idempotent."""
        held, self._counters = self._counters, ()
        for counts, name in held:
            counts[name] -= 1
            if not counts[name]:
                del counts[name]


class UserLimits:
    """The slots of one cluster, counted by user name."""

    def __init__(self, limits: Limits) -> None:
        self._max_requests_per_user = max(1, limits.max_requests // USER_SHARE_DIVISOR)
        self._max_websockets_per_user = max(1, limits.max_websockets // USER_SHARE_DIVISOR)
        self._max_streams = max(1, limits.max_requests * 3 // 4)
        self._open_requests: Counts = {}
        self._open_streams: Counts = {}
        self._open_websockets: Counts = {}

    def acquire_request(self, user: str, *, is_streaming: bool) -> UserSlot:
        """Raises UserLimitExceeded if the user has too many open requests.

        A streaming request raises ClusterLimitExceeded if the cluster has too many streams: some slots are reserved
        for short requests.
        """
        _check_limit(self._open_requests.get(user, 0), self._max_requests_per_user, "requests")
        if not is_streaming:
            return UserSlot(((self._open_requests, user),))
        if self._open_streams.get(ALL_USERS, 0) >= self._max_streams:
            raise ClusterLimitExceeded(
                f"the limit of {self._max_streams} open watches and other streams of this cluster is reached; "
                "close some of them, or try again later"
            )
        return UserSlot(((self._open_requests, user), (self._open_streams, ALL_USERS)))

    def acquire_websocket(self, user: str) -> UserSlot:
        """Raises UserLimitExceeded if the user has too many open WebSockets."""
        _check_limit(self._open_websockets.get(user, 0), self._max_websockets_per_user, "WebSockets")
        return UserSlot(((self._open_websockets, user),))


def _check_limit(count: int, limit: int, noun: str) -> None:
    if count >= limit:
        raise UserLimitExceeded(
            f"your limit of {limit} concurrent {noun} to this cluster is reached; close watches and sessions that you "
            "do not need, or try again later. The administrator of this server can raise the limit"
        )
