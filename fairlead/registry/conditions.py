"""Status conditions, as `kubectl wait --for=condition=...` reads them.

Pure functions of the value of `status`. Controllers call them inside the edit function of a write. Arguments are not
changed; the result equals the old status if nothing is new.

Records core Events about the server's own objects, which `kubectl describe` and `kubectl get events` show.
"""

import secrets
from collections.abc import Iterable
from typing import Final

from fairlead.core.clock import timestamp
from fairlead.core.objects import Object, metadata
from fairlead.core.user import CONTROLLER_USER
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import WriteOptions

TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"


def condition(type: str, status: str, reason: str, message: str = "", severity: str = "") -> Object:
    """A condition, before it is added to a status. `severity` is only meaningful with status False."""
    value = {"type": type, "status": status, "reason": reason, "message": message}
    return {**value, "severity": severity} if severity else value


def find_condition(status: Object | None, type: str) -> Object | None:
    """The condition of that type, or None if there is none yet."""
    return next((each for each in conditions_of(status) if each.get("type") == type), None)


def is_true(status: Object | None, type: str) -> bool:
    return (find_condition(status, type) or {}).get("status") == TRUE


def with_condition(status: Object | None, condition: Object, now: str, generation: int | None = None) -> Object:
    """The status with this condition, in place of the one of its type or at the end.

    `lastTransitionTime` becomes `now` only if the condition's status changes. Reason, message and severity are always
    replaced. `generation` becomes the observedGeneration.
    """
    before = find_condition(status, condition["type"])
    entry = dict(condition)
    if before is not None and before.get("status") == entry["status"] and before.get("lastTransitionTime"):
        entry["lastTransitionTime"] = before["lastTransitionTime"]
    else:
        entry["lastTransitionTime"] = now
    if generation is not None:
        entry["observedGeneration"] = generation
    entries = conditions_of(status)
    if before is None:
        return {**(status or {}), "conditions": [*entries, entry]}
    return {**(status or {}), "conditions": [entry if each is before else each for each in entries]}


def with_conditions(
    status: Object | None, conditions: Iterable[Object], now: str, generation: int | None = None
) -> Object:
    """The same for several conditions, in their order."""
    after = status or {}
    for each in conditions:
        after = with_condition(after, each, now, generation)
    return after


def without_conditions(status: Object | None, *types: str) -> Object:
    """The status without conditions of these types."""
    entries = conditions_of(status)
    remaining = [each for each in entries if each.get("type") not in types]
    return {**(status or {}), "conditions": remaining} if len(remaining) != len(entries) else dict(status or {})


def conditions_of(status: Object | None) -> list[Object]:
    """All conditions, in order. Anything but a list of objects counts as none; the schema rejects it elsewhere."""
    found = (status or {}).get("conditions")
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


EVENT_SOURCE: Final = "fairlead"
CLUSTER_EVENT_NAMESPACE = "default"
"""The namespace of events about cluster-scoped objects."""


async def record_event(registry: Registry, obj: Object, reason: str, message: str, *, type: str = "Normal") -> None:
    """Creates an Event about an object."""
    meta = metadata(obj)
    namespace = meta.get("namespace") or CLUSTER_EVENT_NAMESPACE
    now = timestamp(registry.clock.now())
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{meta['name'][:236].rstrip('-.')}.{secrets.token_hex(8)}", "namespace": namespace},
        "involvedObject": {
            "apiVersion": obj["apiVersion"],
            "kind": obj["kind"],
            "name": meta["name"],
            "namespace": meta.get("namespace", ""),
            "uid": meta["uid"],
            "resourceVersion": meta.get("resourceVersion", ""),
        },
        "type": type,
        "reason": reason,
        "message": message,
        "source": {"component": EVENT_SOURCE},
        "reportingComponent": EVENT_SOURCE,
        "reportingInstance": "",
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    await registry.resource("", "events").create(event, namespace, WriteOptions(CONTROLLER_USER, EVENT_SOURCE))
