"""What an instance's status says, worked out from what was found: pure, for the controllers beside it.

`Ready` means usable now: the template is resolved, what it asks for is in the cluster, and the cluster answers. All of
that has to be known, and known for the generation that the object has: what is missing, unknown or older makes it
`Unknown`. Generic tools understand the rest: `Reconciling` while it will get on by itself; `Stalled` while somebody has
to do something. The latter two are there only while they are true.
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
"""Conditions that are about what is in a cluster. An instance is not ready while one of them is false."""

FAILED, SLEEPING = "Failed", "Sleeping"
USABLE, NOT_REPORTED = "Usable", "NotReported"
SPACE_FINALIZER, VIRTUAL_CLUSTER_FINALIZER = "service.sh/space", "service.sh/virtual-cluster"

_WAITS = {
    RESOLVED: "its template is being resolved",
    SPACE_SYNCED: "its namespace is being made or updated",
    SPACE_READY: "its namespace is not known to be usable yet",
    DEPLOYED: "its chart is being deployed",
    VC_SYNCED: "its kubeconfig is being fetched",
    ONLINE: "it is not known to be reachable yet",
    VC_READY: "it has not answered yet",
}
_UNREPORTED = (
    "nothing has reported that it can be reached; name a secret with its kubeconfig in spec.config, or have its agent "
    "report"
)


@dataclass(frozen=True, slots=True)
class Found:
    """What came of resolving a template. `rendered` and `hash` are news only if it was `taken_over`."""

    conditions: Sequence[Object]
    taken_over: bool = False
    rendered: Object | None = None
    hash: str = ""


def resolution(instance: Object, definition: Definition | Unresolved, visible: str, obstacle: Trouble | None) -> Found:
    """Resolves the template, or says why not. `visible` is its fingerprint as it is now."""
    if isinstance(definition, Unresolved):
        return _unresolved(definition)
    known = dig(instance, "status.templateHash") or ""
    once = dig(instance, "spec.templateRef.syncOnce") is True
    stays = known and asks_alike(known, visible) and known != visible
    if stays and not once and not follows(instance):
        message = "the template has changed since it was taken over; set spec.templateRef.syncOnce to take that over"
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
        message = f"version {definition.version} is in use and {definition.newest} is there; name it to change over"
        return condition(SYNCED, FALSE, "NewTemplateVersionAvailable", message, "Info")
    return condition(SYNCED, TRUE, "Synced", "everything is as the template has it")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether an instance is ready, and what follows. `progress` is Reconciling or Stalled; empty: it is settled."""

    ready: str
    phase: str
    reason: str
    message: str
    progress: str = ""
    severity: str = ""


def standing(instance: Object, status: Object, obstacle: Trouble | None, now: str) -> Object:
    """The status with what follows from its other conditions: whether it is scheduled, ready, and its phase.

    Every write of a status goes through here, so that no revision says Ready beside a condition that speaks against it.
    """
    generation = _generation(instance)
    if "deletionTimestamp" in metadata(instance):
        obstacle = None  # what its deletion waits for is what counts now
    status = with_conditions(status, (_scheduled(instance),), now, generation)
    status = _reachable(instance, status, obstacle, now)
    verdict = _judge(instance, status, obstacle)
    ready = condition(READY, verdict.ready, verdict.reason, verdict.message, verdict.severity)
    conditions = [ready]
    if verdict.progress:
        conditions.append(condition(verdict.progress, TRUE, verdict.reason, verdict.message))
    over = {RECONCILING, STALLED} - {verdict.progress}
    status = with_conditions(without_conditions(status, *over), conditions, now, generation)
    told = {"phase": verdict.phase, "reason": verdict.reason, "message": verdict.message}
    return {**status, **told, "observedGeneration": generation}


def _generation(instance: Object) -> int:
    return int(metadata(instance).get("generation", 1))


def _scheduled(instance: Object) -> Object:
    if name := dig(instance, "spec.clusterRef.cluster"):
        return condition(SCHEDULED, TRUE, "ClusterChosen", f'it lives in cluster "{name}"')
    if dig(instance, "spec.config.secretName"):
        return condition(SCHEDULED, TRUE, "Imported", "it runs already, and spec.config says how to reach it")
    if dig(instance, "spec.external"):
        return condition(SCHEDULED, TRUE, "External", "somebody else has deployed it")
    return condition(SCHEDULED, FALSE, "NoClusterChosen", "set spec.clusterRef.cluster to a connected cluster", INFO)


def _reachable(instance: Object, status: Object, obstacle: Trouble | None, now: str) -> Object:
    """What was true of a cluster is unknown while it is away, and until it has been looked at again."""
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
    """Whether this server has made something in a cluster for it, or may have."""
    return has_finalizer(instance, SPACE_FINALIZER) or has_finalizer(instance, VIRTUAL_CLUSTER_FINALIZER)


def forget_cluster(status: Object, reason: str, message: str, now: str) -> Object:
    """Turns what is said to be so in a cluster into what nobody knows. What is wrong there stays wrong."""
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
    is_asleep = status.get("phase") == SLEEPING
    trouble = _trouble(status, obstacle)
    if trouble is not None:
        reason, message = trouble.get("reason") or trouble["type"], trouble.get("message") or ""
        severity = trouble.get("severity") or ""
        if severity == ERROR:
            return Verdict(FALSE, FAILED, reason, message, STALLED, severity)
        return Verdict(FALSE, SLEEPING if is_asleep else PENDING, reason, message, RECONCILING, severity)
    if awaited := _awaited(instance, status):
        reason, message = awaited
        return Verdict(UNKNOWN, SLEEPING if is_asleep else PENDING, reason, message, RECONCILING)
    if is_asleep:
        return Verdict(FALSE, SLEEPING, SLEEPING, "it sleeps until it is used again", severity=INFO)
    return Verdict(TRUE, READY, USABLE, "it is as it was asked for, and can be used")


def _trouble(status: Object, obstacle: Trouble | None) -> Object | None:
    """The condition that keeps it from being ready: the worst, and among equals the first in the order of things."""
    others = [find_condition(status, type) for type in (SCHEDULED, *REPORTED)]
    in_the_way = obstacle.as_condition(SYNCED) if obstacle is not None else None
    looked_at = (find_condition(status, RESOLVED), in_the_way, *others)
    bad = [each for each in looked_at if each is not None and each.get("status") == FALSE]
    return next((each for each in bad if each.get("severity") == ERROR), bad[0] if bad else None)


def _awaited(instance: Object, status: Object) -> tuple[str, str] | None:
    """Reason and message of the first thing that being ready takes and that is not known for this generation."""
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
    """The conditions that have to be true: what this server makes or sees. The rest is what others report."""
    if instance["kind"] != "VirtualClusterInstance":
        return IN_SPACE
    if dig(instance, "spec.config.secretName"):
        return ONLINE, VC_READY
    return (ONLINE,) if runs_elsewhere(instance) else IN_CLUSTER


# DOC-MERGED controllers/instance_events
# Events about what becomes of spaces and virtual clusters: one for each change that a person would want to hear of.


_BAD = frozenset({"Error", "Warning"})


async def record_transition(registry: Registry, before: Object, after: Object) -> None:
    """Writes an Event where the status `after` has another reason than the object `before` it.

    What is merely under way is no news.
    """
    known = before.get("status") or {}
    if known.get("reason") == after.get("reason") or after.get("reason") == PROGRESSING:
        return
    severity = (find_condition(after, READY) or {}).get("severity")
    # An Event is readable for others than the instance is, and a cluster may quote what it was sent.
    shown: Object = {"spec": before.get("spec"), "metadata": {}, "status": dict(after)}
    conceal(shown)
    kind = "Warning" if severity in _BAD else "Normal"
    await record(registry, before, after["reason"], shown["status"]["message"], type=kind)
