"""When and how a cluster is probed next. Pure; used by `clusters.py`. Times are of the monotonic clock.

A probe on a pooled connection is cheap, but does not check the certificate that the cluster presents now, so every
other probe dials. After a failure all probes dial until one succeeds: a pooled connection may keep working for hours
while no new one can be opened. A failed request through a gateway is a hint; it brings the next probe forward, at most
once per HINT_INTERVAL_SECONDS.
"""

import random
from dataclasses import dataclass
from typing import Final

from fairlead.controllers.clusters.status import Details, Found

EVERY, AWAY, UNREADY, RETRY = 5.0, 3.0, 2.0, 1.0
"""Seconds until the next probe of a cluster that is healthy; that is unreachable or unusable; that is reachable but not
ready; and after a first failure, before it is reported."""
IDLE = 30.0
"""Seconds between probes of a cluster without a usable kubeconfig: its secret is watched anyway."""
HINT_SECONDS: Final = 1.0
NEVER, SOME_TIME = float("-inf"), float("inf")

Identity = tuple[str, int, int]
"""Uid and generation of a cluster and the revision of its secret. If they change, the schedule starts over."""


@dataclass(slots=True)
class Course:
    """The schedule of one cluster, and the outcome of its probes."""

    identity: Identity
    due: float
    began: float
    failures: int = 0
    details: Details | None = None
    details_at: float = NEVER
    written_at: float = NEVER
    bound_at: float = NEVER
    dials: bool = True
    """Whether the next probe opens a new connection instead of using a pooled one."""
    hinted_at: float = NEVER
    """When the last probe that a hint triggered was, or will be, due."""
    hint: float = SOME_TIME
    """When the probe that a hint triggered is due."""

    @property
    def next(self) -> float:
        return min(self.due, self.hint)

    def take_hint(self, now: float) -> bool:
        """Records that a request failed. Returns whether the next probe is brought forward."""
        if self.failures or self.hint != SOME_TIME:
            return False  # the failure is known, or a probe is already triggered
        self.hint = self.hinted_at = max(now, self.hinted_at + HINT_SECONDS)
        return self.hint < self.due

    def begin(self, now: float) -> bool:
        """A probe starts. Returns whether it has to dial."""
        if self.hint != SOME_TIME:
            self.hint, self.hinted_at, self.dials = SOME_TIME, now, True
        return self.dials

    def note(self, found: Found, dialed: bool) -> None:
        """Records the result of a probe."""
        is_healthy = found.trouble is None and not found.shaky
        self.failures = 0 if is_healthy else 1 if found.trouble is None else self.failures + 1
        self.dials = not (is_healthy and dialed)


def pause(found: Found, has_config: bool) -> float:
    """Seconds until the next probe, with jitter, so that clusters are not probed all at once."""
    if found.shaky:
        return RETRY
    if not has_config:
        seconds = IDLE
    elif found.trouble is not None:
        seconds = AWAY
    else:
        seconds = UNREADY if found.unready else AWAY if found.details.missing_rights else EVERY
    return seconds * random.uniform(0.9, 1.0)
