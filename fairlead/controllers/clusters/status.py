"""Computes the status of a Cluster from the result of a probe. Pure; used by `clusters.py`.

A transient failure leaves the phase empty, with the reason Offline; a permanent one sets it to Failed. The conditions
follow kstatus, for generic tools: `Connected` and `Ready`; `Reconciling` while it is expected to recover by itself;
`Stalled` while it needs intervention. The latter two exist only while they are true.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from fairlead.core.objects import Object, metadata
from fairlead.domain.cluster_identity import IDENTITY_PREFIX_TAKEN, find_identity_conflict
from fairlead.domain.probe_day import add_samples, decode_day, encode_day
from fairlead.domain.probe_history import ProbeSample, decode_samples, encode_samples
from fairlead.registry.conditions import FALSE, TRUE, UNKNOWN, condition, with_conditions, without_conditions

CONNECTED, READY, RECONCILING, STALLED = "Connected", "Ready", "Reconciling", "Stalled"
ADMINISTRATORS_BOUND = "AdministratorsBound"
ADMINISTRATORS_GROUP_FIELD = "administratorsGroup"
"""The status field with the bound group."""
HISTORY_FIELD, DAY_FIELD, LATENCY_FIELD = "probeHistory", "probeDay", "latencyMilliseconds"
"""The status fields with the recent probes, those of the last day, and the latency of the last one."""
OFFLINE, NOT_READY, IMPERSONATION_FORBIDDEN = "Offline", "NotReady", "ImpersonationForbidden"
INITIALIZE_FAILED, HEALTH_CHECK_FAILED, DUPLICATE_CLUSTER = "InitializeCluster", "HealthCheckCluster", "ClusterUID"
KUBECONFIG_NOT_SET = "KubeconfigNotSet"
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
class ProbeFailure:
    """Why a cluster is not connected. A failure that `is_permanent` needs intervention."""

    reason: str
    message: str
    is_permanent: bool


@dataclass(frozen=True, slots=True)
class ClusterDetails:
    """Facts that change seldom, and so are not fetched in every probe."""

    probes: tuple[Probe, ...] = ()
    uid: str = ""
    nodes: int | None = None
    missing_rights: str = ""
    """Message about missing permissions without which the cluster cannot be used."""
    identity: Object = field(default_factory=dict)
    """As `status.identity`: another installation with the same prefix, if there is one."""


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The result of a probe. Without `failure` the cluster is connected; `not_ready` is a message, or empty."""

    probes: tuple[Probe, ...]
    failure: ProbeFailure | None = None
    not_ready: str = ""
    version: str = ""
    details: ClusterDetails = ClusterDetails()
    is_incomplete: bool = False
    """Some requests got no response: the cluster is probed again soon."""
    latency: float | None = None
    """Seconds until the response to the first request; None if there was none."""

    def sample(self, now: datetime) -> ProbeSample:
        """The result as an entry of the history."""
        if self.failure is not None:
            reason = self.failure.reason
        else:
            reason = NOT_READY if self.not_ready else IMPERSONATION_FORBIDDEN if self.details.missing_rights else ""
        return ProbeSample(int(now.timestamp()), None if self.latency is None else round(1000 * self.latency), reason)


@dataclass(frozen=True, slots=True)
class DerivedStatus:
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


def next_status(
    cluster: Object, result: ProbeResult, duplicate_of: str, bound: AdministratorsBinding | None, now: str
) -> Object:
    """The desired status. `duplicate_of` is an older Cluster object for the same remote cluster, if any.

    `bound` is the result of binding the administrators, if that was attempted.
    """
    generation = metadata(cluster).get("generation")
    before = cluster.get("status") or {}
    with_facts = {**cluster, "status": _with_facts(before, result)}
    derived = _derive_status(before, result, duplicate_of, find_identity_conflict(with_facts))
    conditions = (*derived.conditions, *((bound.condition,) if bound else ()))
    obsolete = {RECONCILING, STALLED} - {each["type"] for each in conditions}
    status = with_conditions(without_conditions(before, *obsolete), conditions, now, generation)
    return {
        **_with_facts(_with_group(status, bound), result),
        "phase": derived.phase,
        "reason": derived.reason,
        "message": derived.message,
        "online": result.failure is None,
        "lastProbeTime": now,
        "probes": [_probe_entry(each, now) for each in (*result.probes, *result.details.probes)],
        "observedGeneration": generation,
    }


def _with_group(status: Object, bound: AdministratorsBinding | None) -> Object:
    if bound is None:
        return status
    others = {name: value for name, value in status.items() if name != ADMINISTRATORS_GROUP_FIELD}
    return {**others, ADMINISTRATORS_GROUP_FIELD: bound.group} if bound.group else others


def _with_facts(status: Object, result: ProbeResult) -> Object:
    """Version, uid, node count and another installation. The last known values are kept while the cluster does not
    report them."""
    if result.failure is not None or result.is_incomplete:
        return status
    facts = {
        "version": result.version,
        "clusterUID": result.details.uid,
        "nodes": result.details.nodes,
        "identity": result.details.identity,
    }
    known = {name: value for name, value in facts.items() if value not in ("", None, {})}
    return {**{name: value for name, value in status.items() if name not in facts}, **known}


def _derive_status(before: Object, result: ProbeResult, duplicate_of: str, identity_conflict: str) -> DerivedStatus:
    failure = result.failure
    if failure is not None and failure.is_permanent:
        reason = HEALTH_CHECK_FAILED if before.get("version") else INITIALIZE_FAILED
        return _failed_status(FAILED, reason, failure, STALLED)
    if failure is not None:
        return _failed_status("", OFFLINE, failure, RECONCILING)
    connected = condition(CONNECTED, TRUE, "Connected", "the last probe reached the cluster")
    if duplicate_of:
        message = f'this is the same cluster as "{duplicate_of}", which was connected earlier; delete one of the two'
        return DerivedStatus(
            FAILED, DUPLICATE_CLUSTER, message, (connected, *_not_ready_conditions(DUPLICATE_CLUSTER, message, STALLED))
        )
    if identity_conflict:
        unready = _not_ready_conditions(IDENTITY_PREFIX_TAKEN, identity_conflict, STALLED, "Error")
        return DerivedStatus(FAILED, IDENTITY_PREFIX_TAKEN, identity_conflict, (connected, *unready))
    if result.not_ready:
        unready = _not_ready_conditions(NOT_READY, result.not_ready, RECONCILING)
        return DerivedStatus(INITIALIZED, NOT_READY, result.not_ready, (connected, *unready))
    if missing := result.details.missing_rights:
        unready = _not_ready_conditions(IMPERSONATION_FORBIDDEN, missing, STALLED, "Error")
        return DerivedStatus(INITIALIZED, IMPERSONATION_FORBIDDEN, missing, (connected, *unready))
    ready = condition(READY, TRUE, "Healthy", "the cluster is connected and reports that it is ready")
    return DerivedStatus(INITIALIZED, "", "", (connected, ready))


def _failed_status(phase: str, reason: str, failure: ProbeFailure, state: str) -> DerivedStatus:
    severity = "Error" if state == STALLED else "Warning"
    connected = condition(CONNECTED, FALSE, failure.reason, failure.message, severity)
    return DerivedStatus(
        phase,
        reason,
        failure.message,
        (connected, *_not_ready_conditions(failure.reason, failure.message, state, severity)),
    )


def _not_ready_conditions(reason: str, message: str, state: str, severity: str = "Warning") -> Sequence[Object]:
    return condition(READY, FALSE, reason, message, severity), condition(state, TRUE, reason, message)


def _probe_entry(probe: Probe, now: str) -> Object:
    entry = {"name": probe.name, "ok": probe.ok, "message": probe.message, "time": now}
    return {**entry, "severity": probe.severity} if probe.severity else entry


def disconnected_status(cluster: Object, now: str) -> Object:
    """The status of a cluster that was probed, and whose `spec.config` no longer names a secret."""
    message = "spec.config no longer names a secret; name one to connect the cluster again"
    conditions = (
        condition(CONNECTED, FALSE, KUBECONFIG_NOT_SET, message, "Info"),
        condition(READY, UNKNOWN, KUBECONFIG_NOT_SET, message),
    )
    generation = metadata(cluster).get("generation")
    status = without_conditions(cluster.get("status"), RECONCILING, STALLED)
    status = with_conditions(status, conditions, now, generation)
    fields = {
        "phase": "",
        "reason": KUBECONFIG_NOT_SET,
        "message": message,
        "online": False,
        "observedGeneration": generation,
    }
    obsolete = ("probes", HISTORY_FIELD, DAY_FIELD, LATENCY_FIELD)
    return {**{name: value for name, value in status.items() if name not in obsolete}, **fields}


def with_history(status: Object, samples: Sequence[ProbeSample]) -> Object:
    """The status with more samples in its history, and the latency of the last one."""
    history = encode_samples([*decode_samples(status.get(HISTORY_FIELD)), *samples])
    day = encode_day(add_samples(decode_day(status.get(DAY_FIELD)), samples))
    others = {name: value for name, value in status.items() if name != LATENCY_FIELD}
    latency = samples[-1].latency if samples else status.get(LATENCY_FIELD)
    return {**others, HISTORY_FIELD: history, DAY_FIELD: day, **({} if latency is None else {LATENCY_FIELD: latency})}


def equal_ignoring_times(one: Object, other: Object) -> bool:
    """Whether two statuses differ in probe times only. Conditions keep their transition times anyway."""
    return _without_times(one) == _without_times(other)


def _without_times(status: Object) -> Object:
    probes = [{**each, "time": ""} for each in status.get("probes") or ()]
    return {**status, "lastProbeTime": "", "probes": probes}
