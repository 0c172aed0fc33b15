"""An index of compiled scope rules: whether one of them allows a request, without evaluating each.

The namespaces and object names that the rules allow for a verb and a resource are computed once and cached (`_Extent`).
A filtered list checks each of its objects, so the cost must not depend on the number of rules and names.
"""

from collections.abc import Collection, Iterable, Sequence

from fairlead.authz.name_index import Rectangles
from fairlead.authz.scope.matching import CompiledRule, Names, Resource, spellings
from fairlead.authz.scope.path_patterns import PathPatterns, whole_path
from fairlead.core.call import Target

KEPT_EXTENTS, KEPT_NAMES = 256, 100_000
"""Maximum number of cached extents per index, and of names and namespaces in all of them."""

Place = frozenset[str]


class RuleIndex:
    """The rules for one root: the management API, the platform's own paths, or one gateway."""

    def __init__(self, rules: Iterable[CompiledRule]) -> None:
        self._rules = tuple(rules)
        self._by_resource: dict[Resource, list[CompiledRule]] = {}
        self._everywhere: list[CompiledRule] = []
        self._extents: dict[tuple[str, ...], _Extent] = {}
        self._patterns: dict[str, PathPatterns | None] = {}
        self._weight = 0
        for rule in self._rules:
            if rule.paths:
                continue
            if rule.entries is None:
                self._everywhere.append(rule)
            else:
                for resource in rule.entries:
                    self._by_resource.setdefault(resource, []).append(rule)

    def __bool__(self) -> bool:
        return bool(self._rules)

    def allow(self, target: Target, places: Collection[str]) -> bool:
        """Whether a rule matches the request. `namespaces` are those under which it may match."""
        if not target.resource:
            return self._allow_path(target)
        return self._extent(target).holds(places, target.name)

    def allow_anything(self, verb: str) -> bool:
        """Whether a rule restricts only verbs, and allows this one."""
        return any(rule.anything_goes and rule.has_verb(verb) for rule in self._everywhere)

    def touch(self, target: Target, places: Collection[str] | None) -> bool:
        """Whether a rule allows the target's verb on some object in `namespaces`; None means in any namespace."""
        return self._extent(target).touches(places)

    def touch_any(self, target: Target) -> bool:
        """Like `overlaps`, regardless of the namespaces in the rules."""
        return not self._extent(target).is_empty

    def _allow_path(self, target: Target) -> bool:
        patterns = self._patterns.get(target.verb)
        if patterns is None and target.verb not in self._patterns:
            if len(self._patterns) >= KEPT_EXTENTS:
                self._patterns.clear()
            patterns = self._patterns[target.verb] = self._make_patterns(target.verb)
        return patterns is None or patterns.match(whole_path(target.path))

    def _make_patterns(self, verb: str) -> PathPatterns | None:
        """The paths that rules allow this verb on; None for all paths."""
        if self.allow_anything(verb):
            return None
        rules = (rule for rule in self._rules if rule.has_verb(verb) and not rule.is_about_resources)
        return PathPatterns(path for rule in rules for path in rule.paths)

    def _extent(self, target: Target) -> "_Extent":
        key = target.verb, target.group, target.resource, target.subresource
        extent = self._extents.get(key)
        if extent is None:
            extent = _Extent(self._rectangles(target))
            self._weight += extent.weight
            if self._weight > KEPT_NAMES or len(self._extents) >= KEPT_EXTENTS:
                self._extents.clear()
                self._weight = extent.weight
            self._extents[key] = extent
        return extent

    def _rectangles(self, target: Target) -> Iterable[tuple[Names, Names]]:
        for rule in self._everywhere:
            if rule.has_verb(target.verb):
                yield rule.namespaces, rule.object_names
        for resource in spellings(target):
            for rule in self._by_resource.get(resource, ()):
                if rule.has_verb(target.verb) and rule.entries is not None:
                    for names in rule.entries[resource]:
                        yield rule.namespaces, _both(rule.object_names, names)


def _both(one: Names, other: Names) -> Names:
    if one is None or other is None:
        return other if one is None else one
    return one & other


class _Extent:
    """The objects of one resource that rules allow one verb on: all, all in some namespaces, some names in any
    namespace, and some names in some namespaces."""

    __slots__ = ("_anywhere", "_everything", "_in_namespaces", "_namespaces", "_rectangles", "is_empty", "weight")

    def __init__(self, rectangles: Iterable[tuple[Names, Names]]) -> None:
        anywhere: list[frozenset[str]] = []
        whole: list[frozenset[str]] = []
        by_namespaces: dict[Place, list[frozenset[str]]] = {}
        self._everything, self.is_empty, self.weight = False, True, 1
        self._anywhere: frozenset[str] | None = None
        for namespaces, names in rectangles:
            self.is_empty = False
            if namespaces is None and names is None:
                self._everything = True
                return
            if namespaces is None:
                anywhere.append(names or frozenset())
            elif names is None:
                whole.append(namespaces)
            else:
                by_namespaces.setdefault(namespaces, []).append(names)
        self._anywhere = _union(anywhere) if anywhere else None
        self._in_namespaces = _union(whole)
        self._rectangles = Rectangles([(place, _union(names)) for place, names in by_namespaces.items()])
        self._namespaces = _union([self._in_namespaces, *by_namespaces])
        self.weight += len(self._anywhere or ()) + 2 * len(self._namespaces) + self._rectangles.weight

    def holds(self, places: Collection[str], name: str) -> bool:
        if self._everything or (self._anywhere is not None and name in self._anywhere):
            return True
        return any(place in self._in_namespaces or self._rectangles.hold(place, name) for place in places)

    def touches(self, places: Collection[str] | None) -> bool:
        if self._everything or self._anywhere is not None:
            return True
        if places is None:
            return any(self._namespaces)
        return not self._namespaces.isdisjoint(places)


def _union(sets: Sequence[frozenset[str]]) -> frozenset[str]:
    """The union; avoids a copy if there is only one set."""
    distinct = list({id(each): each for each in sets if each}.values())
    return distinct[0] if len(distinct) == 1 else frozenset().union(*distinct)
