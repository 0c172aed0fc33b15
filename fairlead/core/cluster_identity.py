"""Who an identity of this server is at a connected cluster. Pure, and the only place that says so.

The gateways and the agent send what `ClusterNames.identity` gives as impersonation headers, the controllers bind roles
to the same names, and direct tokens have the groups that become the same once a kube-apiserver has put the prefix in
front. A name or group that means something to Kubernetes itself never gets to a cluster: rights in a cluster are given
in the cluster, to the names and groups that this server hands out.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from fairlead.core.errors import Forbidden
from fairlead.core.user import ADMIN_GROUPS, AUTHENTICATED, User

DEFAULT_PREFIX = "fairlead:"
ADMINISTRATORS = "service:admins"
"""What administrators of this server are in a cluster, after the prefix."""
RESERVED = "system:"
"""How the names begin that a cluster gives to parts of itself, and its rights with them."""
OWN_GROUPS = "service:"
"""How the groups begin that this server makes itself, for users, teams and administrators."""
IMPERSONATOR = "service.sh/impersonator"
"""The extra key under which a cluster is told who really sends a request, when that user impersonates another."""

_PREFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/#@-]{0,62}(?<=[:/#@-])", re.ASCII)

Extra = tuple[tuple[str, tuple[str, ...]], ...]


def check_prefix(text: str) -> str | None:
    """What is wrong with a prefix, if anything. An empty one is fine."""
    if text.startswith((RESERVED, "service:")):
        return 'must not begin with "system:" or "service:", which mean something already'
    if not text or _PREFIX.fullmatch(text):
        return None
    return "must be 2 to 63 letters, digits and . _ : / # @ -, begin with a letter or digit and end with : / # @ or -"


@dataclass(frozen=True, slots=True)
class ClusterIdentity:
    """Whom a cluster is to take a request from."""

    user: str
    groups: tuple[str, ...]
    uid: str
    extra: Extra = ()


@dataclass(frozen=True, slots=True)
class ClusterNames:
    """What identities are called at clusters: their own names, with a prefix in front."""

    prefix: str

    @property
    def administrators(self) -> str:
        return self.prefix + ADMINISTRATORS

    def identity(self, user: User) -> ClusterIdentity:
        """Raises Forbidden for an identity that no cluster may be given."""
        refuse_reserved(user.name)
        groups = dict.fromkeys((*map(self.name, cluster_groups(user.groups)), AUTHENTICATED))
        return ClusterIdentity(
            self.name(user.name), tuple(groups), user.uid if is_header_value(user.uid) else "", self._extra(user)
        )

    def name(self, name: str) -> str:
        """A user or group as it is called at clusters."""
        return self.prefix + name

    def refuse_untransferable(self, user: User, groups: Iterable[str]) -> None:
        """Raises Forbidden for an impersonated identity that would not reach a cluster as it was asked for.

        `groups` are those that the client named. To leave one out would answer another question than the one asked.
        """
        if user.name.startswith(RESERVED):
            why = "the cluster's own; sign in at the cluster itself to act as one of them"
            raise _not_impersonated(f'User "{user.name}"', f'names that begin with "{RESERVED}" are {why}')
        asked = tuple(groups)
        for group in asked:
            if why := self._why_no_group(group):
                raise _not_impersonated(f'Group "{group}"', why)
        for value in (user.name, user.uid, *asked, *(value for _, values in user.extra for value in values)):
            if value and not is_header_value(value):
                raise _not_impersonated(f"{value!a}", "it must be printable ASCII")

    def _why_no_group(self, group: str) -> str:
        """Why a group cannot be impersonated at clusters; empty if it can."""
        if group in ADMIN_GROUPS or group.startswith(OWN_GROUPS):
            return ""
        if group.startswith(RESERVED):
            return f'groups that begin with "{RESERVED}" are the cluster\'s own; leave it out'
        if not self.prefix:
            why = "without cluster_identity_prefix it would be the cluster's own group of that name"
            return f'{why}; name one that begins with "{OWN_GROUPS}", or set a prefix'
        return ""

    def _extra(self, user: User) -> Extra:
        """Extra values that were asked for, and who really asks: before all others, as a client could send others."""
        if user.impersonator is None:
            return user.extra
        name = user.impersonator.name
        if not is_header_value(name):
            why = "the cluster could not be told of that name"
            raise Forbidden(f"{name!a} cannot impersonate through a gateway: {why}")
        return merge_extra(((IMPERSONATOR, (self.name(name),)), *user.extra))


def _not_impersonated(what: str, why: str) -> Forbidden:
    return Forbidden(f"{what} cannot be impersonated through a gateway: {why}")


def refuse_reserved(name: str) -> None:
    """Raises Forbidden for the name of a user that no cluster may be given."""
    if not is_header_value(name) or name.startswith(RESERVED):
        why = "is no name that connected clusters are given; use an access key of a user or a team"
        raise Forbidden(f"{name!a} {why}")


def cluster_groups(groups: Iterable[str]) -> tuple[str, ...]:
    """The groups that count at clusters, without the prefix.

    Administrators come as the group that clusters are asked to bind when they are connected, and never as Kubernetes'
    own, which no cluster could take back. Other groups of Kubernetes are left out.
    """
    known = (ADMINISTRATORS if group in ADMIN_GROUPS else group for group in groups)
    return tuple(dict.fromkeys(each for each in known if is_header_value(each) and not each.startswith(RESERVED)))


def merge_extra(extra: Iterable[tuple[str, tuple[str, ...]]]) -> Extra:
    """One entry for each key, in lower case. Extra keys travel in names of headers, where upper and lower case are the
    same: two keys that differ in nothing else here would be one at a cluster."""
    found: dict[str, tuple[str, ...]] = {}
    for key, values in extra:
        found[key.lower()] = (*found.get(key.lower(), ()), *values)
    return tuple(found.items())


def is_header_value(text: str) -> bool:
    """Whether a header can have it as its value, and nobody could take it for another."""
    return bool(text) and text.isascii() and text.isprintable() and text == text.strip()
