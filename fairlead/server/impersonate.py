"""Acting as somebody else, by Kubernetes' rules.

`Impersonate-User`, `-Group`, `-Uid` and `-Extra-*` each need the verb `impersonate` on what they name. Beyond those
rules: keys with a scope never impersonate, and nobody gets into a built-in admin group, or becomes a user who is in
one, without being in one. `identify.py` asks here after it has found out who really asks.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from urllib.parse import unquote

from fairlead.authz.chain import Decision
from fairlead.core.call import Call, Headers, Target
from fairlead.core.errors import BadRequest, Forbidden
from fairlead.core.user import ADMIN_GROUPS, AUTHENTICATED, User
from fairlead.server.refusal import forbidden
from fairlead.server.route import MANAGEMENT

PREFIX = "impersonate-"
USER, GROUP, UID, EXTRA = "impersonate-user", "impersonate-group", "impersonate-uid", "impersonate-extra-"
JOINED_GROUP = "impersonate-joined-group"
_AUTHENTICATION = "authentication.k8s.io"
_SERVICE_ACCOUNT = "system:serviceaccount:"

Decide = Callable[[User, Target], Decision]
UserNamed = Callable[[str], User | None]
"""The user of that name with all of its groups, if there is one."""


def asks_to_impersonate(headers: Headers) -> bool:
    return any(name.startswith(PREFIX) for name in headers.keys())  # noqa: SIM118 - they are no mapping


class Impersonation:
    """Turns who asks into whom they act as, if they may."""

    def __init__(self, decide: Decide, user_named: UserNamed) -> None:
        self._decide = decide
        self._user_named = user_named

    def __call__(self, call: Call, asker: User) -> User:
        if not asks_to_impersonate(call.headers):
            return asker
        wanted = self._wanted(call.headers)
        if asker.scope is not None:
            raise Forbidden(f'an access key with a scope cannot impersonate: key "{asker.key}" has one')
        for target in _rights(wanted, call.headers):
            decision = self._decide(asker, target)
            if not decision.allowed:
                raise forbidden(asker, target, decision.reason)
        if wanted.is_admin and not asker.is_admin:
            raise Forbidden(f'User "{asker.name}" cannot act as a member of a built-in admin group: {_named(wanted)}')
        return replace(wanted, impersonator=asker)

    def _wanted(self, headers: Headers) -> User:
        name = headers.get(USER)
        if not name:
            raise BadRequest("to impersonate groups, a uid or extra values, name the user too: send Impersonate-User")
        groups = tuple(_groups(headers))
        known = None if groups else self._user_named(name)
        if known is None:
            known = User(name, (*groups, *_implied(name), AUTHENTICATED))
        uid = headers.get(UID)
        return replace(known, uid=uid or known.uid, extra=tuple(_extra(headers)), key="", scope=None)


def _groups(headers: Headers) -> Iterator[str]:
    """Each once; AUTHENTICATED comes by itself."""
    joined = (name.strip() for text in headers.get_all(JOINED_GROUP) for name in text.split(","))
    for group in dict.fromkeys((*headers.get_all(GROUP), *joined)):
        if group and group != AUTHENTICATED:
            yield group


def _implied(name: str) -> Iterator[str]:
    """The groups that a service account is in by its name."""
    if name.startswith(_SERVICE_ACCOUNT):
        namespace = name.removeprefix(_SERVICE_ACCOUNT).partition(":")[0]
        yield "system:serviceaccounts"
        yield f"system:serviceaccounts:{namespace}"


def _extra(headers: Headers) -> Iterator[tuple[str, tuple[str, ...]]]:
    for header in sorted(set(headers.keys())):
        if header.startswith(EXTRA):
            yield unquote(header.removeprefix(EXTRA)), tuple(headers.get_all(header))


def _rights(wanted: User, headers: Headers) -> Iterator[Target]:
    """What must be allowed, in the order in which it is asked."""
    if wanted.name.startswith(_SERVICE_ACCOUNT):
        namespace, _, name = wanted.name.removeprefix(_SERVICE_ACCOUNT).partition(":")
        yield _target("serviceaccounts", name, namespace=namespace)
    else:
        yield _target("users", wanted.name)
    for group in _groups(headers):
        yield _target("groups", group)
    for key, values in wanted.extra:
        for value in values:
            yield _target("userextras", value, _AUTHENTICATION, subresource=key)
    if headers.get(UID):
        yield _target("uids", wanted.uid, _AUTHENTICATION)


def _target(resource: str, name: str, group: str = "", *, namespace: str = "", subresource: str = "") -> Target:
    return Target("impersonate", "", MANAGEMENT, group, "v1", resource, subresource, namespace, name)


def _named(wanted: User) -> str:
    return ", ".join(sorted(ADMIN_GROUPS.intersection(wanted.groups)))
