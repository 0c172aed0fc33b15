"""Privilege escalation prevention: requesters cannot grant permissions that they do not have themselves.

`prevent_escalation` checks RBAC as Kubernetes does. The rules of a role, and those of the role in a binding, must be
covered by the requester's own rules (`rbac_coverage.py`), unless they have the verb `escalate` on the role or `bind` on
the bound role. A write that changes neither rules, subjects nor role is not checked. The labels of a ClusterRole are,
because aggregated roles select by them. A scoped key needs `escalate` or `bind` within its scope.

`check_grants` does the same for the owners, access entries and members that our own kinds have. Giving an object to
another owner needs the verb `makeowner` on it, unless the requester owns it. A scoped key grants only what is within
its scope. Entries that were there before may stay.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, Protocol

import orjson

from fairlead.admission import May, Rule, concerning
from fairlead.admission.rbac_coverage import MAX_DESCRIBED, Holding, TooManyRights, quoted
from fairlead.core.call import Target
from fairlead.core.errors import MAX_PROBLEMS, Forbidden, NotFound, qualified
from fairlead.core.objects import Object, dig, metadata, name_of
from fairlead.core.user import CONTROLLER, SERVICE_ACCOUNT, TEAM_GROUP, User
from fairlead.kinds.rbac.roles import EVERYTHING, GROUP
from fairlead.registry.codec import decode
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry
from fairlead.storage.contract import Check

_ROLES = {"Role": "roles", "ClusterRole": "clusterroles"}
_GIVES = {
    "roles": ("rules",),
    "clusterroles": ("rules", "aggregationRule", "metadata.labels"),
    "rolebindings": ("roleRef", "subjects"),
    "clusterrolebindings": ("roleRef", "subjects"),
}
"""The fields of each RBAC kind that grant permissions."""


class Holders(Protocol):
    """Returns the RBAC rules that apply to a user."""

    def rules_for(self, user: User, namespace: str) -> list[Object]: ...


def escalation(may: May, rbac: Holders) -> Rule:
    """Checks writes to RBAC roles and bindings."""

    @concerning(lambda kind, verb: verb != "delete" and kind.group == GROUP)
    async def rule(change: Change, registry: Registry) -> None:
        if _gives_nothing(change) or change.user.holds_everything:
            return
        if change.kind.plural in _ROLES.values():
            _check_role(change, may, rbac)
        else:
            _check_binding(change, registry, may, rbac)

    return rule


def _gives_nothing(change: Change) -> bool:
    old, new = change.old, change.obj
    return old is not None and all(dig(old, path) == dig(new, path) for path in _GIVES[change.kind.plural])


def _check_role(change: Change, may: May, rbac: Holders) -> None:
    name = metadata(change.obj)["name"] if change.old is not None else ""  # as in the path of such a request
    if may(change.user, _target("escalate", change.kind.plural, change, name)).allowed:
        return
    _refuse_scoped(change, "escalate")
    _confirm(change, rbac, change.obj.get("rules") or ())
    if any(each and each.get("aggregationRule") for each in (change.old, change.obj)) and _missing(
        change, rbac, EVERYTHING
    ):
        raise _forbidden(change, "must have cluster-admin privileges to use an aggregationRule")


def _check_binding(change: Change, registry: Registry, may: May, rbac: Holders) -> None:
    reference = change.obj["roleRef"]
    plural, name = _ROLES.get(reference.get("kind", "")), reference.get("name")
    namespace = _place(change)
    if plural is None or not name or (plural == "roles" and not namespace):
        return  # validation of the kind rejects it
    if may(change.user, _target("bind", plural, change, name)).allowed:
        return
    _refuse_scoped(change, "bind")
    role = registry.resource(GROUP, plural).peek(namespace if plural == "roles" else "", name)
    if role is None:
        raise NotFound.of(plural, GROUP, name)
    _confirm(change, rbac, decode(role).get("rules") or ())
    # The commit must fail if the role gets more rules before it.
    change.checks.append(Check(role.key, role.revision))


def _target(verb: str, plural: str, change: Change, name: str) -> Target:
    return Target(verb, "", group=GROUP, version="v1", resource=plural, namespace=_place(change), name=name)


def _place(change: Change) -> str:
    return metadata(change.obj)["namespace"] if change.kind.namespaced else ""


def _refuse_scoped(change: Change, verb: str) -> None:
    if change.user.scope is not None:
        raise _forbidden(
            change, f'a key with a scope needs the verb "{verb}" within that scope; use a key without a scope'
        )


def _confirm(change: Change, rbac: Holders, rules: Iterable[Object]) -> None:
    missing = _missing(change, rbac, rules)
    if missing:
        beyond = "" if len(missing) >= MAX_DESCRIBED else f"{len(missing) - MAX_PROBLEMS} "
        more = [f"and {beyond}more"] if len(missing) > MAX_PROBLEMS else []
        who = f'user "{change.user.name}" (groups={quoted(change.user.groups)})'
        lines = "\n".join([*missing[:MAX_PROBLEMS], *more])
        raise _forbidden(change, f"{who} is attempting to grant RBAC permissions not currently held:\n{lines}")


def _missing(change: Change, rbac: Holders, rules: Iterable[Object]) -> list[str]:
    try:
        return Holding(rbac.rules_for(change.user, _place(change))).missing(rules)
    except TooManyRights:
        why = (
            "its rules combine to more permissions than can be compared with yours; split the role into smaller ones, "
            'or ask a user with the verbs "escalate" and "bind" on roles'
        )
        raise _forbidden(change, why) from None


def _forbidden(change: Change, why: str) -> Forbidden:
    kind, name = change.kind, str(metadata(change.obj).get("name") or "")
    return Forbidden.of(kind.plural, kind.group, name, why)


ANY = "*"
GRANTING = ("owner", "access", "members")
"""The fields of a spec that grant permissions."""
MAX_RIGHTS = 1_000
"""Maximum number of distinct permissions that one change may grant: each one is authorized separately."""
MAX_COMBINATIONS = 50 * MAX_RIGHTS
"""Maximum number of verb and subresource combinations in distinct access entries."""
INSTANCE = "devpodworkspaceinstances"
"""A kind that the project role `user` may create; a requester who may create it may grant that role."""


@dataclass(frozen=True, slots=True)
class Names:
    """The API group and the prefix of project namespaces of this installation."""

    api_group: str
    namespace_prefix: str


@dataclass(frozen=True, slots=True)
class Standing:
    """What `check_grants` needs to know about the requester: permissions, scope, ownership and project membership."""

    may: May
    inside: Callable[[User, Target], bool]
    owns: Callable[[User, str | None, str | None], bool]
    is_member: Callable[[User, str], bool]


def granting(standing: Standing, names: Names) -> Rule:
    """Checks owners, access entries and members of kinds that have access entries, and sets the default owner."""

    @concerning(lambda kind, verb: verb != "delete" and kind.shared)
    async def rule(change: Change, registry: Registry) -> None:
        if change.user == CONTROLLER or change.subresource:
            return
        if change.verb == "create" and change.spec.get("owner") is None:
            _own(change, standing)
        if not any(map(change.spec.get, GRANTING)):
            return
        if change.user.holds_everything:
            return
        is_owner = _is_the_owner(change, standing)
        for right in _distinct(change, _granted(change, names)):
            owned = is_owner and standing.inside(change.user, right)
            if not owned and not standing.may(change.user, right).allowed:
                raise _refused(change, right)

    return rule


def _own(change: Change, standing: Standing) -> None:
    """Sets the default owner of an object that a project member creates: the member, or the team for a team's key.

    Objects created by administrators and non-members get no owner.
    """
    meta, user = metadata(change.obj), change.user
    if user.is_admin or not change.kind.namespaced or not standing.is_member(user, meta.get("namespace", "")):
        return
    spec = change.obj.setdefault("spec", {})
    if isinstance(spec, dict):
        team = user.name.removeprefix(TEAM_GROUP)
        is_team = team != user.name and standing.owns(user, None, team)
        spec["owner"] = {"team": team} if is_team else {"user": user.name}


def _is_the_owner(change: Change, standing: Standing) -> bool:
    """Whether the requester owns the object, or will own it after the create. Owners have every permission on it."""
    owner = dig(change.old if change.old is not None else change.obj, "spec.owner")
    user, team = dig(owner, "user"), dig(owner, "team")
    return standing.owns(change.user, user if isinstance(user, str) else None, team if isinstance(team, str) else None)


def _granted(change: Change, names: Names) -> Iterator[Target]:
    """The permissions that the change grants, each as a request for which the requester must be authorized."""
    kind, meta, name = change.kind, metadata(change.obj), name_of(change.obj)

    def target(verb: str, subresource: str = "") -> Target:
        namespace = meta.get("namespace", "") if kind.namespaced else ""
        return Target(verb, "", "", kind.group, kind.version, kind.plural, subresource, namespace, name)

    owner = change.spec.get("owner")
    if owner and owner != dig(change.old or {}, "spec.owner") and not _is_own_account(owner, change.user):
        yield target("makeowner")
    for verb, subresource in _access_rights(change):
        yield target(verb, subresource)
    if (kind.group, kind.plural) == (names.api_group, "projects"):
        namespace = f"{names.namespace_prefix}{name}"
        for member in _new(change, "members"):
            yield _role(str(member.get("clusterRole") or "viewer"), namespace, names.api_group)


def _distinct(change: Change, rights: Iterable[Target]) -> Iterator[Target]:
    """Removes duplicates and rejects a change that grants too many permissions."""
    seen: set[Target] = set()
    for right in rights:
        if right in seen:
            continue
        if len(seen) == MAX_RIGHTS:
            raise _too_many(change)
        seen.add(right)
        yield right


def _access_rights(change: Change) -> Iterator[tuple[str, str]]:
    """The distinct verb and subresource combinations that new access entries grant."""
    combined: set[tuple[frozenset[str], frozenset[str]]] = set()
    seen: set[tuple[str, str]] = set()
    count = 0
    for access in _new(change, "access"):
        verbs, subresources = frozenset(_texts(access.get("verbs"))), frozenset(_texts(access.get("subresources")))
        if (verbs, subresources) in combined:
            continue
        combined.add((verbs, subresources))
        count += len(verbs) * (1 + len(subresources))
        if count > MAX_COMBINATIONS:
            raise _too_many(change)
        for right in product(sorted(verbs), ("", *sorted(subresources))):
            if right not in seen:
                seen.add(right)
                yield right


def _too_many(change: Change) -> Forbidden:
    why = f"it grants more than {MAX_RIGHTS} different permissions at once; use `*` in verbs, or add them step by step"
    return Forbidden.of(change.kind.plural, change.kind.group, name_of(change.obj), why)


def _is_own_account(owner: Any, user: User) -> bool:
    """Whether a service account names itself as the owner. That records the creator and grants no permissions."""
    return user.name.startswith(SERVICE_ACCOUNT) and owner == {"user": user.name}


def _new(change: Change, field: str) -> Iterable[Object]:
    """The entries of a spec field that the change adds. Schema validation rejects malformed entries."""
    after = change.spec.get(field)
    if not after or not isinstance(after, list):
        return ()
    before = dig(change.old or {}, f"spec.{field}")
    known = {_fingerprint(entry) for entry in before} if isinstance(before, list) else set()
    return [entry for entry in after if isinstance(entry, dict) and _fingerprint(entry) not in known]


def _fingerprint(entry: Any) -> bytes:
    """Equal for equal entries. There may be thousands, so they are compared by set lookup."""
    return orjson.dumps(entry, option=orjson.OPT_SORT_KEYS)


def _texts(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _role(role: str, namespace: str, api_group: str) -> Target:
    """The request for which the requester must be authorized to grant a project role."""
    if role == "admin":
        return Target(ANY, "", "", ANY, ANY, ANY, "", namespace)
    if role == "user":
        return Target("create", "", "", api_group, "v1", INSTANCE, "", namespace)
    if role == "viewer":
        return Target("list", "", "", api_group, "v1", INSTANCE, "", namespace)
    return Target("bind", "", "", GROUP, "v1", "clusterroles", "", namespace, role)


def _refused(change: Change, right: Target) -> Forbidden:
    what = f"{right.resource}/{right.subresource}" if right.subresource else right.resource
    where = f' in the namespace "{right.namespace}"' if right.namespace else ""
    missing = f"{right.verb} {qualified(what, right.group)}{where}"
    why = f'User "{change.user.name}" cannot grant permissions that it does not have: {missing}; ask for them first'
    return Forbidden.of(change.kind.plural, change.kind.group, name_of(change.obj), why)
