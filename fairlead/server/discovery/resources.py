"""Discovery: the groups, versions, resources and verbs of the API, in every format that clients request.

Pure functions of a Catalog that return plain values; `documents.py` encodes them. There are two formats: one small
document per group and version (Python clients, old kubectl), and aggregated discovery, which needs two requests for
everything (kubectl since 1.26). Both are built from `build_resources`, so they agree.
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

from fairlead.registry.kind import Catalog, Kind
from fairlead.server.discovery.document import MediaTypeParams

Value = dict[str, Any]
KindsByGroupVersion = dict[str, dict[str, list[Kind]]]

KUBERNETES_VERSION = (1, 35)
"""The Kubernetes release whose responses the conformance tests compare with.

kubectl warns if its own minor version differs by more than one, kr8s if the version is outside its supported range.
"""

AGGREGATED_VERSIONS = ("v2", "v2beta1")
"""Versions of aggregated discovery, the preferred one first; kubectl 1.26 to 1.29 only knows the second."""

NON_API_PATHS = (
    *("/api", "/apis", "/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/readyz", "/version"),
)


@dataclass(frozen=True, slots=True)
class Subresource:
    """A subresource, such as `runners/accesskey`. `kind` is the kind of its request and response.

    `/status`, `/finalize` and the actions of a kind come from the declaration of the kind. With `returns_list`, a read
    returns a list of that kind.
    """

    group: str
    plural: str
    name: str
    kind: Kind
    verbs: tuple[str, ...]
    returns_list: bool = False

    @property
    def response_kind(self) -> str:
        return self.kind.list_kind if self.returns_list else self.kind.name


@dataclass(frozen=True, slots=True)
class ResourceInfo:
    """A kind with all of its subresources."""

    kind: Kind
    subresources: tuple[Subresource, ...]


def group_kinds(catalog: Catalog) -> KindsByGroupVersion:
    """group -> version -> kinds. The core group comes first and is always included: tools rely on it."""
    groups = catalog.groups()
    core = groups.pop("", {})
    core.setdefault("v1", [])
    return {"": core, **groups}


def build_resources(kinds: Iterable[Kind], extra: Sequence[Subresource] = ()) -> list[ResourceInfo]:
    """The kinds with their subresources, by name."""
    by_name = sorted(kinds, key=lambda kind: kind.plural)
    return [ResourceInfo(kind, tuple(_subresources(kind, extra))) for kind in by_name]


def _subresources(kind: Kind, extra: Sequence[Subresource]) -> list[Subresource]:
    found = (*_written_subresources(kind), *_action_subresources(kind), *_extra_subresources(kind, extra))
    return sorted(found, key=lambda subresource: subresource.name)


def _written_subresources(kind: Kind) -> Iterable[Subresource]:
    """Those that are written like the object itself."""
    if kind.status_subresource:
        yield Subresource(kind.group, kind.plural, "status", kind, ("get", "patch", "update"))
    for name in kind.extra_subresources:
        yield Subresource(kind.group, kind.plural, name, kind, ("update",))


def _action_subresources(kind: Kind) -> Iterable[Subresource]:
    """The kind's actions. One whose kind is stored as a resource of its own returns the objects that belong to it."""
    for action in kind.actions:
        other = action.kind or kind
        lists = other.persisted and other.plural != kind.plural
        yield Subresource(
            group=kind.group, plural=kind.plural, name=action.name, kind=other, verbs=action.verbs, returns_list=lists
        )


def _extra_subresources(kind: Kind, extra: Sequence[Subresource]) -> Iterable[Subresource]:
    return (each for each in extra if (each.group, each.plural) == (kind.group, kind.plural))


def group_version_path(group: str, version: str) -> str:
    """The root path of a group and version: /api/v1 for the core group, /apis/<group>/<version> for others."""
    return f"/apis/{group}/{version}" if group else f"/api/{version}"


# --- one document per group and version ---


def api_versions(groups: KindsByGroupVersion, address: str) -> Value:
    """The response to /api. `address` is the host and port where clients reach this server."""
    everywhere = {"clientCIDR": "0.0.0.0/0", "serverAddress": address}
    return {"kind": "APIVersions", "versions": list(groups[""]), "serverAddressByClientCIDRs": [everywhere]}


def api_group_list(groups: KindsByGroupVersion) -> Value:
    """The response to /apis."""
    named = [_group_entry(group, list(versions)) for group, versions in groups.items() if group]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": named}


def api_group(group: str, versions: Iterable[str]) -> Value:
    """The response to /apis/<group>."""
    return {"kind": "APIGroup", "apiVersion": "v1", **_group_entry(group, list(versions))}


def _group_entry(group: str, versions: Sequence[str]) -> Value:
    listed = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": listed, "preferredVersion": listed[0]}


def api_resource_list(group: str, version: str, resources: Iterable[ResourceInfo]) -> Value:
    """The response to /api/v1 and /apis/<group>/<version>."""
    entries = [entry for resource in resources for entry in _resource_entries(resource)]
    group_version = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": entries}


def _resource_entries(resource: ResourceInfo) -> Iterable[Value]:
    kind = resource.kind
    entry: Value = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.name,
        "verbs": sorted(kind.verbs),
        **_short_names_and_categories(kind),
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


def _short_names_and_categories(kind: Kind) -> Value:
    names: Value = {}
    if kind.short_names:
        names["shortNames"] = list(kind.short_names)
    if kind.categories:
        names["categories"] = list(kind.categories)
    return names


def _storage_version_hash(kind: Kind) -> str:
    """Changes with the storage version. Storage migrators only compare it."""
    digest = hashlib.sha256(f"{kind.api_version}/{kind.name}".encode()).digest()
    return base64.b64encode(digest[:8]).decode()


# --- aggregated discovery ---


def aggregated_media_type_params(version: str) -> MediaTypeParams:
    """The media type parameters of aggregated discovery."""
    return MediaTypeParams("APIGroupDiscoveryList", "apidiscovery.k8s.io", version)


def aggregated_discovery(groups: KindsByGroupVersion, extra: Sequence[Subresource], version: str) -> Value:
    """Groups with versions and resources in one list: the core group for /api, the others for /apis."""
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
            "resources": [_discovered_resource(resource) for resource in build_resources(kinds, extra)],
            "freshness": "Current",
        }
        for version, kinds in versions.items()
    ]
    return {"metadata": {"name": group} if group else {}, "versions": listed}


def _discovered_resource(resource: ResourceInfo) -> Value:
    kind = resource.kind
    entry: Value = {
        "resource": kind.plural,
        "responseKind": gvk(kind),
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": sorted(kind.verbs),
        **_short_names_and_categories(kind),
    }
    if resource.subresources:
        entry["subresources"] = [
            {"subresource": sub.name, "responseKind": gvk(sub.kind, sub.response_kind), "verbs": sorted(sub.verbs)}
            for sub in resource.subresources
        ]
    return entry


def gvk(kind: Kind, name: str = "") -> Value:
    """Group, version and kind as an object; `name` is for a related kind, such as its list kind."""
    return {"group": kind.group, "version": kind.version, "kind": name or kind.name}


# --- other documents ---


def root_paths(groups: KindsByGroupVersion) -> Value:
    """The response to /: all root paths."""
    paths = set(NON_API_PATHS)
    for group, versions in groups.items():
        paths |= {group_version_path(group, version) for version in versions}
        if group:
            paths.add(f"/apis/{group}")
    return {"paths": sorted(paths)}


def version_info(version: str) -> Value:
    """The response to /version in Kubernetes' format: the API's release, with our own version as build metadata.

    The Go and build fields describe Python instead, or have Kubernetes' values for "unknown".
    """
    major, minor = KUBERNETES_VERSION
    build_metadata = re.sub("[^0-9A-Za-z.]", ".", version)
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return {
        "major": str(major),
        "minor": str(minor),
        "gitVersion": f"v{major}.{minor}.0+fairlead.{build_metadata}",
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": f"python{platform.python_version()}",
        "compiler": platform.python_implementation().lower(),
        "platform": f"{sys.platform}/{machine}",
    }
