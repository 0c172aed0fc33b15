"""Counters of single sign-on for the metrics. One object per process; `app` exposes it."""

from collections import Counter
from dataclasses import dataclass, field

Labels = tuple[str, str]
"""Id of the connector, and the result or reason, which is out of a fixed list."""


@dataclass(frozen=True, slots=True)
class SignOnCounters:
    sign_ons: Counter[Labels] = field(default_factory=Counter)
    refreshes: Counter[Labels] = field(default_factory=Counter)
    ended_sessions: Counter[Labels] = field(default_factory=Counter)
