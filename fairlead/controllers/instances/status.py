"""Computes the status of an instance, and records Events about its transitions. Pure except for `record_transition`.

`Ready` means usable now: the template is resolved, its content is in the cluster, and the cluster is reachable. All of
that must be known for the current generation: anything missing, unknown or outdated makes it `Unknown`. The rest
follows kstatus, for generic tools: `Reconciling` while it progresses by itself; `Stalled` while it needs intervention.
The latter two exist only while they are true.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fairlead.controllers.instances.prerequisites import BLOCKING_REASONS, CLUSTER_NOT_FOUND, NO_PROJECT, is_external
from fairlead.controllers.instances.remote_errors import ERROR, INFO, InstanceError
from fairlead.core.objects import Object, get_path, has_finalizer, metadata
from fairlead.domain.password_parameters import redact_instance
from fairlead.domain.spaces import SPACE_READY, SPACE_SYNCED
from fairlead.domain.template_resolution import (
    ResolutionError,
    TemplateDefinition,
    is_auto_synced,
    is_same_reference,
    render_definition,
)
from fairlead.kinds.instances.fields import PENDING, PROGRESSING, READY, RECONCILING
from fairlead.registry.conditions import (
    FALSE,
    TRUE,
    UNKNOWN,
    condition,
    find_condition,
    record_event,
    with_conditions,
    without_conditions,
)
from fairlead.registry.registry import Registry

TEMPLATE_RESOLVED, TEMPLATE_SYNCED, SCHEDULED, STALLED = "TemplateResolved", "TemplateSynced", "Scheduled", "Stalled"
VC_DEPLOYED, VC_SYNCED = "VirtualClusterDeployed", "VirtualClusterSynced"
VC_READY, VC_ONLINE = "VirtualClusterReady", "VirtualClusterOnline"
SPACE_CONDITIONS = (SPACE_SYNCED, SPACE_READY)
VC_CONDITIONS = (*SPACE_CONDITIONS, VC_DEPLOYED, VC_SYNCED, VC_ONLINE, VC_READY)
APPS_SYNCED, VC_APPS_SYNCED = "AppsSynced", "VirtualClusterAppsAndObjectsSynced"
"""Whether the charts and apps of the template are deployed: in the namespace, and in the virtual cluster."""
CLUSTER_CONDITIONS = (*VC_CONDITIONS, "ProjectSecretsSynced", APPS_SYNCED, VC_APPS_SYNCED)
"""Conditions about the cluster. An instance is not ready while one of them is False."""

FAILED, SLEEPING = "Failed", "Sleeping"
USABLE, NOT_REPORTED = "Usable", "NotReported"
SPACE_FINALIZER, VIRTUAL_CLUSTER_FINALIZER = "service.sh/space", "service.sh/virtual-cluster"

_WARNING_SEVERITIES = frozenset({"Error", "Warning"})

_PROGRESS_MESSAGES = {
    TEMPLATE_RESOLVED: "its template is being resolved",
    SPACE_SYNCED: "its namespace is being created or updated",
    SPACE_READY: "its namespace is not known to be usable yet",
    VC_DEPLOYED: "its chart is being deployed",
    VC_SYNCED: "its kubeconfig is being fetched",
    VC_ONLINE: "it is not known to be reachable yet",
    VC_READY: "it has not answered yet",
}
_NOT_REPORTED_MESSAGE = (
    "its reachability was not reported; name a secret with its kubeconfig in spec.config, or start its agent"
)


@dataclass(frozen=True, slots=True)
class TemplateResolution:
    """The result of resolving a template. `rendered` and `hash` are set only if `is_adopted`."""

    conditions: Sequence[Object]
    is_adopted: bool = False
    rendered: Object | None = None
    hash: str = ""


def resolve_template(
    instance: Object, definition: TemplateDefinition | ResolutionError, visible: str, blocker: InstanceError | None
) -> TemplateResolution:
    """Resolves the template, or reports why that failed. `visible` is the fingerprint of its current version."""
    if isinstance(definition, ResolutionError):
        return failed_resolution(definition)
    known = get_path(instance, "status.templateHash") or ""
    once = get_path(instance, "spec.templateRef.syncOnce") is True
    stays = known and is_same_reference(known, visible) and known != visible
    if stays and not once and not is_auto_synced(instance):
        message = "the template has changed since it was applied; set spec.templateRef.syncOnce to apply the changes"
        return TemplateResolution(
            (_resolved_condition(), condition(TEMPLATE_SYNCED, FALSE, "TemplateChangesAvailable", message, "Info"))
        )
    try:
        rendered = render_definition(instance, definition)
    except ResolutionError as error:
        return failed_resolution(error)
    return TemplateResolution((_resolved_condition(), _synced_condition(definition, blocker)), True, rendered, visible)


def failed_resolution(error: ResolutionError) -> TemplateResolution:
    resolved = condition(TEMPLATE_RESOLVED, FALSE, error.reason, error.message, "Error")
    return TemplateResolution(
        (resolved, condition(TEMPLATE_SYNCED, UNKNOWN, error.reason, "the template is not resolved"))
    )


def _resolved_condition() -> Object:
    return condition(TEMPLATE_RESOLVED, TRUE, "Resolved", "the template is resolved")


def _synced_condition(definition: TemplateDefinition, blocker: InstanceError | None) -> Object:
    if blocker is not None and blocker.reason != NO_PROJECT:
        return condition(TEMPLATE_SYNCED, FALSE, "ClusterNotReady", blocker.message, "Warning")
    if definition.version != definition.newest_version:
        message = (
            f"version {definition.version} is in use, and {definition.newest_version} is available; name it to upgrade"
        )
        return condition(TEMPLATE_SYNCED, FALSE, "NewTemplateVersionAvailable", message, "Info")
    return condition(TEMPLATE_SYNCED, TRUE, "Synced", "in sync with the template")


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether an instance is ready, with its phase. `progress` is Reconciling, Stalled or empty."""

    ready: str
    phase: str
    reason: str
    message: str
    progress: str = ""
    severity: str = ""


def derive_status(instance: Object, status: Object, blocker: InstanceError | None, now: str) -> Object:
    """The status with everything that is derived from other conditions: Scheduled, Ready, and the phase.

    Every status write goes through here, so that Ready never contradicts another condition of the same revision.
    """
    generation = _generation(instance)
    status = with_conditions(status, (_scheduled_condition(instance, blocker),), now, generation)
    if "deletionTimestamp" in metadata(instance):
        blocker = None  # report what the deletion waits for instead
    status = _with_reachability(instance, status, blocker, now)
    readiness = _evaluate_readiness(instance, status, blocker)
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


def _scheduled_condition(instance: Object, blocker: InstanceError | None) -> Object:
    if blocker is not None and blocker.reason == CLUSTER_NOT_FOUND:
        return blocker.as_condition(SCHEDULED)
    if name := get_path(instance, "spec.clusterRef.cluster"):
        return condition(SCHEDULED, TRUE, "ClusterChosen", f'scheduled to cluster "{name}"')
    if get_path(instance, "spec.config.secretName"):
        return condition(SCHEDULED, TRUE, "Imported", "it is imported: spec.config names its kubeconfig")
    if get_path(instance, "spec.external"):
        return condition(SCHEDULED, TRUE, "External", "it is deployed by another tool")
    message = (
        "it names no cluster; set spec.clusterRef.cluster to one that `fairlead cluster list` shows, or connect one "
        "first with `fairlead cluster add`"
    )
    return condition(SCHEDULED, FALSE, "NoClusterChosen", message, INFO)


def _with_reachability(instance: Object, status: Object, blocker: InstanceError | None, now: str) -> Object:
    """Sets conditions about the cluster to Unknown while it is blocked, and until they are checked again."""
    if not has_remote_objects(instance):
        return status
    if blocker is not None and blocker.reason in BLOCKING_REASONS:
        status = mark_cluster_unknown(status, blocker.reason, blocker.message, now)
        return {**status, "online": False} if status.get("online") else status
    for known in _conditions_with_status(status, UNKNOWN):
        if known.get("reason") in BLOCKING_REASONS:
            status = _set_unknown(status, known, PROGRESSING, _PROGRESS_MESSAGES[known["type"]], now)
    return status


def has_remote_objects(instance: Object) -> bool:
    """Whether this server may have created something for it in a cluster."""
    return has_finalizer(instance, SPACE_FINALIZER) or has_finalizer(instance, VIRTUAL_CLUSTER_FINALIZER)


def mark_cluster_unknown(status: Object, reason: str, message: str, now: str) -> Object:
    """Sets the True conditions about the cluster to Unknown. False ones stay False."""
    for known in _conditions_with_status(status, TRUE):
        status = _set_unknown(status, known, reason, message, now)
    return status


def _conditions_with_status(status: Object, value: str) -> list[Object]:
    found = (find_condition(status, type) for type in VC_CONDITIONS)
    return [each for each in found if each is not None and each.get("status") == value]


def _set_unknown(status: Object, previous: Object, reason: str, message: str, now: str) -> Object:
    unknown = condition(previous["type"], UNKNOWN, reason, message)
    return with_conditions(status, (unknown,), now, previous.get("observedGeneration"))


def _evaluate_readiness(instance: Object, status: Object, blocker: InstanceError | None) -> Readiness:
    is_sleeping = status.get("phase") == SLEEPING
    problem = _worst_condition(status, blocker)
    if problem is not None:
        reason = problem.get("reason") or problem["type"]
        message = problem.get("message") or ""
        severity = problem.get("severity") or ""
        if severity == ERROR:
            return Readiness(
                ready=FALSE, phase=FAILED, reason=reason, message=message, progress=STALLED, severity=severity
            )
        return Readiness(
            ready=FALSE,
            phase=SLEEPING if is_sleeping else PENDING,
            reason=reason,
            message=message,
            progress=RECONCILING,
            severity=severity,
        )
    if missing := _first_missing(instance, status):
        reason, message = missing
        return Readiness(UNKNOWN, SLEEPING if is_sleeping else PENDING, reason, message, RECONCILING)
    if is_sleeping:
        return Readiness(FALSE, SLEEPING, SLEEPING, "it is sleeping, and wakes up when it is used", severity=INFO)
    return Readiness(TRUE, READY, USABLE, "it is in sync and can be used")


def _worst_condition(status: Object, blocking_error: InstanceError | None) -> Object | None:
    """The condition that prevents Ready: the most severe; among equals the first in order."""
    scheduled = find_condition(status, SCHEDULED) or {}
    if scheduled.get("reason") == CLUSTER_NOT_FOUND:  # the blocker reports it, and a deletion waits for something else
        scheduled = {}
    others = [scheduled, *(find_condition(status, type) for type in CLUSTER_CONDITIONS)]
    blocker = blocking_error.as_condition(TEMPLATE_SYNCED) if blocking_error is not None else None
    candidates = (find_condition(status, TEMPLATE_RESOLVED), blocker, *others)
    failing = [each for each in candidates if each is not None and each.get("status") == FALSE]
    return next((each for each in failing if each.get("severity") == ERROR), failing[0] if failing else None)


def _first_missing(instance: Object, status: Object) -> tuple[str, str] | None:
    """Reason and message of the first required condition that is not True for the current generation."""
    generation = _generation(instance)
    required = _required_conditions(instance)
    for type in (TEMPLATE_RESOLVED, *required):
        known = find_condition(status, type)
        if known is None and required == (type,):
            return NOT_REPORTED, _NOT_REPORTED_MESSAGE
        if known is None or known.get("status") != TRUE or known.get("observedGeneration", generation) < generation:
            return PROGRESSING, _PROGRESS_MESSAGES[type]
    return None


def _required_conditions(instance: Object) -> Sequence[str]:
    """The conditions that Ready requires, which this server maintains. Others are reported by agents."""
    if instance["kind"] != "VirtualClusterInstance":
        return SPACE_CONDITIONS
    if get_path(instance, "spec.config.secretName"):
        return VC_ONLINE, VC_READY
    return (VC_ONLINE,) if is_external(instance) else VC_CONDITIONS


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
    redact_instance(redacted)
    kind = "Warning" if severity in _WARNING_SEVERITIES else "Normal"
    await record_event(registry, before, after["reason"], redacted["status"]["message"], type=kind)
