"""What a workspace uses, as it is reported: rounded, and only if it has changed noticeably. Pure.

Each report is a write to the store of the server, so usage is reported at most once a minute, or together with
something else that has changed.
"""

from fairlead.core.objects import Object, get_path
from fairlead.runner.engines.contract import EngineStatus

MIN_SECONDS = 60.0
MIN_CHANGE, MIN_CHANGE_MEBIBYTES = 0.1, 16
_MEBIBYTE = 1024 * 1024


def describe_usage(observed: EngineStatus) -> Object:
    """`status.usage`, as quantities. None removes a value that is unknown now, as in a merge patch."""
    return {"memory": _format(observed.memory_bytes), "disk": _format(observed.disk_bytes)}


def has_changed_noticeably(workspace: Object, usage: Object) -> bool:
    before = get_path(workspace, "status.usage") or {}
    return any(_is_noticeable(before.get(name), value) for name, value in usage.items())


def _format(size: int | None) -> str | None:
    return None if size is None else f"{-(-size // _MEBIBYTE)}Mi"


def _is_noticeable(before: str | None, after: str | None) -> bool:
    if not before or not after:
        return bool(before) != bool(after)
    was, now = (int(each.removesuffix("Mi")) if each.removesuffix("Mi").isdecimal() else 0 for each in (before, after))
    return abs(now - was) >= max(MIN_CHANGE_MEBIBYTES, MIN_CHANGE * was)
