"""Lease of coordination.k8s.io, which client libraries use for leader election."""

from collections.abc import Iterable

from fairlead.core import clock
from fairlead.registry.kind import Change, Column, Kind, Problem, Sensitivity
from fairlead.registry.schema import integer, micro_timestamp, obj, string

_DEFAULT_STRATEGY = "OldestEmulationVersion"

SPEC = obj(
    "Holder and duration of the lease.",
    holderIdentity=string("Identity of the current holder. Empty if the lease was released."),
    leaseDurationSeconds=integer(
        "Seconds that candidates must wait after renewTime before they force-acquire the lease. At least 1.", bits=32
    ),
    acquireTime=micro_timestamp("Time when the current holder acquired the lease, with microseconds."),
    renewTime=micro_timestamp("Time when the current holder last renewed the lease, with microseconds."),
    leaseTransitions=integer("Number of transitions of the lease between holders.", bits=32),
    strategy=string(
        f"Strategy for coordinated leader election: `{_DEFAULT_STRATEGY}`, or a custom name with a domain. "
        "Empty means that candidates compete for the lease."
    ),
    preferredHolder=string("Identity that should hold the lease next. Only with a strategy."),
)


def set_defaults(change: Change) -> None:
    spec = change.obj.setdefault("spec", {})
    clock.normalize_times(spec, ("acquireTime", "renewTime"), clock.micro_timestamp)


def check(change: Change) -> Iterable[Problem]:
    spec = change.spec
    duration = spec.get("leaseDurationSeconds")
    transitions = spec.get("leaseTransitions")
    strategy = spec.get("strategy")
    preferred = spec.get("preferredHolder")
    if duration is not None and duration <= 0:
        yield Problem.invalid("spec.leaseDurationSeconds", duration, "must be greater than 0")
    if transitions is not None and transitions < 0:
        yield Problem.invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0")
    if strategy and "/" not in strategy and strategy != _DEFAULT_STRATEGY:
        yield Problem.unsupported("spec.strategy", strategy, (_DEFAULT_STRATEGY, "<domain>/<name>"))
    if preferred and not strategy:
        yield Problem.forbidden("spec.preferredHolder", "may only be specified when `strategy` is defined")


LEASE = Kind(
    name="Lease",
    plural="leases",
    namespaced=True,
    group="coordination.k8s.io",
    fields={"spec": SPEC},
    description="A lease for leader election, which expires unless it is renewed.",
    columns=(Column("Holder", "spec.holderIdentity", description="Identity of the current holder."),),
    tracks_generation=False,
    builtin=True,
    allows_create_on_update=True,
    requires_finalizer_domains=False,
    empty_fields={"spec": {}},
    default=set_defaults,
    check=check,
    sensitivity=Sensitivity.NORMAL,
)
