"""Objects of a connected cluster, for controllers: get, list, create, apply, patch, delete.

Paths are the API's own, such as `/api/v1/namespaces/x`. A failure that the cluster answers with is a `FarError`; where
no proper answer comes, it is an `UpstreamError`. Whatever it says goes into conditions
that people read, so it is cut short.
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
    """The cluster said no: its HTTP status, Kubernetes' reason (`NotFound`, `Forbidden`, ...) and its words.

    `causes` are the reasons of what lies behind it, such as `NamespaceTerminating`.
    """

    def __init__(self, status: int, reason: str, message: str, causes: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.causes = causes


class Sender(Protocol):
    """The one thing that this needs of an Upstream."""

    async def send(self, request: Request, *, seconds: float | None = None) -> Response: ...


@dataclass(frozen=True, slots=True)
class ClusterApi:
    """`seconds` are for each call, from the connection to the end of the answer, which has `limit` bytes at most.
    `acting_as` is the user of the cluster that calls are made as, by impersonation, if not the stored credential's."""

    upstream: Sender
    seconds: float = SECONDS
    limit: int = MAX_BODY
    acting_as: str = ""

    async def get(self, path: str, **query: str) -> Object:
        return await self._call("GET", path, query)

    async def list(self, path: str, **query: str) -> Object:
        """The whole list, with its `items`."""
        return await self._call("GET", path, query)

    async def create(self, path: str, body: Object) -> Object:
        return await self._call("POST", path, {"fieldManager": FIELD_MANAGER}, body)

    async def apply(self, path: str, body: Object) -> Object:
        """Server-side apply of what we want of this object. What others want of the same fields is overruled."""
        return await self._call("PATCH", path, {"fieldManager": FIELD_MANAGER, "force": "true"}, body, APPLY)

    async def patch(self, path: str, body: Any, content_type: str = MERGE_PATCH) -> Object:
        return await self._call("PATCH", path, {"fieldManager": FIELD_MANAGER}, body, content_type)

    async def delete(self, path: str, body: Object | None = None) -> Object:
        """`body` are DeleteOptions: preconditions, say. Returns the object, or a Status that says it went."""
        return await self._call("DELETE", path, {}, body)

    async def text(self, path: str) -> str:
        """An answer that is no JSON, such as that of /readyz."""
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
            raise Broken("the cluster's answer is no JSON object; see that the server is a Kubernetes API server")
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
    """What an answer that is no success says."""
    found = _object(content) or {}
    if found.get("kind") != "Status":
        return FarError(status, "", f"the cluster answered {status} without saying why")
    message = str(found.get("message") or f"the cluster answered {status}")
    reason = str(found.get("reason") or "")[:MAX_MESSAGE]
    return FarError(status, reason, message[:MAX_MESSAGE], _causes(found))


def _causes(status: Object) -> Sequence[str]:
    causes = dig(status, "details.causes")
    found = causes[:MAX_CAUSES] if isinstance(causes, list) else ()
    return [str(each.get("reason") or "")[:MAX_MESSAGE] for each in found if isinstance(each, dict)]
