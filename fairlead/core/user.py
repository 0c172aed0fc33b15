"""The authenticated user of a request, and the names of built-in groups."""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.core.scope import Scope

ADMIN_GROUPS = frozenset({"system:masters", "service:admins"})
"""The built-in groups with all permissions. Only their members can grant them."""

AUTHENTICATED = "system:authenticated"
AUTHENTICATED_GROUPS = (AUTHENTICATED, "service:authenticated")
"""The groups of all authenticated users."""

TEAM_GROUP_PREFIX, USER_GROUP_PREFIX = "service:team:", "service:user:"
"""Prefixes of the groups that represent a team and a single user."""

SERVICE_ACCOUNT_PREFIX = "system:serviceaccount:"
"""Prefix of service account user names, followed by namespace and name."""
SERVICE_ACCOUNTS_GROUP = "system:serviceaccounts"
"""The group of all service accounts. With `:<namespace>` appended, the group of those in that namespace."""

RESERVED_PREFIX = "system:"
"""Prefix of the names that Kubernetes reserves for its own components."""
IMPERSONATOR_EXTRA_KEY = "service.sh/impersonator"
"""The extra key that tells a cluster which user impersonates another through the gateway."""

_ACCOUNT_NAMES = "system:serviceaccount"
"""What the names of service accounts and of their groups begin with."""
HOST_PREFIX = "host:"
"""Precedes these names if a front proxy sends them: its service accounts are not those of this server."""
HOST_ACCOUNT_NAMES = HOST_PREFIX + _ACCOUNT_NAMES
SERVICE_ACCOUNT_PREFIXES = (SERVICE_ACCOUNT_PREFIX, HOST_PREFIX + SERVICE_ACCOUNT_PREFIX)
"""Prefixes of the names of all service accounts: those of this server, and those of front proxies."""


def rename_host_account(name: str) -> str:
    """The name of a user or group of a front proxy here."""
    return HOST_PREFIX + name if name.startswith(_ACCOUNT_NAMES) else name


def restore_host_account(name: str) -> str:
    """The name of a user or group at the front proxy that has sent it."""
    return name.removeprefix(HOST_PREFIX) if name.startswith(HOST_ACCOUNT_NAMES) else name


def is_own_account(name: str) -> bool:
    """Whether a name is that of a service account of this server, or of a group of them."""
    return name.startswith(_ACCOUNT_NAMES)


@dataclass(frozen=True, slots=True)
class User:
    """An authenticated user. `key` is the name of the access key that was used, never its value.

    `scope` is what that key is restricted to; None means no restriction. `impersonator` is the user who sent the
    request, when it impersonates this one.
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
        """Whether the user is in a built-in admin group. The key's scope may still restrict it and is checked
        separately."""
        return not ADMIN_GROUPS.isdisjoint(self.groups)

    @property
    def flow_distinguisher(self) -> str:
        """The name that limits and flow control count this user under: the impersonator's, if there is one.

        All service accounts of a namespace share one name, because a user who can create one can create many.
        """
        name = self.name if self.impersonator is None else self.impersonator.name
        return name.rpartition(":")[0] if name.startswith(SERVICE_ACCOUNT_PREFIXES) else name

    @property
    def is_unscoped_admin(self) -> bool:
        """Whether this is an administrator whose key has no scope, which may do everything."""
        return self.is_admin and self.scope is None


CONTROLLER_USER = User("system:service:controller", ("system:masters",))
"""The identity of the controllers."""
