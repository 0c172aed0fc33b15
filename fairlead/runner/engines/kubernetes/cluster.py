"""Requests to the API server of one cluster, directly or through the gateway of a Fairlead server.

Errors become `EngineError`. Within tasks, requests that got no answer are repeated for a while: the server behind the
gateway may be restarting.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlencode

from fairlead.core.errors import BadRequest
from fairlead.core.objects import Object
from fairlead.runner.engines.contract import EngineError, Reason
from fairlead.upstream.access import Request
from fairlead.upstream.errors import HandshakeRejected, UpstreamError
from fairlead.upstream.kube_client import MERGE_PATCH, KubeClient, RemoteApiError, get_or_none, response_error
from fairlead.upstream.upstream import Upstream
from fairlead.upstream.websocket import UpstreamWebSocket

TRANSIENT_STATUSES = frozenset({429, 500, 502, 503, 504})
RETRY_SECONDS = 0.5
POD_SECURITY, QUOTA = "violates PodSecurity", "exceeded quota"
POD_SECURITY_ADVICE = "; the option `user` of the template, the number of a user other than root, makes Pods stricter"

Result = TypeVar("Result")


@dataclass(slots=True)
class Cluster:
    upstream: Upstream
    call_seconds: float

    @property
    def _client(self) -> KubeClient:
        return KubeClient(self.upstream)

    async def get(self, path: str) -> Object | None:
        """None if there is no such object."""
        with _translate_errors():
            return await get_or_none(self._client, path)

    async def list(self, path: str, **query: str) -> list[Object]:
        with _translate_errors():
            return list((await self._client.list(path, **query)).get("items") or ())

    async def create(self, path: str, body: Object) -> bool:
        """False if an object of that name exists."""
        try:
            await self.repeat(lambda: self._client.create(path, body))
        except RemoteApiError as error:
            if error.reason == "AlreadyExists":
                return False
            raise translate(error) from error
        return True

    async def patch(self, path: str, change: Object) -> None:
        """Merges; an object that does not exist is no error."""
        with _translate_errors(allowed=(404,)):
            await self.repeat(lambda: self._client.patch(path, change, MERGE_PATCH))

    async def delete(self, path: str, options: Object | None = None) -> None:
        """An object that does not exist is no error, nor is one with another uid than `options` say."""
        with _translate_errors(allowed=(404, 409)):
            await self.repeat(lambda: self._client.delete(path, options))

    async def repeat(self, call: Callable[[], Awaitable[Result]]) -> Result:
        """Repeats a call that got no answer, up to `call_seconds`. Raises RemoteApiError or EngineError."""
        end = asyncio.get_running_loop().time() + self.call_seconds
        while True:
            try:
                return await call()
            except (RemoteApiError, UpstreamError) as error:
                is_transient = not isinstance(error, RemoteApiError) or error.status in TRANSIENT_STATUSES
                if not is_transient or asyncio.get_running_loop().time() >= end:
                    if isinstance(error, RemoteApiError):
                        raise
                    raise translate(error) from error
            await asyncio.sleep(RETRY_SECONDS)

    async def stream_log(self, pod_path: str, container: str) -> AsyncIterator[bytes]:
        """The log of a container up to its end. Ends early when the connection does."""
        query = urlencode({"container": container, "follow": "true"})
        try:
            response = await self.upstream.send(Request("GET", f"{pod_path}/log?{query}"))
            try:
                if response.status != 200:
                    raise response_error(response.status, await response.read(1 << 16))
                while data := await response.read_chunk():
                    yield data
            finally:
                await response.close()
        except (UpstreamError, RemoteApiError):
            return

    async def read_log(self, pod_path: str, container: str, max_bytes: int) -> bytes:
        """The log of a container that has ended."""
        query = urlencode({"container": container})

        async def read() -> bytes:
            response = await self.upstream.send(Request("GET", f"{pod_path}/log?{query}"), seconds=30)
            try:
                content = await response.read(max_bytes)
            finally:
                await response.close()
            if response.status != 200:
                raise response_error(response.status, content)
            return content

        with _translate_errors():
            return await self.repeat(read)

    async def open_websocket(
        self, path: str, query: Sequence[tuple[str, str]], subprotocols: Sequence[str]
    ) -> UpstreamWebSocket:
        with _translate_errors():
            return await self.upstream.open_websocket(Request("GET", f"{path}?{urlencode(query)}"), subprotocols)


@contextmanager
def _translate_errors(allowed: Collection[int] = ()) -> Iterator[None]:
    """Raises EngineError. Responses with these statuses end the block, and are no error."""
    try:
        yield
    except (RemoteApiError, UpstreamError, BadRequest) as error:
        if not isinstance(error, RemoteApiError) or error.status not in allowed:
            raise translate(error) from error


def translate(error: Exception) -> EngineError:
    """The error for people, with a reason that says who can solve it."""
    if isinstance(error, HandshakeRejected):
        error = response_error(error.status, error.body)
    if not isinstance(error, RemoteApiError):
        return EngineError(Reason.ENGINE_UNAVAILABLE, str(error))
    if POD_SECURITY in error.message:
        return EngineError(Reason.POLICY_VIOLATION, error.message + POD_SECURITY_ADVICE)
    if QUOTA in error.message:
        return EngineError(Reason.START_FAILED, error.message)
    if error.status in (400, 422):
        return EngineError(Reason.CONFIGURATION_INVALID, f"the cluster rejected the workspace: {error.message}")
    if error.status in (401, 403):
        message = f"the credential in the runner's kubeconfig does not suffice: {error.message}"
        return EngineError(Reason.ENGINE_UNAVAILABLE, message)
    return EngineError(Reason.ENGINE_UNAVAILABLE, f"the cluster responded with {error.status}: {error.message}")


def is_unavailable(error: EngineError) -> bool:
    """Whether the cluster gave no answer, so that the same request may succeed later."""
    cause = error.__cause__
    if isinstance(cause, RemoteApiError):
        return cause.status in TRANSIENT_STATUSES
    return isinstance(cause, UpstreamError) and not isinstance(cause, HandshakeRejected)
