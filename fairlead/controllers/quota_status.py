"""What is used of a project's quotas, as its status shows it. Pure; `projects.py` writes it down."""

from collections import Counter
from collections.abc import Iterable, Mapping

from fairlead.core.objects import Object
from fairlead.kinds.quotas import TEAM, USER, limits, usage


def quota_status(project: Object, objects: Iterable[tuple[str, Object]], plurals: Iterable[str]) -> Object | None:
    """Limits and what is used of them, for the whole project and for each owner; None where nothing is limited.

    Only what the server counts itself is shown: for other keys nothing could be said about their use.
    """
    counted = tuple(plurals)
    whole, each = limits(project, "project", counted), limits(project, "user", counted)
    if not whole and not each:
        return None
    used = usage(objects)
    status: Object = {}
    if whole:
        status["project"] = {"limit": whole, "used": _texts(used.project, whole)}
    if each:
        by_sort: dict[str, Object] = {USER: {}, TEAM: {}}
        for (sort, name), amounts in sorted(used.holders.items()):
            by_sort[sort][name] = _texts(amounts, each)
        status["user"] = {"limit": each, "used": {"users": by_sort[USER], "teams": by_sort[TEAM]}}
    return status


def _texts(amounts: Counter[str], keys: Mapping[str, str]) -> Object:
    return {key: str(amounts[key]) for key in keys}
