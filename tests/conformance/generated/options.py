"""Query parameters, Accept headers and the options of deletes, right and wrong ones."""

from collections.abc import Iterable, Mapping
from typing import Any

from tests.conformance.generated.values import Source

Json = Any

_WRITE = (
    (0.15, "fieldValidation", ("Strict", "Warn", "Ignore", "Strict", "bogus", "")),
    (0.08, "dryRun", ("All", "All", "All", "x", "", "All&dryRun=All")),
    (0.15, "fieldManager", ("mgr-a", "mgr-b", "x" * 140, "a%20b", "%01")),
)
_READ = ((0.12, "resourceVersion", ("0", "$rv", "x", "-1", "99999999999999")),)
_LIST = (
    (0.2, "limit", ("1", "2", "0", "-1", "x", "500")),
    (
        *(0.12, "fieldSelector"),
        (
            "metadata.name=a-$run",
            "metadata.name!=a-$run",
            "spec.bogus=one",
            "metadata.namespace=service-p-demo",
            "x",
            "a=b,",
        ),
    ),
    (0.1, "resourceVersionMatch", ("Exact", "NotOlderThan", "x")),
    (0.03, "continue", ("x", "")),
)
_FORCE = ((0.2, "force", ("true", "false", "yes", "1")),)
_ANY = ((0.03, "pretty", ("true", "1", "x")), (0.02, "bogus", ("1",)))
_PARAMETERS = {"write": _WRITE, "read": _READ, "list": _LIST, "force": _FORCE}

_AS = "application/json;as={};g=meta.k8s.io;v=v1"
ACCEPTS = (
    *("application/json", "application/yaml", "*/*", "application/*", "text/html", "text/html,*/*;q=0.1"),
    *(_AS.format("PartialObjectMetadata"), _AS.format("PartialObjectMetadataList"), _AS.format("Table")),
    *(_AS.format("Nope"), f"{_AS.format('Table')},application/json", "application/json;q=0.5,application/yaml"),
)
LABEL_SELECTORS = (
    "a",
    "!a",
    "a=one",
    "a!=one",
    "a in (one,two)",
    "a notin (one)",
    "a=",
    "a==two",
    "=x",
    "a in ()",
    "a>1",
)


def query(source: Source, *groups: str, first: Iterable[str] = ()) -> str:
    """A query string with some parameters of the groups, after those that are always there."""
    parts = [*first]
    for probability, name, values in (*(entry for group in groups for entry in _PARAMETERS[group]), *_ANY):
        if source.chance(probability):
            parts.append(f"{name}={source.pick(*values)}")
    return f"?{'&'.join(parts)}" if parts else ""


def selector(source: Source) -> str:
    """A label selector for the objects of the life, at times with a second requirement, as it stands in a URL."""
    if source.chance(0.7):
        return "labelSelector=run=$run"
    more = str(source.pick(*LABEL_SELECTORS))
    for character, escaped in (("=", "%3D"), (" ", "%20"), (",", "%2C"), (">", "%3E")):
        more = more.replace(character, escaped)
    return f"labelSelector=run%3D$run%2C{more}"


def accept(source: Source) -> Mapping[str, str]:
    return {} if source.chance(0.75) else {"Accept": source.pick(*ACCEPTS)}


def delete_options(source: Source) -> Json:
    """A body of a delete, or None."""
    if source.chance(0.5):
        return None
    body: Json = {"kind": "DeleteOptions", "apiVersion": "v1"}
    optional: tuple[tuple[float, str, tuple[Json, ...]], ...] = (
        (0.5, "propagationPolicy", ("Background", "Foreground", "Orphan", "x")),
        (0.4, "preconditions", ({"uid": "$uid"}, {"resourceVersion": "$rv"}, {"uid": "x"}, {"resourceVersion": "x"})),
        (0.2, "gracePeriodSeconds", (0, 5, -1)),
        (0.15, "orphanDependents", (True, False)),
        (0.1, "dryRun", (["All"], ["x"], [])),
        (0.05, "kind", ("Nope",)),
        (0.05, "bogus", (1,)),
    )
    for probability, name, values in optional:
        if source.chance(probability):
            body[name] = source.pick(*values)
    return body
