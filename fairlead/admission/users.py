"""Users and teams: nobody becomes more, or makes others more, than they are allowed to.

Groups and roles come from administrators. Those who are in a built-in admin group are written by their like only, and
one of them always stays. What lets somebody sign in as another user takes the right to act as that user. Who is in a
team is the matter of administrators, of its members who may update it, and of whoever may `bind` it.
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
"""How the names of groups begin that mean something to the server."""
USER_RIGHTS = ("spec.groups", "spec.ssoGroups", "spec.clusterRoles")
"""What gives a user rights: as groups, as members of teams, as roles."""
SIGN_IN = ("spec.passwordRef", "spec.codesRef", "spec.subject")
"""What lets somebody sign in as a user."""
MEMBERS = ("spec.users", "spec.groups", "spec.disabled")


def identities(may: May, api_group: str) -> Rule:
    """The rule, for whoever decides what users may do."""
    shapes = {kind.plural: Validator(kind.schema()) for kind in (USER, TEAM)}

    @concerning(lambda kind, verb: is_one_of(kind, api_group, *shapes))
    async def rule(change: Change, registry: Registry) -> None:
        if change.subresource:
            return
        if change.new is not None:
            problems = shapes[change.kind.plural].examine(change.new, change.old).problems
            if counting(problems, change.user):
                return  # refused for that
        if change.kind.plural == USER.plural:
            _check_user(change, may)
            _keep_an_administrator(change, registry)
        else:
            _check_team(change, may)
        _check_username(change, registry)

    return rule


def is_free(user: User) -> bool:
    """Whether somebody may grant everything. An administrator's key that is cut down to a scope may not."""
    return user.holds_everything


def _check_user(change: Change, may: May) -> None:
    if is_free(change.user):
        return
    if _is_administrator(change.old) or _is_administrator(change.new):
        raise _forbidden(change, "only administrators write users in a built-in admin group; ask one of them")
    for path in _changed(change, USER_RIGHTS):
        raise _forbidden(change, f"only administrators set {path}; leave it as it is, or ask one of them")
    for path in _changed(change, SIGN_IN):
        if not _is_oneself(change) and not may(change.user, _impersonation_of(change)).allowed:
            why = f'setting {path} of somebody else needs the verb "impersonate" on users "{name_of(change.obj)}"'
            raise _forbidden(change, f"{why}; leave it as it is, or ask for that right")


def _check_team(change: Change, may: May) -> None:
    if is_free(change.user) or change.new is None:
        return
    for path in _changed(change, ("spec.clusterRoles",)):
        raise _forbidden(change, f"only administrators set {path}; leave it as it is, or ask one of them")
    for group in _added(change, "spec.groups"):
        if group.startswith(RESERVED):
            raise _forbidden(change, f'only administrators name the group "{group}" in spec.groups; leave it out')
    name = name_of(change.new)
    for path in _changed(change, MEMBERS):
        is_member = change.old is not None and f"{TEAM_GROUP}{name}" in change.user.groups
        if not is_member and not may(change.user, _binding(change)).allowed:
            why = f'setting {path} needs membership, or the verb "bind" on teams "{name}"'
            raise _forbidden(change, f"{why}; leave it as it is, or ask for that right")


def _is_oneself(change: Change) -> bool:
    """The user itself, with all of its rights: a key that is cut down must not open the door to the rest."""
    user, uid = change.user, metadata(change.old or {}).get("uid")
    return user.scope is None and user.name == name_of(change.obj) and bool(uid) and user.uid == uid


def _impersonation_of(change: Change) -> Target:
    """As Kubernetes has it: users of the core group, where there are no such objects."""
    return Target("impersonate", "", version="v1", resource="users", name=name_of(change.obj))


def _binding(change: Change) -> Target:
    kind = change.kind
    return Target("bind", "", group=kind.group, version=kind.version, resource=kind.plural, name=name_of(change.obj))


def _keep_an_administrator(change: Change, registry: Registry) -> None:
    """Without an enabled administrator nobody could make another one."""
    if not _is_in_force(change.old) or _is_in_force(change.new):
        return
    for entry in _possible_administrators(change, registry):
        if entry.key[3] != name_of(change.obj) and _is_in_force(decode(entry)):
            # Nobody may take that one away meanwhile, relying on this one.
            change.checks.append(Check(entry.key, entry.revision))
            return
    why = f"it is the last administrator who can sign in; put another user into {min(ADMIN_GROUPS)} first"
    raise _forbidden(change, why)


def _possible_administrators(change: Change, registry: Registry) -> Iterator[Entry]:
    marks = [f'"{group}"'.encode() for group in ADMIN_GROUPS]
    for entry in registry.view.entries(change.kind.group, change.kind.plural):
        if any(mark in entry.body for mark in marks):
            yield entry


def _is_in_force(user: Object | None) -> bool:
    """Whether it is an administrator who can sign in."""
    return _is_administrator(user) and not is_disabled(user or {}) and "deletionTimestamp" not in metadata(user or {})


def _is_administrator(user: Object | None) -> bool:
    return not ADMIN_GROUPS.isdisjoint(dig(user or {}, "spec.groups") or ())


def _check_username(change: Change, registry: Registry) -> None:
    """A username means one user or team: the one that is called so, or that has chosen it."""
    if change.verb != "create":  # it stays as it is
        return
    name = name_of(change.obj)
    username = change.spec.get("username") or name
    for entry in registry.view.entries(change.kind.group, change.kind.plural):
        taken = {entry.key[3], entry.fields.get("spec.username")}
        if entry.key[3] != name and not taken.isdisjoint((name, username)):
            problem = Problem.duplicate("spec.username", username)
            raise Invalid.of(change.kind.name, change.kind.group, name, [problem])


def _changed(change: Change, paths: tuple[str, ...]) -> Iterator[str]:
    """Those fields that the change gives another value. Deletion gives nobody anything."""
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


# DOC-MERGED admission/password_secret
# The Secrets that passwords are kept in are written by those who may set these passwords, and by nobody else.
#
# Who may write Secrets in the server's own namespace could otherwise put a hash of their own making in the place of
# somebody else's, and sign in as that user. It takes an administrator, or the right to impersonate the user; users in a
# built-in admin group are for administrators only. A key with a scope is no administrator here: a password leads to keys
# without one. Everybody who may delete the Secret can do that, which lets nobody in.


SUFFIX = "-password"
"""The Secret of a user is called after it, with this at the end; `authn/password_store.py` follows no other."""
_COUNTS = ("data", "metadata.ownerReferences")
"""What is in it, and whose it is."""


def password_secret(may: May, is_administrator: Callable[[str], bool], namespace: str) -> Rule:
    """The rule, for whoever decides what users may do, and the namespace where passwords are."""

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
    """Whether the change gives such a Secret another content or owner."""
    new, old = change.obj, change.old
    if dig(new, "metadata.namespace") != namespace:
        return False
    return name_of(new).endswith(SUFFIX) and (old is None or any(dig(old, path) != dig(new, path) for path in _COUNTS))


def _refused(change: Change, owner: str) -> Forbidden:
    why = (
        f'it is where the password of user "{owner}" is kept, which takes an administrator or the right to impersonate '
        "that user; set passwords through the user's profile, and call other secrets differently"
    )
    return Forbidden.of("secrets", "", name_of(change.obj), why)
