"""Delays networks from which many sign-ons have failed. In memory, of limited size, and per process.

Guessing is hopeless here: state and code are long and random. The delay protects the provider, which each attempt asks.
"""

import math

from fairlead.core.backoff import BackoffPolicy
from fairlead.core.clock import Clock
from fairlead.server.flow.attempts import MAX_COUNTERS, FailureCounts, client_network

NETWORK_FAILURES = BackoffPolicy(first_seconds=1.0, max_seconds=60.0, free_attempts=20)
"""Many users may share an address behind a proxy, so the first failures have no delay."""


class SignOnThrottle:
    def __init__(self, clock: Clock, max_counters: int = MAX_COUNTERS) -> None:
        self._counts = FailureCounts(clock, max_counters)

    def wait_seconds(self, client: str, purpose: str = "") -> int:
        """How long a client has to wait before its next attempt. 0 if it need not. Purposes are counted separately."""
        return max(0, math.ceil(self._counts.remaining_seconds((purpose, client_network(client)), NETWORK_FAILURES)))

    def record_failure(self, client: str, purpose: str = "") -> None:
        self._counts.add((purpose, client_network(client)))
