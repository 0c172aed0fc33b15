"""Computes the status of an instance, and records Events about its transitions. Pure except for `record_transition`.

`Ready` means usable now: the template is resolved, its content is in the cluster, and the cluster is reachable. All of
that must be known for the current generation: anything missing, unknown or outdated makes it `Unknown`. The rest
follows kstatus, for generic tools: `Reconciling` while it progresses by itself; `Stalled` while it needs intervention.
The latter two exist only while they are true.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fairlead.controllers.instances.prerequisites import (
    BLOCKING_REASONS,
    CLUSTER_NOT_FOUND,
    NO_PROJECT,
    InstanceContext,
)
from fairlead.controllers.instances.remote_errors import ERROR, INFO, InstanceError
from fairlead.core.objects import Object, annotations_of, get_path, has_finalizer
from fairlead.domain.instance_sleep import wakes_on_request
from fairlead.domain.password_parameters import redact_instance
from fairlead.domain.sleep_decisions import format_time
from fairlead.domain.sleep_mode import (
    FORCED_DURATION_SLEEP,
    FORCED_SLEEP,
    INACTIVITY_SLEEP,
    SCHEDULED_TYPE,
    SLEEPING_SINCE,
    decode_info,
    parse_seconds,
)
from fairlead.domain.template_resolution import (
    ResolutionError,
    TemplateDefinition,
    is_auto_synced,
    is_same_reference,
    render_definition,
)
from fairlead.domain.typed_objects import (
    ASLEEP,
    ASLEEP_STAGE,
    FALLING_ASLEEP,
    SPACE_READY,
    SPACE_SYNCED,
    STARTING,
    TEMPLATE_RESOLVED,
    WAKE_FAILED,
    WAKING_UP,
    RemoteInstance,
    TypedObject,
    VirtualClusterInstance,
)
from fairlead.kinds.instances.fields import PENDING, PROGRESSING, READY, RECONCILING
from fairlead.registry.conditions import (
    FALSE,
    TRUE,
    UNKNOWN,
    condition,
    conditions_of,
    find_condition,
    record_event,
    with_conditions,
    without_conditions,
)
from fairlead.registry.registry import Registry

TEMPLATE_SYNCED, SCHEDULED, STALLED = "TemplateSynced", "Scheduled", "Stalled"
VC_DEPLOYED, VC_SYNCED = "VirtualClusterDeployed", "VirtualClusterSynced"
VC_READY, VC_ONLINE = "VirtualClusterReady", "VirtualClusterOnline"
SPACE_CONDITIONS = (SPACE_SYNCED, SPACE_READY)
VC_CONDITIONS = (*SPACE_CONDITIONS, VC_DEPLOYED, VC_SYNCED, VC_ONLINE, VC_READY)
APPS_SYNCED, VC_APPS_SYNCED = "AppsSynced", "VirtualClusterAppsAndObjectsSynced"
"""Whether the charts and apps of the template are deployed: in the namespace, and in the virtual cluster."""
CLUSTER_CONDITIONS = (*VC_CONDITIONS, "ProjectSecretsSynced", APPS_SYNCED, VC_APPS_SYNCED)
"""Conditions about the cluster. An instance is not ready while one of them is False."""

FAILED, SLEEPING = "Failed", "Sleeping"
_SLEEP_CAUSES = {
    INACTIVITY_SLEEP: "no requests",
    SCHEDULED_TYPE: "by its schedule",
    FORCED_SLEEP: "by request",
    FORCED_DURATION_SLEEP: "by request, for a time",
}
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
    instance: Object,
    definition: TemplateDefinition | ResolutionError,
    visible: str,
    blocker: InstanceError | None,
    own: Mapping[str, str] | None = None,
) -> TemplateResolution:
    """Resolves the template, or reports why that failed. `visible` is the fingerprint of its current version, and `own`
    are the `instance_values` of a space or virtual cluster."""
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
        rendered = render_definition(instance, definition, own)
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


def find_obstacle(conditions: Iterable[Object | None], generation: int) -> Readiness | None:
    """The condition that prevents Ready: the most severe that is False; among equals the first in order. One about an
    older generation does not count: the change may have fixed it, which is not known yet."""
    failing = [
        each
        for each in conditions
        if each is not None and each.get("status") == FALSE and each.get("observedGeneration", generation) >= generation
    ]
    if not failing:
        return None
    worst = next((each for each in failing if each.get("severity") == ERROR), failing[0])
    severity = worst.get("severity") or ""
    is_stalled = severity == ERROR
    return Readiness(
        ready=FALSE,
        phase=FAILED if is_stalled else PENDING,
        reason=worst.get("reason") or worst["type"],
        message=worst.get("message") or "",
        progress=STALLED if is_stalled else RECONCILING,
        severity=severity,
    )


def find_missing(status: Object, required: Mapping[str, str], generation: int) -> Readiness | None:
    """The first required condition that is not True for the current generation. `required` has a message for each."""
    for type, message in required.items():
        known = find_condition(status, type) or {}
        if known.get("status") != TRUE or known.get("observedGeneration", generation) < generation:
            return Readiness(UNKNOWN, PENDING, PROGRESSING, message, RECONCILING)
    return None


def with_readiness(status: Object, readiness: Readiness, generation: int, now: str) -> Object:
    """The status with the conditions about the readiness, the phase, and the generation that all of it is about."""
    ready = condition(READY, readiness.ready, readiness.reason, readiness.message, readiness.severity)
    conditions = [ready]
    if readiness.progress:
        conditions.append(condition(readiness.progress, TRUE, readiness.reason, readiness.message))
    obsolete = {RECONCILING, STALLED} - {readiness.progress}
    status = with_conditions(without_conditions(status, *obsolete), conditions, now, generation)
    fields = {"phase": readiness.phase, "reason": readiness.reason, "message": readiness.message}
    return {**status, **fields, "observedGeneration": generation}


def derive_current_status(context: InstanceContext, instance: RemoteInstance, status: Object, now: str) -> Object:
    """`derive_status` with what blocks the instance now."""
    return derive_status(instance, status, context.find_blocker(instance), now)


def derive_status(instance: RemoteInstance, status: Object, blocker: InstanceError | None, now: str) -> Object:
    """The status with everything that is derived from other conditions: Scheduled, Ready, and the phase.

    Every status write goes through here, so that Ready never contradicts another condition of the same revision.
    """
    generation = instance.generation
    status = with_conditions(status, (_scheduled_condition(instance, blocker),), now, generation)
    if instance.is_deleting:
        blocker = None  # report what the deletion waits for instead
    status = _with_reachability(instance, status, blocker, now)
    status = _without_past_sleep(instance, status)
    readiness = (
        _find_sleep(instance, status)
        or find_obstacle(_obstacle_candidates(status, blocker), generation)
        or _find_missing_report(instance, status)
        or find_missing(status, _required_conditions(instance), generation)
        or Readiness(TRUE, READY, USABLE, "it is in sync and can be used")
    )
    is_reported = instance.is_deployed_elsewhere or not has_remote_objects(instance)
    if is_reported and status.get("phase") == SLEEPING:  # by an agent
        readiness = _with_reported_sleep(readiness)
    return with_readiness(status, readiness, generation, now)


def _with_reported_sleep(readiness: Readiness) -> Readiness:
    if readiness.phase == READY:
        message = "it is sleeping, and wakes up when it is used"
        return Readiness(FALSE, SLEEPING, SLEEPING, message, severity=INFO)
    return replace(readiness, phase=SLEEPING) if readiness.phase == PENDING else readiness


def _find_sleep(instance: RemoteInstance, status: Object) -> Readiness | None:
    """The readiness of an instance that sleeps, falls asleep or wakes up. It comes before all obstacles: what is
    asleep is not reached, and need not be."""
    stage = get_path(status, "sleep.stage") or ""
    if not stage or instance.is_deleting:
        return None
    known = find_condition(status, ASLEEP) or {}
    if not instance.sleep_type:
        has_failed = known.get("reason") == WAKE_FAILED
        waiting = "waiting until it answers" if stage == STARTING else "its workloads are being started"
        message = str(known.get("message") or "") if has_failed else f"{_describe_wake(instance)}{waiting}"
        return Readiness(UNKNOWN, PENDING, WAKE_FAILED if has_failed else WAKING_UP, message, RECONCILING)
    if stage != ASLEEP_STAGE:
        message = str(known.get("message") or "its workloads are being stopped")
        return Readiness(FALSE, PENDING, FALLING_ASLEEP, message, RECONCILING, INFO)
    since = parse_seconds(annotations_of(instance.raw).get(SLEEPING_SINCE))
    cause = decode_info(instance.raw).get("message") or _SLEEP_CAUSES[instance.sleep_type]
    if instance.sleep_type.startswith("forced"):
        cause = _SLEEP_CAUSES[instance.sleep_type]
    command = "vcluster" if isinstance(instance, VirtualClusterInstance) else "space"
    wakes = "a request wakes it" if wakes_on_request(instance) else f"only `fairlead {command} wake` wakes it"
    return Readiness(FALSE, SLEEPING, SLEEPING, f"since {format_time(since)} ({cause}); {wakes}", severity=INFO)


def _describe_wake(instance: RemoteInstance) -> str:
    info = decode_info(instance.raw)
    return f"woken up by {info['user']}; " if info.get("user") else ""


def _without_past_sleep(instance: RemoteInstance, status: Object) -> Object:
    """The condition about a sleep that is over says nothing any more. Why it was refused stays."""
    sleep = status.get("sleep") or {}
    is_past = not instance.sleep_type and not sleep
    return without_conditions(status, ASLEEP) if is_past and find_condition(status, ASLEEP) is not None else status


def _scheduled_condition(instance: RemoteInstance, blocker: InstanceError | None) -> Object:
    if blocker is not None and blocker.reason == CLUSTER_NOT_FOUND:
        return blocker.as_condition(SCHEDULED)
    if instance.cluster:
        return condition(SCHEDULED, TRUE, "ClusterChosen", f'scheduled to cluster "{instance.cluster}"')
    if instance.is_imported:
        return condition(SCHEDULED, TRUE, "Imported", "it is imported: spec.config names its kubeconfig")
    if instance.is_external:
        return condition(SCHEDULED, TRUE, "External", "it is deployed by another tool")
    message = (
        "it names no cluster; set spec.clusterRef.cluster to one that `fairlead cluster list` shows, or connect one "
        "first with `fairlead cluster add`"
    )
    return condition(SCHEDULED, FALSE, "NoClusterChosen", message, INFO)


def _with_reachability(instance: RemoteInstance, status: Object, blocker: InstanceError | None, now: str) -> Object:
    """Sets conditions about the cluster to Unknown while it is blocked, and until they are checked again."""
    if not has_remote_objects(instance):
        return status
    if blocker is not None and blocker.reason in BLOCKING_REASONS:
        status = mark_cluster_unknown(status, blocker.reason, blocker.message, now)
        return {**status, "online": False} if status.get("online") else status
    for known in conditions_of(status):
        is_waiting = known.get("status") == UNKNOWN and known.get("reason") in BLOCKING_REASONS
        if is_waiting and known["type"] in VC_CONDITIONS:
            status = _set_unknown(status, known, PROGRESSING, _PROGRESS_MESSAGES[known["type"]], now)
    return status


def has_remote_objects(instance: TypedObject) -> bool:
    """Whether this server may have created something for it in a cluster."""
    return any(has_finalizer(instance.raw, each) for each in (SPACE_FINALIZER, VIRTUAL_CLUSTER_FINALIZER))


def mark_cluster_unknown(status: Object, reason: str, message: str, now: str) -> Object:
    """Sets the True conditions about the cluster to Unknown. False ones stay False."""
    for known in conditions_of(status):
        if known.get("status") == TRUE and known["type"] in VC_CONDITIONS:
            status = _set_unknown(status, known, reason, message, now)
    return status


def _set_unknown(status: Object, previous: Object, reason: str, message: str, now: str) -> Object:
    unknown = condition(previous["type"], UNKNOWN, reason, message)
    return with_conditions(status, (unknown,), now, previous.get("observedGeneration"))


def _obstacle_candidates(status: Object, blocker: InstanceError | None) -> Iterable[Object | None]:
    """The conditions that may prevent Ready, in order. The blocker comes after the template."""
    yield find_condition(status, TEMPLATE_RESOLVED)
    yield blocker.as_condition(TEMPLATE_SYNCED) if blocker is not None else None
    scheduled = find_condition(status, SCHEDULED) or {}
    if scheduled.get("reason") != CLUSTER_NOT_FOUND:  # the blocker reports it, and a deletion waits for something else
        yield scheduled
    for type in CLUSTER_CONDITIONS:
        yield find_condition(status, type)


def _required_conditions(instance: RemoteInstance) -> Mapping[str, str]:
    """The conditions that Ready requires and this server maintains, with the message while one is missing. Others are
    reported by agents."""
    if not isinstance(instance, VirtualClusterInstance):
        required: Sequence[str] = SPACE_CONDITIONS
    elif instance.is_imported:
        required = (VC_ONLINE, VC_READY)
    else:
        required = (VC_ONLINE,) if instance.is_deployed_elsewhere else VC_CONDITIONS
    return {type: _PROGRESS_MESSAGES[type] for type in (TEMPLATE_RESOLVED, *required)}


def _find_missing_report(instance: RemoteInstance, status: Object) -> Readiness | None:
    """Of a virtual cluster that an agent or another tool reports about."""
    is_reported = instance.is_deployed_elsewhere and not instance.is_imported
    is_known = find_condition(status, VC_ONLINE) is not None
    if not is_reported or is_known or find_missing(status, {TEMPLATE_RESOLVED: ""}, instance.generation):
        return None
    return Readiness(UNKNOWN, PENDING, NOT_REPORTED, _NOT_REPORTED_MESSAGE, RECONCILING)


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
