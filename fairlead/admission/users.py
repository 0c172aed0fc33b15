"""Privilege escalation prevention for User and Team objects and for the Secrets that hold password hashes.

- Only administrators set groups and roles, and only they write users in a built-in admin group. The last enabled
  administrator cannot be removed. Administrators by a group mapping of single sign-on do not count as others, nor do
  users of an identity provider for those of this server: a provider that is down, or a change there or in the Config,
  must not lock everyone out.
- Changing how another user signs in needs the verb `impersonate` on that user.
- Changing team membership needs membership in the team, or the verb `bind` on it.
- A password Secret is written only by administrators and by those who may impersonate its user. Otherwise write access
  to Secrets in the server's namespace would be enough to replace a hash and sign in as that user. Deleting the Secret
  needs no extra permission: it lets no one in.

A scoped key never counts as an administrator here: a password leads to keys without a scope.
"""

from collections.abc import Callable, Iterator
from typing import Any

from fairlead.admission import Rule, applies_to, invalid, is_resource
from fairlead.core.call import Authorize, RequestInfo
from fairlead.core.errors import Details, Forbidden, Invalid, Problem, qualified_resource
from fairlead.core.objects import Object, get_path, metadata, name_of
from fairlead.core.user import ADMIN_GROUPS, CONTROLLER_USER, HOST_ACCOUNT_NAMES, TEAM_GROUP_PREFIX, User
from fairlead.kinds.access.principal_fields import is_disabled
from fairlead.kinds.access.users import TEAM, USER
from fairlead.registry.codec import decode
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry
from fairlead.registry.request_body import enforced_problems
from fairlead.registry.validate import build_validator
from fairlead.storage.contract import Precondition
from fairlead.storage.view.view import Entry

RESERVED_GROUP_PREFIXES = ("system:", "service:", HOST_ACCOUNT_NAMES)
"""Prefixes of group names that have a meaning to the server."""
USER_GRANTING_PATHS = ("spec.groups", "spec.ssoGroups", "spec.ssoIdentity", "spec.clusterRoles", "spec.issuer")
"""Fields that grant permissions to a user: groups, what rules compare, roles, the identity provider."""
SIGN_IN_PATHS = ("spec.passwordRef", "spec.codesRef", "spec.subject")
"""Fields that determine how a user signs in."""
MEMBERSHIP_PATHS = ("spec.users", "spec.groups", "spec.disabled")


def check_users_and_teams(authorize: Authorize, is_admin_user: Callable[[str], bool], api_group: str) -> Rule:
    """Checks writes to users and teams. `is_admin_user` also knows the administrators by a group mapping."""
    shapes = {kind.plural: kind.derive(build_validator) for kind in (USER, TEAM)}

    @applies_to(lambda kind, verb: is_resource(kind, api_group, *shapes))
    async def rule(change: Change, registry: Registry) -> None:
        if change.subresource:
            return
        if change.new is not None:
            problems = shapes[change.kind.plural].validate(change.new, change.old).problems
            if enforced_problems(problems, change.user):
                return  # schema validation rejects it
        if change.kind.plural == USER.plural:
            _check_user(change, authorize, is_admin_user)
            _require_remaining_admin(change, registry)
        else:
            _check_team(change, authorize)
        _check_username(change, registry)
        _check_identity(change, registry)

    return rule


def is_unscoped_admin(user: User) -> bool:
    """Whether the user may grant any permission: an administrator whose key has no scope."""
    return user.is_unscoped_admin


def _check_user(change: Change, authorize: Authorize, is_admin_user: Callable[[str], bool]) -> None:
    if is_unscoped_admin(change.user):
        return
    if _is_admin(change.old) or _is_admin(change.new) or is_admin_user(name_of(change.obj)):
        raise forbidden(change, "only administrators may write users in a built-in admin group; ask one of them")
    for path in _changed_paths(change, USER_GRANTING_PATHS):
        raise forbidden(change, f"only administrators may set {path}; leave it as it is, or ask one of them")
    if get_path(change.old or {}, "spec.issuer"):
        for path in _changed_paths(change, ("spec.subject",)):
            # Otherwise a user could name another subject, and get its groups when that one signs in.
            raise forbidden(change, f"only administrators may set {path} of a user of an identity provider")
    for path in _changed_paths(change, SIGN_IN_PATHS):
        if not _is_self(change) and not authorize(change.user, _impersonation_target(change)).allowed:
            why = f'setting {path} of another user needs the verb "impersonate" on users "{name_of(change.obj)}"'
            raise forbidden(change, f"{why}; leave it as it is, or ask for that permission")


def _check_team(change: Change, authorize: Authorize) -> None:
    if is_unscoped_admin(change.user) or change.new is None:
        return
    for path in _changed_paths(change, ("spec.clusterRoles",)):
        raise forbidden(change, f"only administrators may set {path}; leave it as it is, or ask one of them")
    for group in _added_items(change, "spec.groups"):
        if group.startswith(RESERVED_GROUP_PREFIXES):
            raise forbidden(change, f'only administrators may add the group "{group}" to spec.groups; leave it out')
    name = name_of(change.new)
    for path in _changed_paths(change, MEMBERSHIP_PATHS):
        is_member = change.old is not None and f"{TEAM_GROUP_PREFIX}{name}" in change.user.groups
        if not is_member and not authorize(change.user, _bind_target(change)).allowed:
            why = f'setting {path} needs membership, or the verb "bind" on teams "{name}"'
            raise forbidden(change, f"{why}; leave it as it is, or ask for that permission")


def _is_self(change: Change) -> bool:
    """Whether users change their own object, with a key without a scope: a scoped key must not gain full access."""
    user, uid = change.user, metadata(change.old or {}).get("uid")
    return user.scope is None and user.name == name_of(change.obj) and bool(uid) and user.uid == uid


def _impersonation_target(change: Change) -> RequestInfo:
    """As in Kubernetes, the permission is on `users` in the core group, although no such objects exist there."""
    return RequestInfo("impersonate", version="v1", resource="users", name=name_of(change.obj))


def _bind_target(change: Change) -> RequestInfo:
    return change.kind.request("bind", name=name_of(change.obj))


def _require_remaining_admin(change: Change, registry: Registry) -> None:
    """Rejects removing the last enabled administrator: no one could create another one."""
    is_local = _is_local(change.old)
    if not _is_active_admin(change.old) or (_is_active_admin(change.new) and _is_local(change.new) >= is_local):
        return
    for entry in _admin_candidates(change, registry):
        other = decode(entry)
        if entry.key[3] != name_of(change.obj) and _is_active_admin(other) and _is_local(other) >= is_local:
            # A concurrent commit must not remove that administrator because it still sees this one.
            change.preconditions.append(Precondition(entry.key, entry.revision))
            return
    needed = "can sign in without an identity provider" if is_local else "can sign in"
    why = f"it is the last administrator who {needed}; add another user to {min(ADMIN_GROUPS)} first"
    raise forbidden(change, why)


def _admin_candidates(change: Change, registry: Registry) -> Iterator[Entry]:
    marks = [f'"{group}"'.encode() for group in ADMIN_GROUPS]
    for entry in registry.view.entries(change.kind.group, change.kind.plural):
        if any(mark in entry.body for mark in marks):
            yield entry


def _is_active_admin(user: Object | None) -> bool:
    """Whether the user is an administrator who can sign in."""
    return _is_admin(user) and not is_disabled(user or {}) and "deletionTimestamp" not in metadata(user or {})


def _is_local(user: Object | None) -> bool:
    """Whether the user signs in here, and not with an identity provider."""
    return not get_path(user or {}, "spec.issuer")


def _is_admin(user: Object | None) -> bool:
    """Whether the user itself has an admin group, whatever the group mappings say."""
    return not ADMIN_GROUPS.isdisjoint(get_path(user or {}, "spec.groups") or ())


def _check_username(change: Change, registry: Registry) -> None:
    """Rejects a user or team whose name or username another one already uses."""
    if change.verb != "create":  # both are immutable
        return
    name = name_of(change.obj)
    username = change.spec.get("username") or name
    for entry in registry.view.entries(change.kind.group, change.kind.plural):
        existing_names = {entry.key[3], entry.fields.get("spec.username")}
        if entry.key[3] != name and not existing_names.isdisjoint((name, username)):
            problem = Problem.duplicate("spec.username", username)
            raise Invalid.of(change.kind.name, change.kind.group, name, [problem])


def _check_identity(change: Change, registry: Registry) -> None:
    """Rejects a second user with the same subject at the same identity provider."""
    issuer = change.spec.get("issuer")
    subject = change.spec.get("subject")
    if change.new is None or change.kind.plural != USER.plural or not issuer or not subject:
        return
    if not any(_changed_paths(change, ("spec.issuer", "spec.subject"))):
        return
    for entry in registry.view.entries(change.kind.group, change.kind.plural):
        if entry.fields.get("spec.subject") != subject or entry.key[3] == name_of(change.obj):
            continue
        if get_path(decode(entry), "spec.issuer") == issuer:
            problem = Problem.duplicate("spec.subject", subject)
            raise invalid(change, problem)


def _changed_paths(change: Change, paths: tuple[str, ...]) -> Iterator[str]:
    """The paths whose value the change modifies; none for a deletion."""
    if change.new is None:
        return
    for path in paths:
        if (get_path(change.old or {}, path) or None) != (get_path(change.new, path) or None):
            yield path


def _added_items(change: Change, path: str) -> list[Any]:
    before = frozenset(get_path(change.old or {}, path) or ())
    return [each for each in get_path(change.new or {}, path) or () if each not in before]


def forbidden(change: Change, reason: str) -> Forbidden:
    kind, name = change.kind, name_of(change.obj)
    message = f'{qualified_resource(kind.plural, kind.group)} "{name}" is forbidden: {reason}'
    return Forbidden(message, Details(name, kind.group, kind.plural))


PASSWORD_SECRET_SUFFIX = "-password"
"""The password Secret is named after its user, with this suffix; `signin/passwords.py` reads no other."""
_PASSWORD_SECRET_PATHS = ("data", "metadata.ownerReferences")
"""Fields of a password Secret that need the permission to change."""


def protect_password_secret(authorize: Authorize, is_admin_user: Callable[[str], bool], namespace: str) -> Rule:
    """Protects the password Secrets in `namespace`. Those of administrators are for administrators only."""

    @applies_to(lambda kind, verb: verb != "delete" and is_resource(kind, "", "secrets"))
    async def rule(change: Change, registry: Registry) -> None:
        if not _modifies_password_secret(change, namespace) or change.user == CONTROLLER_USER:
            return
        owner = name_of(change.obj).removesuffix(PASSWORD_SECRET_SUFFIX)
        if change.user.is_unscoped_admin:
            return
        acting = RequestInfo("impersonate", version="v1", resource="users", name=owner)
        if is_admin_user(owner) or not authorize(change.user, acting).allowed:
            raise _password_secret_error(change, owner)

    return rule


def _modifies_password_secret(change: Change, namespace: str) -> bool:
    """Whether the change modifies the content or the owner of a password Secret."""
    new, old = change.obj, change.old
    if get_path(new, "metadata.namespace") != namespace:
        return False
    return name_of(new).endswith(PASSWORD_SECRET_SUFFIX) and (
        old is None or any(get_path(old, path) != get_path(new, path) for path in _PASSWORD_SECRET_PATHS)
    )


def _password_secret_error(change: Change, owner: str) -> Forbidden:
    why = (
        f'it holds the password of user "{owner}", so only administrators and those who may impersonate that user may '
        "write it; set passwords through the user's profile, and choose another name for other secrets"
    )
    return Forbidden.of("secrets", "", name_of(change.obj), why)
