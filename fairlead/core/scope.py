"""What an access key is cut down to, as a value.

`Scope.of` reads it from the `scope` of a key or token once; `authz/scope.py` asks it on each request.
"""

from __future__ import annotations

from dataclasses import dataclass

ANY = "*"


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
