"""Who an identity of this server is at a connected cluster. Pure, and the only place that says so.

The gateways and the agent send what `cluster_identity` gives as impersonation headers. A name or group that means
something to Kubernetes itself never gets there: rights in a cluster are given in the cluster, to the names and groups
that this server hands out.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from fairlead.core.errors import Forbidden
from fairlead.core.user import ADMIN_GROUPS, AUTHENTICATED, User

ADMINISTRATORS = "service:admins"
"""What administrators of this server are in a cluster, where `controllers/cluster_admins.py` binds it to a role."""
RESERVED = "system:"
"""How the names begin that a cluster gives to parts of itself, and its rights with them."""
IMPERSONATOR = "service.sh/impersonator"
"""The extra key under which a cluster is told who really sends a request, when that user impersonates another."""

Extra = tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class ClusterIdentity:
    """Whom a cluster is to take a request from."""

    user: str
    groups: tuple[str, ...]
    uid: str
    extra: Extra = ()


def cluster_identity(user: User) -> ClusterIdentity:
    """Raises Forbidden for an identity that no cluster may be given."""
    return ClusterIdentity(
        cluster_user(user.name),
        cluster_groups(user.groups),
        user.uid if is_header_value(user.uid) else "",
        _extra(user),
    )


def cluster_user(name: str) -> str:
    if not is_header_value(name) or name.startswith(RESERVED):
        why = "is no name that connected clusters are given; use an access key of a user or a team"
        raise Forbidden(f"{name!a} {why}")
    return name


def cluster_groups(groups: Iterable[str]) -> tuple[str, ...]:
    """Administrators come as the group that clusters are asked to bind when they are connected, and never as
    Kubernetes' own, which no cluster could take back. Other groups of Kubernetes are left out."""
    known = (ADMINISTRATORS if group in ADMIN_GROUPS else group for group in groups)
    kept = [group for group in known if is_header_value(group) and not group.startswith(RESERVED)]
    return tuple(dict.fromkeys((*kept, AUTHENTICATED)))


def _extra(user: User) -> Extra:
    """Extra values that were asked for, and who really asks. That name comes first: others were sent by a client."""
    if user.impersonator is None:
        return user.extra
    name = user.impersonator.name
    if not is_header_value(name):
        raise Forbidden(f"{name!a} cannot impersonate through a gateway: the cluster could not be told of that name")
    asked = dict(user.extra)
    return tuple({**asked, IMPERSONATOR: (name, *asked.get(IMPERSONATOR, ()))}.items())


def refuse_untransferable(user: User, groups: Iterable[str]) -> None:
    """Raises Forbidden for an impersonated identity that would not reach a cluster as it was asked for.

    `groups` are those that the client named. To leave one out would answer another question than the one asked.
    """
    if user.name.startswith(RESERVED):
        raise Forbidden(
            f'User "{user.name}" cannot be impersonated through a gateway: names that begin with "{RESERVED}" are the '
            "cluster's own; sign in at the cluster itself to act as one of them"
        )
    for group in groups:
        if group.startswith(RESERVED) and group not in ADMIN_GROUPS:
            raise Forbidden(
                f'Group "{group}" cannot be impersonated through a gateway: groups that begin with "{RESERVED}" are '
                "the cluster's own; leave it out"
            )
    values = (user.name, user.uid, *groups, *(value for _, values in user.extra for value in values))
    for value in values:
        if value and not is_header_value(value):
            raise Forbidden(f"{value!a} cannot be impersonated through a gateway: it must be printable ASCII")


def is_header_value(text: str) -> bool:
    """Whether a header can have it as its value, and nobody could take it for another."""
    return bool(text) and text.isascii() and text.isprintable() and text == text.strip()
