"""The status of an object for generic tools: `kstatus`, which Flux uses, and `kubectl wait`."""

from fairlead.core.objects import Object, get_path, metadata
from fairlead.registry.conditions import TRUE, find_condition, is_true


def kstatus(obj: Object) -> str:
    """Returns Terminating, InProgress, Failed or Current. An object without conditions is Current."""
    if "deletionTimestamp" in metadata(obj):
        return "Terminating"
    status, observed = obj.get("status"), get_path(obj, "status.observedGeneration")
    if observed is not None and observed != metadata(obj).get("generation"):
        return "InProgress"
    if is_true(status, "Reconciling"):
        return "InProgress"
    if is_true(status, "Stalled"):
        return "Failed"
    ready = find_condition(status, "Ready")
    return "Current" if ready is None or ready.get("status") == TRUE else "InProgress"


def is_wait_over(obj: Object, type: str = "Ready") -> bool:
    """Whether `kubectl wait --for=condition=...` ends here."""
    found = find_condition(obj.get("status"), type)
    if found is None:
        return False
    observed = found.get("observedGeneration", get_path(obj, "status.observedGeneration"))
    is_current = observed is None or observed >= metadata(obj).get("generation", 0)
    return is_current and found.get("status") == TRUE
