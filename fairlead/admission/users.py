"""Privilege escalation prevention for User and Team objects and for the Secrets that hold password hashes.

- Only administrators set groups and roles, and only they write users in a built-in admin group. The last enabled
  administrator cannot be removed.
- Changing how another user signs in needs the verb `impersonate` on that user.
- Changing team membership needs membership in the team, or the verb `bind` on it.
- A password Secret is written only by administrators and by those who may impersonate its user. Otherwise write access
  to Secrets in the server's namespace would be enough to replace a hash and sign in as that user. Deleting the Secret
  needs no extra permission: it lets no one in.

A scoped key never counts as an administrator here: a password leads to keys without a scope.
"""

from collections.abc import Callable, Iterator
from typing import Any

from fairlead.admission import May, Rule, concerning, is_one_of
from fairlead.core.call import Target
from fairlead.core.errors import Details, Forbidden, Invalid, Problem, qualified
from fairlead.core.objects import Object, dig, metadata, name_of
from fairlead.core.user import ADMIN_GROUPS, CONTROLLER, TEAM_GROUP, User
from fairlead.kinds.access.principal_fields import is_disabled
from fairlead.kinds.access.users import TEAM, USER
from fairlead.registry.codec import decode
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry
from fairlead.registry.request_body import counting
from fairlead.registry.validate import Validator
from fairlead.storage.contract import Check
from fairlead.storage.view.view import Entry

RESERVED = ("system:", "service:")
"""Prefixes of group names that have a meaning to the server."""
USER_RIGHTS = ("spec.groups", "spec.ssoGroups", "spec.clusterRoles")
"""Fields that grant permissions to a user: groups, team membership through SSO groups, roles."""
SIGN_IN = ("spec.passwordRef", "spec.codesRef", "spec.subject")
"""Fields that determine how a user signs in."""
MEMBERS = ("spec.users", "spec.groups", "spec.disabled")


def identities(may: May, api_group: str) -> Rule:
    """Checks writes to users and teams."""
    shapes = {kind.plural: Validator(kind.schema()) for kind in (USER, TEAM)}

    @concerning(lambda kind, verb: is_one_of(kind, api_group, *shapes))
    async def rule(change: Change, registry: Registry) -> None:
        if change.subresource:
            return
        if change.new is not None:
            problems = shapes[change.kind.plural].examine(change.new, change.old).problems
            if counting(problems, change.user):
                return  # schema validation rejects it
        if change.kind.plural == USER.plural:
            _check_user(change, may)
            _keep_an_administrator(change, registry)
        else:
            _check_team(change, may)
        _check_username(change, registry)

    return rule


def is_free(user: User) -> bool:
    """Whether the user may grant any permission: an administrator whose key has no scope."""
    return user.holds_everything


def _check_user(change: Change, may: May) -> None:
    if is_free(change.user):
        return
    if _is_administrator(change.old) or _is_administrator(change.new):
        raise _forbidden(change, "only administrators may write users in a built-in admin group; ask one of them")
    for path in _changed(change, USER_RIGHTS):
        raise _forbidden(change, f"only administrators may set {path}; leave it as it is, or ask one of them")
    for path in _changed(change, SIGN_IN):
        if not _is_oneself(change) and not may(change.user, _impersonation_of(change)).allowed:
            why = f'setting {path} of another user needs the verb "impersonate" on users "{name_of(change.obj)}"'
            raise _forbidden(change, f"{why}; leave it as it is, or ask for that permission")


def _check_team(change: Change, may: May) -> None:
    if is_free(change.user) or change.new is None:
        return
    for path in _changed(change, ("spec.clusterRoles",)):
        raise _forbidden(change, f"only administrators may set {path}; leave it as it is, or ask one of them")
    for group in _added(change, "spec.groups"):
        if group.startswith(RESERVED):
            raise _forbidden(change, f'only administrators may add the group "{group}" to spec.groups; leave it out')
    name = name_of(change.new)
    for path in _changed(change, MEMBERS):
        is_member = change.old is not None and f"{TEAM_GROUP}{name}" in change.user.groups
        if not is_member and not may(change.user, _binding(change)).allowed:
            why = f'setting {path} needs membership, or the verb "bind" on teams "{name}"'
            raise _forbidden(change, f"{why}; leave it as it is, or ask for that permission")


def _is_oneself(change: Change) -> bool:
    """Whether users change their own object, with a key without a scope: a scoped key must not gain full access."""
    user, uid = change.user, metadata(change.old or {}).get("uid")
    return user.scope is None and user.name == name_of(change.obj) and bool(uid) and user.uid == uid


def _impersonation_of(change: Change) -> Target:
    """As in Kubernetes, the permission is on `users` in the core group, although no such objects exist there."""
    return Target("impersonate", "", version="v1", resource="users", name=name_of(change.obj))


def _binding(change: Change) -> Target:
    kind = change.kind
    return Target("bind", "", group=kind.group, version=kind.version, resource=kind.plural, name=name_of(change.obj))


def _keep_an_administrator(change: Change, registry: Registry) -> None:
    """Rejects removing the last enabled administrator: no one could create another one."""
    if not _is_in_force(change.old) or _is_in_force(change.new):
        return
    for entry in _possible_administrators(change, registry):
        if entry.key[3] != name_of(change.obj) and _is_in_force(decode(entry)):
            # A concurrent commit must not remove that administrator because it still sees this one.
            change.checks.append(Check(entry.key, entry.revision))
            return
    why = f"it is the last administrator who can sign in; add another user to {min(ADMIN_GROUPS)} first"
    raise _forbidden(change, why)


def _possible_administrators(change: Change, registry: Registry) -> Iterator[Entry]:
    marks = [f'"{group}"'.encode() for group in ADMIN_GROUPS]
    for entry in registry.view.entries(change.kind.group, change.kind.plural):
        if any(mark in entry.body for mark in marks):
            yield entry


def _is_in_force(user: Object | None) -> bool:
    """Whether the user is an administrator who can sign in."""
    return _is_administrator(user) and not is_disabled(user or {}) and "deletionTimestamp" not in metadata(user or {})


def _is_administrator(user: Object | None) -> bool:
    return not ADMIN_GROUPS.isdisjoint(dig(user or {}, "spec.groups") or ())


def _check_username(change: Change, registry: Registry) -> None:
    """Rejects a user or team whose name or username another one already uses."""
    if change.verb != "create":  # both are immutable
        return
    name = name_of(change.obj)
    username = change.spec.get("username") or name
    for entry in registry.view.entries(change.kind.group, change.kind.plural):
        taken = {entry.key[3], entry.fields.get("spec.username")}
        if entry.key[3] != name and not taken.isdisjoint((name, username)):
            problem = Problem.duplicate("spec.username", username)
            raise Invalid.of(change.kind.name, change.kind.group, name, [problem])


def _changed(change: Change, paths: tuple[str, ...]) -> Iterator[str]:
    """The paths whose value the change modifies; none for a deletion."""
    if change.new is None:
        return
    for path in paths:
        if (dig(change.old or {}, path) or None) != (dig(change.new, path) or None):
            yield path


def _added(change: Change, path: str) -> list[Any]:
    before = frozenset(dig(change.old or {}, path) or ())
    return [each for each in dig(change.new or {}, path) or () if each not in before]


def _forbidden(change: Change, why: str) -> Forbidden:
    kind, name = change.kind, name_of(change.obj)
    message = f'{qualified(kind.plural, kind.group)} "{name}" is forbidden: {why}'
    return Forbidden(message, Details(name, kind.group, kind.plural))


SUFFIX = "-password"
"""The password Secret is named after its user, with this suffix; `authn/password_store.py` reads no other."""
_COUNTS = ("data", "metadata.ownerReferences")
"""Fields of a password Secret that need the permission to change."""


def password_secret(may: May, is_administrator: Callable[[str], bool], namespace: str) -> Rule:
    """Protects the password Secrets in `namespace`. Those of administrators are for administrators only."""

    @concerning(lambda kind, verb: verb != "delete" and is_one_of(kind, "", "secrets"))
    async def rule(change: Change, registry: Registry) -> None:
        if not _is_password(change, namespace) or change.user == CONTROLLER:
            return
        owner = name_of(change.obj).removesuffix(SUFFIX)
        if change.user.holds_everything:
            return
        acting = Target("impersonate", "", version="v1", resource="users", name=owner)
        if is_administrator(owner) or not may(change.user, acting).allowed:
            raise _refused(change, owner)

    return rule


def _is_password(change: Change, namespace: str) -> bool:
    """Whether the change modifies the content or the owner of a password Secret."""
    new, old = change.obj, change.old
    if dig(new, "metadata.namespace") != namespace:
        return False
    return name_of(new).endswith(SUFFIX) and (old is None or any(dig(old, path) != dig(new, path) for path in _COUNTS))


def _refused(change: Change, owner: str) -> Forbidden:
    why = (
        f'it holds the password of user "{owner}", so only administrators and those who may impersonate that user may '
        "write it; set passwords through the user's profile, and choose another name for other secrets"
    )
    return Forbidden.of("secrets", "", name_of(change.obj), why)
