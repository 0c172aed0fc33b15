"""Privilege escalation prevention: requesters cannot grant permissions that they do not have themselves.

`prevent_escalation` checks RBAC as Kubernetes does. The rules of a role, and those of the role in a binding, must be
covered by the requester's own rules, unless they have the verb `escalate` on the role or `bind` on
the bound role. A write that changes neither rules, subjects nor role is not checked. The labels of a ClusterRole are,
because aggregated roles select by them. A scoped key needs `escalate` or `bind` within its scope.

`check_grants` does the same for the owners, access entries and members that our own kinds have. Giving an object to
another owner needs the verb `makeowner` on it, unless the requester owns it. A scoped key grants only what is within
its scope. Entries that were there before may stay.

Whether a set of RBAC rules covers another one is decided like `Covers` in Kubernetes: the requested rules are broken
down into single permissions (one verb on one resource of one API group, or on one path), and each must be covered by
one rule that the user has. The work is bounded by a budget.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Protocol

from fairlead.admission import Rule, applies_to, forbidden
from fairlead.core.call import Authorize, RequestInfo
from fairlead.core.errors import MAX_PROBLEMS, MAX_QUOTED_CHARS, Forbidden, NotFound, qualified_resource
from fairlead.core.json import encode_sorted
from fairlead.core.objects import Object, get_path, metadata, name_of
from fairlead.core.user import CONTROLLER_USER, SERVICE_ACCOUNT_PREFIXES, TEAM_GROUP_PREFIX, User
from fairlead.core.validators import minimal_prefixes, starts_with_any
from fairlead.kinds.rbac.roles import ALL_PERMISSIONS, GROUP
from fairlead.registry.codec import decode
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry
from fairlead.storage.contract import Precondition

ANY = "*"
COMPARISON_BUDGET = 100_000
"""Maximum number of comparisons per check: some tens of milliseconds."""
MAX_LOOKUPS = 1_000_000
"""Maximum number of set lookups while a rule is compared as a whole, before it is broken down."""
MAX_DESCRIBED = 2_000
"""Maximum number of missing permissions that are described in an error."""


class CoverageBudgetExceeded(Exception):
    """The rules are too large to be compared permission by permission."""


@dataclass(frozen=True, slots=True)
class _Permission:
    """A single permission. `name` is None for all objects of the resource. A path only has `verb` and `path`."""

    verb: str
    group: str = ""
    resource: str = ""
    name: str | None = None
    path: str | None = None


@dataclass(frozen=True, slots=True)
class _HeldRule:
    """A rule that the user has, without its resources."""

    verbs: frozenset[str]
    groups: frozenset[str]
    names: frozenset[str]
    paths: frozenset[str]
    path_prefixes: list[str]

    def covers(self, permission: _Permission) -> bool:
        if not _is_subset((permission.verb,), self.verbs):
            return False
        if permission.path is not None:
            return permission.path in self.paths or starts_with_any(permission.path, self.path_prefixes)
        return _is_subset((permission.group,), self.groups) and (not self.names or permission.name in self.names)

    def covers_rule(self, rule: Object) -> bool:
        """Compares the whole rule at once, except for its resources."""
        names = rule.get("resourceNames")
        return (
            _is_subset(rule.get("verbs") or (), self.verbs)
            and _is_subset(rule.get("apiGroups") or (), self.groups)
            and (not self.names or (bool(names) and self.names.issuperset(names or ())))
        )


class HeldRules:
    """The rules that a user has, indexed by resource, with a budget for comparisons."""

    def __init__(self, rules: Iterable[Object]) -> None:
        self._budget = COMPARISON_BUDGET
        self._by_resource: dict[str, list[_HeldRule]] = {}
        self._path_rules: list[_HeldRule] = []
        for rule in rules:
            held = _compile_rule(rule)
            for resource in dict.fromkeys(rule.get("resources") or ()):
                self._by_resource.setdefault(resource, []).append(held)
            if held.paths:
                self._path_rules.append(held)

    def missing_permissions(self, requested: Iterable[Object]) -> list[str]:
        """The requested permissions that are not covered, worded as in Kubernetes. Raises `CoverageBudgetExceeded`."""
        pieces = [
            piece for rule in requested if not self._covers_rule(rule) for piece in self._uncovered_permissions(rule)
        ]
        return sorted(dict.fromkeys(_describe_permissions(pieces[:MAX_DESCRIBED])))

    def _covers_rule(self, rule: Object) -> bool:
        """Fast path: whether each resource of the rule is covered by one rule as a whole. Nearly always the case."""
        if rule.get("nonResourceURLs"):
            return False
        size = sum(len(rule.get(field) or ()) for field in ("verbs", "apiGroups", "resourceNames"))
        max_compared = 1 + MAX_LOOKUPS // (size + 1)
        verdicts: dict[int, bool] = {}

        def fits(held: _HeldRule) -> bool:
            """Compares each pair of rules once. Beyond the maximum it returns False, and the rule is broken down."""
            if id(held) not in verdicts:
                verdicts[id(held)] = len(verdicts) < max_compared and held.covers_rule(rule)
            return self._spend() and verdicts[id(held)]

        resources = dict.fromkeys(rule.get("resources") or ())
        return all(any(fits(held) for held in self._candidates(resource)) for resource in resources)

    def _uncovered_permissions(self, rule: Object) -> Iterator[_Permission]:
        for piece in self._split_rule(rule):
            candidates = self._candidates(piece.resource) if piece.path is None else self._path_rules
            if not any(self._spend() and held.covers(piece) for held in candidates):
                yield piece

    def _split_rule(self, rule: Object) -> Iterator[_Permission]:
        verbs, groups, resources, names, paths = (
            tuple(dict.fromkeys(rule.get(field) or ()))
            for field in ("verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs")
        )
        self._spend(len(verbs) * (len(groups) * len(resources) * (len(names) or 1) + len(paths)))
        for group, resource, verb, name in product(groups, resources, verbs, names or (None,)):
            yield _Permission(verb, group, resource, name)
        for path, verb in product(paths, verbs):
            yield _Permission(verb, path=path)

    def _candidates(self, resource: str) -> Iterator[_HeldRule]:
        """The rules that match a resource. `*/s` matches the subresource `s` of every resource."""
        yield from self._by_resource.get(resource, ())
        if resource != ANY:
            yield from self._by_resource.get(ANY, ())
        _, slash, subresource = resource.partition("/")
        if slash and resource != f"{ANY}/{subresource}":
            yield from self._by_resource.get(f"{ANY}/{subresource}", ())

    def _spend(self, count: int = 1) -> bool:
        self._budget -= count
        if self._budget < 0:
            raise CoverageBudgetExceeded
        return True


def _compile_rule(rule: Object) -> _HeldRule:
    verbs, groups, names, paths = (
        frozenset(rule.get(field) or ()) for field in ("verbs", "apiGroups", "resourceNames", "nonResourceURLs")
    )
    return _HeldRule(
        verbs, groups, names, paths, minimal_prefixes(path.rstrip(ANY) for path in paths if path.endswith(ANY))
    )


def _is_subset(requested: Sequence[str], held: frozenset[str]) -> bool:
    return ANY in held or held.issuperset(requested)


def _describe_permissions(permissions: Iterable[_Permission]) -> Iterator[str]:
    """One line per resource or named object with all of its missing verbs, and one per path and verb."""
    verbs: dict[tuple[str, str, str | None], dict[str, None]] = {}
    for piece in permissions:
        if piece.path is not None:
            yield _format_permission(("NonResourceURLs", [piece.path]), ("Verbs", [piece.verb]))
        else:
            verbs.setdefault((piece.group, piece.resource, piece.name), {})[piece.verb] = None
    for (group, resource, name), missing in verbs.items():
        named = [("ResourceNames", [name])] if name is not None else []
        yield _format_permission(("APIGroups", [group]), ("Resources", [resource]), *named, ("Verbs", list(missing)))


def _format_permission(*parts: tuple[str, Sequence[str]]) -> str:
    text = ", ".join(f"{name}:{format_list(values)}" for name, values in parts)
    return f"{{{text if len(text) <= MAX_QUOTED_CHARS else f'{text[:MAX_QUOTED_CHARS]}...'}}}"


def format_list(values: Sequence[str]) -> str:
    """Formats a list as in Kubernetes messages, truncated if it is long."""
    texts = [json.dumps(value, ensure_ascii=False) for value in values[:MAX_PROBLEMS]]
    return f"[{' '.join(texts)}{' ...' if len(values) > MAX_PROBLEMS else ''}]"


_ROLES = {"Role": "roles", "ClusterRole": "clusterroles"}
_GRANTING_PATHS = {
    "roles": ("rules",),
    "clusterroles": ("rules", "aggregationRule", "metadata.labels"),
    "rolebindings": ("roleRef", "subjects"),
    "clusterrolebindings": ("roleRef", "subjects"),
}
"""The fields of each RBAC kind that grant permissions."""


class RuleSource(Protocol):
    """Returns the RBAC rules that apply to a user."""

    def rules_for(self, user: User, namespace: str) -> list[Object]: ...


def prevent_escalation(authorize: Authorize, rbac: RuleSource) -> Rule:
    """Checks writes to RBAC roles and bindings."""

    @applies_to(lambda kind, verb: verb != "delete" and kind.group == GROUP)
    async def rule(change: Change, registry: Registry) -> None:
        if _grants_nothing(change) or change.user.is_unscoped_admin:
            return
        if change.kind.plural in _ROLES.values():
            _check_role(change, authorize, rbac)
        else:
            _check_binding(change, registry, authorize, rbac)

    return rule


def _grants_nothing(change: Change) -> bool:
    old, new = change.old, change.obj
    return old is not None and all(
        get_path(old, path) == get_path(new, path) for path in _GRANTING_PATHS[change.kind.plural]
    )


def _check_role(change: Change, authorize: Authorize, rbac: RuleSource) -> None:
    name = metadata(change.obj)["name"] if change.old is not None else ""  # as in the path of such a request
    if authorize(change.user, _authorization_target("escalate", change.kind.plural, change, name)).allowed:
        return
    _reject_scoped_key(change, "escalate")
    _require_covered(change, rbac, change.obj.get("rules") or ())
    if any(each and each.get("aggregationRule") for each in (change.old, change.obj)) and _missing_permissions(
        change, rbac, ALL_PERMISSIONS
    ):
        raise forbidden(change, "must have cluster-admin privileges to use an aggregationRule")


def _check_binding(change: Change, registry: Registry, authorize: Authorize, rbac: RuleSource) -> None:
    reference = change.obj["roleRef"]
    plural = _ROLES.get(reference.get("kind", ""))
    name = reference.get("name")
    namespace = _namespace_of(change)
    if plural is None or not name or (plural == "roles" and not namespace):
        return  # validation of the kind rejects it
    if authorize(change.user, _authorization_target("bind", plural, change, name)).allowed:
        return
    _reject_scoped_key(change, "bind")
    role = registry.resource(GROUP, plural).get_cached(namespace if plural == "roles" else "", name)
    if role is None:
        raise NotFound.of(plural, GROUP, name)
    _require_covered(change, rbac, decode(role).get("rules") or ())
    # The commit must fail if the role gets more rules before it.
    change.preconditions.append(Precondition(role.key, role.revision))


def _authorization_target(verb: str, plural: str, change: Change, name: str) -> RequestInfo:
    return RequestInfo(verb, group=GROUP, version="v1", resource=plural, namespace=_namespace_of(change), name=name)


def _namespace_of(change: Change) -> str:
    return metadata(change.obj)["namespace"] if change.kind.namespaced else ""


def _reject_scoped_key(change: Change, verb: str) -> None:
    if change.user.scope is not None:
        raise forbidden(
            change, f'a key with a scope needs the verb "{verb}" within that scope; use a key without a scope'
        )


def _require_covered(change: Change, rbac: RuleSource, rules: Iterable[Object]) -> None:
    missing = _missing_permissions(change, rbac, rules)
    if missing:
        beyond = "" if len(missing) >= MAX_DESCRIBED else f"{len(missing) - MAX_PROBLEMS} "
        more = [f"and {beyond}more"] if len(missing) > MAX_PROBLEMS else []
        who = f'user "{change.user.name}" (groups={format_list(change.user.groups)})'
        lines = "\n".join([*missing[:MAX_PROBLEMS], *more])
        raise forbidden(change, f"{who} is attempting to grant RBAC permissions not currently held:\n{lines}")


def _missing_permissions(change: Change, rbac: RuleSource, rules: Iterable[Object]) -> list[str]:
    try:
        return HeldRules(rbac.rules_for(change.user, _namespace_of(change))).missing_permissions(rules)
    except CoverageBudgetExceeded:
        why = (
            "its rules combine to more permissions than can be compared with yours; split the role into smaller ones, "
            'or ask a user with the verbs "escalate" and "bind" on roles'
        )
        raise forbidden(change, why) from None


GRANTING_FIELDS = ("owner", "access", "members")
"""The fields of a spec that grant permissions."""
MAX_GRANTS = 1_000
"""Maximum number of distinct permissions that one change may grant: each one is authorized separately."""
MAX_GRANT_COMBINATIONS = 50 * MAX_GRANTS
"""Maximum number of verb and subresource combinations in distinct access entries."""
WORKSPACES = "devpodworkspaceinstances"
"""A kind that the project role `user` may create; a requester who may create it may grant that role."""


@dataclass(frozen=True, slots=True)
class ResourceNaming:
    """The API group and the prefix of project namespaces of this installation."""

    api_group: str
    namespace_prefix: str


@dataclass(frozen=True, slots=True)
class GrantChecks:
    """What `check_grants` needs to know about the requester: permissions, scope, ownership and project membership."""

    authorize: Authorize
    is_within_scope: Callable[[User, RequestInfo], bool]
    owns: Callable[[User, str | None, str | None], bool]
    is_member: Callable[[User, str], bool]


def check_grants(checks: GrantChecks, naming: ResourceNaming) -> Rule:
    """Checks owners, access entries and members of kinds that have access entries, and sets the default owner."""

    @applies_to(lambda kind, verb: verb != "delete" and kind.has_access_entries)
    async def rule(change: Change, registry: Registry) -> None:
        if change.user is CONTROLLER_USER or change.subresource:
            return
        if change.verb == "create" and change.spec.get("owner") is None:
            _set_default_owner(change, checks)
        if not any(map(change.spec.get, GRANTING_FIELDS)):
            return
        if change.user.is_unscoped_admin:
            return
        is_owner = _is_owner(change, checks)
        for right in _distinct_permissions(change, _granted_permissions(change, naming)):
            owned = is_owner and checks.is_within_scope(change.user, right)
            if not owned and not checks.authorize(change.user, right).allowed:
                raise _grant_denied_error(change, right)

    return rule


def _set_default_owner(change: Change, checks: GrantChecks) -> None:
    """Sets the default owner of an object that a project member creates: the member, or the team for a team's key.

    Objects created by administrators and non-members get no owner.
    """
    meta, user = metadata(change.obj), change.user
    if user.is_admin or not change.kind.namespaced or not checks.is_member(user, meta.get("namespace", "")):
        return
    spec = change.obj.setdefault("spec", {})
    if isinstance(spec, dict):
        team = user.name.removeprefix(TEAM_GROUP_PREFIX)
        is_team = team != user.name and checks.owns(user, None, team)
        spec["owner"] = {"team": team} if is_team else {"user": user.name}


def _is_owner(change: Change, checks: GrantChecks) -> bool:
    """Whether the requester owns the object, or will own it after the create. Owners have every permission on it."""
    owner = get_path(change.old if change.old is not None else change.obj, "spec.owner")
    user = get_path(owner, "user")
    team = get_path(owner, "team")
    return checks.owns(change.user, user if isinstance(user, str) else None, team if isinstance(team, str) else None)


def _granted_permissions(change: Change, naming: ResourceNaming) -> Iterator[RequestInfo]:
    """The permissions that the change grants, each as a request for which the requester must be authorized."""
    kind = change.kind
    meta = metadata(change.obj)
    name = name_of(change.obj)

    def target(verb: str, subresource: str = "") -> RequestInfo:
        namespace = meta.get("namespace", "") if kind.namespaced else ""
        return kind.request(verb, namespace, name, subresource=subresource)

    owner = change.spec.get("owner")
    if owner and owner != get_path(change.old or {}, "spec.owner") and not _is_own_account(owner, change.user):
        yield target("makeowner")
    for verb, subresource in _access_entry_permissions(change):
        yield target(verb, subresource)
    if (kind.group, kind.plural) == (naming.api_group, "projects"):
        namespace = f"{naming.namespace_prefix}{name}"
        for member in _added_entries(change, "members"):
            yield _project_role_target(str(member.get("clusterRole") or "viewer"), namespace, naming.api_group)


def _distinct_permissions(change: Change, permissions: Iterable[RequestInfo]) -> Iterator[RequestInfo]:
    """Removes duplicates and rejects a change that grants too many permissions."""
    seen: set[RequestInfo] = set()
    for right in permissions:
        if right in seen:
            continue
        if len(seen) == MAX_GRANTS:
            raise _too_many_grants_error(change)
        seen.add(right)
        yield right


def _access_entry_permissions(change: Change) -> Iterator[tuple[str, str]]:
    """The distinct verb and subresource combinations that new access entries grant."""
    combined: set[tuple[frozenset[str], frozenset[str]]] = set()
    seen: set[tuple[str, str]] = set()
    count = 0
    for access in _added_entries(change, "access"):
        verbs = frozenset(_strings(access.get("verbs")))
        subresources = frozenset(_strings(access.get("subresources")))
        if (verbs, subresources) in combined:
            continue
        combined.add((verbs, subresources))
        count += len(verbs) * (1 + len(subresources))
        if count > MAX_GRANT_COMBINATIONS:
            raise _too_many_grants_error(change)
        for right in product(sorted(verbs), ("", *sorted(subresources))):
            if right not in seen:
                seen.add(right)
                yield right


def _too_many_grants_error(change: Change) -> Forbidden:
    why = f"it grants more than {MAX_GRANTS} different permissions at once; use `*` in verbs, or add them step by step"
    return forbidden(change, why)


def _is_own_account(owner: Any, user: User) -> bool:
    """Whether a service account names itself as the owner. That records the creator and grants no permissions."""
    return user.name.startswith(SERVICE_ACCOUNT_PREFIXES) and owner == {"user": user.name}


def _added_entries(change: Change, field: str) -> Iterable[Object]:
    """The entries of a spec field that the change adds. Schema validation rejects malformed entries."""
    after = change.spec.get(field)
    if not after or not isinstance(after, list):
        return ()
    before = get_path(change.old or {}, f"spec.{field}")
    # There may be thousands of entries, so they are compared by set lookup.
    known = {encode_sorted(entry) for entry in before} if isinstance(before, list) else set()
    return [entry for entry in after if isinstance(entry, dict) and encode_sorted(entry) not in known]


def _strings(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _project_role_target(role: str, namespace: str, api_group: str) -> RequestInfo:
    """The request for which the requester must be authorized to grant a project role."""
    if role == "admin":
        return RequestInfo(verb=ANY, group=ANY, version=ANY, resource=ANY, namespace=namespace)
    if role == "user":
        return RequestInfo(verb="create", group=api_group, version="v1", resource=WORKSPACES, namespace=namespace)
    if role == "viewer":
        return RequestInfo(verb="list", group=api_group, version="v1", resource=WORKSPACES, namespace=namespace)
    return RequestInfo(verb="bind", group=GROUP, version="v1", resource="clusterroles", namespace=namespace, name=role)


def _grant_denied_error(change: Change, permission: RequestInfo) -> Forbidden:
    what = f"{permission.resource}/{permission.subresource}" if permission.subresource else permission.resource
    where = f' in the namespace "{permission.namespace}"' if permission.namespace else ""
    missing = f"{permission.verb} {qualified_resource(what, permission.group)}{where}"
    why = f'User "{change.user.name}" cannot grant permissions that it does not have: {missing}; ask for them first'
    return forbidden(change, why)
