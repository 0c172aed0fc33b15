"""Throttles password checks: exponential backoff after failed logins, counted by user and by client network.

`server/auth/login.py` and `subresources/profile.py` wrap every password check in an `attempt`. It counts as a failure
from its start, so that concurrent guesses all count, and a success reverts that.

Counting by user alone would let strangers lock a user out; not counting by user would allow distributed guessing. So
strangers can delay a user's login by one minute at most, and not at all from networks where the user has signed in
before: those have counters of their own. Access keys are not throttled.

The counters are in memory, in an LRU cache of limited size, and start empty with the process.
"""

import ipaddress
import math
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fairlead.core.clock import Clock
from fairlead.core.errors import Details, TooManyRequests

ENTRIES = 10_000
FORGOTTEN_AFTER = 3600.0
"""Seconds without an attempt after which a counter is reset."""
NAME_LENGTH = 253
"""Names are truncated to this length: no user has a longer one, and counters must stay small."""
IPV6_NETWORK = 64
"""Prefix length for IPv6: a sender can choose the remaining bits of the address."""

Who = tuple[str, str]
"""The key of a counter: user and client network. One of them may be empty."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How many failures have no delay, and the maximum delay in seconds."""

    free: int
    longest: float

    def wait(self, failures: int) -> float:
        """The delay in seconds after the latest failure: none, then 1, 2, 4, and so on."""
        beyond = failures - self.free
        return 0.0 if beyond < 0 else self.longest if beyond > 30 else min(self.longest, 2.0**beyond)


USER = Patience(free=5, longest=60.0)
ADDRESS = Patience(free=20, longest=900.0)
"""More failures have no delay, because many users may share one address behind a proxy."""


@dataclass(slots=True)
class Count:
    failures: int
    latest: float


class Attempt:
    """One password check. It counts as failed unless `succeed` is called."""

    __slots__ = ("succeeded",)

    def __init__(self) -> None:
        self.succeeded = False

    def succeed(self) -> None:
        self.succeeded = True


class Throttle:
    """The failure counters."""

    def __init__(self, clock: Clock, entries: int = ENTRIES) -> None:
        self._clock = clock
        self._entries = entries
        self._counts: OrderedDict[Who, Count] = OrderedDict()
        self._familiar: OrderedDict[Who, None] = OrderedDict()

    @contextmanager
    def attempt(self, user: str, client: str) -> Iterator[Attempt]:
        """Counts one attempt, or raises TooManyRequests. An attempt that ends with an exception is not counted.

        `client` is the client address with its port, as in `Call`.
        """
        user, network = user[:NAME_LENGTH], place_of(client)
        counters = self._counters(user, network)
        self._refuse(counters)
        for who in counters:
            self._count(who)
        attempt, completed = Attempt(), False
        try:
            yield attempt
            completed = True
        finally:
            if attempt.succeeded:
                self._succeeded(user, network, counters)
            elif not completed:
                self._take_back(counters)

    def _counters(self, user: str, place: str) -> dict[Who, Patience]:
        """On a network where the user has signed in before, failures of others do not count."""
        if (user, place) in self._familiar:
            return {(user, place): USER}
        return {(user, ""): USER, ("", place): ADDRESS}

    def _refuse(self, counters: dict[Who, Patience]) -> None:
        now = self._clock.monotonic()
        waits = (self._wait(who, patience, now) for who, patience in counters.items())
        seconds = math.ceil(max(waits))
        if seconds > 0:
            message = f"too many failed login attempts; wait {seconds} s and try again"
            raise TooManyRequests(message, Details(retry_after=seconds))

    def _wait(self, who: Who, patience: Patience, now: float) -> float:
        count = self._counts.get(who)
        if count is None:
            return 0.0
        if now - count.latest >= FORGOTTEN_AFTER:
            del self._counts[who]
            return 0.0
        return count.latest + patience.wait(count.failures) - now

    def _count(self, who: Who) -> None:
        count = self._counts.setdefault(who, Count(0, 0.0))
        count.failures += 1
        count.latest = self._clock.monotonic()
        _keep(self._counts, who, self._entries)

    def _succeeded(self, user: str, place: str, counters: dict[Who, Patience]) -> None:
        """Resets the user's counter. The network's counter is only decremented: otherwise an attacker with an account
        could reset it by signing in between guesses."""
        self._take_back(counters)
        for who in counters:
            if who[0]:
                self._counts.pop(who, None)
        self._familiar[user, place] = None
        _keep(self._familiar, (user, place), self._entries)

    def _take_back(self, counters: dict[Who, Patience]) -> None:
        for who in counters:
            count = self._counts.get(who)
            if count is not None:
                count.failures -= 1
                if count.failures <= 0:
                    del self._counts[who]


def _keep(table: "OrderedDict[Who, Count] | OrderedDict[Who, None]", who: Who, entries: int) -> None:
    """Marks an entry as the most recently used and evicts the least recently used one if there are too many."""
    table.move_to_end(who)
    if len(table) > entries:
        table.popitem(last=False)


def place_of(client: str) -> str:
    """The client address without its port; for IPv6 its /64 network, since a sender has all addresses of one."""
    host = client.rpartition(":")[0].strip("[]") if client.count(":") == 1 or "]" in client else client
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host[:NAME_LENGTH]
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((int(address), IPV6_NETWORK), strict=False))
    return str(address)
