"""All static documents by path: those of the management API, and those of the platform at the base URL.

`app` calls `build_documents` and `platform_documents` once; the dispatcher serves the result (`document.py`). The
content comes from `resources.py` and the `openapi` modules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from fairlead.core import yaml
from fairlead.registry.catalog import Catalog
from fairlead.server.api.content import YAML
from fairlead.server.discovery import openapi_v2, openapi_v3, resources
from fairlead.server.discovery import openapi_v2_protobuf as protobuf
from fairlead.server.discovery.document import Document, Variant, variant
from fairlead.server.discovery.openapi_v3 import PatchTypes, patch_types
from fairlead.server.discovery.resources import Served, Subresource, resources_of, root_of

PREFIX = "/kubernetes/management"

_NO_CUSTOM_RESOURCES = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def documents(
    catalog: Catalog,
    prefix: str = PREFIX,
    *,
    version: str = "0",
    address: str = "",
    subresources: Sequence[Subresource] = (),
    types: PatchTypes = patch_types,
) -> dict[str, Document]:
    """path -> document. `prefix` is the path of the API root; `version` and `address` are this server's."""
    groups = resources.served(catalog)
    described = {
        root_of(group, each): openapi_v3.describe(
            resources_of(kinds, subresources), version=version, prefix=prefix, types=types
        )
        for group, versions in groups.items()
        for each, kinds in versions.items()
    }
    return {
        "/": _plain(resources.root_paths(groups)),
        "/version": _plain(resources.version_info(version)),
        **_discovery_documents(groups, subresources, address),
        **_openapi_v3_documents(described, prefix),
        "/openapi/v2": _openapi_v2_document(described, prefix),
        _NO_CUSTOM_RESOURCES: _plain(resources.no_custom_resources()),
    }


def platform_documents(version: str, mount: str) -> dict[str, Document]:
    """The documents at the base URL: the list of paths, and the version of the platform itself."""
    major, minor, _ = version.split(".", 2)
    info = {"version": f"v{version}", "major": major, "minor": minor}
    paths = {"paths": ["/healthz", "/livez", "/readyz", "/version", mount]}
    return {"/": _plain(paths), "/version": _plain(info)}


def _discovery_documents(groups: Served, extra: Sequence[Subresource], address: str) -> dict[str, Document]:
    core, named = {"": groups[""]}, {group: versions for group, versions in groups.items() if group}
    found = {
        "/api": _aggregated(core, extra, resources.api_versions(groups, address)),
        "/apis": _aggregated(named, extra, resources.api_group_list(groups)),
    }
    for group, versions in named.items():
        found[f"/apis/{group}"] = Document(_readable(resources.api_group(group, versions)))
    for group, versions in groups.items():
        for version, kinds in versions.items():
            listed = resources.api_resource_list(group, version, resources_of(kinds, extra))
            found[root_of(group, version)] = Document(_readable(listed))
    return found


def _aggregated(groups: Served, extra: Sequence[Subresource], plain: Mapping[str, Any]) -> Document:
    """Both discovery formats at one path. The aggregated ones come first: clients that accept them prefer them."""
    lists = (
        variant(orjson.dumps(resources.aggregated(groups, extra, version)), view=resources.aggregated_view(version))
        for version in resources.AGGREGATED_VERSIONS
    )
    return Document((*lists, *_readable(plain)))


def _openapi_v3_documents(described: Mapping[str, Mapping[str, Any]], prefix: str) -> dict[str, Document]:
    """The index and the documents that it links to.

    The URLs in the index are relative to the API root: clients prepend the path of their server to /openapi/v3.
    """
    found = {f"/openapi/v3{root}": _named_by_hash(prefix, root, value) for root, value in described.items()}
    locations = {
        path.removeprefix("/openapi/v3/"): document.location.removeprefix(prefix) for path, document in found.items()
    }
    return {"/openapi/v3": _plain(openapi_v3.index(locations)), **found}


def _named_by_hash(prefix: str, root: str, value: Mapping[str, Any]) -> Document:
    only = variant(orjson.dumps(value))
    return Document((only,), location=f"{prefix}/openapi/v3{root}?hash={only.hash}")


def _openapi_v2_document(described: Mapping[str, dict[str, Any]], prefix: str) -> Document:
    """JSON, or protobuf for clients that accept nothing else.

    Only old clients request it, and encoding it takes longer than everything else here. So it is built on demand.
    """

    def build_variants() -> tuple[Variant, ...]:
        value = openapi_v2.swagger(described.values(), prefix)
        encoded = variant(protobuf.encode(value), protobuf.MEDIA_TYPE, alias=protobuf.ASKED_AS)
        return variant(orjson.dumps(value)), encoded

    return Document(build_variants)


def _plain(value: Mapping[str, Any]) -> Document:
    return Document((variant(orjson.dumps(value)),), negotiated=False)


def _readable(value: Mapping[str, Any]) -> tuple[Variant, ...]:
    return variant(orjson.dumps(value)), variant(yaml.encode(value), YAML)
