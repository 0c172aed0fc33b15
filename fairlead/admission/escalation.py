"""Nobody gives rights that they do not hold: the rules of a role, and the role of a binding, must be the writer's own.

As in Kubernetes, the verb `escalate` on roles and the verb `bind` on the role that is bound stand for all of them.
A write that gives nothing (it leaves rules, subjects and role as they are) is nobody's concern; labels of a ClusterRole
are, because aggregated roles choose by them. A key with a scope gives only what `escalate` or `bind` allow within that
scope: what its identity holds beside the scope is not the key's to give.
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
"""What of each kind gives rights to somebody."""


class Holders(Protocol):
    """Knows which rules somebody holds."""

    def rules_for(self, user: User, namespace: str) -> list[Object]: ...


def escalation(may: May, rbac: Holders) -> Rule:
    """The rule, for whoever decides what users may do and knows which rules they hold."""

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
        return  # the kind's own rules say what is wrong with it
    if may(change.user, _target("bind", plural, change, name)).allowed:
        return
    _refuse_scoped(change, "bind")
    role = registry.resource(GROUP, plural).peek(namespace if plural == "roles" else "", name)
    if role is None:
        raise NotFound.of(plural, GROUP, name)
    _confirm(change, rbac, decode(role).get("rules") or ())
    # The role could get more rules between this look and the commit; then the commit must not happen.
    change.checks.append(Check(role.key, role.revision))


def _target(verb: str, plural: str, change: Change, name: str) -> Target:
    return Target(verb, "", group=GROUP, version="v1", resource=plural, namespace=_place(change), name=name)


def _place(change: Change) -> str:
    return metadata(change.obj)["namespace"] if change.kind.namespaced else ""


def _refuse_scoped(change: Change, verb: str) -> None:
    if change.user.scope is not None:
        raise _forbidden(
            change, f'a key with a scope gives only what it may "{verb}" within that scope; use a key without one'
        )


def _confirm(change: Change, rbac: Holders, rules: Iterable[Object]) -> None:
    missing = _missing(change, rbac, rules)
    if missing:
        beyond = "" if len(missing) >= MAX_DESCRIBED else f"{len(missing) - MAX_PROBLEMS} "
        more = [f"and {beyond}more"] if len(missing) > MAX_PROBLEMS else []
        who = f'user "{change.user.name}" (groups={quoted(change.user.groups)})'
        told = "\n".join([*missing[:MAX_PROBLEMS], *more])
        raise _forbidden(change, f"{who} is attempting to grant RBAC permissions not currently held:\n{told}")


def _missing(change: Change, rbac: Holders, rules: Iterable[Object]) -> list[str]:
    try:
        return Holding(rbac.rules_for(change.user, _place(change))).missing(rules)
    except TooManyRights:
        why = (
            "its rules combine to more rights than can be compared with yours; split the role into smaller ones, or "
            'ask somebody who may "escalate" roles and "bind" them'
        )
        raise _forbidden(change, why) from None


def _forbidden(change: Change, why: str) -> Forbidden:
    kind, name = change.kind, str(metadata(change.obj).get("name") or "")
    return Forbidden.of(kind.plural, kind.group, name, why)


# DOC-MERGED admission/granting
# Nobody grants what they do not hold: access entries, owners and project members.
#
# These fields give rights to others, so whoever writes them must have those rights. Giving an object to another owner
# takes the verb `makeowner` on it, unless it is one's own to give. A key with a scope gives only what is inside of it.
# What was granted before may stay.


ANY = "*"
GRANTING = ("owner", "access", "members")
"""The fields of a spec that give rights to somebody."""
MAX_RIGHTS = 1_000
"""How many different rights one change may grant: each of them is a question about the writer's own."""
MAX_COMBINATIONS = 50 * MAX_RIGHTS
"""Of verbs and subresources, in entries that differ."""
INSTANCE = "devpodworkspaceinstances"
"""One of the kinds that a project's users may make; who may make one holds what that role gives."""


@dataclass(frozen=True, slots=True)
class Names:
    """What things are called in this installation."""

    api_group: str
    namespace_prefix: str


@dataclass(frozen=True, slots=True)
class Standing:
    """How the rule finds out about people: what they may do, what is inside the scope of their key, whether an owner is
    them, and whose project it is."""

    may: May
    inside: Callable[[User, Target], bool]
    owns: Callable[[User, str | None, str | None], bool]
    is_member: Callable[[User, str], bool]


def granting(standing: Standing, names: Names) -> Rule:
    """The rule for kinds that are shared."""

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
            held = is_owner and standing.inside(change.user, right)
            if not held and not standing.may(change.user, right).allowed:
                raise _refused(change, right)

    return rule


def _own(change: Change, standing: Standing) -> None:
    """What a member of a project makes there is the member's, and what a team's key makes the team's. Other people's
    objects belong to nobody by themselves."""
    meta, user = metadata(change.obj), change.user
    if user.is_admin or not change.kind.namespaced or not standing.is_member(user, meta.get("namespace", "")):
        return
    spec = change.obj.setdefault("spec", {})
    if isinstance(spec, dict):
        team = user.name.removeprefix(TEAM_GROUP)
        is_team = team != user.name and standing.owns(user, None, team)
        spec["owner"] = {"team": team} if is_team else {"user": user.name}


def _is_the_owner(change: Change, standing: Standing) -> bool:
    """Owners hold every right on what is theirs, as far as the key they came with has it. On create, that is who the
    object will belong to."""
    owner = dig(change.old if change.old is not None else change.obj, "spec.owner")
    user, team = dig(owner, "user"), dig(owner, "team")
    return standing.owns(change.user, user if isinstance(user, str) else None, team if isinstance(team, str) else None)


def _granted(change: Change, names: Names) -> Iterator[Target]:
    """The rights that the change gives to somebody, each as a request that its writer must be allowed."""
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
    """Each right once, however many entries give it."""
    seen: set[Target] = set()
    for right in rights:
        if right in seen:
            continue
        if len(seen) == MAX_RIGHTS:
            raise _too_many(change)
        seen.add(right)
        yield right


def _access_rights(change: Change) -> Iterator[tuple[str, str]]:
    """Verbs and subresources that new access entries give, each combination of the two once."""
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
    why = f"it grants more than {MAX_RIGHTS} different rights at once; use `*` in verbs, or add them step by step"
    return Forbidden.of(change.kind.plural, change.kind.group, name_of(change.obj), why)


def _is_own_account(owner: Any, user: User) -> bool:
    """Whether a service account names itself: that says who made the object, and gives the account no rights to it."""
    return user.name.startswith(SERVICE_ACCOUNT) and owner == {"user": user.name}


def _new(change: Change, field: str) -> Iterable[Object]:
    """Entries of the spec that were not there before. What is no entry at all is the schema's to refuse."""
    after = change.spec.get(field)
    if not after or not isinstance(after, list):
        return ()
    before = dig(change.old or {}, f"spec.{field}")
    known = {_fingerprint(entry) for entry in before} if isinstance(before, list) else set()
    return [entry for entry in after if isinstance(entry, dict) and _fingerprint(entry) not in known]


def _fingerprint(entry: Any) -> bytes:
    """The same for equal entries: there may be thousands, so they are looked up and not compared."""
    return orjson.dumps(entry, option=orjson.OPT_SORT_KEYS)


def _texts(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _role(role: str, namespace: str, api_group: str) -> Target:
    """What one must be allowed to give somebody a role in a project."""
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
    held = f"{right.verb} {qualified(what, right.group)}{where}"
    why = f'User "{change.user.name}" cannot grant what it does not hold: {held}; ask for that right first'
    return Forbidden.of(change.kind.plural, change.kind.group, name_of(change.obj), why)
