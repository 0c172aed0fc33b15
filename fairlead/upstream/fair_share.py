"""Limits per user for the requests and WebSockets to one cluster, and a limit for streams.

No user can occupy a whole cluster, and streams never take all connections. The gateways acquire a slot for each request
of a user before it is sent, and release it when the response has ended. Queued requests count, too, because the queue
is bounded. Controllers need no slot: they have their own connections (`clusters.py`).
"""

from collections.abc import Iterable

from fairlead.upstream.access import Limits
from fairlead.upstream.errors import Busy, Crowding

PERSONAL = 4
"""One user may use a quarter of a limit."""
EVERYBODY = ""
"""The key under which the streams of all users are counted."""

Counts = dict[str, int]


class Share:
    """A slot of a user. Released at the end of the `with` block, unless `transfer` was called in it."""

    __slots__ = ("_held", "_is_kept")

    def __init__(self, held: Iterable[tuple[Counts, str]]) -> None:
        self._held = tuple(held)
        self._is_kept = False
        for counts, name in self._held:
            counts[name] = counts.get(name, 0) + 1

    def __enter__(self) -> "Share":
        return self

    def __exit__(self, *error: object) -> None:
        if not self._is_kept:
            self.give_back()

    def keep(self) -> None:
        """Leaves the release to another owner, beyond the `with` block."""
        self._is_kept = True

    def give_back(self) -> None:
        """Frees the slot. Idempotent."""
        held, self._held = self._held, ()
        for counts, name in held:
            counts[name] -= 1
            if not counts[name]:
                del counts[name]


class Shares:
    """The slots of one cluster, counted by user name."""

    def __init__(self, limits: Limits) -> None:
        self._requests_each = max(1, limits.requests // PERSONAL)
        self._sockets_each = max(1, limits.sockets // PERSONAL)
        self._streams = max(1, limits.requests * 3 // 4)
        self._requesting: Counts = {}
        self._streaming: Counts = {}
        self._talking: Counts = {}

    def request(self, user: str, *, is_endless: bool) -> Share:
        """Raises UserLimitExceeded if the user has too many open requests.

        A streaming request raises Busy if the cluster has too many streams: some slots are reserved for short requests.
        """
        _check(self._requesting.get(user, 0), self._requests_each, "requests")
        if not is_endless:
            return Share(((self._requesting, user),))
        if self._streaming.get(EVERYBODY, 0) >= self._streams:
            raise Busy(
                f"the limit of {self._streams} open watches and other streams of this cluster is reached; "
                "close some of them, or try again later"
            )
        return Share(((self._requesting, user), (self._streaming, EVERYBODY)))

    def socket(self, user: str) -> Share:
        """Raises UserLimitExceeded if the user has too many open WebSockets."""
        _check(self._talking.get(user, 0), self._sockets_each, "WebSockets")
        return Share(((self._talking, user),))


def _check(count: int, most: int, what: str) -> None:
    if count >= most:
        raise Crowding(
            f"your limit of {most} concurrent {what} to this cluster is reached; close watches and sessions that you "
            "do not need, or try again later. The administrator of this server can raise the limit"
        )
