"""What an access key is cut down to, as a value.

`Scope.of` reads it from the `scope` of a key or token once; `authz/scope` asks it on each request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fairlead.core.objects import Object

ANY = "*"

CLI_FLAG = "allowServiceCli"
"""The field that lets the command-line tool read what it needs."""

CLI_ROLE = "service-cli"
"""The role that says the same."""


class ScopeTooLarge(Exception):
    """Two scopes have so many rules with so much in common that they are not compared to the end."""


@dataclass(frozen=True, slots=True)
class Resources:
    """An API group and names of resources in it: `r`, `r/sub`, `*`, `r/*`, `*/sub`. None named means all of them."""

    group: str
    names: tuple[str, ...] = ()
    object_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ScopeRule:
    """One entry of the deprecated `rules`. A request must match it in every dimension; an empty one is free."""

    verbs: tuple[str, ...] = ()
    resources: tuple[Resources, ...] = ()
    object_names: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    cluster: str = ""
    virtual_clusters: tuple[tuple[str, str], ...] = ()
    """Pairs of name and namespace; an empty part is free."""


@dataclass(frozen=True, slots=True)
class ScopeRole:
    """A bundle of rights that the server manages, for components of the platform. It allows nothing by itself."""

    role: str
    projects: tuple[str, ...] = ()
    virtual_clusters: tuple[tuple[str, str], ...] = ()
    """Pairs of project and virtual cluster."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Scope:
    """The entries of a scope. What one of them allows is inside; a scope without entries holds nothing."""

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
    def holds_nothing(self) -> bool:
        """Without any entry that could allow something: all that is left is asking who one is."""
        return not (
            self.allow_cli or self.projects or self.spaces or self.virtual_clusters or self.clusters or self.rules
        )

    @staticmethod
    def of(obj: Any) -> Scope | None:
        """The scope that an object's field holds, None for a field that is not there.

        Whatever is not as the schema has it allows nothing: an entry is passed over, a rule as a whole, because half
        a rule would be a wider one.
        """
        if obj is None:
            return None
        if not isinstance(obj, dict):
            return Scope()
        roles = tuple(_roles(obj.get("roles")))
        return Scope(
            allow_cli=obj.get(CLI_FLAG) is True or any(each.role == CLI_ROLE for each in roles),
            projects=_names(obj.get("projects"), "project"),
            spaces=_pairs(obj.get("spaces"), "project", "space"),
            virtual_clusters=_pairs(obj.get("virtualClusters"), "project", "virtualCluster"),
            clusters=_names(obj.get("clusters"), "cluster"),
            rules=tuple(_rules(obj.get("rules"))),
            roles=tuple(each for each in roles if each.role != CLI_ROLE),
        )


def _objects(value: Any) -> Iterator[Object]:
    return (each for each in value if isinstance(each, dict)) if isinstance(value, list) else iter(())


def _names(value: Any, field: str) -> tuple[str, ...]:
    found = (each.get(field) for each in _objects(value))
    return tuple(name for name in found if isinstance(name, str) and name)


def _pairs(value: Any, first: str, second: str) -> tuple[tuple[str, str], ...]:
    found = ((each.get(first), each.get(second)) for each in _objects(value))
    return tuple((one, two) for one, two in found if isinstance(one, str) and isinstance(two, str) and one and two)


def _roles(value: Any) -> Iterator[ScopeRole]:
    for each in _objects(value):
        role = each.get("role")
        if isinstance(role, str) and role:
            virtual_clusters = _pairs(each.get("virtualClusters"), "project", "virtualCluster")
            yield ScopeRole(role, tuple(_texts_in(each.get("projects"))), virtual_clusters)


def _texts_in(value: Any) -> Iterator[str]:
    return (each for each in value if isinstance(each, str)) if isinstance(value, list) else iter(())


def _rules(value: Any) -> Iterator[ScopeRule]:
    for each in _objects(value):
        with suppress(_Malformed):
            yield _rule(each)


class _Malformed(Exception):
    """A part of a rule that cannot be read, and must not be taken for one that is free."""


def _rule(rule: Object) -> ScopeRule:
    return ScopeRule(
        verbs=_texts(rule, "verbs"),
        resources=tuple(_resources(each) for each in _entries(rule, "resources")),
        object_names=_texts(rule, "resourceNames"),
        namespaces=_texts(rule, "namespaces"),
        paths=_texts(rule, "nonResourceURLs"),
        targets=_texts(rule, "requestTargets"),
        cluster=_text(rule, "cluster"),
        virtual_clusters=tuple(
            (_text(each, "name"), _text(each, "namespace")) for each in _entries(rule, "virtualClusters")
        ),
    )


def _resources(entry: Object) -> Resources:
    return Resources(_text(entry, "group"), _texts(entry, "resources"), _texts(entry, "resourceNames"))


def _text(obj: Object, field: str) -> str:
    value = obj.get(field)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _Malformed
    return value


def _texts(obj: Object, field: str) -> tuple[str, ...]:
    values = _list(obj, field)
    if not all(isinstance(each, str) for each in values):
        raise _Malformed
    return tuple(values)


def _entries(obj: Object, field: str) -> Iterable[Object]:
    values = _list(obj, field)
    if not all(isinstance(each, dict) for each in values):
        raise _Malformed
    return values


def _list(obj: Object, field: str) -> list[Any]:
    value = obj.get(field)
    if value is None:
        return []
    if not isinstance(value, list):
        raise _Malformed
    return value
