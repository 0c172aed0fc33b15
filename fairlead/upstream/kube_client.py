"""Kubernetes client for controllers: get, list, create, apply, patch, replace and delete objects of one cluster.

Paths are those of the Kubernetes API, such as `/api/v1/namespaces/x`. An error response raises `RemoteApiError`; no
valid response raises `UpstreamError`. Error messages end up in conditions, so they are truncated.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlencode

from fairlead.core.concurrency import ANSWER_POOL, LARGE_JSON_BYTES
from fairlead.core.json import Malformed, TooManyValues, decode_foreign, encode
from fairlead.core.objects import Object, get_path
from fairlead.upstream.access import Request
from fairlead.upstream.errors import ProtocolError
from fairlead.upstream.messages import Response

FIELD_MANAGER = "fairlead"
CHECKING_FIELD_MANAGER = "fairlead-check"
"""Of applies that are not stored. Not that of those that are: an apply removes what its manager had applied before."""
APPLY = "application/apply-patch+yaml"
MERGE_PATCH = "application/merge-patch+json"
JSON = "application/json"

MAX_BODY_BYTES = 16 * 2**20
MAX_VALUES = 1_000_000
"""Of a response: as many as objects of that size have. Without a limit, there could be several millions."""
MAX_STATUS_BYTES = 64 * 1024
"""Larger responses with an error are not read."""
MAX_MESSAGE_CHARS = 1_024
MAX_CAUSES = 16
TIMEOUT_SECONDS = 30.0
NOT_FOUND, CONFLICT = 404, 409


class RemoteApiError(Exception):
    """An error response of the cluster: HTTP status, reason (`NotFound`, `Forbidden`, ...) and message.

    `causes` are the reasons in `details.causes`, such as `NamespaceTerminating`.
    """

    def __init__(self, status: int, reason: str, message: str, causes: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.causes = causes


class RequestSender(Protocol):
    """The part of an Upstream that clients need."""

    async def send(self, request: Request, *, seconds: float | None = None) -> Response: ...


class KubeApi(Protocol):
    """What controllers request of a cluster's API server. Error responses are raised as RemoteApiError."""

    async def get(self, path: str, /) -> Object: ...

    async def get_text(self, path: str, /) -> str:
        """For what is not JSON, such as the log of a container."""

    async def create(self, path: str, body: Object, /) -> Object: ...

    async def apply(self, path: str, body: Object, /) -> Object: ...

    async def check_apply(self, path: str, body: Object, /) -> Object: ...

    async def patch(self, path: str, body: Object, /) -> Object:
        """A merge patch."""

    async def delete(self, path: str, body: Object | None = None, /) -> Object: ...


@dataclass(frozen=True, slots=True)
class KubeClient:
    """Client for one cluster.

    `seconds`: timeout of each call, from connecting to the end of the response.
    `max_body_bytes`: maximum size of a response.
    `impersonate_user`: user of the cluster to impersonate; empty to act as the stored credential.
    """

    upstream: RequestSender
    seconds: float = TIMEOUT_SECONDS
    max_body_bytes: int = MAX_BODY_BYTES
    impersonate_user: str = ""

    async def get(self, path: str, **query: str) -> Object:
        return await self._request_object("GET", path, query)

    async def get_text(self, path: str) -> str:
        return (await self._send(Request("GET", path, self._headers("*/*")))).decode(errors="replace")

    async def list(self, path: str, **query: str) -> Object:
        """Returns the whole list object, with its `items`."""
        return await self._request_object("GET", path, query)

    async def create(self, path: str, body: Object) -> Object:
        return await self._request_object("POST", path, {"fieldManager": FIELD_MANAGER}, body)

    async def apply(self, path: str, body: Object) -> Object:
        """Server-side apply with `force`: takes over fields that other field managers own."""
        return await self._request_object("PATCH", path, {"fieldManager": FIELD_MANAGER, "force": "true"}, body, APPLY)

    async def check_apply(self, path: str, body: Object) -> Object:
        """What an object would be after a server-side apply with `force`. Nothing is stored."""
        query = {"fieldManager": CHECKING_FIELD_MANAGER, "force": "true", "dryRun": "All"}
        return await self._request_object("PATCH", path, query, body, APPLY)

    async def patch(self, path: str, body: Any, content_type: str = MERGE_PATCH) -> Object:
        return await self._request_object("PATCH", path, {"fieldManager": FIELD_MANAGER}, body, content_type)

    async def replace(self, path: str, body: Object) -> Object:
        return await self._request_object("PUT", path, {"fieldManager": FIELD_MANAGER}, body)

    async def delete(self, path: str, body: Object | None = None) -> Object:
        """`body` are DeleteOptions, such as preconditions. Returns the object, or a Status."""
        return await self._request_object("DELETE", path, {}, body)

    async def _request_object(
        self, method: str, path: str, query: dict[str, str], body: Any = None, content_type: str = JSON
    ) -> Object:
        target = f"{path}?{urlencode(query)}" if query else path
        headers = self._headers(JSON)
        data = b""
        if body is not None:
            headers = [*headers, ("content-type", content_type)]
            data = encode(body)
        return await decode_object(await self._send(Request(method, target, headers, data)))

    def _headers(self, accept: str) -> Sequence[tuple[str, str]]:
        impersonated = [("impersonate-user", self.impersonate_user)] if self.impersonate_user else []
        return [("accept", accept), *impersonated]

    async def _send(self, request: Request) -> bytes:
        response = await self.upstream.send(request, seconds=self.seconds)
        try:
            content = await response.read(self.max_body_bytes)
        finally:
            await response.close()
        if 200 <= response.status < 300:
            return content
        raise response_error(response.status, content)


async def get_or_none(api: KubeApi, path: str) -> Object | None:
    """Gets an object; None if it does not exist, or the cluster does not serve its resource."""
    try:
        return await api.get(path)
    except RemoteApiError as error:
        if error.status != NOT_FOUND:
            raise
        return None


async def delete_if_exists(api: KubeApi, path: str, options: Object | None = None) -> None:
    """Deletes an object, if it exists."""
    try:
        await api.delete(path, options)
    except RemoteApiError as error:
        if error.status != NOT_FOUND:
            raise


async def decode_object(content: bytes) -> Object:
    """The object in a response. In a thread if it is large: users choose the API servers of virtual clusters. Raises
    ProtocolError."""
    if len(content) <= LARGE_JSON_BYTES:
        return _decode_object(content)
    return await ANSWER_POOL.run(len(content), _decode_object, content)


def _decode_object(content: bytes) -> Object:
    try:
        value = decode_foreign(content, MAX_VALUES)
    except Malformed:
        value = None
    except TooManyValues:
        raise ProtocolError(f"the cluster's response has more than {MAX_VALUES} values; request less at once") from None
    if not isinstance(value, dict):
        raise ProtocolError("the cluster's response is not a JSON object; check that it is a Kubernetes API server")
    return value


def response_error(status: int, content: bytes) -> RemoteApiError:
    """The error of an unsuccessful response."""
    try:
        found = _decode_object(content) if len(content) <= MAX_STATUS_BYTES else {}
    except ProtocolError:
        found = {}
    if found.get("kind") != "Status":
        return RemoteApiError(status, "", f"the cluster responded with status {status} and no message")
    message = str(found.get("message") or f"the cluster responded with status {status}")
    reason = str(found.get("reason") or "")[:MAX_MESSAGE_CHARS]
    return RemoteApiError(status, reason, message[:MAX_MESSAGE_CHARS], _cause_reasons(found))


def _cause_reasons(status: Object) -> Sequence[str]:
    causes = get_path(status, "details.causes")
    found = causes[:MAX_CAUSES] if isinstance(causes, list) else ()
    return [str(each.get("reason") or "")[:MAX_MESSAGE_CHARS] for each in found if isinstance(each, dict)]
