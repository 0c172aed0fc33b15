"""Lease of the group coordination.k8s.io: who leads, and until when. Client libraries elect their leaders with it."""

from collections.abc import Iterable

from fairlead.core.clock import micro_timestamp, rewrite
from fairlead.registry.kind import Change, Column, Kind, Problem
from fairlead.registry.schema import integer, obj, string, timestamp

_STRATEGY = "OldestEmulationVersion"

SPEC = obj(
    "Who holds the lease, and since when.",
    holderIdentity=string("Who holds the lease. Empty once the holder has given it up."),
    leaseDurationSeconds=integer("Seconds after renewTime in which nobody else takes the lease. At least 1.", bits=32),
    acquireTime=timestamp("When the holder took the lease, to the microsecond."),
    renewTime=timestamp("When the holder last renewed it, to the microsecond."),
    leaseTransitions=integer("How often the lease has gone from one holder to another.", bits=32),
    strategy=string(
        f"How the holder is chosen when somebody else chooses: `{_STRATEGY}`, or a name with a domain of one's own. "
        "Empty means that candidates race for it."
    ),
    preferredHolder=string("Who shall have the lease next, for leases with a strategy."),
)


def prepare(change: Change) -> None:
    spec = change.obj.setdefault("spec", {})
    rewrite(spec, ("acquireTime", "renewTime"), micro_timestamp)


def check(change: Change) -> Iterable[Problem]:
    spec = change.spec
    duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    strategy, preferred = spec.get("strategy"), spec.get("preferredHolder")
    if duration is not None and duration <= 0:
        yield Problem.invalid("spec.leaseDurationSeconds", duration, "must be greater than 0")
    if transitions is not None and transitions < 0:
        yield Problem.invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0")
    if strategy and "/" not in strategy and strategy != _STRATEGY:
        yield Problem.unsupported("spec.strategy", strategy, (_STRATEGY, "<domain>/<name>"))
    if preferred and not strategy:
        yield Problem.forbidden("spec.preferredHolder", "may only be specified when `strategy` is defined")


LEASE = Kind(
    name="Lease",
    plural="leases",
    namespaced=True,
    group="coordination.k8s.io",
    fields={"spec": SPEC},
    description="A claim to lead that ends unless it is renewed. Two holders can never replace each other unseen.",
    columns=(Column("Holder", "spec.holderIdentity", description="Who holds the lease."),),
    tracks_generation=False,
    builtin=True,
    prepare=prepare,
    check=check,
)
