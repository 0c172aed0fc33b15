"""Finds API resources by name: `apps`, `app`, `App`, `ws`, `roles.rbac.authorization.k8s.io`, `pods/log`.

`fairlead get`, `apply` and `delete` work with any resource. `fairlead key explain` and `fairlead who-can` send access
reviews: for a resource that does not exist, the review would be a misleading "no".
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from fairlead.client.client import MANAGEMENT, Client, build_path
from fairlead.client.errors import ApiStatusError, ClientError
from fairlead.core.objects import Object

AGGREGATED_DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
ANY = "*"


@dataclass(frozen=True, slots=True)
class ApiResource:
    """A resource as the server serves it, or as in access reviews."""

    group: str
    plural: str
    subresource: str = ""
    version: str = ""
    kind: str = ""
    namespaced: bool = False
    aliases: frozenset[str] = frozenset()
    """Singular name, kind and short names, in lower case."""
    verbs: frozenset[str] = frozenset()
    """Supported verbs; empty if unknown."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, name: str = "", namespace: str = "") -> str:
        """Path of an object for `Client.send`, or of all objects."""
        root = f"{MANAGEMENT}/{'apis' if self.group else 'api'}/{self.api_version}"
        names = (self.plural, name) if name else (self.plural,)
        return build_path(root, namespace, *names)

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
    return replace(select_resource(served, qualified, client.group), subresource=subresource)


def select_resource(served: Sequence[ApiResource], text: str, preferred_group: str) -> ApiResource:
    """The resource with the name `RESOURCE[.GROUP]` among those that the server serves."""
    word, _, group = text.partition(".")
    matching = [each for each in served if _has_name(each, word.lower()) and group in ("", each.group)]
    if not matching:
        known = sorted({name for each in served for name in (each.plural, *each.aliases)})
        similar = difflib.get_close_matches(word.lower(), known, n=1)
        question = f"did you mean {similar[0]!r}? " if similar else ""
        raise ClientError(f"the server has no resource {text!r}; {question}`fairlead get` lists the resources")
    return min(matching, key=lambda each: (each.group != preferred_group, each.group))


def find_kind(resources: Iterable[ApiResource], api_version: str, kind: str) -> ApiResource:
    """The resource of an object. Raises ClientError if the server does not serve it."""
    found = next((each for each in resources if (each.api_version, each.kind) == (api_version, kind)), None)
    if found is None:
        raise ClientError(f"the server has no kind {kind} in {api_version or 'an empty apiVersion'}; check both")
    return found


def list_resources(client: Client) -> Iterator[ApiResource]:
    """Yields all resources of the server, with two aggregated discovery requests."""
    for root in ("/api", "/apis"):
        for group in client.send("GET", MANAGEMENT + root, accept=AGGREGATED_DISCOVERY).get("items") or ():
            for version in group.get("versions") or ():
                for each in version.get("resources") or ():
                    yield _parse_resource(group["metadata"].get("name") or "", str(version.get("version") or ""), each)


def _parse_resource(group: str, version: str, entry: Object) -> ApiResource:
    kind = (entry.get("responseKind") or {}).get("kind") or ""
    names = [entry.get("singularResource"), kind]
    names += entry.get("shortNames") or []
    words = frozenset(name.lower() for name in names if name)
    namespaced = entry.get("scope") == "Namespaced"
    verbs = frozenset(entry.get("verbs") or ())
    return ApiResource(
        group, entry["resource"], version=version, kind=kind, namespaced=namespaced, aliases=words, verbs=verbs
    )


def _has_name(resource: ApiResource, word: str) -> bool:
    return word == resource.plural or word in resource.aliases
