"""A scope, compiled for lookups: decides whether a request is within it.

`authorizer.py` caches one `CompiledScope` per scope, since scopes are immutable. Entries only add permissions. What no
entry allows is outside of the scope.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from fairlead.authz.authorizer import CUT_VERBS
from fairlead.authz.name_index import owns
from fairlead.authz.scope.matching import compile_rule, for_entrance, for_root
from fairlead.authz.scope.names import CLUSTER, GATEWAYS, SPACE, VIRTUAL_CLUSTER, ScopeNames, is_basic
from fairlead.authz.scope.path_patterns import is_plain
from fairlead.authz.scope.rule_index import RuleIndex
from fairlead.core.call import MANAGEMENT, NAMESPACES, Target
from fairlead.core.scope import ANY, Scope
from fairlead.core.user import User
from fairlead.kinds.access.whoami import AUTHENTICATION_GROUP
from fairlead.kinds.projects.migration import MIGRATE
from fairlead.kinds.rbac.access_reviews import AUTHORIZATION_GROUP

READ = frozenset({"get", "list", "watch"})
"""Reading verbs on one object. A list or watch with a name selects that object by a field selector."""

IMPERSONATE = "impersonate"
"""Denied for every scoped key: the impersonated user would not be restricted to the scope."""

INSTANCES = {"spaceinstances": "space", "virtualclusterinstances": "virtual cluster"}
"""The kinds of instances that a scope can list by name."""

BEHIND = {SPACE: "spaceinstances", VIRTUAL_CLUSTER: "virtualclusterinstances"}
"""The kind of instance behind each type of gateway."""


CUSTOM_RESOURCES = ("apiextensions.k8s.io", "customresourcedefinitions")
"""This server has no CRDs and returns an empty list. Clients request it as part of discovery."""

DOCUMENTS = frozenset({"/", "/api", "/apis", "/version", "/openapi/v2", "/openapi/v3"})
DOCUMENTS_BELOW = ("/api/", "/apis/", "/openapi/v3/")

Entries = Mapping[str, frozenset[str]]
"""Object names by namespace."""

Special = Callable[[User, Target], bool]

KEPT_ENTRANCES = 64
"""Maximum number of gateways whose rule indexes are cached."""


class Boundary:
    """What one scope allows. `allows` is called for every request with a scoped key, so it only does lookups."""

    def __init__(self, scope: Scope, names: ScopeNames) -> None:
        prefix = names.namespace_prefix
        self._names = names
        self._empty = scope.holds_nothing
        self._cli = scope.allow_cli
        self._projects = frozenset(scope.projects) - {ANY, ""}
        self._namespaces = frozenset(prefix + project for project in self._projects)
        self._all_projects = ANY in scope.projects
        self._clusters = frozenset(scope.clusters) - {""}
        self._instances = {
            (names.api_group, "spaceinstances"): _by_namespace(scope.spaces, prefix),
            (names.api_group, "virtualclusterinstances"): _by_namespace(scope.virtual_clusters, prefix),
        }
        self._neighbours = frozenset(names.project(each) for entries in self._instances.values() for each in entries)
        self._rules = tuple(map(compile_rule, scope.rules))
        self._rules_by_root = {
            root: RuleIndex(rule for rule in self._rules if for_root(rule, root)) for root in (MANAGEMENT, "")
        }
        self._rules_behind: dict[tuple[str, str, str], RuleIndex] = {}
        self._specials = self._laid_out(names.api_group)

    def _laid_out(self, group: str) -> dict[tuple[str, str], Special]:
        """Kinds with checks of their own; all others are allowed by their namespace or by a rule."""
        return {
            (group, "projects"): self._is_readable_project,
            NAMESPACES: self._is_project_namespace,
            (group, "clusters"): self._is_readable_cluster,
            (group, "users"): lambda user, target: self._is_oneself(target, owns(user, target.name, None)),
            (group, "teams"): lambda user, target: self._is_oneself(target, owns(user, None, target.name)),
            **{kind: lambda user, target: is_question(target) for kind in who_one_is(group)},
            **{kind: lambda user, target: self._cli and is_question(target) for kind in what_one_may(group)},
            CUSTOM_RESOURCES: lambda user, target: not self._empty and target.verb == "list" and not target.name,
        }

    def allows(self, user: User, target: Target) -> bool:
        if target.verb == IMPERSONATE:
            return False
        if target.root in GATEWAYS:
            return self.lets_through(target, None)
        if target.resource and target.root == MANAGEMENT:
            return self._allows_resource(user, target)
        return self._is_document(target) or self._is_ruled(target)

    def _allows_resource(self, user: User, target: Target) -> bool:
        kind = target.group, target.resource
        if self._is_in_project(target.namespace) and self._names.namespaced.get(kind):
            return True
        special = self._specials.get(kind)
        if special is not None and special(user, target):
            return True
        return _is_entry(self._instances.get(kind), target) or self._is_ruled(target)

    def _is_ruled(self, target: Target) -> bool:
        """Whether a rule allows the request. Lists and watches need `list` and `watch`, even with a single name."""
        rules = self._rules_by_root.get(target.root)
        return rules is not None and bool(rules) and rules.allow(target, self._names.places(target))

    def _is_document(self, target: Target) -> bool:
        """Discovery and OpenAPI: every client needs them, and they are the same for all users."""
        read = target.root == MANAGEMENT and target.verb == "get" and not self._empty
        return read and _is_document(target.path)

    def _is_in_project(self, namespace: str) -> bool:
        if namespace in self._namespaces:
            return True
        return self._all_projects and bool(self._names.project(namespace))

    def _is_readable_project(self, user: User, target: Target) -> bool:
        """Reads of a project, and migration into it. A migration needs a second project in the scope, its source."""
        inside = self._all_projects or target.name in self._projects
        if target.verb in READ:
            return inside or (self._cli and target.name in self._neighbours and not target.subresource)
        pairs = self._all_projects or len(self._projects) > 1
        return inside and pairs and bool(target.name) and (target.verb, target.subresource) == ("create", MIGRATE)

    def _is_project_namespace(self, user: User, target: Target) -> bool:
        return target.verb in READ and self._is_in_project(target.name)

    def _is_readable_cluster(self, user: User, target: Target) -> bool:
        """Excludes subresources other than status: they return credentials of the cluster, which exceed the scope."""
        known = ANY in self._clusters or target.name in self._clusters
        return known and target.verb in READ and target.subresource in ("", "status")

    def _is_oneself(self, target: Target, own: bool) -> bool:
        return self._cli and own and target.verb in READ and not target.subresource

    def touches(self, target: Target) -> bool:
        """Whether the scope may allow some objects of the resource, so that a list or watch is filtered, not denied.

        False for a list or watch of a single object by name: there is nothing to filter.
        """
        kind = target.group, target.resource
        listed = target.root == MANAGEMENT and target.verb in CUT_VERBS and not target.name and not target.subresource
        if not listed or kind not in self._names.namespaced:
            return False
        return self._reaches(kind, target.namespace) or self._has_rule_for(kind, target)

    def _reaches(self, kind: tuple[str, str], namespace: str) -> bool:
        group = self._names.api_group
        if self._cli and kind in _listed_by_cli(group):
            return True
        if kind in ((group, "projects"), NAMESPACES):
            return self._all_projects or bool(self._projects)
        if kind == (group, "clusters"):
            return bool(self._clusters)
        if not self._names.namespaced[kind]:
            return False
        entries = self._instances.get(kind, {})
        if namespace:
            return namespace in entries or self._is_in_project(namespace)
        return bool(entries) or self._all_projects or bool(self._projects)

    def _has_rule_for(self, kind: tuple[str, str], target: Target) -> bool:
        rules = self._rules_by_root[MANAGEMENT]
        if kind == NAMESPACES:  # a rule with any namespace may match a Namespace object
            return rules.touch_any(target)
        everywhere = self._names.namespaced[kind] and not target.namespace
        return rules.touch(target, None if everywhere else self._names.places(target))

    def lets_through(self, entrance: Target, inner: Target | None) -> bool:
        """Whether the scope allows the inner request through a gateway; without one, whether it allows all of them."""
        if self._has_entrance(entrance):
            return True
        rules = self._rules_for(entrance)
        if inner is None or not rules:
            return bool(rules) and rules.allow_anything(entrance.verb)
        return is_basic(inner) or rules.allow(inner, self._names.places(replace(inner, root=entrance.root)))

    def reaches_gateway(self, entrance: Target) -> bool:
        """Whether some entry allows anything behind this gateway."""
        return self._has_entrance(entrance) or bool(self._rules_for(entrance))

    def _rules_for(self, entrance: Target) -> RuleIndex:
        key = entrance.root, entrance.namespace, entrance.name
        rules = self._rules_behind.get(key)
        if rules is None:
            if len(self._rules_behind) >= KEPT_ENTRANCES:
                self._rules_behind.clear()
            rules = RuleIndex(rule for rule in self._rules if for_entrance(rule, entrance))
            self._rules_behind[key] = rules
        return rules

    def _has_entrance(self, entrance: Target) -> bool:
        if entrance.root == CLUSTER:
            return ANY in self._clusters or entrance.name in self._clusters
        kind = self._names.api_group, BEHIND[entrance.root]
        return self._is_in_project(entrance.namespace) or _is_entry(self._instances.get(kind), entrance)


def who_one_is(group: str) -> tuple[tuple[str, str], ...]:
    """The reviews of a user's own identity, which every scope allows."""
    return (group, "selves"), (AUTHENTICATION_GROUP, "selfsubjectreviews")


def what_one_may(group: str) -> tuple[tuple[str, str], ...]:
    """The reviews of a user's own permissions, which the CLI creates."""
    return (group, "selfsubjectaccessreviews"), (AUTHORIZATION_GROUP, "selfsubjectaccessreviews")


def _by_namespace(pairs: Iterable[tuple[str, str]], prefix: str) -> Entries:
    """Names by namespace. `*` is valid as the name of an instance, but not as a project."""
    found: dict[str, set[str]] = {}
    for project, name in pairs:
        if project not in ("", ANY) and name:
            found.setdefault(prefix + project, set()).add(name)
    return {namespace: frozenset(names) for namespace, names in found.items()}


def _listed_by_cli(group: str) -> frozenset[tuple[str, str]]:
    plurals = ("projects", "clusters", "spaceinstances", "virtualclusterinstances", "devpodworkspaceinstances")
    return frozenset((group, plural) for plural in (*plurals, "users", "teams"))


def _is_entry(entries: Entries | None, target: Target) -> bool:
    names = entries.get(target.namespace) if entries else None
    return names is not None and (ANY in names or target.name in names)


def is_question(target: Target) -> bool:
    return target.verb == "create" and not (target.name or target.subresource)


def _is_document(path: str) -> bool:
    path = path.removesuffix("/") or "/"
    return path in DOCUMENTS or (path.startswith(DOCUMENTS_BELOW) and is_plain(path))
