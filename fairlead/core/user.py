"""Who is asking."""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.core.scope import Scope

ADMIN_GROUPS = frozenset({"system:masters", "service:admins"})
"""The built-in groups that hold every right; nobody can grant them who is not in them."""

AUTHENTICATED = "system:authenticated"
EVERYBODY = (AUTHENTICATED, "service:authenticated")
"""The groups of everybody who has signed in."""

TEAM_GROUP, USER_GROUP = "service:team:", "service:user:"
"""How the groups begin that a team is to its members, and a user to itself."""

SERVICE_ACCOUNT = "system:serviceaccount:"
"""How the user names of service accounts begin; the namespace and the account's name follow."""
SERVICE_ACCOUNTS = "system:serviceaccounts"
"""The group of all service accounts. With a colon and a namespace behind it, the group of those in that namespace."""


@dataclass(frozen=True, slots=True)
class User:
    """An authenticated identity. `key` names the access key it came with, never its value.

    `scope` is what that key is cut down to; None leaves the identity all of its rights. `impersonator` is who really
    asks, when somebody acts as this user.
    """

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    key: str = ""
    scope: Scope | None = None
    impersonator: User | None = None
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def is_admin(self) -> bool:
        """In a built-in admin group. A scope may still cut this down: it is asked first, and apart."""
        return not ADMIN_GROUPS.isdisjoint(self.groups)

    @property
    def payer(self) -> str:
        """Under which name what this identity asks for is counted: that of whoever really asks. The service accounts of
        a namespace count together, because whoever may make one there may make a hundred."""
        name = self.name if self.impersonator is None else self.impersonator.name
        return name.rpartition(":")[0] if name.startswith(SERVICE_ACCOUNT) else name

    @property
    def holds_everything(self) -> bool:
        """An administrator whose key has no scope: there is nothing that it could not do anyway."""
        return self.is_admin and self.scope is None


CONTROLLER = User("system:service:controller", ("system:masters",))
"""The server itself, when it keeps things true."""
