"""Decides whether one scope is a subset of another: a key may only create keys with the same or a narrower scope.

Conservative: each entry must be covered by a single entry of the outer scope; unions of entries are not considered.

A rule is not compared with all others: first an equal rule is looked up, then only the rules that share its rarest term
are compared. The remaining comparisons are limited by a budget, because rules may share all of their terms.
"""

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence, Sized
from typing import TypeVar

from fairlead.authz.scope.rules import PathPatterns, is_prefix_pattern, matches_pair, strip_trailing_slash
from fairlead.core.scope import ANY, Scope, ScopeResources, ScopeRule, ScopeTooLarge

COMPARISON_BUDGET = 10_000
"""Maximum number of unsuccessful comparisons: some tens of milliseconds."""
LOOKUPS_PER_COMPARISON = 64
"""How many set lookups cost as much as one comparison of rules."""

Pair = tuple[str, str]
T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


def is_superset(outer: Scope | None, inner: Scope | None) -> bool:
    """Whether `outer` allows everything that `inner` does; None allows more than any scope. Raises ScopeTooLarge."""
    if outer is None:
        return True
    if inner is None or not set(inner.roles) <= set(outer.roles):
        return False
    if any(_allows_everything(rule) for rule in outer.rules):
        return True
    projects = frozenset(outer.projects)
    return (
        (outer.allow_cli or not inner.allow_cli)
        and _contains_all(projects, inner.projects)
        and _contains_all(frozenset(outer.clusters), inner.clusters)
        and _contains_instances(projects, frozenset(outer.spaces), inner.spaces)
        and _contains_instances(projects, frozenset(outer.virtual_clusters), inner.virtual_clusters)
        and _covers_rules(outer.rules, inner.rules)
    )


def _contains_all(names: frozenset[str], requested: Iterable[str]) -> bool:
    return all(_contains(names, name) for name in requested)


def _contains(names: frozenset[str], name: str) -> bool:
    return name in names or (ANY in names and bool(name))


def _contains_instances(projects: frozenset[str], entries: frozenset[Pair], requested: Iterable[Pair]) -> bool:
    return all(_contains_instance(projects, entries, each) for each in requested)


def _contains_instance(projects: frozenset[str], entries: frozenset[Pair], pair: Pair) -> bool:
    project, name = pair
    named = bool(project) and project != ANY
    return pair in entries or (named and (_contains(projects, project) or (bool(name) and (project, ANY) in entries)))


def _allows_everything(rule: ScopeRule) -> bool:
    """Whether the rule allows everything that a scope can allow."""
    free = not (rule.targets or rule.cluster or rule.virtual_clusters)
    return free and _is_unrestricted(rule) and (not rule.verbs or ANY in rule.verbs)


def _is_unrestricted(rule: ScopeRule) -> bool:
    return not _restricts_resources(rule) and not rule.paths


def _restricts_resources(rule: ScopeRule) -> bool:
    return bool(rule.resources or rule.object_names or rule.namespaces)


def _covers_rules(outer: Sequence[ScopeRule], inner: Sequence[ScopeRule]) -> bool:
    same = frozenset(outer)
    others = [rule for rule in dict.fromkeys(inner) if rule not in same]
    if not others:
        return True
    index = _OuterRuleIndex(dict.fromkeys(outer))
    return all(index.covers(_InnerRule(rule)) for rule in others)


class _Budget:
    """The budget for unsuccessful comparisons."""

    def __init__(self) -> None:
        self._left = COMPARISON_BUDGET

    def charge(self, candidates: Iterable[T], size: int) -> Iterator[T]:
        """Yields the candidates, charging for each but the first, in proportion to `size`."""
        for index, each in enumerate(candidates):
            if index:
                self._left -= 1 + size // LOOKUPS_PER_COMPARISON
                if self._left < 0:
                    raise ScopeTooLarge
            yield each


class _InnerRule:
    """A rule that has to be covered. `terms` are what a covering rule must contain, by dimension, each as a list of
    equivalent patterns."""

    def __init__(self, rule: ScopeRule) -> None:
        self.rule = rule
        self.is_unrestricted = _is_unrestricted(rule)
        self.verbs = frozenset(rule.verbs)
        self.targets = frozenset(rule.targets)
        self.namespaces = frozenset(rule.namespaces)
        self.object_names = frozenset(rule.object_names)
        self.entries = [_InnerEntry(each) for each in dict.fromkeys(rule.resources)]
        sides = (self.verbs, self.targets, self.namespaces, self.object_names, rule.paths, rule.virtual_clusters)
        self.size = sum(map(len, sides)) + sum(LOOKUPS_PER_COMPARISON + len(entry.names) for entry in self.entries)

    def terms(self) -> tuple[Iterable[Sequence[Hashable]], ...]:
        rule = self.rule
        return (
            ((verb,) for verb in self.verbs),
            ((target,) for target in self.targets),
            [(rule.cluster,)] if rule.cluster else [],
            ((namespace,) for namespace in self.namespaces),
            ((name,) for name in self.object_names),
            (spelled for entry in self.entries for spelled in entry.patterns()),
            ((path if path.endswith(ANY) else strip_trailing_slash(path),) for path in rule.paths),
        )


class _InnerEntry:
    """A resource entry that has to be covered."""

    __slots__ = ("group", "names", "object_names")

    def __init__(self, entry: ScopeResources) -> None:
        self.group = entry.group
        self.names = frozenset(entry.names)
        self.object_names = frozenset(entry.object_names)

    def patterns(self) -> Iterator[list[Pair]]:
        return ([(self.group, name) for name in _covering_patterns(each)] for each in self.names or (ANY,))


def _covering_patterns(name: str) -> Iterator[str]:
    """The resource patterns that cover a pattern."""
    yield name
    if name != ANY:
        yield ANY
    resource, slash, subresource = name.partition("/")
    if slash and subresource != ANY:
        yield f"{resource}/*"
    if slash and resource != ANY:
        yield f"*/{subresource}"


class _OuterRuleIndex:
    """The rules of the outer scope, indexed by their terms in each dimension."""

    def __init__(self, rules: Iterable[ScopeRule]) -> None:
        self._budget = _Budget()
        self._dimensions = tuple(_Dimension() for _ in range(7))
        for rule in rules:
            wide = _OuterRule(rule, self._budget)
            for dimension, words in zip(self._dimensions, wide.terms, strict=True):
                dimension.add(wide, words)

    def covers(self, inner: _InnerRule) -> bool:
        found = zip(self._dimensions, inner.terms(), strict=True)
        candidates = min((dimension.candidates(words) for dimension, words in found), key=_total_length)
        every = (wide for some in candidates for wide in some)
        return any(wide.covers(inner) for wide in self._budget.charge(every, inner.size))


def _total_length(candidates: Iterable[Sized]) -> int:
    return sum(map(len, candidates))


def _rarest_term(by_term: Mapping[K, list[T]], terms: Iterable[Sequence[K]]) -> list[list[T]]:
    """The index entries of the rarest term, in all of its equivalent patterns. Stops early at a count of one."""
    rarest: list[list[T]] = []
    least = -1
    for ways in terms:
        found = [by_term[way] for way in ways if way in by_term]
        count = _total_length(found)
        if least < 0 or count < least:
            rarest, least = found, count
        if least <= 1:
            break
    return rarest if least >= 0 else []


class _Dimension:
    """Rules by their terms in one dimension, and those that are unrestricted there."""

    __slots__ = ("_by_term", "_unrestricted")

    def __init__(self) -> None:
        self._unrestricted: list[_OuterRule] = []
        self._by_term: dict[Hashable, list[_OuterRule]] = {}

    def add(self, rule: "_OuterRule", terms: Collection[Hashable]) -> None:
        if not terms:
            self._unrestricted.append(rule)
        for word in terms:
            self._by_term.setdefault(word, []).append(rule)

    def candidates(self, terms: Iterable[Sequence[Hashable]]) -> list[list["_OuterRule"]]:
        """The rules that may cover one with these terms: those with the rarest term, and the unrestricted ones."""
        return [*_rarest_term(self._by_term, terms), self._unrestricted]


class _OuterRule:
    """A rule of the outer scope. A dimension without terms is unrestricted, or is not indexed by terms."""

    def __init__(self, rule: ScopeRule, budget: _Budget) -> None:
        self._rule = rule
        self._is_unrestricted = _is_unrestricted(rule)
        self._verbs: frozenset[str] = frozenset() if ANY in rule.verbs else frozenset(rule.verbs)
        self._targets = frozenset(rule.targets)
        self._virtual_clusters = frozenset(rule.virtual_clusters)
        self._namespaces = frozenset(rule.namespaces)
        self._object_names = frozenset(rule.object_names)
        self._paths = PathPatterns(rule.paths)
        self._entries = _OuterEntries(rule.resources, budget)
        whole = not any(map(is_prefix_pattern, rule.paths))
        self.terms: tuple[Collection[Hashable], ...] = (
            self._verbs,
            self._targets,
            [rule.cluster] if rule.cluster else [],
            self._namespaces,
            self._object_names,
            self._entries.terms,
            {strip_trailing_slash(path) for path in rule.paths} if whole else (),
        )

    def covers(self, inner: _InnerRule) -> bool:
        return (
            _is_subset(self._verbs, inner.verbs)
            and _is_subset(self._targets, inner.targets)
            and self._rule.cluster in ("", inner.rule.cluster)
            and self._covers_virtual_clusters(inner.rule.virtual_clusters)
            and (self._is_unrestricted or self._covers_paths(inner.rule) or self._covers_resources(inner))
        )

    def _covers_virtual_clusters(self, pairs: Collection[Pair]) -> bool:
        if not self._virtual_clusters:
            return True
        return bool(pairs) and all(matches_pair(self._virtual_clusters, *pair) for pair in pairs)

    def _covers_paths(self, inner: ScopeRule) -> bool:
        wide = self._rule
        if not wide.paths or not inner.paths or _restricts_resources(wide) or _restricts_resources(inner):
            return False
        return all(self._paths.covers(path) for path in inner.paths)

    def _covers_resources(self, inner: _InnerRule) -> bool:
        if self._rule.paths or inner.rule.paths or inner.is_unrestricted:
            return False
        if not _is_subset(self._namespaces, inner.namespaces) or not _is_subset(self._object_names, inner.object_names):
            return False
        if not self._rule.resources:
            return True
        return bool(inner.entries) and self._entries.covers(inner.entries, inner.object_names)


def _is_subset(outer: frozenset[str], inner: frozenset[str]) -> bool:
    """Whether `inner` is a subset of `outer`, where an empty set means unrestricted."""
    return not outer or (bool(inner) and inner <= outer)


class _OuterEntries:
    """The resource entries of a rule, by group and name; `*` matches all resources of a group."""

    def __init__(self, resources: Iterable[ScopeResources], budget: _Budget) -> None:
        self._budget = budget
        self._by_term: dict[Pair, list[_OuterEntry]] = {}
        for each in dict.fromkeys(resources):
            entry = _OuterEntry(each)
            for name in entry.names or (ANY,):
                self._by_term.setdefault((each.group, name), []).append(entry)

    @property
    def terms(self) -> Collection[Hashable]:
        return self._by_term.keys()

    def covers(self, inner: Iterable[_InnerEntry], object_names: frozenset[str]) -> bool:
        """Whether each of the entries is covered by one of these; `object_names` are those of their rule."""
        fitting: dict[int, bool] = {}

        def fits(wide: _OuterEntry) -> bool:
            if id(wide) not in fitting:
                fitting[id(wide)] = _is_subset(wide.object_names, object_names)
            return fitting[id(wide)]

        return all(any(wide.covers(entry, fits(wide)) for wide in self._candidates(entry)) for entry in inner)

    def _candidates(self, entry: _InnerEntry) -> Iterator["_OuterEntry"]:
        every = (wide for some in _rarest_term(self._by_term, entry.patterns()) for wide in some)
        return self._budget.charge(every, len(entry.names) + len(entry.object_names))


class _OuterEntry:
    """A resource entry of the outer scope. Without names it covers all resources of its group."""

    __slots__ = ("names", "object_names")

    def __init__(self, entry: ScopeResources) -> None:
        self.names: frozenset[str] = frozenset() if ANY in entry.names else frozenset(entry.names)
        self.object_names = frozenset(entry.object_names)

    def covers(self, inner: _InnerEntry, names_fit: bool) -> bool:
        """`names_fit` says whether the object names of the whole inner rule already satisfy this entry."""
        if not names_fit and not _is_subset(self.object_names, inner.object_names):
            return False
        if not self.names:
            return True
        rest = inner.names - self.names
        return bool(inner.names) and all(any(way in self.names for way in _covering_patterns(each)) for each in rest)
