"""Computes the status of an AppInstance: Ready, its phase, and the history of deployments. Pure.

`Ready` means that the wanted content is deployed: the App is resolved, the target is usable, the release is deployed
and not changed by others. `Reconciling` and `Stalled` follow kstatus, as for other instances.
"""

from collections.abc import Sequence

from fairlead.controllers.apps.release_records import ReleaseRecord
from fairlead.controllers.apps.targets import AppTarget
from fairlead.controllers.instances.remote_errors import ERROR
from fairlead.core.objects import Object, get_path, metadata
from fairlead.domain.app_resolution import ResolvedApp
from fairlead.domain.password_parameters import hidden_values, record_rendered_secrets, redact_instance
from fairlead.kinds.instances.app_instance import MAX_HISTORY, MAX_HISTORY_PARAMETERS
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

APP_RESOLVED, TARGET_READY, DEPLOYED, SYNCED = "AppResolved", "TargetReady", "Deployed", "Synced"
STALLED, FAILED = "Stalled", "Failed"
RELEASE_MISSING, RELEASE_CHANGED = "ReleaseMissing", "ReleaseChanged"
CONDITIONS = (APP_RESOLVED, TARGET_READY, DEPLOYED, SYNCED)
_PROGRESS_MESSAGES = {
    APP_RESOLVED: "its App is being resolved",
    TARGET_READY: "its target is being checked",
    DEPLOYED: "it is being deployed",
    SYNCED: "its release is being checked",
}


def derive_status(instance: Object, status: Object, conditions: Sequence[Object], now: str) -> Object:
    """The status with these conditions, and everything that is derived from them."""
    generation = int(metadata(instance).get("generation", 1))
    status = with_conditions(status, conditions, now, generation)
    ready, progress, phase = _evaluate(status, generation)
    derived = [ready]
    if progress:
        derived.append(condition(progress, TRUE, ready["reason"], ready["message"]))
    status = without_conditions(status, *({RECONCILING, STALLED} - {progress}))
    status = with_conditions(status, derived, now, generation)
    texts = {"phase": phase, "reason": ready["reason"], "message": ready["message"]}
    return {**status, **texts, "observedGeneration": generation}


def _evaluate(status: Object, generation: int) -> tuple[Object, str, str]:
    """The condition Ready, the condition of its progress if any, and the phase."""
    known = [(type, find_condition(status, type)) for type in CONDITIONS]
    failing = [each for _, each in known if each is not None and each.get("status") == FALSE]
    if failing:
        worst = next((each for each in failing if each.get("severity") == ERROR), failing[0])
        severity = worst.get("severity") or ""
        ready = condition(READY, FALSE, worst["reason"], worst["message"], severity)
        return (ready, STALLED, FAILED) if severity == ERROR else (ready, RECONCILING, PENDING)
    for type, found in known:
        is_current = found is not None and found.get("observedGeneration", generation) >= generation
        if found is None or not is_current or found.get("status") != TRUE:
            return condition(READY, UNKNOWN, PROGRESSING, _PROGRESS_MESSAGES[type]), RECONCILING, PENDING
    return condition(READY, TRUE, "Deployed", "the App is deployed"), "", READY


def deployed_fields(
    instance: Object, target: AppTarget, record: ReleaseRecord, resolved: ResolvedApp, now: str
) -> Object:
    """The status fields after a deployment."""
    release = {
        "name": get_path(instance, "spec.releaseName"),
        "cluster": "" if target.field == "virtualClusterInstance" else target.cluster,
        "namespace": target.namespace,
        "revision": record.revision,
        "chart": record.chart,
        "version": record.version,
        "appVersion": record.app_version,
        "deployedAt": now,
        "digest": record.digest,
    }
    status = record_rendered_secrets(instance, {"release": release, "notes": _redact_notes(instance, record.notes)})
    entry = _history_entry(instance, record, resolved, now)
    former = [each for each in get_path(instance, "status.history") or () if each.get("revision") != record.revision]
    return {"renderedSecrets": None, **status, "history": [entry, *former][:MAX_HISTORY]}


def _history_entry(instance: Object, record: ReleaseRecord, resolved: ResolvedApp, now: str) -> Object:
    text = get_path(instance, "spec.parameters") or ""
    fits = len(text) <= MAX_HISTORY_PARAMETERS
    return {
        "revision": record.revision,
        "appVersion": resolved.version,
        "chart": f"{record.chart} {record.version}".strip(),
        "parameters": text if fits else "",
        "hasAllParameters": fits,
        "deployedAt": now,
    }


def _redact_notes(instance: Object, notes: str) -> str:
    """Stored redacted: later the instance may have other passwords, which would not match any more."""
    if not hidden_values(instance):
        return notes
    redacted: Object = {"spec": instance["spec"], "metadata": {}, "status": {"notes": notes}}
    redact_instance(redacted)
    return str(redacted["status"]["notes"])


def find_drift(instance: Object, record: ReleaseRecord | None) -> tuple[str, str] | None:
    """Reason and message of a change of the release that this server did not make."""
    known = get_path(instance, "status.release") or {}
    if not known.get("digest"):
        return None
    if record is None:
        return (
            RELEASE_MISSING,
            f'release "{known.get("name")}" was uninstalled outside of Fairlead; it is deployed again',
        )
    if record.digest == known["digest"]:
        return None
    message = (
        f'release "{known.get("name")}" was changed outside of Fairlead: its revision is {record.revision} '
        f"({record.chart} {record.version}), not {known.get('revision')}; it is deployed again"
    )
    return RELEASE_CHANGED, message
