"""Where labels come from: closed sets, all of them. What is in none of them shares one series with all its like.

Anybody can make up paths, methods and names, also without signing in. Each label that could hold one of these would be
a way to fill the memory of this server, and of everything that collects from it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from http import HTTPStatus

from fairlead.authz.scope.names import CLUSTER, SPACE, VIRTUAL_CLUSTER
from fairlead.core.call import Call, Target
from fairlead.registry.catalog import Catalog
from fairlead.registry.kind import Kind

OTHER = "other"
"""Stands for every verb and code that is not known."""

WATCH, CONNECT, APPLY = "WATCH", "CONNECT", "APPLY"
VERBS = {
    "get": "GET",
    "list": "LIST",
    "watch": WATCH,
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "apply": APPLY,
    "delete": "DELETE",
    "deletecollection": "DELETECOLLECTION",
}
"""What metrics call the verbs of resources: for most of them Kubernetes takes the method."""
METHODS = {"HEAD": "GET", **{method: method for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")}}
CODES = frozenset(map(int, HTTPStatus))
ENTRANCES = {CLUSTER: "cluster", SPACE: "space", VIRTUAL_CLUSTER: "virtualcluster"}


@dataclass(frozen=True, slots=True)
class Labels:
    """What a request was about, as far as metrics tell. What is not served has a verb only."""

    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    scope: str = ""


class Known:
    """All that can be asked for: the catalog's resources with what stands below them, and `paths` beside them."""

    def __init__(self, catalog: Catalog, paths: Iterable[str] = ()) -> None:
        self._places = frozenset(place for kind in catalog.kinds for place in _places(kind))
        self._paths = frozenset(paths)

    def labels(self, call: Call, verb: str, scope: str) -> Labels | None:
        """None for what is not served, or not by that name."""
        target = call.target
        if not target.resource:
            known = METHODS.get(call.method)
            return Labels(known, subresource=target.path) if known and target.path in self._paths else None
        known = VERBS.get(verb)
        place = target.group, target.version, target.resource, target.subresource
        return Labels(known, *place, scope) if known and place in self._places else None


def unknown_verb(call: Call, verb: str) -> str:
    """All that is told of what is not served."""
    return VERBS.get(verb, OTHER) if call.target.resource else METHODS.get(call.method, OTHER)


def entrance(via: Target) -> Labels:
    """A gateway, for what stays open through it. Which one of its sort is left out: names are no closed set."""
    return Labels(CONNECT, via.group, via.version, via.resource, scope="resource")


def code_label(status: int) -> str:
    return str(status) if status in CODES else OTHER


def code_class(status: int) -> str:
    """For the answers of clusters, who may answer with any number."""
    return f"{status // 100}xx" if 100 <= status < 600 else OTHER


def dry_run_label(values: Iterable[str]) -> str:
    return "All" if set(values) == {"All"} else "invalid"


def _places(kind: Kind) -> Iterator[tuple[str, str, str, str]]:
    for below in ("", *kind.subresources, *(action.name for action in kind.actions)):
        yield kind.group, kind.version, kind.plural, below
