"""Discovery: which groups, versions, resources and verbs there are, in every shape that clients ask for.

Pure functions of a Catalog that make plain values; `documents.py` calls them and turns the values into bytes. There are
two generations of the same facts: one small document per group and version (Python clients, old kubectl), and the
aggregated lists, two requests for everything (kubectl since 1.26). Both come from `resources_of`, so they agree.
"""

from __future__ import annotations

import base64
import hashlib
import platform
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fairlead.registry.catalog import Catalog
from fairlead.registry.kind import Kind
from fairlead.server.discovery.document import View

Value = dict[str, Any]
Served = dict[str, dict[str, list[Kind]]]

KUBERNETES = (1, 35)
"""The Kubernetes release whose answers the conformance tests hold this server to.

kubectl warns when its own minor version is more than one away, kr8s when it is outside of the range that it supports.
"""

AGGREGATED_VERSIONS = ("v2", "v2beta1")
"""Versions of the aggregated list, the best first; kubectl 1.26 to 1.29 knows the second only."""

PATHS_BESIDE_APIS = (
    *("/api", "/apis", "/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/readyz", "/version"),
)


@dataclass(frozen=True, slots=True)
class Subresource:
    """A path below an object, such as `runners/accesskey`. `kind` is what it takes and returns.

    `/status` and the actions of a kind need not be given: they follow from the kind's own declaration. `lists` says
    that a read answers with a list of that kind.
    """

    group: str
    plural: str
    name: str
    kind: Kind
    verbs: tuple[str, ...]
    lists: bool = False

    @property
    def response_kind(self) -> str:
        return self.kind.list_kind if self.lists else self.kind.name


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind as the API shows it, with all of its subresources."""

    kind: Kind
    subresources: tuple[Subresource, ...]


def served(catalog: Catalog) -> Served:
    """group -> version -> kinds. The core group is first and always there: tools take its absence for an outage."""
    groups = catalog.groups()
    core = groups.pop("", {})
    core.setdefault("v1", [])
    return {"": core, **groups}


def resources_of(kinds: Iterable[Kind], extra: Sequence[Subresource] = ()) -> list[Resource]:
    return [Resource(kind, (*_status_of(kind), *_actions_of(kind), *_belonging_to(kind, extra))) for kind in kinds]


def _status_of(kind: Kind) -> Iterable[Subresource]:
    if kind.status_subresource:
        yield Subresource(kind.group, kind.plural, "status", kind, ("get", "patch", "update"))


def _actions_of(kind: Kind) -> Iterable[Subresource]:
    """What hangs below an object and is stored elsewhere is all of it that belongs to the object: a list."""
    for action in kind.actions:
        other = action.kind or kind
        lists = other.stored and other.plural != kind.plural
        yield Subresource(kind.group, kind.plural, action.name, other, action.verbs, lists)


def _belonging_to(kind: Kind, extra: Sequence[Subresource]) -> Iterable[Subresource]:
    return (each for each in extra if (each.group, each.plural) == (kind.group, kind.plural))


def root_of(group: str, version: str) -> str:
    """The path that a group's version hangs under; the core group has a place of its own."""
    return f"/apis/{group}/{version}" if group else f"/api/{version}"


# --- one document per group and version ---


def api_versions(groups: Served, address: str) -> Value:
    """The answer to /api. `address` is the host and port that clients reach this server at."""
    everywhere = {"clientCIDR": "0.0.0.0/0", "serverAddress": address}
    return {"kind": "APIVersions", "versions": list(groups[""]), "serverAddressByClientCIDRs": [everywhere]}


def api_group_list(groups: Served) -> Value:
    """The answer to /apis."""
    named = [_group_entry(group, list(versions)) for group, versions in groups.items() if group]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": named}


def api_group(group: str, versions: Iterable[str]) -> Value:
    """The answer to /apis/<group>."""
    return {"kind": "APIGroup", "apiVersion": "v1", **_group_entry(group, list(versions))}


def _group_entry(group: str, versions: Sequence[str]) -> Value:
    listed = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": listed, "preferredVersion": listed[0]}


def api_resource_list(group: str, version: str, resources: Iterable[Resource]) -> Value:
    """The answer to /api/v1 and /apis/<group>/<version>."""
    entries = [entry for resource in resources for entry in _resource_entries(resource)]
    group_version = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": entries}


def _resource_entries(resource: Resource) -> Iterable[Value]:
    kind = resource.kind
    entry: Value = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.name,
        "verbs": sorted(kind.verbs),
        **_names(kind),
    }
    if "get" in kind.verbs:
        entry["storageVersionHash"] = _storage_version_hash(kind)
    yield entry
    for sub in resource.subresources:
        yield _subresource_entry(kind, sub)


def _subresource_entry(parent: Kind, sub: Subresource) -> Value:
    entry: Value = {"name": f"{parent.plural}/{sub.name}", "singularName": "", "namespaced": parent.namespaced}
    if (sub.kind.group, sub.kind.version) != (parent.group, parent.version):
        entry |= {"group": sub.kind.group, "version": sub.kind.version}
    return {**entry, "kind": sub.response_kind, "verbs": sorted(sub.verbs)}


def _names(kind: Kind) -> Value:
    names: Value = {}
    if kind.short_names:
        names["shortNames"] = list(kind.short_names)
    if kind.categories:
        names["categories"] = list(kind.categories)
    return names


def _storage_version_hash(kind: Kind) -> str:
    """Changes when the stored version does; storage migrators compare it and look no further."""
    digest = hashlib.sha256(f"{kind.api_version}/{kind.name}".encode()).digest()
    return base64.b64encode(digest[:8]).decode()


# --- everything at once ---


def aggregated_view(version: str) -> View:
    """How clients ask for an aggregated list."""
    return View("APIGroupDiscoveryList", "apidiscovery.k8s.io", version)


def aggregated(groups: Served, extra: Sequence[Subresource], version: str) -> Value:
    """Groups with their versions and resources in one list: the core group for /api, the others for /apis."""
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": [_discovered_group(group, versions, extra) for group, versions in groups.items()],
    }


def _discovered_group(group: str, versions: dict[str, list[Kind]], extra: Sequence[Subresource]) -> Value:
    listed = [
        {
            "version": version,
            "resources": [_discovered_resource(resource) for resource in resources_of(kinds, extra)],
            "freshness": "Current",
        }
        for version, kinds in versions.items()
    ]
    return {"metadata": {"name": group} if group else {}, "versions": listed}


def _discovered_resource(resource: Resource) -> Value:
    kind = resource.kind
    entry: Value = {
        "resource": kind.plural,
        "responseKind": gvk(kind),
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": sorted(kind.verbs),
        **_names(kind),
    }
    if resource.subresources:
        entry["subresources"] = [
            {"subresource": sub.name, "responseKind": gvk(sub.kind, sub.response_kind), "verbs": sorted(sub.verbs)}
            for sub in resource.subresources
        ]
    return entry


def gvk(kind: Kind, name: str = "") -> Value:
    """Group, version and kind as one value; `name` for a kind that goes with it, such as its list."""
    return {"group": kind.group, "version": kind.version, "kind": name or kind.name}


# --- beside the APIs ---


def root_paths(groups: Served) -> Value:
    """The answer to /: every path that is worth following."""
    paths = set(PATHS_BESIDE_APIS)
    for group, versions in groups.items():
        paths |= {root_of(group, version) for version in versions}
        if group:
            paths.add(f"/apis/{group}")
    return {"paths": sorted(paths)}


def no_custom_resources() -> Value:
    """An empty list of CustomResourceDefinitions, the truth about a group that is not served otherwise.

    kubectl asks for it before it creates an object of a kind without PATCH (reviews, tokens), and gives up on 404.
    """
    listed: Value = {"kind": "CustomResourceDefinitionList", "apiVersion": "apiextensions.k8s.io/v1"}
    return {**listed, "metadata": {"resourceVersion": "1"}, "items": []}


def version_info(version: str) -> Value:
    """The answer to /version, in Kubernetes' shape: the API's release, with our own version as build metadata.

    There is no Go here and no compiled build, so these fields say what runs instead, or Kubernetes' word for unknown.
    """
    major, minor = KUBERNETES
    ours = re.sub("[^0-9A-Za-z.]", ".", version)
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return {
        "major": str(major),
        "minor": str(minor),
        "gitVersion": f"v{major}.{minor}.0+fairlead.{ours}",
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": f"python{platform.python_version()}",
        "compiler": platform.python_implementation().lower(),
        "platform": f"{sys.platform}/{machine}",
    }
