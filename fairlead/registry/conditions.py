"""Conditions: what is known about an object, one entry for each aspect, as `kubectl wait --for=condition=...` reads it.

Pure functions over the value of `status`; controllers use them inside the function of the old object that they write
with. Nothing handed in is changed: what comes back is a new value, equal to the old one if there was no news.
"""

from collections.abc import Iterable

from fairlead.core.objects import Object

TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"


def condition(type: str, status: str, reason: str, message: str = "", severity: str = "") -> Object:
    """One condition before it is put into a status. A severity makes sense with the status False only."""
    made = {"type": type, "status": status, "reason": reason, "message": message}
    return {**made, "severity": severity} if severity else made


def find_condition(status: Object | None, type: str) -> Object | None:
    """The condition of that type, or None while nobody has written it."""
    return next((each for each in conditions_of(status) if each.get("type") == type), None)


def is_true(status: Object | None, type: str) -> bool:
    return (find_condition(status, type) or {}).get("status") == TRUE


def with_condition(status: Object | None, condition: Object, now: str, generation: int | None = None) -> Object:
    """The status with this condition in place of the one of its type, or at the end if it is the first of its type.

    `lastTransitionTime` moves to `now` only when the condition's status is another one than before. A reason, message
    or severity that is not given is not kept from before. `generation` is what the condition was found out for.
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
    """The same for several at once, in their order."""
    after = status or {}
    for each in conditions:
        after = with_condition(after, each, now, generation)
    return after


def without_conditions(status: Object | None, *types: str) -> Object:
    """The status without conditions of these types; those that nobody wrote are not missed."""
    entries = conditions_of(status)
    kept = [each for each in entries if each.get("type") not in types]
    return {**(status or {}), "conditions": kept} if len(kept) != len(entries) else dict(status or {})


def conditions_of(status: Object | None) -> list[Object]:
    """All of them, in order. What is no list of objects counts as none: the schema has refused it elsewhere."""
    found = (status or {}).get("conditions")
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
