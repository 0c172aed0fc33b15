"""Computes the status of an instance, and records Events about its transitions. Pure except for `record_transition`.

`Ready` means usable now: the template is resolved, its content is in the cluster, and the cluster is reachable. All of
that must be known for the current generation: anything missing, unknown or outdated makes it `Unknown`. The rest
follows kstatus, for generic tools: `Reconciling` while it progresses by itself; `Stalled` while it needs intervention.
The latter two exist only while they are true.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fairlead.controllers.instances.prerequisites import NO_PROJECT, OBSTACLES, runs_elsewhere
from fairlead.controllers.instances.remote_errors import ERROR, INFO, Trouble
from fairlead.core.objects import Object, dig, has_finalizer, metadata
from fairlead.domain.password_parameters import conceal
from fairlead.domain.template_resolution import Definition, Unresolved, asks_alike, follows, made
from fairlead.kinds.instances.fields import PENDING, PROGRESSING, READY, RECONCILING
from fairlead.registry.conditions import (
    FALSE,
    TRUE,
    UNKNOWN,
    condition,
    find_condition,
    with_conditions,
    without_conditions,
)
from fairlead.registry.events import record
from fairlead.registry.registry import Registry

RESOLVED, SYNCED, SCHEDULED, STALLED = "TemplateResolved", "TemplateSynced", "Scheduled", "Stalled"
SPACE_SYNCED, SPACE_READY = "SpaceSynced", "SpaceReady"
DEPLOYED, VC_SYNCED = "VirtualClusterDeployed", "VirtualClusterSynced"
VC_READY, ONLINE = "VirtualClusterReady", "VirtualClusterOnline"
IN_SPACE = (SPACE_SYNCED, SPACE_READY)
IN_CLUSTER = (*IN_SPACE, DEPLOYED, VC_SYNCED, ONLINE, VC_READY)
REPORTED = (*IN_CLUSTER, "ProjectSecretsSynced", "VirtualClusterAppsAndObjectsSynced")
"""Conditions about the cluster. An instance is not ready while one of them is False."""

FAILED, SLEEPING = "Failed", "Sleeping"
USABLE, NOT_REPORTED = "Usable", "NotReported"
SPACE_FINALIZER, VIRTUAL_CLUSTER_FINALIZER = "service.sh/space", "service.sh/virtual-cluster"

_BAD = frozenset({"Error", "Warning"})

_WAITS = {
    RESOLVED: "its template is being resolved",
    SPACE_SYNCED: "its namespace is being created or updated",
    SPACE_READY: "its namespace is not known to be usable yet",
    DEPLOYED: "its chart is being deployed",
    VC_SYNCED: "its kubeconfig is being fetched",
    ONLINE: "it is not known to be reachable yet",
    VC_READY: "it has not answered yet",
}
_UNREPORTED = "its reachability was not reported; name a secret with its kubeconfig in spec.config, or start its agent"


@dataclass(frozen=True, slots=True)
class Found:
    """The result of resolving a template. `rendered` and `hash` are set only if `is_adopted`."""

    conditions: Sequence[Object]
    taken_over: bool = False
    rendered: Object | None = None
    hash: str = ""


def resolution(instance: Object, definition: Definition | Unresolved, visible: str, obstacle: Trouble | None) -> Found:
    """Resolves the template, or reports why that failed. `visible` is the fingerprint of its current version."""
    if isinstance(definition, Unresolved):
        return _unresolved(definition)
    known = dig(instance, "status.templateHash") or ""
    once = dig(instance, "spec.templateRef.syncOnce") is True
    stays = known and asks_alike(known, visible) and known != visible
    if stays and not once and not follows(instance):
        message = "the template has changed since it was applied; set spec.templateRef.syncOnce to apply the changes"
        return Found((_resolved(), condition(SYNCED, FALSE, "TemplateChangesAvailable", message, "Info")))
    try:
        rendered = made(instance, definition)
    except Unresolved as error:
        return _unresolved(error)
    return Found((_resolved(), _synced(definition, obstacle)), True, rendered, visible)


def _unresolved(error: Unresolved) -> Found:
    resolved = condition(RESOLVED, FALSE, error.reason, error.message, "Error")
    return Found((resolved, condition(SYNCED, UNKNOWN, error.reason, "the template is not resolved")))


def _resolved() -> Object:
    return condition(RESOLVED, TRUE, "Resolved", "the template is resolved")


def _synced(definition: Definition, obstacle: Trouble | None) -> Object:
    if obstacle is not None and obstacle.reason != NO_PROJECT:
        return condition(SYNCED, FALSE, "ClusterNotReady", obstacle.message, "Warning")
    if definition.version != definition.newest:
        message = f"version {definition.version} is in use, and {definition.newest} is available; name it to upgrade"
        return condition(SYNCED, FALSE, "NewTemplateVersionAvailable", message, "Info")
    return condition(SYNCED, TRUE, "Synced", "in sync with the template")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether an instance is ready, with its phase. `progress` is Reconciling, Stalled or empty."""

    ready: str
    phase: str
    reason: str
    message: str
    progress: str = ""
    severity: str = ""


def standing(instance: Object, status: Object, obstacle: Trouble | None, now: str) -> Object:
    """The status with everything that is derived from other conditions: Scheduled, Ready, and the phase.

    Every status write goes through here, so that Ready never contradicts another condition of the same revision.
    """
    generation = _generation(instance)
    if "deletionTimestamp" in metadata(instance):
        obstacle = None  # report what the deletion waits for instead
    status = with_conditions(status, (_scheduled(instance),), now, generation)
    status = _reachable(instance, status, obstacle, now)
    readiness = _judge(instance, status, obstacle)
    ready = condition(READY, readiness.ready, readiness.reason, readiness.message, readiness.severity)
    conditions = [ready]
    if readiness.progress:
        conditions.append(condition(readiness.progress, TRUE, readiness.reason, readiness.message))
    obsolete = {RECONCILING, STALLED} - {readiness.progress}
    status = with_conditions(without_conditions(status, *obsolete), conditions, now, generation)
    fields = {"phase": readiness.phase, "reason": readiness.reason, "message": readiness.message}
    return {**status, **fields, "observedGeneration": generation}


def _generation(instance: Object) -> int:
    return int(metadata(instance).get("generation", 1))


def _scheduled(instance: Object) -> Object:
    if name := dig(instance, "spec.clusterRef.cluster"):
        return condition(SCHEDULED, TRUE, "ClusterChosen", f'scheduled to cluster "{name}"')
    if dig(instance, "spec.config.secretName"):
        return condition(SCHEDULED, TRUE, "Imported", "it is imported: spec.config names its kubeconfig")
    if dig(instance, "spec.external"):
        return condition(SCHEDULED, TRUE, "External", "it is deployed by another tool")
    return condition(SCHEDULED, FALSE, "NoClusterChosen", "set spec.clusterRef.cluster to a connected cluster", INFO)


def _reachable(instance: Object, status: Object, obstacle: Trouble | None, now: str) -> Object:
    """Sets conditions about the cluster to Unknown while it is blocked, and until they are checked again."""
    if not is_held(instance):
        return status
    if obstacle is not None and obstacle.reason in OBSTACLES:
        status = forget_cluster(status, obstacle.reason, obstacle.message, now)
        return {**status, "online": False} if status.get("online") else status
    for known in _known(status, UNKNOWN):
        if known.get("reason") in OBSTACLES:
            status = _restated(status, known, PROGRESSING, _WAITS[known["type"]], now)
    return status


def is_held(instance: Object) -> bool:
    """Whether this server may have created something for it in a cluster."""
    return has_finalizer(instance, SPACE_FINALIZER) or has_finalizer(instance, VIRTUAL_CLUSTER_FINALIZER)


def forget_cluster(status: Object, reason: str, message: str, now: str) -> Object:
    """Sets the True conditions about the cluster to Unknown. False ones stay False."""
    for known in _known(status, TRUE):
        status = _restated(status, known, reason, message, now)
    return status


def _known(status: Object, value: str) -> list[Object]:
    found = (find_condition(status, type) for type in IN_CLUSTER)
    return [each for each in found if each is not None and each.get("status") == value]


def _restated(status: Object, known: Object, reason: str, message: str, now: str) -> Object:
    unknown = condition(known["type"], UNKNOWN, reason, message)
    return with_conditions(status, (unknown,), now, known.get("observedGeneration"))


def _judge(instance: Object, status: Object, obstacle: Trouble | None) -> Verdict:
    is_sleeping = status.get("phase") == SLEEPING
    problem = _trouble(status, obstacle)
    if problem is not None:
        reason, message = problem.get("reason") or problem["type"], problem.get("message") or ""
        severity = problem.get("severity") or ""
        if severity == ERROR:
            return Verdict(FALSE, FAILED, reason, message, STALLED, severity)
        return Verdict(FALSE, SLEEPING if is_sleeping else PENDING, reason, message, RECONCILING, severity)
    if missing := _awaited(instance, status):
        reason, message = missing
        return Verdict(UNKNOWN, SLEEPING if is_sleeping else PENDING, reason, message, RECONCILING)
    if is_sleeping:
        return Verdict(FALSE, SLEEPING, SLEEPING, "it is sleeping, and wakes up when it is used", severity=INFO)
    return Verdict(TRUE, READY, USABLE, "it is in sync and can be used")


def _trouble(status: Object, obstacle: Trouble | None) -> Object | None:
    """The condition that prevents Ready: the most severe; among equals the first in order."""
    others = [find_condition(status, type) for type in (SCHEDULED, *REPORTED)]
    blocker = obstacle.as_condition(SYNCED) if obstacle is not None else None
    candidates = (find_condition(status, RESOLVED), blocker, *others)
    failing = [each for each in candidates if each is not None and each.get("status") == FALSE]
    return next((each for each in failing if each.get("severity") == ERROR), failing[0] if failing else None)


def _awaited(instance: Object, status: Object) -> tuple[str, str] | None:
    """Reason and message of the first required condition that is not True for the current generation."""
    generation = _generation(instance)
    required = _required(instance)
    for type in (RESOLVED, *required):
        known = find_condition(status, type)
        if known is None and required == (type,):
            return NOT_REPORTED, _UNREPORTED
        if known is None or known.get("status") != TRUE or known.get("observedGeneration", generation) < generation:
            return PROGRESSING, _WAITS[type]
    return None


def _required(instance: Object) -> Sequence[str]:
    """The conditions that Ready requires, which this server maintains. Others are reported by agents."""
    if instance["kind"] != "VirtualClusterInstance":
        return IN_SPACE
    if dig(instance, "spec.config.secretName"):
        return ONLINE, VC_READY
    return (ONLINE,) if runs_elsewhere(instance) else IN_CLUSTER


async def record_transition(registry: Registry, before: Object, after: Object) -> None:
    """Records an Event if the reason in the status `after` differs from that of the object `before`.

    Progress alone is not reported.
    """
    known = before.get("status") or {}
    if known.get("reason") == after.get("reason") or after.get("reason") == PROGRESSING:
        return
    severity = (find_condition(after, READY) or {}).get("severity")
    # More users may read Events than the instance, and a cluster may quote the values that it was sent.
    redacted: Object = {"spec": before.get("spec"), "metadata": {}, "status": dict(after)}
    conceal(redacted)
    kind = "Warning" if severity in _BAD else "Normal"
    await record(registry, before, after["reason"], redacted["status"]["message"], type=kind)
