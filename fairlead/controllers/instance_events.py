"""Events about what becomes of spaces and virtual clusters: one for each change that a person would want to hear of."""

from fairlead.core.objects import Object
from fairlead.kinds.instances import PROGRESSING, READY
from fairlead.kinds.password_parameters import conceal
from fairlead.registry.conditions import find_condition
from fairlead.registry.recording import record
from fairlead.registry.registry import Registry

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
