"""A scope, compiled for lookups: decides whether a request is within it.

`authorizer.py` caches one `CompiledScope` per scope, since scopes are immutable. Entries only add permissions. What no
entry allows is outside of the scope.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from fairlead.authz.authorizer import FILTERED_VERBS
from fairlead.authz.name_index import owns
from fairlead.authz.scope.gateway_requests import (
    CLUSTER,
    GATEWAY_ROOTS,
    SPACE,
    VIRTUAL_CLUSTER,
    is_basic_request,
    is_unambiguous,
)
from fairlead.authz.scope.rules import RuleIndex, applies_to_gateway, applies_to_root, compile_rule
from fairlead.core.bounded_cache import BoundedCache
from fairlead.core.call import MANAGEMENT, NAMESPACE_RESOURCE, RequestInfo
from fairlead.core.scope import ANY, Scope
from fairlead.core.user import User
from fairlead.kinds import KINDS
from fairlead.kinds.access.whoami import AUTHENTICATION_GROUP
from fairlead.kinds.core.empty_kinds import CUSTOM_RESOURCE_DEFINITION
from fairlead.kinds.projects.project import MIGRATE_SUBRESOURCE
from fairlead.kinds.rbac.access_reviews import AUTHORIZATION_GROUP
from fairlead.registry.kind import Catalog

READ_VERBS = frozenset({"get", "list", "watch"})
"""Reading verbs on one object. A list or watch with a name selects that object by a field selector."""

IMPERSONATE = "impersonate"
"""Denied for every scoped key: the impersonated user would not be restricted to the scope."""

CLI_RESOURCES = frozenset(kind.plural for kind in KINDS if kind.is_in_cli_scope)
"""The management kinds whose lists are filtered, not denied, if the scope allows requests of command-line tools."""

GATEWAY_RESOURCES = {SPACE: "spaceinstances", VIRTUAL_CLUSTER: "virtualclusterinstances"}
"""The kind of instance behind each type of gateway."""


CUSTOM_RESOURCES = CUSTOM_RESOURCE_DEFINITION.stored_resource
"""This server has no CRDs, and the list is empty. Clients request it as part of discovery."""

DISCOVERY_PATHS = frozenset({"/", "/api", "/apis", "/version", "/openapi/v2", "/openapi/v3"})
DISCOVERY_PREFIXES = ("/api/", "/apis/", "/openapi/v3/")

NamesByNamespace = Mapping[str, frozenset[str]]
"""Object names by namespace."""

KindRule = Callable[[User, RequestInfo], bool]

GATEWAY_CACHE_SIZE = 64
"""Maximum number of gateways whose rule indexes are cached."""


@dataclass(frozen=True, slots=True, eq=False)
class ScopeNaming:
    """The names of this installation, from the settings and the catalog: no API group is hard-coded here.

    `namespaced` says for each group and plural whether the kind is namespaced.
    """

    api_group: str
    namespace_prefix: str
    namespaced: Mapping[tuple[str, str], bool]

    @staticmethod
    def from_catalog(catalog: Catalog, api_group: str, namespace_prefix: str) -> "ScopeNaming":
        namespaced = {(kind.group, kind.plural): kind.namespaced for kind in catalog.kinds}
        return ScopeNaming(api_group, namespace_prefix, namespaced)

    def project_of(self, namespace: str) -> str:
        """The project of a namespace, derived from its name; empty if it does not belong to a project."""
        prefix = self.namespace_prefix
        return namespace.removeprefix(prefix) if namespace.startswith(prefix) else ""

    def matching_namespaces(self, target: RequestInfo) -> tuple[str, ...]:
        """The values of a rule's namespaces that match the request; one of them is enough.

        Empty for a request across all namespaces, which only a rule without namespaces allows. A cluster-scoped kind
        stays cluster-scoped, whatever the path says. The kinds behind a gateway are unknown here, so a request there
        without a namespace counts as one across all namespaces, unless it names an object or creates one.
        """
        kind = target.group, target.resource
        if kind == NAMESPACE_RESOURCE:
            return ("", target.name) if target.name else ("",)
        if target.root == MANAGEMENT:
            outside = self.namespaced.get(kind) is False
        else:
            outside = not target.namespace and (bool(target.name) or target.verb == "create")
        if outside:
            return ("",)
        return (target.namespace,) if target.namespace else ()


class CompiledScope:
    """What one scope allows. `allows` is called for every request with a scoped key, so it only does lookups."""

    def __init__(self, scope: Scope, naming: ScopeNaming) -> None:
        prefix = naming.namespace_prefix
        self._naming = naming
        self._is_empty = scope.is_empty
        self._allows_cli = scope.allow_cli
        self._projects = frozenset(scope.projects) - {ANY, ""}
        self._namespaces = frozenset(prefix + project for project in self._projects)
        self._all_projects = ANY in scope.projects
        self._clusters = frozenset(scope.clusters) - {""}
        self._instances = {
            (naming.api_group, "spaceinstances"): _names_by_namespace(scope.spaces, prefix),
            (naming.api_group, "virtualclusterinstances"): _names_by_namespace(scope.virtual_clusters, prefix),
        }
        self._instance_projects = frozenset(
            naming.project_of(each) for entries in self._instances.values() for each in entries
        )
        self._rules = tuple(map(compile_rule, scope.rules))
        self._rules_by_root = {
            root: RuleIndex(rule for rule in self._rules if applies_to_root(rule, root)) for root in (MANAGEMENT, "")
        }
        self._rules_by_gateway: BoundedCache[tuple[str, str, str], RuleIndex] = BoundedCache(GATEWAY_CACHE_SIZE)
        self._kind_rules = self._build_kind_rules(naming.api_group)

    def _build_kind_rules(self, group: str) -> dict[tuple[str, str], KindRule]:
        """Kinds with checks of their own; all others are allowed by their namespace or by a rule."""
        return {
            (group, "projects"): self._allows_project,
            NAMESPACE_RESOURCE: self._allows_namespace,
            (group, "clusters"): self._allows_cluster,
            (group, "users"): lambda user, target: self._allows_self(target, owns(user, target.name, None)),
            (group, "teams"): lambda user, target: self._allows_self(target, owns(user, None, target.name)),
            **{kind: lambda user, target: is_review(target) for kind in self_review_resources(group)},
            **{
                kind: lambda user, target: self._allows_cli and is_review(target)
                for kind in access_review_resources(group)
            },
            resource_counts(group): lambda user, target: self._allows_cli and is_list(target),
            CUSTOM_RESOURCES: lambda user, target: not self._is_empty and target.verb in READ_VERBS,
        }

    def allows(self, user: User, target: RequestInfo) -> bool:
        if target.verb == IMPERSONATE:
            return False
        if target.root in GATEWAY_ROOTS:
            return self.allows_gateway(target, None)
        if target.resource and target.root == MANAGEMENT:
            return self._allows_resource(user, target)
        return self._is_discovery(target) or self._is_allowed_by_rule(target)

    def _allows_resource(self, user: User, target: RequestInfo) -> bool:
        kind = target.group, target.resource
        if self._is_in_project(target.namespace) and self._naming.namespaced.get(kind):
            return True
        special = self._kind_rules.get(kind)
        if special is not None and special(user, target):
            return True
        return _has_entry(self._instances.get(kind), target) or self._is_allowed_by_rule(target)

    def _is_allowed_by_rule(self, target: RequestInfo) -> bool:
        """Whether a rule allows the request. Lists and watches need `list` and `watch`, even with a single name."""
        rules = self._rules_by_root.get(target.root)
        return rules is not None and bool(rules) and rules.allows(target, self._naming.matching_namespaces(target))

    def _is_discovery(self, target: RequestInfo) -> bool:
        """Discovery and OpenAPI: every client needs them, and they are the same for all users."""
        read = target.root == MANAGEMENT and target.verb == "get" and not self._is_empty
        return read and _is_discovery_path(target.path)

    def _is_in_project(self, namespace: str) -> bool:
        if namespace in self._namespaces:
            return True
        return self._all_projects and bool(self._naming.project_of(namespace))

    def _allows_project(self, user: User, target: RequestInfo) -> bool:
        """Reads of a project, and migration into it. A migration needs a second project in the scope, its source."""
        inside = self._all_projects or target.name in self._projects
        if target.verb in READ_VERBS:
            return inside or (self._allows_cli and target.name in self._instance_projects and not target.subresource)
        pairs = self._all_projects or len(self._projects) > 1
        return (
            inside
            and pairs
            and bool(target.name)
            and (target.verb, target.subresource) == ("create", MIGRATE_SUBRESOURCE)
        )

    def _allows_namespace(self, user: User, target: RequestInfo) -> bool:
        return target.verb in READ_VERBS and self._is_in_project(target.name)

    def _allows_cluster(self, user: User, target: RequestInfo) -> bool:
        """Excludes subresources other than status: they return credentials of the cluster, which exceed the scope."""
        known = ANY in self._clusters or target.name in self._clusters
        return known and target.verb in READ_VERBS and target.subresource in ("", "status")

    def _allows_self(self, target: RequestInfo, is_own: bool) -> bool:
        return self._allows_cli and is_own and target.verb in READ_VERBS and not target.subresource

    def overlaps(self, target: RequestInfo) -> bool:
        """Whether the scope may allow some objects of the resource, so that a list or watch is filtered, not denied.

        False for a list or watch of a single object by name: there is nothing to filter.
        """
        kind = target.group, target.resource
        listed = (
            target.root == MANAGEMENT and target.verb in FILTERED_VERBS and not target.name and not target.subresource
        )
        if not listed or kind not in self._naming.namespaced:
            return False
        return self._overlaps_entries(kind, target.namespace) or self._overlaps_rules(kind, target)

    def _overlaps_entries(self, kind: tuple[str, str], namespace: str) -> bool:
        group = self._naming.api_group
        if self._allows_cli and kind[0] == group and kind[1] in CLI_RESOURCES:
            return True
        if kind in ((group, "projects"), NAMESPACE_RESOURCE):
            return self._all_projects or bool(self._projects)
        if kind == (group, "clusters"):
            return bool(self._clusters)
        if not self._naming.namespaced[kind]:
            return False
        entries = self._instances.get(kind, {})
        if namespace:
            return namespace in entries or self._is_in_project(namespace)
        return bool(entries) or self._all_projects or bool(self._projects)

    def _overlaps_rules(self, kind: tuple[str, str], target: RequestInfo) -> bool:
        rules = self._rules_by_root[MANAGEMENT]
        if kind == NAMESPACE_RESOURCE:  # a rule with any namespace may match a Namespace object
            return rules.overlaps_anywhere(target)
        everywhere = self._naming.namespaced[kind] and not target.namespace
        return rules.overlaps(target, None if everywhere else self._naming.matching_namespaces(target))

    def allows_gateway(self, gateway: RequestInfo, inner: RequestInfo | None) -> bool:
        """Whether the scope allows the inner request through a gateway; without one, whether it allows all of them."""
        if self._has_gateway_entry(gateway):
            return True
        rules = self._gateway_rules(gateway)
        if inner is None or not rules:
            return bool(rules) and rules.allows_everything(gateway.verb)
        return is_basic_request(inner) or rules.allows(
            inner, self._naming.matching_namespaces(replace(inner, root=gateway.root))
        )

    def overlaps_gateway(self, gateway: RequestInfo) -> bool:
        """Whether some entry allows anything behind this gateway."""
        return self._has_gateway_entry(gateway) or bool(self._gateway_rules(gateway))

    def _gateway_rules(self, gateway: RequestInfo) -> RuleIndex:
        key = gateway.root, gateway.namespace, gateway.name
        rules = self._rules_by_gateway.get(key)
        if rules is None:
            rules = RuleIndex(rule for rule in self._rules if applies_to_gateway(rule, gateway))
            self._rules_by_gateway[key] = rules
        return rules

    def _has_gateway_entry(self, gateway: RequestInfo) -> bool:
        if gateway.root == CLUSTER:
            return ANY in self._clusters or gateway.name in self._clusters
        kind = self._naming.api_group, GATEWAY_RESOURCES[gateway.root]
        return self._is_in_project(gateway.namespace) or _has_entry(self._instances.get(kind), gateway)


def self_review_resources(group: str) -> tuple[tuple[str, str], ...]:
    """The reviews of a user's own identity, which every scope allows."""
    return (group, "selves"), (AUTHENTICATION_GROUP, "selfsubjectreviews")


def access_review_resources(group: str) -> tuple[tuple[str, str], ...]:
    """The reviews of a user's own permissions, which the CLI creates."""
    return (
        (group, "selfsubjectaccessreviews"),
        (group, "selfsubjectaccessreviewbatches"),
        (AUTHORIZATION_GROUP, "selfsubjectaccessreviews"),
    )


def resource_counts(group: str) -> tuple[str, str]:
    """The numbers of the objects that a user may list."""
    return group, "resourcecounts"


def _names_by_namespace(pairs: Iterable[tuple[str, str]], prefix: str) -> NamesByNamespace:
    """Names by namespace. `*` is valid as the name of an instance, but not as a project."""
    found: dict[str, set[str]] = {}
    for project, name in pairs:
        if project not in ("", ANY) and name:
            found.setdefault(prefix + project, set()).add(name)
    return {namespace: frozenset(names) for namespace, names in found.items()}


def _has_entry(entries: NamesByNamespace | None, target: RequestInfo) -> bool:
    names = entries.get(target.namespace) if entries else None
    return names is not None and (ANY in names or target.name in names)


def is_review(target: RequestInfo) -> bool:
    return target.verb == "create" and not (target.name or target.subresource)


def is_list(target: RequestInfo) -> bool:
    return target.verb == "list" and not (target.name or target.subresource)


def _is_discovery_path(path: str) -> bool:
    path = path.removesuffix("/") or "/"
    return path in DISCOVERY_PATHS or (path.startswith(DISCOVERY_PREFIXES) and is_unambiguous(path))
