"""Discovery as an API server of Kubernetes 1.35 was seen to answer it: all of it in two documents, each with an ETag.

A client that sends the ETag along gets a 304 with the headers below and no others: no Content-Type, no length.
"""

import asyncio
import hashlib
import json
from collections.abc import Sequence
from typing import Any

from tests.fake_cluster.exchange import Behaviour, RecordedRequest

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def aggregated(resources: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Resources of the core group, as `APIResourceList` has them, in the form of `APIGroupDiscoveryList`."""
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
    return discovery_list([{"metadata": {"creationTimestamp": None}, "versions": [version]}])


def discovery_list(items: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        **{"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2"},
        **{"metadata": {}, "items": list(items)},
    }


def discovering(legacy: dict[str, Any], document: dict[str, Any]) -> Behaviour:
    """What is at `/api` or `/apis`: the aggregated document for those who ask for it, the other one for the rest."""
    body = json.dumps(document).encode()
    etag = f'"{hashlib.sha512(body).hexdigest().upper()}"'
    common = f"Audit-Id: far\r\nCache-Control: public\r\nETag: {etag}\r\nVary: Accept\r\nDate: {_DATE}\r\n"

    async def behaviour(asked: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        if "g=apidiscovery.k8s.io;v=v2;" not in asked.header("accept").replace(" ", ""):
            writer.write(
                _answer("Cache-Control: no-cache, private\r\n", "application/json", json.dumps(legacy).encode())
            )
        elif asked.header("if-none-match") == etag:
            writer.write(f"HTTP/1.1 304 Not Modified\r\n{common}\r\n".encode())
        else:
            writer.write(_answer(common, AGGREGATED, body))
        return True

    return behaviour


_DATE = "Sun, 15 Nov 2026 22:28:02 GMT"


def _answer(headers: str, content_type: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 200 OK\r\n{headers}Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body
