"""The RBAC authorizer: roles and bindings with the semantics of Kubernetes.

Rules reviews and the escalation check also read the rules of a user here. RBAC only allows: without a matching rule it
has no opinion, so that later authorizers may still allow the request.

The grants of a user in a namespace are computed once and cached until a role or a binding changes, on any replica: the
four resources are read through informers, and each request first compares their generations. The cost of a change does
not depend on the number of roles and bindings (`authz/binding_index.py`).
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import orjson

from fairlead.authz import Decision
from fairlead.authz.binding_index import Named, Subjects
from fairlead.core.call import Target
from fairlead.core.objects import Object
from fairlead.core.user import User
from fairlead.core.validators import begins_with_one, outermost
from fairlead.kinds.rbac.roles import EVERYTHING, GROUP
from fairlead.registry.informer import Following
from fairlead.storage.view.view import View

ANY = "*"
RULE_CACHE_SIZE, RULE_CACHE_NAMES = 256, 100_000
"""Maximum number of cached results per role, and of object names in all of them."""
FEW = 8
"""Up to this many roles are evaluated one by one, without a cache."""
KEPT_ANSWERS = 256
SUBJECT_CACHE_SIZE = 4_096
"""Maximum number of cached subjects; the oldest is evicted first."""
NAMESPACE_CACHE_SIZE = 1_000
"""Maximum number of namespaces for which the grants of a subject are cached."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """A resource rule without its resources. An empty `names` matches all objects."""

    verbs: frozenset[str]
    groups: frozenset[str]
    names: frozenset[str]

    def is_about(self, target: Target) -> bool:
        if target.verb not in self.verbs and ANY not in self.verbs:
            return False
        return target.group in self.groups or ANY in self.groups


Names = frozenset[str] | None
"""The names of the objects that a rule allows; None for all of them."""


class Rights:
    """The rules of one role, indexed by resource. The binding says whether they apply in one namespace or everywhere.

    Only resources are indexed: the full cross product of a rule's fields could be huge. The union of the rules for a
    verb and a resource is cached, since a filtered list evaluates it for each object.
    """

    __slots__ = ("_by_resource", "_extents", "_path_rules", "_paths", "_weight", "rules")

    def __init__(self, rules: Sequence[Object]) -> None:
        self.rules = rules
        self._by_resource: dict[str, list[_Rule]] = {}
        self._path_rules = [rule for rule in rules if rule.get("nonResourceURLs")]
        self._extents: dict[tuple[str, ...], Names] = {}
        self._paths: dict[str, tuple[frozenset[str], list[str]]] = {}
        self._weight = 0
        for rule in rules:
            compiled = _Rule(_set(rule, "verbs"), _set(rule, "apiGroups"), _set(rule, "resourceNames"))
            for resource in _set(rule, "resources"):
                self._by_resource.setdefault(resource, []).append(compiled)

    def allow(self, target: Target, spelled: Sequence[str]) -> bool:
        """Whether a rule allows the request; `patterns` are its `resource_patterns`, computed once for all roles."""
        if not spelled:
            return bool(self._path_rules) and self._allow_path(target)
        names = self.extent(target, spelled)
        return names is None or target.name in names

    def extent(self, target: Target, spelled: Sequence[str]) -> Names:
        """The names of the objects on which the target's verb is allowed, regardless of the target's own name."""
        key = (target.verb, target.group, *spelled)
        try:
            return self._extents[key]
        except KeyError:
            names = self._add_up(target, spelled)
        self._weight += len(names or ()) + 1
        if self._weight > RULE_CACHE_NAMES or len(self._extents) >= RULE_CACHE_SIZE:
            self._extents.clear()
            self._weight = len(names or ()) + 1
        self._extents[key] = names
        return names

    def _add_up(self, target: Target, spelled: Sequence[str]) -> Names:
        found = []
        for resource in spelled:
            for rule in self._by_resource.get(resource, ()):
                if rule.is_about(target):
                    if not rule.names:
                        return None
                    found.append(rule.names)
        return found[0] if len(found) == 1 else frozenset().union(*found)

    def _allow_path(self, target: Target) -> bool:
        if target.verb not in self._paths:
            if len(self._paths) >= RULE_CACHE_SIZE:
                self._paths.clear()
            self._paths[target.verb] = _paths_of(self._path_rules, target.verb)
        paths, beginnings = self._paths[target.verb]
        return target.path in paths or begins_with_one(target.path, beginnings)


def spellings(target: Target) -> tuple[str, ...]:
    """The values of a rule's `resources` that match the request; empty for non-resource URLs.

    As in Kubernetes, `r` does not match the subresource `r/s`.
    """
    if target.subresource:
        return (f"{target.resource}/{target.subresource}", ANY, f"{ANY}/{target.subresource}")
    return (target.resource, ANY) if target.is_resource else ()


def _paths_of(rules: Iterable[Object], verb: str) -> tuple[frozenset[str], list[str]]:
    """The non-resource URLs that rules allow a verb on: exact paths, and prefixes."""
    allowed = (rule for rule in rules if not {verb, ANY}.isdisjoint(rule.get("verbs") or ()))
    paths = frozenset(path for rule in allowed for path in rule["nonResourceURLs"])
    return paths, outermost(path.rstrip(ANY) for path in paths if path.endswith(ANY))


def _set(rule: Object, field: str) -> frozenset[str]:
    return frozenset(rule.get(field) or ())


class Grant:
    """A role that a subject has through a binding, and the resulting decision."""

    __slots__ = ("_decision", "_through", "rights")

    def __init__(self, rights: Rights, through: tuple[str, str, Object, Object]) -> None:
        """`binding` is the namespace and the name of the binding, the binding, and the matching subject."""
        self.rights = rights
        self._through = through
        self._decision: Decision | None = None

    @property
    def decision(self) -> Decision:
        """Created on first use: a user may have thousands of roles and use one."""
        if self._decision is None:
            namespace, name, binding, subject = self._through
            self._decision = Decision(True, _reason(namespace, name, binding["roleRef"], subject))
        return self._decision


class Grants:
    """The roles that a subject has in one namespace, or cluster-wide. The first one that allows a request decides.

    If there are many, the decision is cached by object name, since a filtered list evaluates it for each object.
    """

    __slots__ = ("_found", "_weight", "every")

    def __init__(self) -> None:
        self.every: list[Grant] = []
        self._found: dict[tuple[str, ...], tuple[dict[str, Decision], Decision | None]] = {}
        self._weight = 0

    def decide(self, target: Target, spelled: tuple[str, ...]) -> Decision | None:
        if not spelled or len(self.every) <= FEW:
            for grant in self.every:
                if grant.rights.allow(target, spelled):
                    return grant.decision
            return None
        key = (target.verb, target.group, *spelled)
        found = self._found.get(key)
        if found is None:
            found = self._add_up(target, spelled)
            self._weight += len(found[0]) + 1
            if self._weight > RULE_CACHE_NAMES or len(self._found) >= KEPT_ANSWERS:
                self._found.clear()
                self._weight = len(found[0]) + 1
            self._found[key] = found
        return found[0].get(target.name) or found[1]

    def _add_up(self, target: Target, spelled: tuple[str, ...]) -> tuple[dict[str, Decision], Decision | None]:
        """The decisions by object name, and the decision for all other names."""
        by_name: dict[str, Decision] = {}
        for grant in self.every:
            names = grant.rights.extent(target, spelled)
            if names is None:
                return by_name, grant.decision
            for name in names:
                by_name.setdefault(name, grant.decision)
        return by_name, None


class Rbac:
    """The RBAC authorizer."""

    def __init__(
        self,
        roles: Following,
        cluster_roles: Following,
        role_bindings: Following,
        cluster_role_bindings: Following,
    ) -> None:
        self._followings = (roles, cluster_roles, role_bindings, cluster_role_bindings)
        self._generation: tuple[int, ...] = ()
        self._as_of = -1
        self._picture = _Picture(*self._followings)

    @staticmethod
    def over(view: View) -> "Rbac":
        """An authorizer that reads roles and bindings from a view."""
        plurals = ("roles", "clusterroles", "rolebindings", "clusterrolebindings")
        return Rbac(*(Following(view, GROUP, plural) for plural in plurals))

    def __call__(self, user: User, target: Target) -> Decision | None:
        held = self._now().held(user)
        spelled = spellings(target)
        for namespace in ("", target.namespace) if target.namespace else ("",):
            decision = held.grants(namespace).decide(target, spelled)
            if decision is not None:
                return decision
        return None

    def generation(self) -> tuple[int, ...]:
        """A value that changes whenever a role or a binding has changed."""
        roles, cluster_roles, role_bindings, cluster_role_bindings = self._followings
        return (
            roles.refresh(),
            cluster_roles.refresh(),
            role_bindings.refresh(),
            cluster_role_bindings.refresh(),
        )

    def rules_for(self, user: User, namespace: str) -> list[Object]:
        """All rules that apply to the user in the namespace, including cluster-wide ones. Callers may modify them."""
        if user.is_admin:
            found = [orjson.dumps(rule) for rule in EVERYTHING]
        else:
            held = self._now().held(user)
            places = [held.grants(each) for each in dict.fromkeys(("", namespace))]
            found = [orjson.dumps(rule) for grants in places for grant in grants.every for rule in grant.rights.rules]
        return [orjson.loads(rule) for rule in dict.fromkeys(found)]

    def role_allows(self, name: str, target: Target) -> bool:
        """Whether the ClusterRole of that name allows the request."""
        rights = self._now().rights("ClusterRole", "", name)
        return rights is not None and rights.allow(target, spellings(target))

    def _now(self) -> "_Picture":
        now = self._followings[0].as_of
        if now != self._as_of:  # the view has changed, though perhaps in other resources
            self._as_of = now
            generation = self.generation()
            if generation != self._generation:
                self._generation = generation
                self._picture.update()
        return self._picture


class _Picture:
    """The compiled state of roles and bindings at one generation."""

    def __init__(
        self,
        roles: Following,
        cluster_roles: Following,
        role_bindings: Following,
        cluster_role_bindings: Following,
    ) -> None:
        self._roles = {"Role": roles, "ClusterRole": cluster_roles}
        self._bindings = (cluster_role_bindings, role_bindings)
        self._rights: dict[tuple[str, str, str], Rights] = {}
        self._held: dict[tuple[str, tuple[str, ...]], Held] = {}
        self._subjects = Subjects()

    def update(self) -> None:
        """Applies the changes of the informers. The grants of subjects are dropped and computed again on demand."""
        for kind, roles in self._roles.items():
            for namespace, name in roles.changes():
                self._rights.pop((kind, namespace, name), None)
        for bindings in self._bindings:
            for place in bindings.changes():
                self._subjects.put(place, bindings.objects.get(place))
        self._held.clear()

    def held(self, user: User) -> "Held":
        identity = (user.name, user.groups)
        held = self._held.get(identity)
        if held is None:
            if len(self._held) >= SUBJECT_CACHE_SIZE:
                del self._held[next(iter(self._held))]
            held = self._held[identity] = Held(self._subjects, self._subjects.find(user), self.rights)
        return held

    def rights(self, kind: str, namespace: str, name: str) -> Rights | None:
        """The compiled rules of a role, cached until it changes; None if there is no such role."""
        place = (kind, namespace, name)
        rights = self._rights.get(place)
        if rights is None:
            role = self._roles[kind].objects.get((namespace, name))
            if role is not None:
                rights = self._rights[place] = Rights(role.get("rules") or ())
        return rights


class Held:
    """The grants of one subject by namespace, computed on demand. Valid until a role or a binding changes."""

    __slots__ = ("_found", "_grants", "_rights", "_subjects")

    def __init__(
        self,
        subjects: Subjects,
        found: list[dict[str, Named]],
        rights: Callable[[str, str, str], Rights | None],
    ) -> None:
        self._subjects = subjects
        self._found = found
        self._rights = rights
        self._grants: dict[str, Grants] = {}

    def grants(self, namespace: str) -> Grants:
        """The grants in a namespace; an empty one means cluster-wide."""
        grants = self._grants.get(namespace)
        if grants is None:
            if not any(namespace in filed for filed in self._found):
                return _NONE
            grants = self._work_out(namespace)
            if len(self._grants) < NAMESPACE_CACHE_SIZE:
                self._grants[namespace] = grants
        return grants

    def _work_out(self, namespace: str) -> Grants:
        """Only the first of several bindings to the same role is used: the others would never decide."""
        grants, seen = Grants(), set[tuple[str, str]]()
        for name, binding, subject in self._subjects.bindings(self._found, namespace):
            kind, role = binding["roleRef"]["kind"], binding["roleRef"]["name"]
            if (kind, role) in seen:
                continue
            seen.add((kind, role))
            rights = self._rights(kind, namespace if kind == "Role" else "", role)
            if rights is not None:
                grants.every.append(Grant(rights, (namespace, name, binding, subject)))
        return grants


_NONE = Grants()


def _reason(namespace: str, name: str, role: Object, subject: Object) -> str:
    binding, who = f"ClusterRoleBinding {_quoted(name)}", subject["name"]
    if namespace:
        binding = f"RoleBinding {_quoted(f'{name}/{namespace}')}"
    if subject["kind"] == "ServiceAccount":
        who = f"{who}/{subject.get('namespace') or namespace}"
    of, to = f"{role['kind']} {_quoted(role['name'])}", f"{subject['kind']} {_quoted(who)}"
    return f"RBAC: allowed by {binding} of {of} to {to}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
