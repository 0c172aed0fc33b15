"""The status of an object for generic tools: `kstatus`, which Flux uses, and `kubectl wait`."""

from fairlead.core.objects import Object, get_path, metadata
from fairlead.registry.conditions import TRUE, conditions_of, find_condition

TERMINATING, IN_PROGRESS, FAILED, CURRENT = "Terminating", "InProgress", "Failed", "Current"
_BY_CONDITION = {"Reconciling": IN_PROGRESS, "Stalled": FAILED}
_BY_READY = {"True": CURRENT, "False": IN_PROGRESS, "Unknown": IN_PROGRESS}


def kstatus(obj: Object) -> str:
    """The rules for kinds that kstatus does not know: the deletion, the generation of the whole status, the first
    condition Reconciling or Stalled that is True, and Ready. An object without any of them is Current."""
    meta, status = metadata(obj), obj.get("status")
    if meta.get("deletionTimestamp"):
        return TERMINATING
    generation, observed = meta.get("generation"), get_path(obj, "status.observedGeneration")
    if generation is not None and observed is not None and observed != generation:
        return IN_PROGRESS
    for each in conditions_of(status):
        if each.get("status") == TRUE and each.get("type") in _BY_CONDITION:
            return _BY_CONDITION[str(each["type"])]
    ready = find_condition(status, "Ready") or {}
    return _BY_READY.get(str(ready.get("status")), CURRENT)


def is_wait_over(obj: Object, type: str = "Ready") -> bool:
    """Whether `kubectl wait --for=condition=...` ends here."""
    found = find_condition(obj.get("status"), type)
    if found is None:
        return False
    observed = found.get("observedGeneration", get_path(obj, "status.observedGeneration"))
    is_current = observed is None or observed >= metadata(obj).get("generation", 0)
    return is_current and found.get("status") == TRUE
