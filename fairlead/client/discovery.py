"""Finds API resources by name: `apps`, `app`, `App`, `ws`, `roles.rbac.authorization.k8s.io`, `pods/log`.

`fairlead key explain` and `fairlead who-can` send access reviews. For a resource that does not exist, the review would
be a misleading "no", so the name is resolved with the server's discovery first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from fairlead.client.client import MANAGEMENT, Client
from fairlead.client.errors import ApiStatusError, ClientError
from fairlead.core.objects import Object

AGGREGATED_DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
ANY = "*"


@dataclass(frozen=True, slots=True)
class ApiResource:
    """A resource as in access reviews."""

    group: str
    plural: str
    subresource: str = ""
    namespaced: bool = False
    aliases: frozenset[str] = frozenset()
    """Singular name, kind and short names, in lower case."""
    verbs: frozenset[str] = frozenset()
    """Supported verbs; empty if unknown."""

    def __str__(self) -> str:
        name = f"{self.plural}.{self.group}" if self.group else self.plural
        return f"{name}/{self.subresource}" if self.subresource else name


def find_resource(client: Client, text: str) -> ApiResource:
    """Finds `RESOURCE[.GROUP][/SUBRESOURCE]`. The management group takes precedence over other groups."""
    qualified, _, subresource = text.partition("/")
    word, _, group = qualified.partition(".")
    if word == ANY:
        return ApiResource(group or ANY, ANY, subresource)
    try:
        served = list(list_resources(client))
    except ApiStatusError as problem:
        if problem.code != 403:
            raise
        # The scope of the key does not allow discovery. Use the name as it is.
        return ApiResource(group or client.group, word, subresource)
    matching = [each for each in served if _has_name(each, word.lower()) and group in ("", each.group)]
    if not matching:
        raise ClientError(f"the server has no resource {qualified!r}; list them with `kubectl api-resources`")
    return replace(min(matching, key=lambda each: (each.group != client.group, each.group)), subresource=subresource)


def list_resources(client: Client) -> Iterator[ApiResource]:
    """Yields all resources of the server, with two aggregated discovery requests."""
    for root in ("/api", "/apis"):
        for group in client.send("GET", MANAGEMENT + root, accept=AGGREGATED_DISCOVERY).get("items") or ():
            for version in group.get("versions") or ():
                for each in version.get("resources") or ():
                    yield _parse_resource(group["metadata"].get("name") or "", each)


def _parse_resource(group: str, entry: Object) -> ApiResource:
    names = [entry.get("singularResource"), (entry.get("responseKind") or {}).get("kind")]
    names += entry.get("shortNames") or []
    words = frozenset(name.lower() for name in names if name)
    namespaced = entry.get("scope") == "Namespaced"
    verbs = frozenset(entry.get("verbs") or ())
    return ApiResource(group, entry["resource"], namespaced=namespaced, aliases=words, verbs=verbs)


def _has_name(resource: ApiResource, word: str) -> bool:
    return word == resource.plural or word in resource.aliases
