"""The metrics of single sign-on. The labels are ids of connectors and fixed reasons, never names of users."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from fairlead.server.metrics.exposition import COUNTER, Family, MetricFamily

Labels = tuple[str, str]
"""Id of the connector, and the result or reason, which is out of a fixed list."""


@dataclass(frozen=True, slots=True)
class SignOnCounters:
    sign_ons: Counter[Labels] = field(default_factory=Counter)
    refreshes: Counter[Labels] = field(default_factory=Counter)
    ended_sessions: Counter[Labels] = field(default_factory=Counter)


def sign_on_families(counters: SignOnCounters) -> Iterator[MetricFamily]:
    yield Family(
        "fairlead_sign_ons_total",
        COUNTER,
        "Sign-ons by connector and result.",
        ("connector", "result"),
        list(counters.sign_ons.items()),
    )
    yield Family(
        "fairlead_sign_on_refreshes_total",
        COUNTER,
        "Checks of sessions with their provider, by connector and result.",
        ("connector", "result"),
        list(counters.refreshes.items()),
    )
    yield Family(
        "fairlead_sign_on_sessions_ended_total",
        COUNTER,
        "Sessions that ended before their time, by connector and reason.",
        ("connector", "reason"),
        list(counters.ended_sessions.items()),
    )
