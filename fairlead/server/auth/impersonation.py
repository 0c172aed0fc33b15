"""Impersonation by Kubernetes' rules, for direct requests and through gateways. `stages.py` calls it.

`Impersonate-User`, `-Group`, `-Uid` and `-Extra-*` each need the verb `impersonate` on what they name. Stricter than
Kubernetes: keys with a scope cannot impersonate, and only members of a built-in admin group can impersonate such a
group or a user who is in one. The name of such a user is enough, whatever groups are requested: access keys are issued
by user name.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from urllib.parse import unquote

from fairlead.authz.authorizer import forbidden_error
from fairlead.core.bounded_cache import BoundedCache
from fairlead.core.call import MANAGEMENT, Authorize, Call, Headers, RequestInfo
from fairlead.core.errors import SCOPE, BadRequest, Forbidden
from fairlead.core.user import ADMIN_GROUPS, AUTHENTICATED, SERVICE_ACCOUNT_PREFIX, USER_GROUP_PREFIX, User
from fairlead.domain.cluster_identity import Extra, merge_extra

HEADER_PREFIX = "impersonate-"
USER_HEADER, GROUP_HEADER, UID_HEADER, EXTRA_HEADER_PREFIX = (
    "impersonate-user",
    "impersonate-group",
    "impersonate-uid",
    "impersonate-extra-",
)
JOINED_GROUP_HEADER = "impersonate-joined-group"
_AUTHENTICATION_GROUP = "authentication.k8s.io"

FindUser = Callable[[str], User | None]
"""Finds a user by name, with all of its groups."""
IsAdmin = Callable[[str], bool]
"""Whether the user of that name is in a built-in admin group, even if the user is disabled."""
ImpersonationHeaders = tuple[tuple[str, tuple[str, ...]], ...]
"""The `Impersonate-*` headers with their values."""
ImpersonationCache = BoundedCache[tuple[int, ImpersonationHeaders], tuple[User, User]]
"""The requester and the impersonated user, by the `id()` of the requester and the headers."""

IMPERSONATION_CACHE_SIZE, MAX_CACHED_HEADERS_LENGTH = 1_024, 2_048
"""Number of cached results, and the maximum length of the headers of a cached one."""


def new_impersonation_cache() -> ImpersonationCache:
    return BoundedCache(IMPERSONATION_CACHE_SIZE)


class Impersonation:
    """Returns the impersonated user, if the requester may impersonate.

    The same impersonation is requested repeatedly. `current_cache` returns the results since users, groups or
    permissions may have changed last; by default nothing is cached.
    """

    def __init__(
        self,
        decide: Authorize,
        find_user: FindUser,
        is_admin: IsAdmin,
        current_cache: Callable[[], ImpersonationCache] = new_impersonation_cache,
    ) -> None:
        self._decide = decide
        self._find_user = find_user
        self._is_admin = is_admin
        self._current_cache = current_cache

    def __call__(self, call: Call, requester: User) -> User:
        if not call.headers.has_prefix(HEADER_PREFIX):
            return requester
        cache = self._current_cache()
        # The entry holds the requester itself, so that its id cannot be reused while it is cached.
        key = id(requester), _impersonation_headers(call.headers)
        cached = cache.get(key)
        if cached is not None:
            return cached[1]
        user = self._authorize_impersonation(call, requester)
        if _headers_length(key[1]) <= MAX_CACHED_HEADERS_LENGTH:
            cache[key] = requester, user
        return user

    def _authorize_impersonation(self, call: Call, requester: User) -> User:
        user = self._parse_user(call.headers)
        if requester.scope is not None:
            raise Forbidden(
                f'access key "{requester.key}" has a scope and cannot impersonate; use a key without a scope',
                refused_by=SCOPE,
            )
        for target in _required_permissions(user, call.headers):
            decision = self._decide(requester, target)
            if not decision.allowed:
                raise forbidden_error(requester, target, decision)
        if not requester.is_admin and (admins := self._admin_identities(user)):
            raise Forbidden(
                f'User "{requester.name}" cannot impersonate members of built-in admin groups: {", ".join(admins)}'
            )
        return replace(user, impersonator=requester)

    def _admin_identities(self, user: User) -> list[str]:
        """The built-in admin groups of this identity, and the administrators whose names it has."""
        user_names = [
            user.name,
            *(each.removeprefix(USER_GROUP_PREFIX) for each in user.groups if each.startswith(USER_GROUP_PREFIX)),
        ]
        names = filter(self._is_admin, dict.fromkeys(user_names))
        return [*sorted(ADMIN_GROUPS.intersection(user.groups)), *(f'user "{name}"' for name in names)]

    def _parse_user(self, headers: Headers) -> User:
        _check_readable(headers)
        name = headers.get(USER_HEADER)
        if not name:
            raise BadRequest("to impersonate groups, a uid or extra values, also send Impersonate-User")
        groups = tuple(requested_groups(headers))
        known = None if groups else self._find_user(name)
        if known is None:
            known = User(name, (*groups, *_implied_groups(name), AUTHENTICATED))
        uid = headers.get(UID_HEADER)
        return replace(known, uid=uid or known.uid, extra=_parse_extra(headers), key="", scope=None)


def _impersonation_headers(headers: Headers) -> ImpersonationHeaders:
    names = [name for name in headers.keys() if name.startswith(HEADER_PREFIX)]  # noqa: SIM118 - not a mapping
    return tuple([(name, tuple(headers.get_all(name))) for name in names])


def _headers_length(headers: ImpersonationHeaders) -> int:
    return sum(len(name) + sum(map(len, values)) for name, values in headers)


def _check_readable(headers: Headers) -> None:
    """The HTTP server drops values that are not ASCII. Ignoring such a header could grant more permissions."""
    for name in headers.keys():  # noqa: SIM118 - not a mapping
        if name.startswith(HEADER_PREFIX) and not headers.get_all(name):
            raise BadRequest(f"the value of the header {name} cannot be read: only ASCII characters are allowed")


def requested_groups(headers: Headers) -> Iterator[str]:
    """The groups in the headers, without duplicates and without AUTHENTICATED, which is added anyway."""
    joined = (name.strip() for text in headers.get_all(JOINED_GROUP_HEADER) for name in text.split(","))
    for group in dict.fromkeys((*headers.get_all(GROUP_HEADER), *joined)):
        if group and group != AUTHENTICATED:
            yield group


def _implied_groups(name: str) -> Iterator[str]:
    """The groups that a service account has because of its name."""
    if name.startswith(SERVICE_ACCOUNT_PREFIX):
        namespace = name.removeprefix(SERVICE_ACCOUNT_PREFIX).partition(":")[0]
        yield "system:serviceaccounts"
        yield f"system:serviceaccounts:{namespace}"


def _parse_extra(headers: Headers) -> Extra:
    sent = (header for header in sorted(set(headers.keys())) if header.startswith(EXTRA_HEADER_PREFIX))
    return merge_extra((unquote(each.removeprefix(EXTRA_HEADER_PREFIX)), tuple(headers.get_all(each))) for each in sent)


def _required_permissions(user: User, headers: Headers) -> Iterator[RequestInfo]:
    """The permissions that the requester needs, in the order in which they are checked."""
    if user.name.startswith(SERVICE_ACCOUNT_PREFIX):
        namespace, _, name = user.name.removeprefix(SERVICE_ACCOUNT_PREFIX).partition(":")
        yield _impersonate_target("serviceaccounts", name, namespace=namespace)
    else:
        yield _impersonate_target("users", user.name)
    for group in requested_groups(headers):
        yield _impersonate_target("groups", group)
    for key, values in user.extra:
        for value in values:
            yield _impersonate_target("userextras", value, _AUTHENTICATION_GROUP, subresource=key)
    if headers.get(UID_HEADER):
        yield _impersonate_target("uids", user.uid, _AUTHENTICATION_GROUP)


def _impersonate_target(
    resource: str, name: str, group: str = "", *, namespace: str = "", subresource: str = ""
) -> RequestInfo:
    return RequestInfo(
        verb="impersonate",
        root=MANAGEMENT,
        group=group,
        version="v1",
        resource=resource,
        subresource=subresource,
        namespace=namespace,
        name=name,
    )
