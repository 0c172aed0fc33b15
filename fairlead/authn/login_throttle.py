"""Failed sign-ins slow down: each further guess has to wait longer, counted by user and by where it comes from.

`server/auth/login.py` and `subresources/profile.py` make every check of a password an `attempt`. It counts as failed from its
beginning, so that a thousand guesses sent at once are a thousand and not one; succeeding takes that back.

Whoever counts failures by user lets strangers stop that user from signing in, and whoever does not lets many machines
guess together. Here strangers can make a user wait, but a minute at most at a time, and not at the places from which
that user has signed in before: those are counted apart. Access keys are not concerned at all.

The counters are in memory, and only so many of them: the longest untouched give way. They begin anew with the process.
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
"""Seconds without an attempt after which a counter begins anew."""
NAME_LENGTH = 253
"""No user has a longer name, and a counter should not be as large as whatever is sent."""
IPV6_NETWORK = 64
"""Bits of an IPv6 address that count: the rest is the sender's to choose."""

Who = tuple[str, str]
"""What a counter is for: a user, an address, or the two together; the part that does not matter is empty."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How many failures are free, and how many seconds the wait grows to."""

    free: int
    longest: float

    def wait(self, failures: int) -> float:
        """Seconds after the latest failure: none, then one, two, four."""
        beyond = failures - self.free
        return 0.0 if beyond < 0 else self.longest if beyond > 30 else min(self.longest, 2.0**beyond)


USER = Patience(free=5, longest=60.0)
ADDRESS = Patience(free=20, longest=900.0)
"""Many users may share one address, behind a gateway or a proxy. None of them should do so with many failures."""


@dataclass(slots=True)
class Count:
    failures: int
    latest: float


class Attempt:
    """One check of a password. It has failed unless `succeed` was called."""

    __slots__ = ("succeeded",)

    def __init__(self) -> None:
        self.succeeded = False

    def succeed(self) -> None:
        self.succeeded = True


class Throttle:
    """The counters."""

    def __init__(self, clock: Clock, entries: int = ENTRIES) -> None:
        self._clock = clock
        self._entries = entries
        self._counts: OrderedDict[Who, Count] = OrderedDict()
        self._familiar: OrderedDict[Who, None] = OrderedDict()

    @contextmanager
    def attempt(self, user: str, client: str) -> Iterator[Attempt]:
        """Counts one attempt, or refuses it with 429. An attempt that breaks off has told nothing and is not counted.

        `client` is an address with its port, as calls have it.
        """
        user, place = user[:NAME_LENGTH], place_of(client)
        counters = self._counters(user, place)
        self._refuse(counters)
        for who in counters:
            self._count(who)
        attempt, told = Attempt(), False
        try:
            yield attempt
            told = True
        finally:
            if attempt.succeeded:
                self._succeeded(user, place, counters)
            elif not told:
                self._take_back(counters)

    def _counters(self, user: str, place: str) -> dict[Who, Patience]:
        """Where a user is familiar, neither strangers' guesses nor a neighbour's are held against it."""
        if (user, place) in self._familiar:
            return {(user, place): USER}
        return {(user, ""): USER, ("", place): ADDRESS}

    def _refuse(self, counters: dict[Who, Patience]) -> None:
        now = self._clock.monotonic()
        waits = (self._wait(who, patience, now) for who, patience in counters.items())
        seconds = math.ceil(max(waits))
        if seconds > 0:
            message = f"too many failed attempts to sign in; wait {seconds} s and try again"
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
        """The user's failures are forgiven. The address only gets its one back, or who has an account could go on
        guessing at others by signing in in between."""
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
    """Marks an entry as the latest touched, and lets the longest untouched go where there are too many."""
    table.move_to_end(who)
    if len(table) > entries:
        table.popitem(last=False)


def place_of(client: str) -> str:
    """The address without its port. Of IPv6 the network, since a sender has all the addresses of one."""
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
