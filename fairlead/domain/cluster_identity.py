"""Maps users of this server to the identities that remote clusters see. Pure functions and values.

The gateways and the agent send the result of `ClusterIdentityMapper.map_user` as impersonation headers, the
controllers bind roles to the same names, and direct tokens carry groups that become the same names once the
kube-apiserver adds its prefix. Names and groups with a meaning in Kubernetes itself (`system:`) are never sent.
Permissions in a cluster are granted in that cluster, to the names and groups that this server sends.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from fairlead.core.errors import Forbidden
from fairlead.core.objects import Object, annotations_of, get_path
from fairlead.core.user import (
    ADMIN_GROUPS,
    AUTHENTICATED,
    HOST_ACCOUNT_NAMES,
    IMPERSONATOR_EXTRA_KEY,
    RESERVED_PREFIX,
    User,
)

ADMIN_GROUP = "service:admins"
"""The group of this server's administrators in a cluster, without the prefix."""
_NEVER_SENT = (RESERVED_PREFIX, HOST_ACCOUNT_NAMES)
PLATFORM_GROUP_PREFIX = "service:"
"""Prefix of the groups that this server defines for users, teams and administrators."""

IDENTITY_PREFIX_TAKEN = "IdentityPrefixTaken"
"""The reason of a Cluster in which another installation of Fairlead uses the same prefix."""
SHARED_IDENTITY_ANNOTATION = "service.sh/shared-identity"
"""Annotation of a Cluster with the id of another installation whose users are meant to be the same."""

Extra = tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class ImpersonationConfig:
    """The identity to impersonate at a cluster, like client-go's ImpersonationConfig."""

    user: str
    groups: tuple[str, ...]
    uid: str
    extra: Extra = ()


@dataclass(frozen=True, slots=True)
class ClusterIdentityMapper:
    """Maps users and groups to their names at remote clusters, by adding a prefix."""

    prefix: str

    @property
    def admin_group(self) -> str:
        return self.prefix + ADMIN_GROUP

    def map_user(self, user: User) -> ImpersonationConfig:
        """The identity of a user at clusters. Raises Forbidden for a reserved name."""
        check_not_reserved(user.name)
        groups = dict.fromkeys((*map(self.map_name, cluster_groups(user.groups)), AUTHENTICATED))
        return ImpersonationConfig(
            self.map_name(user.name), tuple(groups), user.uid if is_header_value(user.uid) else "", self._extra(user)
        )

    def map_name(self, name: str) -> str:
        """The name of a user or group at clusters."""
        return self.prefix + name

    def check_impersonation(self, user: User, groups: Iterable[str]) -> None:
        """Raise Forbidden if an impersonated user cannot be passed to a cluster unchanged.

        `groups` are those that the client requested. Dropping one silently would run the request as a different
        identity.
        """
        if user.name.startswith(RESERVED_PREFIX):
            why = "reserved by the cluster; authenticate at the cluster itself to use one of them"
            raise _impersonation_error(f'User "{user.name}"', f'names that begin with "{RESERVED_PREFIX}" are {why}')
        requested = tuple(groups)
        for group in requested:
            if why := self._group_denial(group):
                raise _impersonation_error(f'Group "{group}"', why)
        for value in (user.name, user.uid, *requested, *(value for _, values in user.extra for value in values)):
            if value and not is_header_value(value):
                raise _impersonation_error(f"{value!a}", "it must be printable ASCII")

    def _group_denial(self, group: str) -> str:
        """Why a group cannot be impersonated at clusters; empty if it can."""
        if group in ADMIN_GROUPS or group.startswith(PLATFORM_GROUP_PREFIX):
            return ""
        if group.startswith(RESERVED_PREFIX):
            return f'groups that begin with "{RESERVED_PREFIX}" are reserved by the cluster; leave it out'
        if group.startswith(HOST_ACCOUNT_NAMES):
            return "groups of a front proxy's service accounts are not sent to clusters; leave it out"
        if not self.prefix:
            why = "without cluster_identity_prefix it would be the cluster's group of the same name"
            return f'{why}; name one that begins with "{PLATFORM_GROUP_PREFIX}", or set a prefix'
        return ""

    def _extra(self, user: User) -> Extra:
        """The requested extra values, after the impersonator's name, so that a client cannot forge the first value."""
        if user.impersonator is None:
            return user.extra
        name = user.impersonator.name
        if not is_header_value(name):
            why = "the name must be printable ASCII to be sent to the cluster"
            raise Forbidden(f"{name!a} cannot impersonate through a gateway: {why}")
        return merge_extra(((IMPERSONATOR_EXTRA_KEY, (self.map_name(name),)), *user.extra))


def _impersonation_error(title: str, reason: str) -> Forbidden:
    return Forbidden(f"{title} cannot be impersonated through a gateway: {reason}")


def check_not_reserved(name: str) -> None:
    """Raise Forbidden for a user name that must not be sent to clusters."""
    if not is_header_value(name) or name.startswith(_NEVER_SENT):
        why = "is not sent to connected clusters; use an access key of a user or a team"
        raise Forbidden(f"{name!a} {why}")


def cluster_groups(groups: Iterable[str]) -> tuple[str, ...]:
    """The groups to send to clusters, without the prefix.

    The admin groups become the group that is bound when a cluster is connected, never `system:masters`, which a
    cluster cannot revoke. Other `system:` groups, and those of a front proxy's service accounts, are dropped.
    """
    known = (ADMIN_GROUP if group in ADMIN_GROUPS else group for group in groups)
    return tuple(dict.fromkeys(each for each in known if is_header_value(each) and not each.startswith(_NEVER_SENT)))


def merge_extra(extra: Iterable[tuple[str, tuple[str, ...]]]) -> Extra:
    """One entry per key, in lower case. Extra keys are sent in header names, which are case-insensitive, so keys that
    differ only in case would be merged at the cluster."""
    found: dict[str, tuple[str, ...]] = {}
    for key, values in extra:
        found[key.lower()] = (*found.get(key.lower(), ()), *values)
    return tuple(found.items())


def is_header_value(text: str) -> bool:
    """Whether a text can be sent unambiguously as a header value."""
    return bool(text) and text.isascii() and text.isprintable() and text == text.strip()


def find_identity_conflict(cluster: Object) -> str:
    """Why no user of this server may act in a cluster: another installation uses the same names for its own. Empty if
    there is none, or an administrator has declared that they are the same users."""
    other = get_path(cluster, "status.identity.otherInstallation") or ""
    declared = annotations_of(cluster).get(SHARED_IDENTITY_ANNOTATION)
    if not other or declared == other:
        return ""
    url = get_path(cluster, "status.identity.otherURL") or "of an unknown URL"
    prefix = get_path(cluster, "status.identity.prefix") or ""
    return (
        f'another Fairlead ({url}, id {other}) uses the prefix "{prefix}" in this cluster, so users of the same name '
        "would share their rights; set cluster_identity_prefix to another one, or, if they are meant to be the same "
        f"users, annotate this Cluster with {SHARED_IDENTITY_ANNOTATION}={other}; if the other one is gone, delete its "
        'entry in the ConfigMap "fairlead-identities" of the namespace kube-system there'
    )
