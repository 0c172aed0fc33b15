"""What an instance's status says, worked out from what was found: pure, for the controller beside it.

Conditions are such that generic tools understand them: `Ready`; `Reconciling` while it will get on by itself; `Stalled`
while somebody has to do something. The latter two are there only while they are true.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fairlead.core.objects import Object, dig
from fairlead.kinds.resolution import Definition, Unresolved, asks_alike, follows, made
from fairlead.registry.conditions import (
    FALSE,
    TRUE,
    UNKNOWN,
    condition,
    find_condition,
    with_conditions,
    without_conditions,
)

RESOLVED, SYNCED, SCHEDULED, READY = "TemplateResolved", "TemplateSynced", "Scheduled", "Ready"
RECONCILING, STALLED = "Reconciling", "Stalled"
REPORTED = (
    *("SpaceSynced", "SpaceReady", "VirtualClusterDeployed", "VirtualClusterSynced", "VirtualClusterReady"),
    *("VirtualClusterOnline", "ProjectSecretsSynced", "VirtualClusterAppsAndObjectsSynced"),
)
"""Conditions that a cluster's agent writes. An instance is not ready while one of them is false."""


@dataclass(frozen=True, slots=True)
class Found:
    """What came of resolving a template. `rendered` and `hash` are news only if it was `taken_over`."""

    conditions: Sequence[Object]
    taken_over: bool = False
    rendered: Object | None = None
    hash: str = ""


def resolution(instance: Object, definition: Definition | Unresolved, visible: str, cluster_trouble: str) -> Found:
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
    return Found((_resolved(), _synced(definition, cluster_trouble)), True, rendered, visible)


def _unresolved(error: Unresolved) -> Found:
    resolved = condition(RESOLVED, FALSE, error.reason, error.message, "Error")
    return Found((resolved, condition(SYNCED, UNKNOWN, error.reason, "the template is not resolved")))


def _resolved() -> Object:
    return condition(RESOLVED, TRUE, "Resolved", "the template is resolved")


def _synced(definition: Definition, cluster_trouble: str) -> Object:
    if cluster_trouble:
        return condition(SYNCED, FALSE, "ClusterNotReady", cluster_trouble, "Warning")
    if definition.version != definition.newest:
        message = f"version {definition.version} is in use and {definition.newest} is there; name it to change over"
        return condition(SYNCED, FALSE, "NewTemplateVersionAvailable", message, "Info")
    return condition(SYNCED, TRUE, "Synced", "everything is as the template has it")


def standing(instance: Object, status: Object, now: str, generation: int) -> Object:
    """The status with what follows from its other conditions: whether it is scheduled, ready, and its phase."""
    scheduled = _scheduled(instance)
    status = with_conditions(status, (scheduled,), now, generation)
    trouble = _trouble(status)
    if trouble is None:
        message = "its template is resolved and its place is known"
        status = without_conditions(status, RECONCILING, STALLED)
        ready = condition(READY, TRUE, "Resolved", message)
        phase = "Sleeping" if status.get("phase") == "Sleeping" else "Ready"
        status = with_conditions(status, (ready,), now, generation)
        return {**status, "phase": phase, "reason": "Resolved", "message": message}
    stalled = trouble.get("severity") == "Error"
    reason, message = trouble.get("reason") or trouble["type"], trouble.get("message") or ""
    status = without_conditions(status, RECONCILING if stalled else STALLED)
    news = (
        condition(READY, FALSE, reason, message),
        condition(STALLED if stalled else RECONCILING, TRUE, reason, message),
    )
    status = with_conditions(status, news, now, generation)
    return {**status, "phase": "Failed" if stalled else "Pending", "reason": reason, "message": message}


def _scheduled(instance: Object) -> Object:
    if name := dig(instance, "spec.clusterRef.cluster"):
        return condition(SCHEDULED, TRUE, "ClusterChosen", f'it lives in cluster "{name}"')
    if dig(instance, "spec.config.secretName"):
        return condition(SCHEDULED, TRUE, "Imported", "it runs already, and spec.config says how to reach it")
    if dig(instance, "spec.external"):
        return condition(SCHEDULED, TRUE, "External", "somebody else has deployed it")
    return condition(SCHEDULED, FALSE, "NoClusterChosen", "set spec.clusterRef.cluster to a connected cluster", "Info")


def _trouble(status: Object) -> Object | None:
    """The condition that keeps it from being ready: the worst, and among equals the first in the order of things."""
    synced = find_condition(status, SYNCED)
    waits = synced if synced and synced.get("reason") == "ClusterNotReady" else None
    others = [find_condition(status, type) for type in (SCHEDULED, *REPORTED)]
    looked_at = (find_condition(status, RESOLVED), waits, *others)
    bad = [each for each in looked_at if each is not None and each.get("status") == FALSE]
    return next((each for each in bad if each.get("severity") == "Error"), bad[0] if bad else None)
