"""Impersonation by Kubernetes' rules, for direct requests and through gateways. `stages.py` calls it.

`Impersonate-User`, `-Group`, `-Uid` and `-Extra-*` each need the verb `impersonate` on what they name. Stricter than
Kubernetes: keys with a scope cannot impersonate, and only members of a built-in admin group can impersonate such a
group or a user who is in one. The name of such a user is enough, whatever groups are requested: access keys are issued
by user name.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from urllib.parse import unquote

from fairlead.authz import Decide
from fairlead.authz.authorizer import forbidden
from fairlead.core.call import MANAGEMENT, Call, Headers, Target
from fairlead.core.cluster_identity import Extra, merge_extra
from fairlead.core.errors import BadRequest, Forbidden
from fairlead.core.user import ADMIN_GROUPS, AUTHENTICATED, SERVICE_ACCOUNT, USER_GROUP, User

PREFIX = "impersonate-"
USER, GROUP, UID, EXTRA = "impersonate-user", "impersonate-group", "impersonate-uid", "impersonate-extra-"
JOINED_GROUP = "impersonate-joined-group"
_AUTHENTICATION = "authentication.k8s.io"

UserNamed = Callable[[str], User | None]
"""Finds a user by name, with all of its groups."""
IsAdministrator = Callable[[str], bool]
"""Whether the user of that name is in a built-in admin group, even if the user is disabled."""
Generation = Callable[[], object]
"""Returns a new value whenever users, groups or permissions may have changed."""
Asked = tuple[tuple[str, tuple[str, ...]], ...]
"""The `Impersonate-*` headers with their values."""

KEPT, LONGEST_KEPT = 1_024, 2_048
"""Number of cached results, and the maximum length of the headers of a cached one."""


def nothing_lasts() -> object:
    """A generation that always differs, so that nothing is cached."""
    return object()


def asks_to_impersonate(headers: Headers) -> bool:
    return headers.any_begins(PREFIX)


class Impersonation:
    """Returns the impersonated user, if the requester may impersonate."""

    def __init__(
        self,
        decide: Decide,
        user_named: UserNamed,
        is_administrator: IsAdministrator,
        generation: Generation = nothing_lasts,
    ) -> None:
        self._decide = decide
        self._user_named = user_named
        self._is_administrator = is_administrator
        self._generation = generation
        self._kept_in: object = None
        self._kept: dict[tuple[int, Asked], tuple[User, User]] = {}

    def __call__(self, call: Call, asker: User) -> User:
        """The same impersonation is requested repeatedly, so results are cached until the generation changes."""
        if not asks_to_impersonate(call.headers):
            return asker
        generation = self._generation()
        if generation != self._kept_in:
            self._kept.clear()
            self._kept_in = generation
        # By `id()`. The entry holds the requester itself, so that its id cannot be reused while it is cached.
        key = id(asker), _asked(call.headers)
        cached = self._kept.get(key)
        if cached is not None:
            return cached[1]
        user = self._allowed(call, asker)
        if _length(key[1]) <= LONGEST_KEPT:
            if len(self._kept) >= KEPT:
                self._kept.clear()
            self._kept[key] = asker, user
        return user

    def _allowed(self, call: Call, asker: User) -> User:
        user = self._wanted(call.headers)
        if asker.scope is not None:
            raise Forbidden(f'access key "{asker.key}" has a scope and cannot impersonate; use a key without a scope')
        for target in _rights(user, call.headers):
            decision = self._decide(asker, target)
            if not decision.allowed:
                raise forbidden(asker, target, decision)
        if not asker.is_admin and (admins := self._above(user)):
            raise Forbidden(
                f'User "{asker.name}" cannot impersonate members of built-in admin groups: {", ".join(admins)}'
            )
        return replace(user, impersonator=asker)

    def _above(self, wanted: User) -> list[str]:
        """The built-in admin groups of this identity, and the administrators whose names it has."""
        user_names = [
            wanted.name,
            *(each.removeprefix(USER_GROUP) for each in wanted.groups if each.startswith(USER_GROUP)),
        ]
        names = filter(self._is_administrator, dict.fromkeys(user_names))
        return [*sorted(ADMIN_GROUPS.intersection(wanted.groups)), *(f'user "{name}"' for name in names)]

    def _wanted(self, headers: Headers) -> User:
        _refuse_unreadable(headers)
        name = headers.get(USER)
        if not name:
            raise BadRequest("to impersonate groups, a uid or extra values, also send Impersonate-User")
        groups = tuple(requested_groups(headers))
        known = None if groups else self._user_named(name)
        if known is None:
            known = User(name, (*groups, *_implied(name), AUTHENTICATED))
        uid = headers.get(UID)
        return replace(known, uid=uid or known.uid, extra=_extra(headers), key="", scope=None)


def _asked(headers: Headers) -> Asked:
    names = [name for name in headers.keys() if name.startswith(PREFIX)]  # noqa: SIM118 - not a mapping
    return tuple([(name, tuple(headers.get_all(name))) for name in names])


def _length(asked: Asked) -> int:
    return sum(len(name) + sum(map(len, values)) for name, values in asked)


def _refuse_unreadable(headers: Headers) -> None:
    """The HTTP server drops values that are not ASCII. Ignoring such a header could grant more permissions."""
    for name in headers.keys():  # noqa: SIM118 - not a mapping
        if name.startswith(PREFIX) and not headers.get_all(name):
            raise BadRequest(f"the value of the header {name} cannot be read: only ASCII characters are allowed")


def requested_groups(headers: Headers) -> Iterator[str]:
    """The groups in the headers, without duplicates and without AUTHENTICATED, which is added anyway."""
    joined = (name.strip() for text in headers.get_all(JOINED_GROUP) for name in text.split(","))
    for group in dict.fromkeys((*headers.get_all(GROUP), *joined)):
        if group and group != AUTHENTICATED:
            yield group


def _implied(name: str) -> Iterator[str]:
    """The groups that a service account has because of its name."""
    if name.startswith(SERVICE_ACCOUNT):
        namespace = name.removeprefix(SERVICE_ACCOUNT).partition(":")[0]
        yield "system:serviceaccounts"
        yield f"system:serviceaccounts:{namespace}"


def _extra(headers: Headers) -> Extra:
    sent = (header for header in sorted(set(headers.keys())) if header.startswith(EXTRA))
    return merge_extra((unquote(each.removeprefix(EXTRA)), tuple(headers.get_all(each))) for each in sent)


def _rights(wanted: User, headers: Headers) -> Iterator[Target]:
    """The permissions that the requester needs, in the order in which they are checked."""
    if wanted.name.startswith(SERVICE_ACCOUNT):
        namespace, _, name = wanted.name.removeprefix(SERVICE_ACCOUNT).partition(":")
        yield _target("serviceaccounts", name, namespace=namespace)
    else:
        yield _target("users", wanted.name)
    for group in requested_groups(headers):
        yield _target("groups", group)
    for key, values in wanted.extra:
        for value in values:
            yield _target("userextras", value, _AUTHENTICATION, subresource=key)
    if headers.get(UID):
        yield _target("uids", wanted.uid, _AUTHENTICATION)


def _target(resource: str, name: str, group: str = "", *, namespace: str = "", subresource: str = "") -> Target:
    return Target("impersonate", "", MANAGEMENT, group, "v1", resource, subresource, namespace, name)
