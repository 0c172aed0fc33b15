"""Who holds how much of what may be under way to one cluster: nobody all of it, and streams never the last of it.

The gateways take a share for each request of a user before it is sent, and give it back when its answer is over. What
waits for its turn counts, too: a row that is full keeps others out as well. Our own questions take none, because they
have connections of their own (`clusters.py`).
"""

from collections.abc import Iterable

from fairlead.upstream.access import Limits
from fairlead.upstream.errors import Busy, Crowding

PERSONAL = 4
"""One user may hold this part of a limit: a quarter."""
EVERYBODY = ""
"""What streams are counted under."""

Counts = dict[str, int]


class Share:
    """What somebody holds until it is given back: at the end of a `with`, or later, if it is `kept` in there."""

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
        """Somebody else gives it back."""
        self._is_kept = True

    def give_back(self) -> None:
        """May be called more than once."""
        held, self._held = self._held, ()
        for counts, name in held:
            counts[name] -= 1
            if not counts[name]:
                del counts[name]


class Shares:
    """The shares in one cluster, by the names of users."""

    def __init__(self, limits: Limits) -> None:
        self._requests_each = max(1, limits.requests // PERSONAL)
        self._sockets_each = max(1, limits.sockets // PERSONAL)
        self._streams = max(1, limits.requests * 3 // 4)
        self._requesting: Counts = {}
        self._streaming: Counts = {}
        self._talking: Counts = {}

    def request(self, user: str, *, is_endless: bool) -> Share:
        """Raises Crowding for somebody who has too many under way.

        One whose answer is endless raises Busy where there are too many of those: a part of the requests is kept for
        those that are over soon.
        """
        _check(self._requesting.get(user, 0), self._requests_each, "requests")
        if not is_endless:
            return Share(((self._requesting, user),))
        if self._streaming.get(EVERYBODY, 0) >= self._streams:
            raise Busy(
                f"{self._streams} watches and other streams of this cluster are open, as many as there may be; "
                "end some that nobody needs, or try again in a while"
            )
        return Share(((self._requesting, user), (self._streaming, EVERYBODY)))

    def socket(self, user: str) -> Share:
        """Raises Crowding for somebody who has too many open."""
        _check(self._talking.get(user, 0), self._sockets_each, "WebSockets")
        return Share(((self._talking, user),))


def _check(count: int, most: int, what: str) -> None:
    if count >= most:
        raise Crowding(
            f"your share in this cluster is taken, which is {most} {what} at once; end watches and sessions that you "
            "do not need, or try again when others are done. Whoever runs this server can raise the limit"
        )
