"""Decides whether one scope is a subset of another: a key may only create keys with the same or a narrower scope.

Conservative: each entry must be covered by a single entry of the outer scope; unions of entries are not considered.

A rule is not compared with all others: first an equal rule is looked up, then only the rules that share its rarest term
are compared. The remaining comparisons are limited by a budget, because rules may share all of their terms.
"""

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence, Sized
from typing import TypeVar

from fairlead.authz.scope.matching import has_pair
from fairlead.authz.scope.path_patterns import PathPatterns, is_open_ended, whole_path
from fairlead.core.scope import ANY, Resources, Scope, ScopeRule, ScopeTooLarge

BUDGET = 10_000
"""Maximum number of unsuccessful comparisons: some tens of milliseconds."""
WORDS = 64
"""How many set lookups cost as much as one comparison of rules."""

Pair = tuple[str, str]
T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


def covers(outer: Scope | None, inner: Scope | None) -> bool:
    """Whether `outer` allows everything that `inner` does; None allows more than any scope. Raises ScopeTooLarge."""
    if outer is None:
        return True
    if inner is None or not set(inner.roles) <= set(outer.roles):
        return False
    if any(_is_total(rule) for rule in outer.rules):
        return True
    projects = frozenset(outer.projects)
    return (
        (outer.allow_cli or not inner.allow_cli)
        and _have_all(projects, inner.projects)
        and _have_all(frozenset(outer.clusters), inner.clusters)
        and _have_instances(projects, frozenset(outer.spaces), inner.spaces)
        and _have_instances(projects, frozenset(outer.virtual_clusters), inner.virtual_clusters)
        and _rules_cover(outer.rules, inner.rules)
    )


def _have_all(names: frozenset[str], wanted: Iterable[str]) -> bool:
    return all(_has(names, name) for name in wanted)


def _has(names: frozenset[str], name: str) -> bool:
    return name in names or (ANY in names and bool(name))


def _have_instances(projects: frozenset[str], entries: frozenset[Pair], wanted: Iterable[Pair]) -> bool:
    return all(_has_instance(projects, entries, each) for each in wanted)


def _has_instance(projects: frozenset[str], entries: frozenset[Pair], pair: Pair) -> bool:
    project, name = pair
    named = bool(project) and project != ANY
    return pair in entries or (named and (_has(projects, project) or (bool(name) and (project, ANY) in entries)))


def _is_total(rule: ScopeRule) -> bool:
    """Whether the rule allows everything that a scope can allow."""
    free = not (rule.targets or rule.cluster or rule.virtual_clusters)
    return free and _anything_goes(rule) and (not rule.verbs or ANY in rule.verbs)


def _anything_goes(rule: ScopeRule) -> bool:
    return not _is_about_resources(rule) and not rule.paths


def _is_about_resources(rule: ScopeRule) -> bool:
    return bool(rule.resources or rule.object_names or rule.namespaces)


def _rules_cover(wide: Sequence[ScopeRule], narrow: Sequence[ScopeRule]) -> bool:
    same = frozenset(wide)
    others = [rule for rule in dict.fromkeys(narrow) if rule not in same]
    if not others:
        return True
    index = _Index(dict.fromkeys(wide))
    return all(index.covers(_Narrow(rule)) for rule in others)


class _Budget:
    """The budget for unsuccessful comparisons."""

    def __init__(self) -> None:
        self._left = BUDGET

    def spread(self, candidates: Iterable[T], size: int) -> Iterator[T]:
        """Yields the candidates, charging for each but the first, in proportion to `size`."""
        for index, each in enumerate(candidates):
            if index:
                self._left -= 1 + size // WORDS
                if self._left < 0:
                    raise ScopeTooLarge
            yield each


class _Narrow:
    """A rule that has to be covered. `terms` are what a covering rule must contain, by dimension, each as a list of
    equivalent patterns."""

    def __init__(self, rule: ScopeRule) -> None:
        self.rule = rule
        self.anything_goes = _anything_goes(rule)
        self.verbs, self.targets = frozenset(rule.verbs), frozenset(rule.targets)
        self.namespaces, self.object_names = frozenset(rule.namespaces), frozenset(rule.object_names)
        self.entries = [_NarrowEntry(each) for each in dict.fromkeys(rule.resources)]
        sides = (self.verbs, self.targets, self.namespaces, self.object_names, rule.paths, rule.virtual_clusters)
        self.size = sum(map(len, sides)) + sum(WORDS + len(entry.names) for entry in self.entries)

    def words(self) -> tuple[Iterable[Sequence[Hashable]], ...]:
        rule = self.rule
        return (
            ((verb,) for verb in self.verbs),
            ((target,) for target in self.targets),
            [(rule.cluster,)] if rule.cluster else [],
            ((namespace,) for namespace in self.namespaces),
            ((name,) for name in self.object_names),
            (spelled for entry in self.entries for spelled in entry.spelled()),
            ((path if path.endswith(ANY) else whole_path(path),) for path in rule.paths),
        )


class _NarrowEntry:
    """A resource entry that has to be covered."""

    __slots__ = ("group", "names", "object_names")

    def __init__(self, entry: Resources) -> None:
        self.group = entry.group
        self.names, self.object_names = frozenset(entry.names), frozenset(entry.object_names)

    def spelled(self) -> Iterator[list[Pair]]:
        return ([(self.group, name) for name in _spellings(each)] for each in self.names or (ANY,))


def _spellings(name: str) -> Iterator[str]:
    """The resource patterns that cover a pattern."""
    yield name
    if name != ANY:
        yield ANY
    resource, slash, subresource = name.partition("/")
    if slash and subresource != ANY:
        yield f"{resource}/*"
    if slash and resource != ANY:
        yield f"*/{subresource}"


class _Index:
    """The rules of the outer scope, indexed by their terms in each dimension."""

    def __init__(self, rules: Iterable[ScopeRule]) -> None:
        self._budget = _Budget()
        self._dimensions = tuple(_Dimension() for _ in range(7))
        for rule in rules:
            wide = _Wide(rule, self._budget)
            for dimension, words in zip(self._dimensions, wide.words, strict=True):
                dimension.add(wide, words)

    def covers(self, narrow: _Narrow) -> bool:
        found = zip(self._dimensions, narrow.words(), strict=True)
        candidates = min((dimension.candidates(words) for dimension, words in found), key=_count)
        every = (wide for some in candidates for wide in some)
        return any(wide.covers(narrow) for wide in self._budget.spread(every, narrow.size))


def _count(candidates: Iterable[Sized]) -> int:
    return sum(map(len, candidates))


def _rarest(by_word: Mapping[K, list[T]], words: Iterable[Sequence[K]]) -> list[list[T]]:
    """The index entries of the rarest term, in all of its equivalent patterns. Stops early at a count of one."""
    rarest: list[list[T]] = []
    least = -1
    for ways in words:
        found = [by_word[way] for way in ways if way in by_word]
        count = _count(found)
        if least < 0 or count < least:
            rarest, least = found, count
        if least <= 1:
            break
    return rarest if least >= 0 else []


class _Dimension:
    """Rules by their terms in one dimension, and those that are unrestricted there."""

    __slots__ = ("_by_word", "_free")

    def __init__(self) -> None:
        self._free: list[_Wide] = []
        self._by_word: dict[Hashable, list[_Wide]] = {}

    def add(self, rule: "_Wide", words: Collection[Hashable]) -> None:
        if not words:
            self._free.append(rule)
        for word in words:
            self._by_word.setdefault(word, []).append(rule)

    def candidates(self, words: Iterable[Sequence[Hashable]]) -> list[list["_Wide"]]:
        """The rules that may cover one with these terms: those with the rarest term, and the unrestricted ones."""
        return [*_rarest(self._by_word, words), self._free]


class _Wide:
    """A rule of the outer scope. A dimension without terms is unrestricted, or is not indexed by terms."""

    def __init__(self, rule: ScopeRule, budget: _Budget) -> None:
        self._rule = rule
        self._anything_goes = _anything_goes(rule)
        self._verbs: frozenset[str] = frozenset() if ANY in rule.verbs else frozenset(rule.verbs)
        self._targets, self._virtual_clusters = frozenset(rule.targets), frozenset(rule.virtual_clusters)
        self._namespaces, self._object_names = frozenset(rule.namespaces), frozenset(rule.object_names)
        self._paths = PathPatterns(rule.paths)
        self._entries = _Entries(rule.resources, budget)
        whole = not any(map(is_open_ended, rule.paths))
        self.words: tuple[Collection[Hashable], ...] = (
            self._verbs,
            self._targets,
            [rule.cluster] if rule.cluster else [],
            self._namespaces,
            self._object_names,
            self._entries.words,
            {whole_path(path) for path in rule.paths} if whole else (),
        )

    def covers(self, narrow: _Narrow) -> bool:
        return (
            _within(self._verbs, narrow.verbs)
            and _within(self._targets, narrow.targets)
            and self._rule.cluster in ("", narrow.rule.cluster)
            and self._has_virtual_clusters(narrow.rule.virtual_clusters)
            and (self._anything_goes or self._covers_paths(narrow.rule) or self._covers_resources(narrow))
        )

    def _has_virtual_clusters(self, pairs: Collection[Pair]) -> bool:
        if not self._virtual_clusters:
            return True
        return bool(pairs) and all(has_pair(self._virtual_clusters, *pair) for pair in pairs)

    def _covers_paths(self, narrow: ScopeRule) -> bool:
        wide = self._rule
        if not wide.paths or not narrow.paths or _is_about_resources(wide) or _is_about_resources(narrow):
            return False
        return all(self._paths.cover(path) for path in narrow.paths)

    def _covers_resources(self, narrow: _Narrow) -> bool:
        if self._rule.paths or narrow.rule.paths or narrow.anything_goes:
            return False
        if not _within(self._namespaces, narrow.namespaces) or not _within(self._object_names, narrow.object_names):
            return False
        if not self._rule.resources:
            return True
        return bool(narrow.entries) and self._entries.cover(narrow.entries, narrow.object_names)


def _within(wide: frozenset[str], narrow: frozenset[str]) -> bool:
    """Whether `inner` is a subset of `outer`, where an empty set means unrestricted."""
    return not wide or (bool(narrow) and narrow <= wide)


class _Entries:
    """The resource entries of a rule, by group and name; `*` matches all resources of a group."""

    def __init__(self, resources: Iterable[Resources], budget: _Budget) -> None:
        self._budget = budget
        self._by_word: dict[Pair, list[_WideEntry]] = {}
        for each in dict.fromkeys(resources):
            entry = _WideEntry(each)
            for name in entry.names or (ANY,):
                self._by_word.setdefault((each.group, name), []).append(entry)

    @property
    def words(self) -> Collection[Hashable]:
        return self._by_word.keys()

    def cover(self, narrow: Iterable[_NarrowEntry], object_names: frozenset[str]) -> bool:
        """Whether each of the entries is covered by one of these; `object_names` are those of their rule."""
        fitting: dict[int, bool] = {}

        def fits(wide: _WideEntry) -> bool:
            if id(wide) not in fitting:
                fitting[id(wide)] = _within(wide.object_names, object_names)
            return fitting[id(wide)]

        return all(any(wide.covers(entry, fits(wide)) for wide in self._candidates(entry)) for entry in narrow)

    def _candidates(self, entry: _NarrowEntry) -> Iterator["_WideEntry"]:
        every = (wide for some in _rarest(self._by_word, entry.spelled()) for wide in some)
        return self._budget.spread(every, len(entry.names) + len(entry.object_names))


class _WideEntry:
    """A resource entry of the outer scope. Without names it covers all resources of its group."""

    __slots__ = ("names", "object_names")

    def __init__(self, entry: Resources) -> None:
        self.names: frozenset[str] = frozenset() if ANY in entry.names else frozenset(entry.names)
        self.object_names = frozenset(entry.object_names)

    def covers(self, narrow: _NarrowEntry, fits: bool) -> bool:
        """`names_fit` says whether the object names of the whole inner rule already satisfy this entry."""
        if not fits and not _within(self.object_names, narrow.object_names):
            return False
        if not self.names:
            return True
        rest = narrow.names - self.names
        return bool(narrow.names) and all(any(way in self.names for way in _spellings(each)) for each in rest)
