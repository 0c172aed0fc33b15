"""Who is asking."""

from dataclasses import dataclass

ADMIN_GROUPS = frozenset({"system:masters", "service:admins"})
"""The built-in groups that hold every right; nobody can grant them who is not in them."""


@dataclass(frozen=True, slots=True)
class User:
    """An authenticated identity. `key` names the access key it came with, never its value."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    key: str = ""


CONTROLLER = User("system:service:controller", ("system:masters",))
"""The server itself, when it keeps things true."""
