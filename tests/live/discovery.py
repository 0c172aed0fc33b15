"""Aggregated discovery as the API server of Kubernetes 1.35 serves it: two documents, each with an ETag.

A client that sends the ETag gets a 304 with the headers below and no others: no Content-Type, no Content-Length.
"""

import asyncio
import hashlib
import json
from collections.abc import Sequence
from typing import Any

from tests.fake_cluster.exchange import Behaviour, RecordedRequest

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def build_core_discovery(resources: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Converts resources of the core group from an `APIResourceList` to an `APIGroupDiscoveryList`."""
    found: dict[str, dict[str, Any]] = {}
    for each in resources:
        name, _, subresource = each["name"].partition("/")
        kind = {"group": "", "version": "v1", "kind": each["kind"]}
        if subresource:
            entry = {"subresource": subresource, "responseKind": kind, "verbs": each["verbs"]}
            found[name].setdefault("subresources", []).append(entry)
        else:
            scope = "Namespaced" if each["namespaced"] else "Cluster"
            entry = {"resource": name, "responseKind": kind, "scope": scope, "verbs": each["verbs"]}
            found[name] = {**entry, "singularResource": each["singularName"]}
    version = {"version": "v1", "resources": list(found.values()), "freshness": "Current"}
    return build_discovery_list([{"metadata": {"creationTimestamp": None}, "versions": [version]}])


def build_discovery_list(items: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        **{"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2"},
        **{"metadata": {}, "items": list(items)},
    }


def serve_discovery(legacy: dict[str, Any], document: dict[str, Any]) -> Behaviour:
    """Serves `/api` or `/apis`: the aggregated document if the Accept header asks for it, else the legacy one."""
    body = json.dumps(document).encode()
    etag = f'"{hashlib.sha512(body).hexdigest().upper()}"'
    common = f"Audit-Id: remote\r\nCache-Control: public\r\nETag: {etag}\r\nVary: Accept\r\nDate: {_DATE}\r\n"

    async def behaviour(request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        if "g=apidiscovery.k8s.io;v=v2;" not in request.header("accept").replace(" ", ""):
            writer.write(
                build_response("Cache-Control: no-cache, private\r\n", "application/json", json.dumps(legacy).encode())
            )
        elif request.header("if-none-match") == etag:
            writer.write(f"HTTP/1.1 304 Not Modified\r\n{common}\r\n".encode())
        else:
            writer.write(build_response(common, AGGREGATED, body))
        return True

    return behaviour


_DATE = "Sun, 15 Nov 2026 22:28:02 GMT"


def build_response(headers: str, content_type: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 200 OK\r\n{headers}Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body
