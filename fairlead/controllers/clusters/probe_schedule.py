"""When a cluster is probed next, and how: pure, for the controller beside it. Times are of the monotonic clock.

A probe on a kept connection is cheap and says nothing of the certificate that the cluster presents by now, so every
other probe dials. After a failure all of them dial until one succeeds: a kept connection may go on working for hours
where nobody can open a new one. A request that failed elsewhere is a hint; it brings the next probe forward, at most
once per HINT_SECONDS, however many requests fail.
"""

import random
from dataclasses import dataclass
from typing import Final

from fairlead.controllers.clusters.status import Details, Found

EVERY, AWAY, UNREADY, RETRY = 5.0, 3.0, 2.0, 1.0
"""Seconds until the next probe: of a cluster that is well; that cannot be reached or used; that answers and says it is
not ready; and after a first failure, before that is believed."""
IDLE = 30.0
"""Seconds between looks at a cluster whose kubeconfig cannot be used: its change is followed at once anyway."""
HINT_SECONDS: Final = 1.0
NEVER, SOME_TIME = float("-inf"), float("inf")

Identity = tuple[str, int, int]
"""Uid and generation of a cluster and the revision of its secret: another one means that all has to be seen anew."""


@dataclass(slots=True)
class Course:
    """How the probes of a cluster have gone."""

    identity: Identity
    due: float
    began: float
    failures: int = 0
    details: Details | None = None
    details_at: float = NEVER
    written_at: float = NEVER
    bound_at: float = NEVER
    dials: bool = True
    """Whether the next probe opens a connection instead of using the one that is kept."""
    hinted_at: float = NEVER
    """When the last probe that a hint asked for was, or will be, due."""
    hint: float = SOME_TIME
    """When a probe that a hint asked for is due."""

    @property
    def next(self) -> float:
        return min(self.due, self.hint)

    def take_hint(self, now: float) -> bool:
        """Notes that a request failed. False where the next probe is not any earlier because of that."""
        if self.failures or self.hint != SOME_TIME:
            return False  # it is known, or a probe is on its way already
        self.hint = self.hinted_at = max(now, self.hinted_at + HINT_SECONDS)
        return self.hint < self.due

    def begin(self, now: float) -> bool:
        """A probe begins. Returns whether it has to dial."""
        if self.hint != SOME_TIME:
            self.hint, self.hinted_at, self.dials = SOME_TIME, now, True
        return self.dials

    def note(self, found: Found, dialed: bool) -> None:
        """What came of a probe."""
        well = found.trouble is None and not found.shaky
        self.failures = 0 if well else 1 if found.trouble is None else self.failures + 1
        self.dials = not (well and dialed)


def pause(found: Found, has_config: bool) -> float:
    """Seconds until the next probe, not the same for all, so that clusters do not come in one moment."""
    if found.shaky:
        return RETRY
    if not has_config:
        seconds = IDLE
    elif found.trouble is not None:
        seconds = AWAY
    else:
        seconds = UNREADY if found.unready else AWAY if found.details.missing_rights else EVERY
    return seconds * random.uniform(0.9, 1.0)
