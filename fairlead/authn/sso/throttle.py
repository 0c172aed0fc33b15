"""Delays networks from which many sign-ons have failed. In memory, of limited size, and per process.

Guessing is hopeless here: state and code are long and random. The delay protects the provider, which each attempt asks.
"""

import math
from collections import OrderedDict

from fairlead.authn.login_throttle import MAX_COUNTERS, RESET_SECONDS, FailureCount, client_network
from fairlead.core.backoff import BackoffPolicy
from fairlead.core.clock import Clock

NETWORK_FAILURES = BackoffPolicy(first_seconds=1.0, max_seconds=60.0, free_attempts=20)
"""Many users may share an address behind a proxy, so the first failures have no delay."""


class SignOnThrottle:
    def __init__(self, clock: Clock, max_counters: int = MAX_COUNTERS) -> None:
        self._clock = clock
        self._max_counters = max_counters
        self._counts: OrderedDict[str, FailureCount] = OrderedDict()

    def wait_seconds(self, client: str, purpose: str = "") -> int:
        """How long a client has to wait before its next attempt. 0 if it need not. Purposes are counted separately."""
        network = purpose + client_network(client)
        now = self._clock.monotonic()
        count = self._counts.get(network)
        if count is None:
            return 0
        if now - count.latest >= RESET_SECONDS:
            del self._counts[network]
            return 0
        return max(0, math.ceil(count.latest + NETWORK_FAILURES.delay(count.failures) - now))

    def record_failure(self, client: str, purpose: str = "") -> None:
        network = purpose + client_network(client)
        count = self._counts.setdefault(network, FailureCount(0, 0.0))
        count.failures += 1
        count.latest = self._clock.monotonic()
        self._counts.move_to_end(network)
        if len(self._counts) > self._max_counters:
            self._counts.popitem(last=False)
