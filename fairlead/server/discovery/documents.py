"""All static documents by path: those of the management API, and those of the platform at the base URL.

`app` calls `build_documents` and `platform_documents` once; the dispatcher serves the result (`document.py`). The
content comes from `resources.py` and the `openapi` modules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from fairlead.core import yaml
from fairlead.registry.kind import Catalog
from fairlead.server.api.content import YAML
from fairlead.server.discovery import openapi_v2, openapi_v3, resources
from fairlead.server.discovery.document import Document, Variant, build_variant
from fairlead.server.discovery.openapi_v3 import PatchTypes, patch_types
from fairlead.server.discovery.resources import KindsByGroupVersion, Subresource, build_resources, group_version_path

DEFAULT_PREFIX = "/kubernetes/management"


def build_documents(
    catalog: Catalog,
    prefix: str = DEFAULT_PREFIX,
    *,
    version: str = "0",
    address: str = "",
    subresources: Sequence[Subresource] = (),
    types: PatchTypes = patch_types,
) -> dict[str, Document]:
    """path -> document. `prefix` is the path of the API root; `version` and `address` are this server's."""
    groups = resources.group_kinds(catalog)
    described = {
        group_version_path(group, each): openapi_v3.build_openapi(
            build_resources(kinds, subresources), version=version, prefix=prefix, types=types
        )
        for group, versions in groups.items()
        for each, kinds in versions.items()
    }
    return {
        "/": _json_document(resources.root_paths(groups)),
        "/version": _json_document(resources.version_info(version)),
        **_discovery_documents(groups, subresources, address),
        **_openapi_v3_documents(described, prefix),
        "/openapi/v2": _openapi_v2_document(described, prefix),
    }


def aggregated_documents(catalog: Catalog, group: str, version: str) -> dict[str, Document]:
    """path -> document, for an aggregation layer: only about one group, and without a prefix."""
    groups = {group: resources.group_kinds(catalog)[group]}
    described = {
        group_version_path(group, each): openapi_v3.build_openapi(
            build_resources(kinds, ()), version=version, prefix="", types=patch_types
        )
        for each, kinds in groups[group].items()
    }
    return {
        "/apis": _discovery_document(groups, (), resources.api_group_list(groups)),
        **_group_documents(groups, ()),
        **_openapi_v3_documents(described, ""),
        "/openapi/v2": _openapi_v2_document(described, ""),
    }


def platform_documents(version: str, mount: str) -> dict[str, Document]:
    """The documents at the base URL: the list of paths, and the version of the platform itself."""
    major, minor, _ = version.split(".", 2)
    info = {"version": f"v{version}", "major": major, "minor": minor}
    paths = {"paths": ["/healthz", "/livez", "/readyz", "/version", mount]}
    return {"/": _json_document(paths), "/version": _json_document(info)}


def _discovery_documents(
    groups: KindsByGroupVersion, extra: Sequence[Subresource], address: str
) -> dict[str, Document]:
    core, named = {"": groups[""]}, {group: versions for group, versions in groups.items() if group}
    found = {
        "/api": _discovery_document(core, extra, resources.api_versions(groups, address)),
        "/apis": _discovery_document(named, extra, resources.api_group_list(groups)),
    }
    return found | _group_documents(groups, extra)


def _group_documents(groups: KindsByGroupVersion, extra: Sequence[Subresource]) -> dict[str, Document]:
    found = {
        f"/apis/{group}": Document(_json_and_yaml(resources.api_group(group, versions)))
        for group, versions in groups.items()
        if group
    }
    for group, versions in groups.items():
        for version, kinds in versions.items():
            listed = resources.api_resource_list(group, version, build_resources(kinds, extra))
            found[group_version_path(group, version)] = Document(_json_and_yaml(listed))
    return found


def _discovery_document(
    groups: KindsByGroupVersion, extra: Sequence[Subresource], unaggregated: Mapping[str, Any]
) -> Document:
    """Both discovery formats at one path. The aggregated ones come first: clients that accept them prefer them."""
    lists = (
        build_variant(
            orjson.dumps(resources.aggregated_discovery(groups, extra, version)),
            params=resources.aggregated_media_type_params(version),
        )
        for version in resources.AGGREGATED_VERSIONS
    )
    return Document((*lists, *_json_and_yaml(unaggregated)))


def _openapi_v3_documents(openapi_documents: Mapping[str, Mapping[str, Any]], prefix: str) -> dict[str, Document]:
    """The index and the documents that it links to.

    The URLs in the index are relative to the API root: clients prepend the path of their server to /openapi/v3.
    """
    found = {f"/openapi/v3{root}": _hashed_document(prefix, root, value) for root, value in openapi_documents.items()}
    locations = {
        path.removeprefix("/openapi/v3/"): document.location.removeprefix(prefix) for path, document in found.items()
    }
    return {"/openapi/v3": _json_document(openapi_v3.build_index(locations)), **found}


def _hashed_document(prefix: str, root: str, value: Mapping[str, Any]) -> Document:
    only = build_variant(orjson.dumps(value))
    return Document((only,), location=f"{prefix}/openapi/v3{root}?hash={only.hash}")


def _openapi_v2_document(openapi_documents: Mapping[str, dict[str, Any]], prefix: str) -> Document:
    """JSON, or protobuf for clients that accept nothing else.

    Only old clients request it, and encoding it takes longer than everything else here. So it is built on demand.
    """

    def build_variants() -> tuple[Variant, ...]:
        value = openapi_v2.build_swagger(openapi_documents.values(), prefix)
        encoded = build_variant(
            openapi_v2.encode_swagger(value), openapi_v2.PROTOBUF_TYPE, alias=openapi_v2.REQUESTED_PROTOBUF_TYPE
        )
        return build_variant(orjson.dumps(value)), encoded

    return Document(build_variants)


def _json_document(value: Mapping[str, Any]) -> Document:
    return Document((build_variant(orjson.dumps(value)),), is_negotiated=False)


def _json_and_yaml(value: Mapping[str, Any]) -> tuple[Variant, ...]:
    return build_variant(orjson.dumps(value)), build_variant(yaml.encode(value), YAML)
