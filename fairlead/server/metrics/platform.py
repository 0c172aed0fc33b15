"""What Kubernetes has no names for. `app` says where the numbers are; this page only names them."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from fairlead.server.metrics.exposition import COUNTER, GAUGE, HISTOGRAM, Family, labelled
from fairlead.server.metrics.histogram import Histogram

PHASES = {"": "Pending", "Initialized": "Initialized", "Failed": "Failed"}
"""A cluster that is being set up, or is offline, has no phase; a label needs a word for that."""
COMMITS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


def new_commits() -> Histogram:
    return Histogram(COMMITS)


@dataclass(frozen=True, slots=True)
class Platform:
    """`phases` are those of all clusters, `revision` is what the view shows, `audit_events` how many were written.

    Whoever commits lets `commits` observe how many seconds it took.
    """

    phases: Callable[[], Iterable[str]]
    revision: Callable[[], int]
    audit_events: Callable[[], int]
    commits: Histogram = field(default_factory=new_commits)

    def families(self) -> Iterator[Family]:
        counted = Counter(PHASES.get(phase, "Other") for phase in self.phases())
        yield Family(
            "fairlead_clusters",
            GAUGE,
            "Connected clusters by phase.",
            [(labelled({"phase": phase}), counted[phase]) for phase in (*PHASES.values(), "Other")],
        )
        yield Family(
            "fairlead_store_commit_seconds",
            HISTOGRAM,
            "Seconds that the store took for a commit, those that were refused included.",
            [("", self.commits.copy())],
        )
        revision = [("", self.revision())]
        yield Family("fairlead_view_revision", GAUGE, "The revision that this replica shows.", revision)
        events = [("", self.audit_events())]
        yield Family("apiserver_audit_event_total", COUNTER, "Events handed to the audit log.", events)
