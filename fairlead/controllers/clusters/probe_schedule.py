"""When and how a cluster is probed next. Pure; used by `clusters.py`. Times are of the monotonic clock.

A probe on a pooled connection is cheap, but does not check the certificate that the cluster presents now, so every
other probe dials. After a failure all probes dial until one succeeds: a pooled connection may keep working for hours
while no new one can be opened. A failed request through a gateway is a hint; it brings the next probe forward, at most
once per HINT_INTERVAL_SECONDS.
"""

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from fairlead.controllers.clusters.status import ClusterDetails, ProbeResult
from fairlead.domain.probe_history import ProbeSample

HEALTHY_SECONDS, UNREACHABLE_SECONDS, NOT_READY_SECONDS, RETRY_SECONDS = 5.0, 3.0, 2.0, 1.0
"""Seconds until the next probe of a cluster that is healthy; that is unreachable or unusable; that is reachable but not
ready; and after a first failure, before it is reported."""
NO_CONFIG_SECONDS = 30.0
"""Seconds between probes of a cluster without a usable kubeconfig: its secret is watched anyway."""
HINT_INTERVAL_SECONDS: Final = 1.0
MAX_UNWRITTEN = 400
"""How many probes are remembered until the status is written: those of more than five minutes, one a second."""
NEVER = float("-inf")
NOT_SCHEDULED = float("inf")

ProbeInputs = tuple[str, int, int]
"""Uid and generation of a cluster and the revision of its secret. If they change, the schedule starts over."""


@dataclass(slots=True)
class ProbeSchedule:
    """The schedule of one cluster, and the outcome of its probes."""

    inputs: ProbeInputs
    due: float
    created_at: float
    failures: int = 0
    details: ClusterDetails | None = None
    details_at: float = NEVER
    written_at: float = NEVER
    bound_at: float = NEVER
    must_dial: bool = True
    """Whether the next probe opens a new connection instead of using a pooled one."""
    hinted_at: float = NEVER
    """When the last probe that a hint triggered was, or will be, due."""
    hint_due: float = NOT_SCHEDULED
    """When the probe that a hint triggered is due."""
    samples: deque[ProbeSample] = field(default_factory=lambda: deque(maxlen=MAX_UNWRITTEN))
    """The probes since the status was last written."""

    @property
    def next_due(self) -> float:
        return min(self.due, self.hint_due)

    def add_hint(self, now: float) -> bool:
        """Records that a request failed. Returns whether the next probe is brought forward."""
        if self.failures or self.hint_due != NOT_SCHEDULED:
            return False  # the failure is known, or a probe is already triggered
        self.hint_due = self.hinted_at = max(now, self.hinted_at + HINT_INTERVAL_SECONDS)
        return self.hint_due < self.due

    def begin_probe(self, now: float) -> bool:
        """A probe starts. Returns whether it has to dial."""
        if self.hint_due != NOT_SCHEDULED:
            self.hint_due, self.hinted_at, self.must_dial = NOT_SCHEDULED, now, True
        return self.must_dial

    def record_result(self, result: ProbeResult, has_dialed: bool) -> None:
        """Records the result of a probe."""
        is_healthy = result.failure is None and not result.is_incomplete
        self.failures = 0 if is_healthy else 1 if result.failure is None else self.failures + 1
        self.must_dial = not (is_healthy and has_dialed)


def probe_interval(result: ProbeResult, has_config: bool) -> float:
    """Seconds until the next probe, with jitter, so that clusters are not probed all at once."""
    if result.is_incomplete:
        return RETRY_SECONDS
    if not has_config:
        seconds = NO_CONFIG_SECONDS
    elif result.failure is not None:
        seconds = UNREACHABLE_SECONDS
    else:
        seconds = (
            NOT_READY_SECONDS
            if result.not_ready
            else UNREACHABLE_SECONDS
            if result.details.missing_rights
            else HEALTHY_SECONDS
        )
    return seconds * random.uniform(0.9, 1.0)
