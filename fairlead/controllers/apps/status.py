"""Computes the status of an AppInstance: Ready, its phase, and the history of deployments. Pure.

`Ready` means that the wanted content is deployed: the App is resolved, the target is usable, the release is deployed
and not changed by others. `Reconciling` and `Stalled` follow kstatus, as for other instances.
"""

from fairlead.controllers.apps.targets import AppTarget
from fairlead.controllers.helm.release_records import ReleaseRecord
from fairlead.controllers.instances.status import Readiness, find_missing, find_obstacle, with_readiness
from fairlead.core.objects import Object
from fairlead.domain.app_resolution import ResolvedApp
from fairlead.domain.password_parameters import hidden_values, record_rendered_secrets, redact_instance
from fairlead.domain.typed_objects import AppInstance
from fairlead.kinds.instances.app_instance import MAX_HISTORY, MAX_HISTORY_PARAMETERS
from fairlead.kinds.instances.fields import PENDING, READY, RECONCILING
from fairlead.registry.conditions import TRUE, UNKNOWN, find_condition

APP_RESOLVED, TARGET_READY, DEPLOYED, SYNCED = "AppResolved", "TargetReady", "Deployed", "Synced"
NOT_COMPARED = "NotCompared"
_PROGRESS_MESSAGES = {
    APP_RESOLVED: "its App is being resolved",
    TARGET_READY: "its target is being checked",
    DEPLOYED: "it is being deployed",
    SYNCED: "its release is being checked",
}
"""The conditions that Ready requires, in order, with the message while one is missing."""


def derive_status(instance: AppInstance, status: Object, now: str) -> Object:
    """The status with everything that is derived from its conditions."""
    readiness = (
        find_obstacle((find_condition(status, type) for type in _PROGRESS_MESSAGES), instance.generation)
        or _find_doubt(status, instance.generation)
        or find_missing(status, _PROGRESS_MESSAGES, instance.generation)
        or Readiness(TRUE, READY, "Deployed", "the App is deployed")
    )
    return with_readiness(status, readiness, instance.generation, now)


def _find_doubt(status: Object, generation: int) -> Readiness | None:
    """Why it is not known whether the cluster has what helm has deployed."""
    synced = find_condition(status, SYNCED) or {}
    if synced.get("reason") != NOT_COMPARED or synced.get("observedGeneration", generation) < generation:
        return None
    return Readiness(UNKNOWN, PENDING, NOT_COMPARED, synced["message"], RECONCILING)


def deployed_fields(
    instance: AppInstance, target: AppTarget, record: ReleaseRecord, resolved: ResolvedApp, now: str
) -> Object:
    """The status fields after a deployment."""
    release = {
        "name": instance.release_name,
        "cluster": "" if target.field == "virtualClusterInstance" else target.cluster,
        "namespace": target.namespace,
        "revision": record.revision,
        "chart": record.chart,
        "version": record.version,
        "appVersion": record.app_version,
        "deployedAt": now,
        "digest": record.digest,
    }
    status = record_rendered_secrets(instance.raw, {"release": release, "notes": _redact_notes(instance, record.notes)})
    entry = _history_entry(instance, record, resolved, now)
    return {"renderedSecrets": None, **status, "history": [entry, *instance.history][:MAX_HISTORY]}


def _history_entry(instance: AppInstance, record: ReleaseRecord, resolved: ResolvedApp, now: str) -> Object:
    """Helm counts from 1 again after the release was uninstalled outside of this server. So the number of an entry is
    that of Helm only if it is larger than all that the history has."""
    text = instance.parameters
    fits = len(text) <= MAX_HISTORY_PARAMETERS
    newest = max((int(each.get("revision") or 0) for each in instance.history), default=0)
    return {
        "revision": max(record.revision, newest + 1),
        "helmRevision": record.revision,
        "appVersion": resolved.version,
        "chart": f"{record.chart} {record.version}".strip(),
        "parameters": text if fits else "",
        "hasAllParameters": fits,
        "deployedAt": now,
    }


def _redact_notes(instance: AppInstance, notes: str) -> str:
    """Stored redacted: later the instance may have other passwords, which would not match any more."""
    if not hidden_values(instance.raw):
        return notes
    redacted: Object = {"spec": instance.spec, "metadata": {}, "status": {"notes": notes}}
    redact_instance(redacted)
    return str(redacted["status"]["notes"])
