"""Kubernetes client for controllers: get, list, create, apply, patch and delete objects of a connected cluster.

Paths are those of the Kubernetes API, such as `/api/v1/namespaces/x`. An error response raises `RemoteApiError`; no
valid response raises `UpstreamError`. Error messages end up in conditions, so they are truncated.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlencode

from fairlead.core.json import Malformed, decode, encode
from fairlead.core.objects import Object, dig
from fairlead.upstream.access import Request
from fairlead.upstream.errors import Broken
from fairlead.upstream.messages import Response

FIELD_MANAGER = "fairlead"
APPLY = "application/apply-patch+yaml"
MERGE_PATCH = "application/merge-patch+json"
JSON = "application/json"

MAX_BODY = 16 * 2**20
MAX_MESSAGE = 1_024
MAX_CAUSES = 16
SECONDS = 30.0


class FarError(Exception):
    """An error response of the cluster: HTTP status, reason (`NotFound`, `Forbidden`, ...) and message.

    `causes` are the reasons in `details.causes`, such as `NamespaceTerminating`.
    """

    def __init__(self, status: int, reason: str, message: str, causes: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.causes = causes


class Sender(Protocol):
    """The part of an Upstream that clients need."""

    async def send(self, request: Request, *, seconds: float | None = None) -> Response: ...


@dataclass(frozen=True, slots=True)
class ClusterApi:
    """Client for one cluster.

    `seconds`: timeout of each call, from connecting to the end of the response.
    `max_body_bytes`: maximum size of a response.
    `impersonate_user`: user of the cluster to impersonate; empty to act as the stored credential.
    """

    upstream: Sender
    seconds: float = SECONDS
    limit: int = MAX_BODY
    acting_as: str = ""

    async def get(self, path: str, **query: str) -> Object:
        return await self._call("GET", path, query)

    async def list(self, path: str, **query: str) -> Object:
        """Returns the whole list object, with its `items`."""
        return await self._call("GET", path, query)

    async def create(self, path: str, body: Object) -> Object:
        return await self._call("POST", path, {"fieldManager": FIELD_MANAGER}, body)

    async def apply(self, path: str, body: Object) -> Object:
        """Server-side apply with `force`: takes over fields that other field managers own."""
        return await self._call("PATCH", path, {"fieldManager": FIELD_MANAGER, "force": "true"}, body, APPLY)

    async def patch(self, path: str, body: Any, content_type: str = MERGE_PATCH) -> Object:
        return await self._call("PATCH", path, {"fieldManager": FIELD_MANAGER}, body, content_type)

    async def delete(self, path: str, body: Object | None = None) -> Object:
        """`body` are DeleteOptions, such as preconditions. Returns the object, or a Status."""
        return await self._call("DELETE", path, {}, body)

    async def text(self, path: str) -> str:
        """GET of a plain text response, such as that of /readyz."""
        return (await self._answer(Request("GET", path))).decode("utf-8", "replace")

    async def _call(
        self, method: str, path: str, query: dict[str, str], body: Any = None, content_type: str = JSON
    ) -> Object:
        target = f"{path}?{urlencode(query)}" if query else path
        headers = [("accept", JSON)]
        if self.acting_as:
            headers.append(("impersonate-user", self.acting_as))
        data = b""
        if body is not None:
            headers.append(("content-type", content_type))
            data = encode(body)
        found = _object(await self._answer(Request(method, target, headers, data)))
        if found is None:
            raise Broken("the cluster's response is not a JSON object; check that it is a Kubernetes API server")
        return found

    async def _answer(self, request: Request) -> bytes:
        response = await self.upstream.send(request, seconds=self.seconds)
        try:
            content = await response.read(self.limit)
        finally:
            await response.close()
        if 200 <= response.status < 300:
            return content
        raise failure(response.status, content)


def _object(content: bytes) -> Object | None:
    try:
        value = decode(content)
    except Malformed:
        return None
    return value if isinstance(value, dict) else None


def failure(status: int, content: bytes) -> FarError:
    """The error of an unsuccessful response."""
    found = _object(content) or {}
    if found.get("kind") != "Status":
        return FarError(status, "", f"the cluster responded with status {status} and no message")
    message = str(found.get("message") or f"the cluster responded with status {status}")
    reason = str(found.get("reason") or "")[:MAX_MESSAGE]
    return FarError(status, reason, message[:MAX_MESSAGE], _causes(found))


def _causes(status: Object) -> Sequence[str]:
    causes = dig(status, "details.causes")
    found = causes[:MAX_CAUSES] if isinstance(causes, list) else ()
    return [str(each.get("reason") or "")[:MAX_MESSAGE] for each in found if isinstance(each, dict)]
