"""The RBAC authorizer: roles and bindings with the semantics of Kubernetes.

Rules reviews and the escalation check also read the rules of a user here. RBAC only allows: without a matching rule it
has no opinion, so that later authorizers may still allow the request.

The grants of a user in a namespace are computed once and cached until a role or a binding changes, on any replica: the
four resources are read through informers, and each request first compares their generations. The cost of a change does
not depend on the number of roles and bindings: bindings are indexed by subject, updated one binding at a time.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import orjson

from fairlead.core.bounded_cache import BoundedCache
from fairlead.core.call import Decision, RequestInfo
from fairlead.core.objects import Object
from fairlead.core.user import SERVICE_ACCOUNT_PREFIX, User
from fairlead.core.validators import minimal_prefixes, starts_with_any
from fairlead.kinds.rbac.roles import ALL_PERMISSIONS, GROUP
from fairlead.registry.informer import Derived, Informer
from fairlead.storage.view.view import NamespacedName, View

SubjectKey = tuple[bool, str]
"""A subject: whether it is a group, and its name. Service accounts are users with their full user name."""
SubjectIndexes = dict[str, int]
"""Names of bindings in one namespace, and the index of the subject in each."""


class BindingIndex:
    """Bindings by subject and by namespace; an empty namespace means ClusterRoleBindings."""

    def __init__(self) -> None:
        self._bindings: dict[NamespacedName, Object] = {}
        self._by_subject: dict[SubjectKey, dict[str, SubjectIndexes]] = {}

    def update(self, key: NamespacedName, binding: Object | None) -> None:
        """Adds or replaces a binding; None removes it."""
        old = self._bindings.pop(key, None)
        if old is not None:
            self._remove(key, old)
        if binding is not None:
            self._bindings[key] = binding
            namespace, name = key
            for number, who in _subject_keys(namespace, binding):
                self._by_subject.setdefault(who, {}).setdefault(namespace, {}).setdefault(name, number)

    def _remove(self, key: NamespacedName, binding: Object) -> None:
        namespace, name = key
        for _, who in _subject_keys(namespace, binding):
            filed = self._by_subject.get(who, {})
            named = filed.get(namespace, {})
            named.pop(name, None)
            if not named:
                filed.pop(namespace, None)
            if not filed:
                self._by_subject.pop(who, None)

    def find_for_user(self, user: User) -> list[dict[str, SubjectIndexes]]:
        """The index entries of a user and its groups, by namespace. Callers must not modify them."""
        subjects: Iterable[SubjectKey] = ((False, user.name), *((True, group) for group in dict.fromkeys(user.groups)))
        return [self._by_subject[subject] for subject in subjects if subject in self._by_subject]

    def bindings_in(
        self, found: Iterable[dict[str, SubjectIndexes]], namespace: str
    ) -> Iterator[tuple[str, Object, Object]]:
        """The bindings of these index entries in a namespace, sorted by name: name, binding and subject."""
        by_namespace: SubjectIndexes = {}
        for filed in found:
            for name, number in filed.get(namespace, {}).items():
                by_namespace[name] = min(number, by_namespace.get(name, number))
        for name in sorted(by_namespace):
            binding = self._bindings[namespace, name]
            yield name, binding, binding["subjects"][by_namespace[name]]


def _subject_keys(namespace: str, binding: Object) -> Iterator[tuple[int, SubjectKey]]:
    for number, subject in enumerate(binding.get("subjects") or ()):
        kind, name = subject["kind"], subject["name"]
        if kind == "ServiceAccount":
            name = f"{SERVICE_ACCOUNT_PREFIX}{subject.get('namespace') or namespace}:{name}"
        yield number, (kind == "Group", name)


ANY = "*"
RULE_CACHE_SIZE, MAX_CACHED_NAMES = 256, 100_000
"""Maximum number of cached results per role, and of object names in all of them."""
MAX_UNCACHED_ROLES = 8
"""Up to this many roles are evaluated one by one, without a cache."""
DECISION_CACHE_SIZE = 256
SUBJECT_CACHE_SIZE = 4_096
"""Maximum number of cached subjects."""
MAX_LISTED_BYTES = 512 * 1024
"""How many bytes of rules a review lists. Encoding more would block the event loop."""
NAMESPACE_CACHE_SIZE = 1_000
"""Maximum number of namespaces for which the grants of a subject are cached."""


@dataclass(frozen=True, slots=True)
class _ResourceRule:
    """A resource rule without its resources. An empty `names` matches all objects."""

    verbs: frozenset[str]
    groups: frozenset[str]
    names: frozenset[str]

    def matches(self, target: RequestInfo) -> bool:
        if target.verb not in self.verbs and ANY not in self.verbs:
            return False
        return target.group in self.groups or ANY in self.groups


AllowedNames = frozenset[str] | None
"""The names of the objects that a rule allows; None for all of them."""


class RoleRules:
    """The rules of one role, indexed by resource. The binding says whether they apply in one namespace or everywhere.

    Only resources are indexed: the full cross product of a rule's fields could be huge. The union of the rules for a
    verb and a resource is cached, since a filtered list evaluates it for each object.
    """

    __slots__ = ("_allowed_names", "_by_resource", "_path_rules", "_paths_by_verb", "rules")

    def __init__(self, rules: Sequence[Object]) -> None:
        self.rules = rules
        self._by_resource: dict[str, list[_ResourceRule]] = {}
        self._path_rules = [rule for rule in rules if rule.get("nonResourceURLs")]
        self._allowed_names: BoundedCache[tuple[str, ...], AllowedNames] = BoundedCache(
            RULE_CACHE_SIZE, MAX_CACHED_NAMES, _count_names
        )
        self._paths_by_verb: BoundedCache[str, tuple[frozenset[str], list[str]]] = BoundedCache(RULE_CACHE_SIZE)
        for rule in rules:
            compiled = _ResourceRule(
                _field_set(rule, "verbs"), _field_set(rule, "apiGroups"), _field_set(rule, "resourceNames")
            )
            for resource in _field_set(rule, "resources"):
                self._by_resource.setdefault(resource, []).append(compiled)

    def allows(self, target: RequestInfo, patterns: Sequence[str]) -> bool:
        """Whether a rule allows the request; `patterns` are its `resource_patterns`, computed once for all roles."""
        if not patterns:
            return bool(self._path_rules) and self._allows_path(target)
        names = self.allowed_names(target, patterns)
        return names is None or target.name in names

    def allowed_names(self, target: RequestInfo, patterns: Sequence[str]) -> AllowedNames:
        """The names of the objects on which the target's verb is allowed, regardless of the target's own name."""
        key = (target.verb, target.group, *patterns)
        try:
            return self._allowed_names[key]
        except KeyError:
            names = self._allowed_names[key] = self._union_names(target, patterns)
            return names

    def _union_names(self, target: RequestInfo, patterns: Sequence[str]) -> AllowedNames:
        found = []
        for resource in patterns:
            for rule in self._by_resource.get(resource, ()):
                if rule.matches(target):
                    if not rule.names:
                        return None
                    found.append(rule.names)
        return found[0] if len(found) == 1 else frozenset().union(*found)

    def _allows_path(self, target: RequestInfo) -> bool:
        if target.verb not in self._paths_by_verb:
            self._paths_by_verb[target.verb] = _allowed_paths(self._path_rules, target.verb)
        paths, beginnings = self._paths_by_verb[target.verb]
        return target.path in paths or starts_with_any(target.path, beginnings)


def resource_patterns(target: RequestInfo) -> tuple[str, ...]:
    """The values of a rule's `resources` that match the request; empty for non-resource URLs.

    As in Kubernetes, `r` does not match the subresource `r/s`.
    """
    if target.subresource:
        return (f"{target.resource}/{target.subresource}", ANY, f"{ANY}/{target.subresource}")
    return (target.resource, ANY) if target.is_resource else ()


def _count_names(names: AllowedNames) -> int:
    return len(names or ())


def _allowed_paths(rules: Iterable[Object], verb: str) -> tuple[frozenset[str], list[str]]:
    """The non-resource URLs that rules allow a verb on: exact paths, and prefixes."""
    allowed = (rule for rule in rules if not {verb, ANY}.isdisjoint(rule.get("verbs") or ()))
    paths = frozenset(path for rule in allowed for path in rule["nonResourceURLs"])
    return paths, minimal_prefixes(path.rstrip(ANY) for path in paths if path.endswith(ANY))


def _field_set(rule: Object, field: str) -> frozenset[str]:
    return frozenset(rule.get(field) or ())


class Grant:
    """A role that a subject has through a binding, and the resulting decision."""

    __slots__ = ("_binding", "_decision", "role_rules")

    def __init__(self, role_rules: RoleRules, binding: tuple[str, str, Object, Object]) -> None:
        """`binding` is the namespace and the name of the binding, the binding, and the matching subject."""
        self.role_rules = role_rules
        self._binding = binding
        self._decision: Decision | None = None

    @property
    def decision(self) -> Decision:
        """Created on first use: a user may have thousands of roles and use one."""
        if self._decision is None:
            namespace, name, binding, subject = self._binding
            self._decision = Decision(True, _reason(namespace, name, binding["roleRef"], subject))
        return self._decision


_NamedDecisions = tuple[dict[str, Decision], Decision | None]
"""The decisions by object name, and the decision for all other names."""


def _count_decisions(decisions: _NamedDecisions) -> int:
    return len(decisions[0])


class Grants:
    """The roles that a subject has in one namespace, or cluster-wide. The first one that allows a request decides.

    If there are many, the decision is cached by object name, since a filtered list evaluates it for each object.
    """

    __slots__ = ("_decisions", "grants")

    def __init__(self) -> None:
        self.grants: list[Grant] = []
        self._decisions: BoundedCache[tuple[str, ...], _NamedDecisions] = BoundedCache(
            DECISION_CACHE_SIZE, MAX_CACHED_NAMES, _count_decisions
        )

    def decide(self, target: RequestInfo, patterns: tuple[str, ...]) -> Decision | None:
        if not patterns or len(self.grants) <= MAX_UNCACHED_ROLES:
            for grant in self.grants:
                if grant.role_rules.allows(target, patterns):
                    return grant.decision
            return None
        key = (target.verb, target.group, *patterns)
        found = self._decisions.get(key)
        if found is None:
            found = self._decisions[key] = self._decisions_by_name(target, patterns)
        return found[0].get(target.name) or found[1]

    def _decisions_by_name(self, target: RequestInfo, patterns: tuple[str, ...]) -> _NamedDecisions:
        by_name: dict[str, Decision] = {}
        for grant in self.grants:
            names = grant.role_rules.allowed_names(target, patterns)
            if names is None:
                return by_name, grant.decision
            for name in names:
                by_name.setdefault(name, grant.decision)
        return by_name, None


class RbacAuthorizer:
    """The RBAC authorizer."""

    def __init__(
        self,
        roles: Informer,
        cluster_roles: Informer,
        role_bindings: Informer,
        cluster_role_bindings: Informer,
    ) -> None:
        self._informers = (roles, cluster_roles, role_bindings, cluster_role_bindings)
        self._snapshot = Derived(roles.view, (self.generation,), _RbacSnapshot(*self._informers).update)

    @staticmethod
    def from_view(view: View) -> "RbacAuthorizer":
        """An authorizer that reads roles and bindings from a view."""
        plurals = ("roles", "clusterroles", "rolebindings", "clusterrolebindings")
        return RbacAuthorizer(*(Informer(view, GROUP, plural) for plural in plurals))

    def __call__(self, user: User, target: RequestInfo) -> Decision | None:
        held = self._snapshot.get().grants_of(user)
        spelled = resource_patterns(target)
        for namespace in ("", target.namespace) if target.namespace else ("",):
            decision = held.grants_in(namespace).decide(target, spelled)
            if decision is not None:
                return decision
        return None

    def generation(self) -> tuple[int, ...]:
        """A value that changes whenever a role or a binding has changed."""
        roles, cluster_roles, role_bindings, cluster_role_bindings = self._informers
        return (
            roles.refresh(),
            cluster_roles.refresh(),
            role_bindings.refresh(),
            cluster_role_bindings.refresh(),
        )

    def rules_for(self, user: User, namespace: str) -> list[Object]:
        """All rules that apply to the user in the namespace, including cluster-wide ones. Callers may modify them."""
        found = dict.fromkeys(map(orjson.dumps, self._iter_rules(user, namespace)))
        return [orjson.loads(rule) for rule in found]

    def list_rules(self, user: User, namespace: str) -> tuple[list[Object], bool]:
        """The same up to `MAX_LISTED_BYTES`, and whether these are all."""
        found, room = dict[bytes, None](), MAX_LISTED_BYTES
        for rule in self._iter_rules(user, namespace):
            encoded = orjson.dumps(rule)
            room -= len(encoded)
            if room < 0:
                return [orjson.loads(each) for each in found], False
            found[encoded] = None
        return [orjson.loads(each) for each in found], True

    def _iter_rules(self, user: User, namespace: str) -> Iterator[Object]:
        if user.is_admin:
            yield from ALL_PERMISSIONS
            return
        held = self._snapshot.get().grants_of(user)
        for place in dict.fromkeys(("", namespace)):
            for grant in held.grants_in(place).grants:
                yield from grant.role_rules.rules

    def role_allows(self, name: str, target: RequestInfo) -> bool:
        """Whether the ClusterRole of that name allows the request."""
        rights = self._snapshot.get().role_rules("ClusterRole", "", name)
        return rights is not None and rights.allows(target, resource_patterns(target))


class _RbacSnapshot:
    """The compiled state of roles and bindings at one generation."""

    def __init__(
        self,
        roles: Informer,
        cluster_roles: Informer,
        role_bindings: Informer,
        cluster_role_bindings: Informer,
    ) -> None:
        self._roles = {"Role": roles, "ClusterRole": cluster_roles}
        self._bindings = (cluster_role_bindings, role_bindings)
        self._role_rules: dict[tuple[str, str, str], RoleRules] = {}
        self._grants_by_subject: BoundedCache[tuple[str, tuple[str, ...]], GrantsByNamespace] = BoundedCache(
            SUBJECT_CACHE_SIZE
        )
        self._binding_index = BindingIndex()

    def update(self) -> "_RbacSnapshot":
        """Applies the changes of the informers. The grants of subjects are dropped and computed again on demand."""
        for kind, roles in self._roles.items():
            for namespace, name in roles.pop_changed_keys():
                self._role_rules.pop((kind, namespace, name), None)
        for bindings in self._bindings:
            for key in bindings.pop_changed_keys():
                self._binding_index.update(key, bindings.objects.get(key))
        self._grants_by_subject.clear()
        return self

    def grants_of(self, user: User) -> "GrantsByNamespace":
        identity = (user.name, user.groups)
        held = self._grants_by_subject.get(identity)
        if held is None:
            held = self._grants_by_subject[identity] = GrantsByNamespace(
                self._binding_index, self._binding_index.find_for_user(user), self.role_rules
            )
        return held

    def role_rules(self, kind: str, namespace: str, name: str) -> RoleRules | None:
        """The compiled rules of a role, cached until it changes; None if there is no such role."""
        key = (kind, namespace, name)
        rights = self._role_rules.get(key)
        if rights is None:
            role = self._roles[kind].objects.get((namespace, name))
            if role is not None:
                rights = self._role_rules[key] = RoleRules(role.get("rules") or ())
        return rights


class GrantsByNamespace:
    """The grants of one subject by namespace, computed on demand. Valid until a role or a binding changes."""

    __slots__ = ("_binding_index", "_found", "_grants", "_role_rules")

    def __init__(
        self,
        binding_index: BindingIndex,
        found: list[dict[str, SubjectIndexes]],
        role_rules: Callable[[str, str, str], RoleRules | None],
    ) -> None:
        self._binding_index = binding_index
        self._found = found
        self._role_rules = role_rules
        self._grants: BoundedCache[str, Grants] = BoundedCache(NAMESPACE_CACHE_SIZE)

    def grants_in(self, namespace: str) -> Grants:
        """The grants in a namespace; an empty one means cluster-wide."""
        grants = self._grants.get(namespace)
        if grants is None:
            if not any(namespace in filed for filed in self._found):
                return _NO_GRANTS
            grants = self._grants[namespace] = self._resolve(namespace)
        return grants

    def _resolve(self, namespace: str) -> Grants:
        """Only the first of several bindings to the same role is used: the others would never decide."""
        grants = Grants()
        seen = set[tuple[str, str]]()
        for name, binding, subject in self._binding_index.bindings_in(self._found, namespace):
            kind, role = binding["roleRef"]["kind"], binding["roleRef"]["name"]
            if (kind, role) in seen:
                continue
            seen.add((kind, role))
            rights = self._role_rules(kind, namespace if kind == "Role" else "", role)
            if rights is not None:
                grants.grants.append(Grant(rights, (namespace, name, binding, subject)))
        return grants


_NO_GRANTS = Grants()


def _reason(namespace: str, name: str, role: Object, subject: Object) -> str:
    binding, who = f"ClusterRoleBinding {_quote(name)}", subject["name"]
    if namespace:
        binding = f"RoleBinding {_quote(f'{name}/{namespace}')}"
    if subject["kind"] == "ServiceAccount":
        who = f"{who}/{subject.get('namespace') or namespace}"
    of = f"{role['kind']} {_quote(role['name'])}"
    to = f"{subject['kind']} {_quote(who)}"
    return f"RBAC: allowed by {binding} of {of} to {to}"


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
