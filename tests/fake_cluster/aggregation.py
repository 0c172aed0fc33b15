"""A stand-in for a kube-apiserver with an aggregation layer: its ConfigMap for authentication, and access reviews.

The ConfigMap is listed and watched with a field selector, as version 1.35 does it for the Role that may read it.
"""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.fake_cluster.exchange import CannedResponse, RecordedRequest, build_json_response, build_status_response
from tests.fake_cluster.server import FakeCluster

NAME = "extension-apiserver-authentication"
CONFIG_MAPS = "/api/v1/namespaces/kube-system/configmaps"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
FORBIDDEN = f'configmaps "{NAME}" is forbidden: User "x" cannot list resource "configmaps"'
RESPONSE_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
POLL_SECONDS = 0.02


class FakeHost:
    """`data` is that of the ConfigMap, or None if there is none. Watches see when it changes. Reviews allow everything
    to the users in `allowed`."""

    def __init__(self, ca: str, *allowed: str) -> None:
        self.data: dict[str, str] | None = {
            "requestheader-client-ca-file": ca,
            "requestheader-allowed-names": '["front-proxy-client"]',
            "requestheader-username-headers": '["X-Remote-User"]',
        }
        self.allowed = allowed
        self.is_forbidden = False
        self._listed: dict[str, str] | None = None
        """What the last list had: a watch begins there."""

    def respond(self, request: RecordedRequest) -> CannedResponse | None:
        if self.is_forbidden and request.path in (CONFIG_MAPS, REVIEWS):
            return build_status_response(403, "Forbidden", FORBIDDEN)
        if request.path == CONFIG_MAPS:
            assert request.query["fieldSelector"] == f"metadata.name={NAME}"
            return None if "watch" in request.query else build_json_response(self._list())
        if request.path == REVIEWS:
            spec = json.loads(request.body)["spec"]
            return build_json_response({"spec": spec, "status": {"allowed": spec["user"] in self.allowed}}, 201)
        return None

    async def watch(self, request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(RESPONSE_HEAD)
        known = self._listed
        while not reader.at_eof():
            if self.data != known:
                event = {"type": "MODIFIED" if self.data else "DELETED", "object": self._object()}
                line, known = json.dumps(event).encode() + b"\n", self.data
                writer.write(b"%x\r\n%s\r\n" % (len(line), line))
                await writer.drain()
            await asyncio.sleep(POLL_SECONDS)
        return False

    def _object(self) -> dict[str, Any]:
        return {"metadata": {"name": NAME, "resourceVersion": "1"}, "data": self.data or {}}

    def _list(self) -> dict[str, Any]:
        self._listed = self.data
        items = [self._object()] if self.data is not None else []
        return {"kind": "ConfigMapList", "metadata": {"resourceVersion": "1"}, "items": items}


@contextmanager
def running_fake_host(host: FakeHost) -> Iterator[FakeCluster]:
    with FakeCluster(host.respond) as cluster:
        cluster.set_behaviour(CONFIG_MAPS, host.watch)
        yield cluster
