"""An index of compiled scope rules: whether one of them allows a request, without evaluating each.

The namespaces and object names that the rules allow for a verb and a resource are computed once and cached (`_Extent`).
A filtered list checks each of its objects, so the cost must not depend on the number of rules and names.
"""

from collections.abc import Collection, Iterable, Sequence

from fairlead.authz.name_index import RectangleIndex
from fairlead.authz.scope.matching import AllowedValues, CompiledRule, ResourcePattern, resource_patterns
from fairlead.authz.scope.path_patterns import PathPatterns, strip_trailing_slash
from fairlead.core.bounded_cache import BoundedCache
from fairlead.core.call import RequestInfo

EXTENT_CACHE_SIZE, MAX_CACHED_NAMES = 256, 100_000
"""Maximum number of cached extents per index, and of names and namespaces in all of them."""

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
