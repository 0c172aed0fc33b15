"""Computes the status of a Cluster from the result of a probe. Pure; used by `clusters.py`.

A transient failure leaves the phase empty, with the reason Offline; a permanent one sets it to Failed. The conditions
follow kstatus, for generic tools: `Connected` and `Ready`; `Reconciling` while it is expected to recover by itself;
`Stalled` while it needs intervention. The latter two exist only while they are true.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fairlead.core.objects import Object, metadata
from fairlead.registry.conditions import FALSE, TRUE, UNKNOWN, condition, with_conditions, without_conditions

CONNECTED, READY, RECONCILING, STALLED = "Connected", "Ready", "Reconciling", "Stalled"
BOUND = "AdministratorsBound"
ADMINISTRATORS_GROUP = "administratorsGroup"
"""The status field with the bound group."""
OFFLINE, NOT_READY, IMPERSONATION = "Offline", "NotReady", "ImpersonationForbidden"
INITIALIZE, HEALTH, TWIN = "InitializeCluster", "HealthCheckCluster", "ClusterUID"
NO_CONFIG = "NoConfig"
INITIALIZED, FAILED = "Initialized", "Failed"


@dataclass(frozen=True, slots=True)
class Probe:
    """One check of a probe. The message of a failed one says what to do.

    A failed check with the `severity` Warning disables a feature, but does not make the cluster not ready.
    """

    name: str
    ok: bool
    message: str = ""
    severity: str = ""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a cluster is not connected. A failure that `is_permanent` needs intervention."""

    reason: str
    message: str
    lasting: bool


@dataclass(frozen=True, slots=True)
class Details:
    """Facts that change seldom, and so are not fetched in every probe."""

    probes: tuple[Probe, ...] = ()
    uid: str = ""
    nodes: int | None = None
    missing_rights: str = ""
    """Message about missing permissions without which the cluster cannot be used."""


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a probe. Without `failure` the cluster is connected; `not_ready` is a message, or empty."""

    probes: tuple[Probe, ...]
    trouble: Trouble | None = None
    unready: str = ""
    version: str = ""
    details: Details = Details()
    shaky: bool = False
    """Some requests got no response: the cluster is probed again soon."""


@dataclass(frozen=True, slots=True)
class Standing:
    """The phase with its reason and message, and the corresponding conditions."""

    phase: str
    reason: str
    message: str
    conditions: Sequence[Object]


@dataclass(frozen=True, slots=True)
class AdministratorsBinding:
    """The result of binding the administrators: the condition, and the group that is bound now, if any."""

    condition: Object
    group: str = ""


def told(cluster: Object, found: Found, twin: str, bound: AdministratorsBinding | None, now: str) -> Object:
    """The desired status. `duplicate_of` is an older Cluster object for the same remote cluster, if any.

    `bound` is the result of binding the administrators, if that was attempted.
    """
    generation = metadata(cluster).get("generation")
    before = cluster.get("status") or {}
    derived = _standing(before, found, twin)
    conditions = (*derived.conditions, *((bound.condition,) if bound else ()))
    obsolete = {RECONCILING, STALLED} - {each["type"] for each in conditions}
    status = with_conditions(without_conditions(before, *obsolete), conditions, now, generation)
    return {
        **_facts(_with_group(status, bound), found),
        "phase": derived.phase,
        "reason": derived.reason,
        "message": derived.message,
        "online": found.trouble is None,
        "lastProbeTime": now,
        "probes": [_shown(each, now) for each in (*found.probes, *found.details.probes)],
        "observedGeneration": generation,
    }


def _with_group(status: Object, bound: AdministratorsBinding | None) -> Object:
    if bound is None:
        return status
    others = {name: value for name, value in status.items() if name != ADMINISTRATORS_GROUP}
    return {**others, ADMINISTRATORS_GROUP: bound.group} if bound.group else others


def _facts(status: Object, found: Found) -> Object:
    """Version, uid and node count. The last known values are kept while the cluster does not report them."""
    if found.trouble is not None or found.shaky:
        return status
    facts = {"version": found.version, "clusterUID": found.details.uid, "nodes": found.details.nodes}
    known = {name: value for name, value in facts.items() if value not in ("", None)}
    return {**{name: value for name, value in status.items() if name not in facts}, **known}


def _standing(before: Object, found: Found, twin: str) -> Standing:
    failure = found.trouble
    if failure is not None and failure.lasting:
        reason = HEALTH if before.get("version") else INITIALIZE
        return _bad(FAILED, reason, failure, STALLED)
    if failure is not None:
        return _bad("", OFFLINE, failure, RECONCILING)
    connected = condition(CONNECTED, TRUE, "Connected", "the last probe reached the cluster")
    if twin:
        message = f'this is the same cluster as "{twin}", which was connected earlier; delete one of the two'
        return Standing(FAILED, TWIN, message, (connected, *_unready(TWIN, message, STALLED)))
    if found.unready:
        unready = _unready(NOT_READY, found.unready, RECONCILING)
        return Standing(INITIALIZED, NOT_READY, found.unready, (connected, *unready))
    if missing := found.details.missing_rights:
        unready = _unready(IMPERSONATION, missing, STALLED, "Error")
        return Standing(INITIALIZED, IMPERSONATION, missing, (connected, *unready))
    ready = condition(READY, TRUE, "Healthy", "the cluster is connected and reports that it is ready")
    return Standing(INITIALIZED, "", "", (connected, ready))


def _bad(phase: str, reason: str, trouble: Trouble, state: str) -> Standing:
    severity = "Error" if state == STALLED else "Warning"
    connected = condition(CONNECTED, FALSE, trouble.reason, trouble.message, severity)
    return Standing(
        phase, reason, trouble.message, (connected, *_unready(trouble.reason, trouble.message, state, severity))
    )


def _unready(reason: str, message: str, state: str, severity: str = "Warning") -> Sequence[Object]:
    return condition(READY, FALSE, reason, message, severity), condition(state, TRUE, reason, message)


def _shown(probe: Probe, now: str) -> Object:
    entry = {"name": probe.name, "ok": probe.ok, "message": probe.message, "time": now}
    return {**entry, "severity": probe.severity} if probe.severity else entry


def let_go(cluster: Object, now: str) -> Object:
    """The status of a cluster that was probed, and whose `spec.config` no longer names a secret."""
    message = "spec.config no longer names a secret; name one to connect the cluster again"
    conditions = (
        condition(CONNECTED, FALSE, NO_CONFIG, message, "Info"),
        condition(READY, UNKNOWN, NO_CONFIG, message),
    )
    generation = metadata(cluster).get("generation")
    status = without_conditions(cluster.get("status"), RECONCILING, STALLED)
    status = with_conditions(status, conditions, now, generation)
    fields = {"phase": "", "reason": NO_CONFIG, "message": message, "online": False, "observedGeneration": generation}
    return {**{name: value for name, value in status.items() if name != "probes"}, **fields}


def same_but_for_times(one: Object, other: Object) -> bool:
    """Whether two statuses differ in probe times only. Conditions keep their transition times anyway."""
    return _timeless(one) == _timeless(other)


def _timeless(status: Object) -> Object:
    probes = [{**each, "time": ""} for each in status.get("probes") or ()]
    return {**status, "lastProbeTime": "", "probes": probes}
