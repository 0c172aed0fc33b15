"""The deprecated rules of a scope, compiled to sets: the cost of a match must not depend on the length of the lists.

A request must match a rule in every dimension; an empty dimension matches everything. A rule with resources, object
names or namespaces matches resource requests only, one with paths matches paths only.

`RuleIndex` finds out whether one of many rules allows a request, without evaluating each. The namespaces and object
names that the rules allow for a verb and a resource are computed once and cached (`_Extent`): a filtered list checks
each of its objects, so the cost must not depend on the number of rules and names.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fairlead.authz.name_index import RectangleIndex
from fairlead.authz.scope.gateway_requests import CLUSTER, SPACE, VIRTUAL_CLUSTER, is_unambiguous
from fairlead.core.bounded_cache import BoundedCache
from fairlead.core.call import MANAGEMENT, RequestInfo
from fairlead.core.scope import ANY, ScopeResources, ScopeRule
from fairlead.core.validators import minimal_prefixes, starts_with_any

REQUEST_TARGETS: Mapping[str, frozenset[str]] = {
    MANAGEMENT: frozenset({"Management"}),
    CLUSTER: frozenset({"Cluster"}),
    SPACE: frozenset({"ProjectSpace"}),
    VIRTUAL_CLUSTER: frozenset({"ProjectVirtualCluster", "VirtualCluster"}),
}
"""The values of a rule's `requestTargets` for each root; there is none for the platform's own paths."""
EXTENT_CACHE_SIZE, MAX_CACHED_NAMES = 256, 100_000
"""Maximum number of cached extents per index, and of names and namespaces in all of them."""

AllowedValues = frozenset[str] | None
"""The allowed values of a dimension; None if it is unrestricted."""
ResourcePattern = tuple[str, str]
"""An API group, and a resource name as it may be written in a rule."""


@dataclass(frozen=True, slots=True, eq=False)
class CompiledRule:
    """One rule. `entries` maps each resource to the allowed object names; None for all resources."""

    verbs: AllowedValues
    entries: dict[ResourcePattern, list[AllowedValues]] | None
    object_names: AllowedValues
    namespaces: AllowedValues
    paths: tuple[str, ...]
    request_targets: AllowedValues
    cluster: str
    virtual_clusters: frozenset[tuple[str, str]]

    @property
    def is_unrestricted(self) -> bool:
        """Whether the rule restricts neither resources nor paths, only verbs."""
        return not self.restricts_resources and not self.paths

    @property
    def restricts_resources(self) -> bool:
        return not (self.entries is None and self.object_names is None and self.namespaces is None)

    def has_verb(self, verb: str) -> bool:
        return self.verbs is None or verb in self.verbs


def compile_rule(rule: ScopeRule) -> CompiledRule:
    return CompiledRule(
        verbs=None if ANY in rule.verbs else _allowed_values(rule.verbs),
        entries=_resource_entries(rule.resources),
        object_names=_allowed_values(rule.object_names),
        namespaces=_allowed_values(rule.namespaces),
        paths=rule.paths,
        request_targets=_allowed_values(rule.targets),
        cluster=rule.cluster,
        virtual_clusters=frozenset(rule.virtual_clusters),
    )


def _allowed_values(names: Iterable[str]) -> AllowedValues:
    return frozenset(names) or None


def _resource_entries(resources: Iterable[ScopeResources]) -> dict[ResourcePattern, list[AllowedValues]] | None:
    found: dict[ResourcePattern, list[AllowedValues]] = {}
    for each in resources:
        names = (ANY,) if not each.names or ANY in each.names else each.names
        objects = _allowed_values(each.object_names)
        for name in names:
            found.setdefault((each.group, name), []).append(objects)
    return found or None


def resource_patterns(target: RequestInfo) -> Iterator[ResourcePattern]:
    """The resource names in a rule that match the request; `*` matches everything in the group."""
    group, resource, subresource = target.group, target.resource, target.subresource
    yield group, ANY
    if not subresource:
        yield group, resource
        return
    yield group, f"{resource}/{subresource}"
    if subresource != ANY:
        yield group, f"{resource}/*"
    if resource != ANY:
        yield group, f"*/{subresource}"


def applies_to_root(rule: CompiledRule, root: str) -> bool:
    """Whether the rule applies to the management API or the platform's own paths, and not only to gateways."""
    return _matches_root(rule, root) and not rule.cluster and not rule.virtual_clusters


def applies_to_gateway(rule: CompiledRule, gateway: RequestInfo) -> bool:
    """Whether the rule applies to this gateway. A rule with a cluster applies to no virtual cluster, and vice versa."""
    if not _matches_root(rule, gateway.root):
        return False
    if rule.cluster and (gateway.root, gateway.name) != (CLUSTER, rule.cluster):
        return False
    if not rule.virtual_clusters:
        return True
    return gateway.root == VIRTUAL_CLUSTER and matches_pair(rule.virtual_clusters, gateway.name, gateway.namespace)


def matches_pair(pairs: frozenset[tuple[str, str]], name: str, namespace: str) -> bool:
    """Whether one of the pairs matches a virtual cluster; an empty part of a pair matches everything."""
    return not pairs.isdisjoint(((name, namespace), (name, ""), ("", namespace), ("", "")))


def _matches_root(rule: CompiledRule, root: str) -> bool:
    return rule.request_targets is None or not REQUEST_TARGETS.get(root, frozenset()).isdisjoint(rule.request_targets)


class PathPatterns:
    """A set of path patterns, with lookups that do not compare each pattern.

    A `*` as the last segment matches everything below, at any depth; a pattern of `*` alone matches every path.
    """

    __slots__ = ("_exact", "_patterns", "_prefixes")

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = frozenset(patterns)
        open_ended = {each for each in self._patterns if is_prefix_pattern(each)}
        self._exact = frozenset(strip_trailing_slash(each) for each in self._patterns - open_ended)
        self._prefixes = minimal_prefixes(each.removesuffix(ANY) for each in open_ended)

    def matches(self, path: str) -> bool:
        """Whether a path without a trailing slash matches one of the patterns."""
        return path in self._exact or (starts_with_any(path, self._prefixes) and is_unambiguous(path))

    def covers(self, pattern: str) -> bool:
        """Whether the patterns match everything that another one matches. A trailing `*` is treated as a segment."""
        return pattern in self._patterns or self.matches(
            pattern if pattern.endswith(ANY) else strip_trailing_slash(pattern)
        )


def is_prefix_pattern(pattern: str) -> bool:
    return pattern == ANY or pattern.endswith("/*")


def strip_trailing_slash(path: str) -> str:
    return path.removesuffix("/") or "/"


NamespaceSet = frozenset[str]


class RuleIndex:
    """The rules for one root: the management API, the platform's own paths, or one gateway."""

    def __init__(self, rules: Iterable[CompiledRule]) -> None:
        self._rules = tuple(rules)
        self._by_resource: dict[ResourcePattern, list[CompiledRule]] = {}
        self._any_resource_rules: list[CompiledRule] = []
        self._extents: BoundedCache[tuple[str, ...], _Extent] = BoundedCache(
            EXTENT_CACHE_SIZE, MAX_CACHED_NAMES, lambda extent: extent.weight
        )
        self._patterns: BoundedCache[str, PathPatterns | None] = BoundedCache(EXTENT_CACHE_SIZE)
        for rule in self._rules:
            if rule.paths:
                continue
            if rule.entries is None:
                self._any_resource_rules.append(rule)
            else:
                for resource in rule.entries:
                    self._by_resource.setdefault(resource, []).append(rule)

    def __bool__(self) -> bool:
        return bool(self._rules)

    def allows(self, target: RequestInfo, namespaces: Collection[str]) -> bool:
        """Whether a rule matches the request. `namespaces` are those under which it may match."""
        if not target.resource:
            return self._allows_path(target)
        return self._extent(target).contains(namespaces, target.name)

    def allows_everything(self, verb: str) -> bool:
        """Whether a rule restricts only verbs, and allows this one."""
        return any(rule.is_unrestricted and rule.has_verb(verb) for rule in self._any_resource_rules)

    def overlaps(self, target: RequestInfo, namespaces: Collection[str] | None) -> bool:
        """Whether a rule allows the target's verb on some object in `namespaces`; None means in any namespace."""
        return self._extent(target).overlaps(namespaces)

    def overlaps_anywhere(self, target: RequestInfo) -> bool:
        """Like `overlaps`, regardless of the namespaces in the rules."""
        return not self._extent(target).is_empty

    def _allows_path(self, target: RequestInfo) -> bool:
        patterns = self._patterns.get(target.verb)
        if patterns is None and target.verb not in self._patterns:
            patterns = self._patterns[target.verb] = self._build_patterns(target.verb)
        return patterns is None or patterns.matches(strip_trailing_slash(target.path))

    def _build_patterns(self, verb: str) -> PathPatterns | None:
        """The paths that rules allow this verb on; None for all paths."""
        if self.allows_everything(verb):
            return None
        rules = (rule for rule in self._rules if rule.has_verb(verb) and not rule.restricts_resources)
        return PathPatterns(path for rule in rules for path in rule.paths)

    def _extent(self, target: RequestInfo) -> "_Extent":
        key = target.verb, target.group, target.resource, target.subresource
        extent = self._extents.get(key)
        if extent is None:
            extent = self._extents[key] = _Extent(self._rectangles(target))
        return extent

    def _rectangles(self, target: RequestInfo) -> Iterable[tuple[AllowedValues, AllowedValues]]:
        for rule in self._any_resource_rules:
            if rule.has_verb(target.verb):
                yield rule.namespaces, rule.object_names
        for resource in resource_patterns(target):
            for rule in self._by_resource.get(resource, ()):
                if rule.has_verb(target.verb) and rule.entries is not None:
                    for names in rule.entries[resource]:
                        yield rule.namespaces, _intersect(rule.object_names, names)


def _intersect(one: AllowedValues, other: AllowedValues) -> AllowedValues:
    if one is None or other is None:
        return other if one is None else one
    return one & other


class _Extent:
    """The objects of one resource that rules allow one verb on: all, all in some namespaces, some names in any
    namespace, and some names in some namespaces."""

    __slots__ = (
        "_all_namespaces",
        "_is_unrestricted",
        "_names_anywhere",
        "_rectangles",
        "_whole_namespaces",
        "is_empty",
        "weight",
    )

    def __init__(self, rectangles: Iterable[tuple[AllowedValues, AllowedValues]]) -> None:
        anywhere: list[frozenset[str]] = []
        whole: list[frozenset[str]] = []
        by_namespaces: dict[NamespaceSet, list[frozenset[str]]] = {}
        self._is_unrestricted, self.is_empty, self.weight = False, True, 1
        self._names_anywhere: frozenset[str] | None = None
        for namespaces, names in rectangles:
            self.is_empty = False
            if namespaces is None and names is None:
                self._is_unrestricted = True
                return
            if namespaces is None:
                anywhere.append(names or frozenset())
            elif names is None:
                whole.append(namespaces)
            else:
                by_namespaces.setdefault(namespaces, []).append(names)
        self._names_anywhere = _union(anywhere) if anywhere else None
        self._whole_namespaces = _union(whole)
        self._rectangles = RectangleIndex([(namespace, _union(names)) for namespace, names in by_namespaces.items()])
        self._all_namespaces = _union([self._whole_namespaces, *by_namespaces])
        self.weight += len(self._names_anywhere or ()) + 2 * len(self._all_namespaces) + self._rectangles.weight

    def contains(self, namespaces: Collection[str], name: str) -> bool:
        if self._is_unrestricted or (self._names_anywhere is not None and name in self._names_anywhere):
            return True
        return any(
            namespace in self._whole_namespaces or self._rectangles.contains(namespace, name)
            for namespace in namespaces
        )

    def overlaps(self, namespaces: Collection[str] | None) -> bool:
        if self._is_unrestricted or self._names_anywhere is not None:
            return True
        if namespaces is None:
            return any(self._all_namespaces)
        return not self._all_namespaces.isdisjoint(namespaces)


def _union(sets: Sequence[frozenset[str]]) -> frozenset[str]:
    """The union; avoids a copy if there is only one set."""
    distinct = list({id(each): each for each in sets if each}.values())
    return distinct[0] if len(distinct) == 1 else frozenset().union(*distinct)
