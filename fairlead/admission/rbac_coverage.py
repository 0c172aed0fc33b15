"""Checks whether a set of RBAC rules covers another one: the comparison behind `escalation.py`. No I/O.

Like `Covers` in Kubernetes: the requested rules are broken down into single permissions (one verb on one resource of
one API group, or on one path), and each must be covered by one rule that the user has. The work is bounded by a budget.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from fairlead.core.errors import MAX_PROBLEMS, MAX_QUOTED_CHARS
from fairlead.core.objects import Object
from fairlead.core.validators import minimal_prefixes, starts_with_any

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
