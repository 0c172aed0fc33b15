"""Throttles checks of passwords and codes: exponential backoff after failures, counted by user and by client network.

`signin/` wraps every such check in an `attempt`. It counts as a failure from its start, so that concurrent guesses all
count, and a success reverts that.

Counting by user alone would let an attacker lock a user out; not counting by user would allow distributed guessing. So
an attacker can delay a user's login by one minute at most, and not at all from networks where the user has signed in
before: those have counters of their own. Access keys are not throttled.

The counters are in memory, in an LRU cache of limited size, and start empty with the process. With several worker
processes, they are in one of them for all (`server/workers/`).
"""

import ipaddress
import math
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from fairlead.core.backoff import BackoffPolicy
from fairlead.core.clock import Clock
from fairlead.core.errors import Details, TooManyRequests

MAX_COUNTERS = 10_000
RESET_SECONDS = 3600.0
"""Seconds without an attempt after which a counter is reset."""
MAX_NAME_LENGTH = 253
"""Names are truncated to this length: no user has a longer one, and counters must stay small."""
IPV6_PREFIX_BITS = 64
"""Prefix length for IPv6: a sender can choose the remaining bits of the address."""

CounterKey = tuple[str, str]
"""The key of a counter: user, or purpose, and client network. One of them may be empty."""


USER_BACKOFF = BackoffPolicy(first_seconds=1.0, max_seconds=60.0, free_attempts=5)
NETWORK_BACKOFF = BackoffPolicy(first_seconds=1.0, max_seconds=900.0, free_attempts=20)
"""More failures have no delay, because many users may share one address behind a proxy."""


@dataclass(slots=True)
class FailureCount:
    failures: int
    latest: float


class FailureCounts:
    """Failures in a row. Of too many counters, the one that was used least recently is dropped."""

    def __init__(self, clock: Clock, max_counters: int = MAX_COUNTERS) -> None:
        self._clock = clock
        self._max_counters = max_counters
        self._counts: OrderedDict[CounterKey, FailureCount] = OrderedDict()

    def remaining_seconds(self, key: CounterKey, policy: BackoffPolicy) -> float:
        """Seconds until the next attempt; not more than 0 if it may be made now."""
        count = self._counts.get(key)
        now = self._clock.monotonic()
        if count is None:
            return 0.0
        if now - count.latest >= RESET_SECONDS:
            del self._counts[key]
            return 0.0
        return count.latest + policy.delay(count.failures) - now

    def add(self, key: CounterKey) -> None:
        count = self._counts.setdefault(key, FailureCount(0, 0.0))
        count.failures += 1
        count.latest = self._clock.monotonic()
        _touch(self._counts, key, self._max_counters)

    def withdraw(self, key: CounterKey) -> None:
        """Uncounts one failure."""
        count = self._counts.get(key)
        if count is not None:
            count.failures -= 1
            if count.failures <= 0:
                del self._counts[key]

    def reset(self, key: CounterKey) -> None:
        self._counts.pop(key, None)


class Attempt:
    """One check. It counts as failed unless `succeed` is called."""

    __slots__ = ("succeeded",)

    def __init__(self) -> None:
        self.succeeded = False

    def succeed(self) -> None:
        self.succeeded = True


class Throttle(Protocol):
    """Throttles attempts."""

    def attempt(self, user: str, client: str) -> AbstractAsyncContextManager[Attempt]:
        """Counts one attempt, or raises TooManyRequests. An attempt that ends with an exception is not counted.

        `client` is the client address with its port, as in `Call`.
        """


@dataclass(frozen=True, slots=True)
class PendingAttempt:
    """An attempt that counts as a failure until its outcome is known."""

    user: str
    network: str
    counters: Mapping[CounterKey, BackoffPolicy]


class AttemptThrottle:
    """The counters of one process."""

    def __init__(self, clock: Clock, max_counters: int = MAX_COUNTERS) -> None:
        self._max_counters = max_counters
        self._counts = FailureCounts(clock, max_counters)
        self._known_networks: OrderedDict[CounterKey, None] = OrderedDict()

    @asynccontextmanager
    async def attempt(self, user: str, client: str) -> AsyncIterator[Attempt]:
        pending = self.begin(user, client_network(client))
        attempt, completed = Attempt(), False
        try:
            yield attempt
            completed = True
        finally:
            if attempt.succeeded:
                self.record_success(pending)
            elif not completed:
                self.withdraw(pending)

    def begin(self, user: str, network: str) -> PendingAttempt:
        """Counts an attempt as a failure, or raises TooManyRequests."""
        user = user[:MAX_NAME_LENGTH]
        counters = self._applicable_counters(user, network)
        self._check_backoff(counters)
        for who in counters:
            self._counts.add(who)
        return PendingAttempt(user, network, counters)

    def record_success(self, pending: PendingAttempt) -> None:
        """Resets the user's counter. The network's counter is only decremented: otherwise an attacker with an account
        could reset it by signing in between guesses."""
        self.withdraw(pending)
        for who in pending.counters:
            if who[0]:
                self._counts.reset(who)
        self._known_networks[pending.user, pending.network] = None
        _touch(self._known_networks, (pending.user, pending.network), self._max_counters)

    def withdraw(self, pending: PendingAttempt) -> None:
        """Uncounts an attempt that ended without a result."""
        for who in pending.counters:
            self._counts.withdraw(who)

    def _applicable_counters(self, user: str, network: str) -> dict[CounterKey, BackoffPolicy]:
        """On a network where the user has signed in before, failures of others do not count."""
        if (user, network) in self._known_networks:
            return {(user, network): USER_BACKOFF}
        return {(user, ""): USER_BACKOFF, ("", network): NETWORK_BACKOFF}

    def _check_backoff(self, counters: dict[CounterKey, BackoffPolicy]) -> None:
        waits = (self._counts.remaining_seconds(who, policy) for who, policy in counters.items())
        seconds = math.ceil(max(waits))
        if seconds > 0:
            message = f"too many failed login attempts; wait {seconds} s and try again"
            raise TooManyRequests(message, Details(retry_after=seconds))


def _touch(
    table: "OrderedDict[CounterKey, FailureCount] | OrderedDict[CounterKey, None]", key: CounterKey, max_entries: int
) -> None:
    """Marks an entry as the most recently used and evicts the least recently used one if there are too many."""
    table.move_to_end(key)
    if len(table) > max_entries:
        table.popitem(last=False)


def client_network(client: str) -> str:
    """The client address without its port; for IPv6 its /64 network, since a sender has all addresses of one."""
    host = client.rpartition(":")[0].strip("[]") if client.count(":") == 1 or "]" in client else client
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host[:MAX_NAME_LENGTH]
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((int(address), IPV6_PREFIX_BITS), strict=False))
    return str(address)
