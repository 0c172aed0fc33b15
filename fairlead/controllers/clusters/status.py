"""What a cluster's status says, worked out from what a look at it found: pure, for the controller beside it.

A trouble that passes by itself leaves the phase empty, with the reason Offline; one that somebody has to mend makes it
Failed. Conditions are such that generic tools understand them: `Connected`, `Ready`; `Reconciling` while it will get on
by itself; `Stalled` while somebody has to do something. The latter two are there only while they are true.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fairlead.core.objects import Object, metadata
from fairlead.registry.conditions import FALSE, TRUE, UNKNOWN, condition, with_conditions, without_conditions

CONNECTED, READY, RECONCILING, STALLED = "Connected", "Ready", "Reconciling", "Stalled"
BOUND = "AdministratorsBound"
ADMINISTRATORS_GROUP = "administratorsGroup"
"""The field of the status that has the group that is bound."""
OFFLINE, NOT_READY, IMPERSONATION = "Offline", "NotReady", "ImpersonationForbidden"
INITIALIZE, HEALTH, TWIN = "InitializeCluster", "HealthCheckCluster", "ClusterUID"
NO_CONFIG = "NoConfig"
INITIALIZED, FAILED = "Initialized", "Failed"


@dataclass(frozen=True, slots=True)
class Probe:
    """One part of a look at a cluster. The message says what to do if it is not as it should be.

    A failed one with the `severity` Warning costs a feature, and does not make the cluster not ready.
    """

    name: str
    ok: bool
    message: str = ""
    severity: str = ""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a cluster is not connected. What is `lasting` does not mend itself."""

    reason: str
    message: str
    lasting: bool


@dataclass(frozen=True, slots=True)
class Details:
    """What changes seldom and is asked for seldom."""

    probes: tuple[Probe, ...] = ()
    uid: str = ""
    nodes: int | None = None
    missing_rights: str = ""
    """What to do about rights without which the cluster cannot be used."""


@dataclass(frozen=True, slots=True)
class Found:
    """What came of a look. Without a `trouble` the cluster is connected; `unready` is what it says against itself."""

    probes: tuple[Probe, ...]
    trouble: Trouble | None = None
    unready: str = ""
    version: str = ""
    details: Details = Details()
    shaky: bool = False
    """A part of it was not answered at all: to be looked at again soon."""


@dataclass(frozen=True, slots=True)
class Standing:
    """The phase with its reason and message, and the conditions that go with it."""

    phase: str
    reason: str
    message: str
    conditions: Sequence[Object]


@dataclass(frozen=True, slots=True)
class AdministratorsBinding:
    """What came of binding the administrators: the condition, and the group that is bound now, if any."""

    condition: Object
    group: str = ""


def told(cluster: Object, found: Found, twin: str, bound: AdministratorsBinding | None, now: str) -> Object:
    """The status that the cluster should have. `twin` is an older Cluster object for the same cluster, if any.

    `bound` says what came of binding its administrators, if there is news of it.
    """
    generation = metadata(cluster).get("generation")
    before = cluster.get("status") or {}
    standing = _standing(before, found, twin)
    conditions = (*standing.conditions, *((bound.condition,) if bound else ()))
    over = {RECONCILING, STALLED} - {each["type"] for each in conditions}
    status = with_conditions(without_conditions(before, *over), conditions, now, generation)
    return {
        **_facts(_with_group(status, bound), found),
        "phase": standing.phase,
        "reason": standing.reason,
        "message": standing.message,
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
    """What the cluster is. While it is away or does not say, it is what it was."""
    if found.trouble is not None or found.shaky:
        return status
    facts = {"version": found.version, "clusterUID": found.details.uid, "nodes": found.details.nodes}
    known = {name: value for name, value in facts.items() if value not in ("", None)}
    return {**{name: value for name, value in status.items() if name not in facts}, **known}


def _standing(before: Object, found: Found, twin: str) -> Standing:
    trouble = found.trouble
    if trouble is not None and trouble.lasting:
        reason = HEALTH if before.get("version") else INITIALIZE
        return _bad(FAILED, reason, trouble, STALLED)
    if trouble is not None:
        return _bad("", OFFLINE, trouble, RECONCILING)
    connected = condition(CONNECTED, TRUE, "Connected", "the last look reached the cluster")
    if twin:
        message = f'this is the same cluster as "{twin}", which was connected earlier; remove one of the two'
        return Standing(FAILED, TWIN, message, (connected, *_unready(TWIN, message, STALLED)))
    if found.unready:
        unready = _unready(NOT_READY, found.unready, RECONCILING)
        return Standing(INITIALIZED, NOT_READY, found.unready, (connected, *unready))
    if missing := found.details.missing_rights:
        unready = _unready(IMPERSONATION, missing, STALLED, "Error")
        return Standing(INITIALIZED, IMPERSONATION, missing, (connected, *unready))
    ready = condition(READY, TRUE, "Healthy", "the cluster is connected and says that it is well")
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
    shown = {"name": probe.name, "ok": probe.ok, "message": probe.message, "time": now}
    return {**shown, "severity": probe.severity} if probe.severity else shown


def let_go(cluster: Object, now: str) -> Object:
    """The status of a cluster that was looked at, and no longer says how to reach it."""
    message = "spec.config names no secret any more; name one to connect the cluster again"
    conditions = (
        condition(CONNECTED, FALSE, NO_CONFIG, message, "Info"),
        condition(READY, UNKNOWN, NO_CONFIG, message),
    )
    generation = metadata(cluster).get("generation")
    status = without_conditions(cluster.get("status"), RECONCILING, STALLED)
    status = with_conditions(status, conditions, now, generation)
    news = {"phase": "", "reason": NO_CONFIG, "message": message, "online": False, "observedGeneration": generation}
    return {**{name: value for name, value in status.items() if name != "probes"}, **news}


def same_but_for_times(one: Object, other: Object) -> bool:
    """Whether a status says nothing new. Conditions keep their times by themselves."""
    return _timeless(one) == _timeless(other)


def _timeless(status: Object) -> Object:
    probes = [{**each, "time": ""} for each in status.get("probes") or ()]
    return {**status, "lastProbeTime": "", "probes": probes}
