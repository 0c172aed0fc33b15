"""The scope of an access key, parsed into a value.

`Scope.parse` reads it once from the `scope` of a key or token; `authz/scope` evaluates it for each request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fairlead.core.objects import Object

ANY = "*"

CLI_FIELD = "allowServiceCli"
"""The field that allows the CLI to read what it needs."""

CLI_ROLE = "service-cli"
"""The role with the same effect."""


class ScopeTooLarge(Exception):
    """Comparing two scopes would take too many steps."""


@dataclass(frozen=True, slots=True)
class ScopeResources:
    """An API group and resource patterns in it: `r`, `r/sub`, `*`, `r/*`, `*/sub`. No patterns means all resources."""

    group: str
    names: tuple[str, ...] = ()
    object_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ScopeRule:
    """One entry of the deprecated `rules`. A request must match every field; an empty field matches everything."""

    verbs: tuple[str, ...] = ()
    resources: tuple[ScopeResources, ...] = ()
    object_names: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    cluster: str = ""
    virtual_clusters: tuple[tuple[str, str], ...] = ()
    """Pairs of name and namespace; an empty part matches everything."""

    @property
    def size(self) -> int:
        """The number of names, and of everything else that a request is compared with."""
        named = (self.verbs, self.object_names, self.namespaces, self.paths, self.virtual_clusters)
        return sum(map(len, named)) + sum(len(each.names) + len(each.object_names) for each in self.resources)


@dataclass(frozen=True, slots=True)
class ScopeRole:
    """A set of permissions that the server defines for platform components. It grants nothing by itself."""

    role: str
    projects: tuple[str, ...] = ()
    virtual_clusters: tuple[tuple[str, str], ...] = ()
    """Pairs of project and virtual cluster."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Scope:
    """The entries of a scope. A request is inside if any entry allows it; a scope without entries allows nothing."""

    allow_cli: bool = False
    projects: tuple[str, ...] = ()
    spaces: tuple[tuple[str, str], ...] = ()
    """Pairs of project and space."""
    virtual_clusters: tuple[tuple[str, str], ...] = ()
    """Pairs of project and virtual cluster."""
    clusters: tuple[str, ...] = ()
    rules: tuple[ScopeRule, ...] = ()
    roles: tuple[ScopeRole, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether no entry could allow anything. Only self reviews are left."""
        return not (
            self.allow_cli or self.projects or self.spaces or self.virtual_clusters or self.clusters or self.rules
        )

    @property
    def size(self) -> int:
        """About how many names there are, which is what a decision costs that cannot be looked up."""
        entries = len(self.projects) + len(self.spaces) + len(self.virtual_clusters) + len(self.clusters)
        return entries + sum(rule.size for rule in self.rules)

    @staticmethod
    def parse(obj: Any) -> Scope | None:
        """Parse a `scope` field; None if the field is absent.

        Entries that do not match the schema allow nothing. An invalid rule is skipped as a whole, because a part of a
        rule would allow more than the rule.
        """
        if obj is None:
            return None
        if not isinstance(obj, dict):
            return Scope()
        roles = tuple(_parse_roles(obj.get("roles")))
        return Scope(
            allow_cli=obj.get(CLI_FIELD) is True or any(each.role == CLI_ROLE for each in roles),
            projects=_parse_names(obj.get("projects"), "project"),
            spaces=_parse_pairs(obj.get("spaces"), "project", "space"),
            virtual_clusters=_parse_pairs(obj.get("virtualClusters"), "project", "virtualCluster"),
            clusters=_parse_names(obj.get("clusters"), "cluster"),
            rules=tuple(_parse_rules(obj.get("rules"))),
            roles=tuple(each for each in roles if each.role != CLI_ROLE),
        )


def _objects_in(value: Any) -> Iterator[Object]:
    return (each for each in value if isinstance(each, dict)) if isinstance(value, list) else iter(())


def _parse_names(value: Any, field: str) -> tuple[str, ...]:
    found = (each.get(field) for each in _objects_in(value))
    return tuple(name for name in found if isinstance(name, str) and name)


def _parse_pairs(value: Any, first: str, second: str) -> tuple[tuple[str, str], ...]:
    found = ((each.get(first), each.get(second)) for each in _objects_in(value))
    return tuple((one, two) for one, two in found if isinstance(one, str) and isinstance(two, str) and one and two)


def _parse_roles(value: Any) -> Iterator[ScopeRole]:
    for each in _objects_in(value):
        role = each.get("role")
        if isinstance(role, str) and role:
            virtual_clusters = _parse_pairs(each.get("virtualClusters"), "project", "virtualCluster")
            yield ScopeRole(role, tuple(_strings_in(each.get("projects"))), virtual_clusters)


def _strings_in(value: Any) -> Iterator[str]:
    return (each for each in value if isinstance(each, str)) if isinstance(value, list) else iter(())


def _parse_rules(value: Any) -> Iterator[ScopeRule]:
    for each in _objects_in(value):
        with suppress(_InvalidRule):
            yield _parse_rule(each)


class _InvalidRule(Exception):
    """An invalid part of a rule, which must not be treated as an empty field that matches everything."""


def _parse_rule(rule: Object) -> ScopeRule:
    return ScopeRule(
        verbs=_string_list_field(rule, "verbs"),
        resources=tuple(_parse_resources(each) for each in _object_list_field(rule, "resources")),
        object_names=_string_list_field(rule, "resourceNames"),
        namespaces=_string_list_field(rule, "namespaces"),
        paths=_string_list_field(rule, "nonResourceURLs"),
        targets=_string_list_field(rule, "requestTargets"),
        cluster=_string_field(rule, "cluster"),
        virtual_clusters=tuple(
            (_string_field(each, "name"), _string_field(each, "namespace"))
            for each in _object_list_field(rule, "virtualClusters")
        ),
    )


def _parse_resources(entry: Object) -> ScopeResources:
    return ScopeResources(
        _string_field(entry, "group"),
        _string_list_field(entry, "resources"),
        _string_list_field(entry, "resourceNames"),
    )


def _string_field(obj: Object, field: str) -> str:
    value = obj.get(field)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _InvalidRule
    return value


def _string_list_field(obj: Object, field: str) -> tuple[str, ...]:
    values = _list_field(obj, field)
    if not _ALL_STRINGS.issuperset(map(type, values)):
        raise _InvalidRule
    return tuple(values)


_ALL_STRINGS = frozenset({str})


def _object_list_field(obj: Object, field: str) -> Iterable[Object]:
    values = _list_field(obj, field)
    if not all(isinstance(each, dict) for each in values):
        raise _InvalidRule
    return values


def _list_field(obj: Object, field: str) -> list[Any]:
    value = obj.get(field)
    if value is None:
        return []
    if not isinstance(value, list):
        raise _InvalidRule
    return value
