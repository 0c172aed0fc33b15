"""Client for the agent's Fairlead server: fetches the agent configuration and sends reports.

Two kinds of failures differ. If the server is unreachable, the agent continues with its cached configuration. If the
server rejects the agent, or no longer has its cluster, the agent stops serving.
"""

from collections.abc import Callable
from typing import Protocol
from urllib.parse import quote

import httpx
import orjson

from fairlead.core.objects import Object

TIMEOUT_SECONDS = 10.0
"""Timeout of a request to the server."""

AGENT_REJECTED_STATUSES = frozenset({401, 403, 404, 409})
REPORT_REJECTED_STATUSES = frozenset({400, 413, 415, 422})


class ControlPlaneError(Exception):
    """A request to the server failed. The message is for the log, and contains no credential."""


class AgentRejected(ControlPlaneError):
    """The server rejects the agent's key, or no longer has its cluster."""


class ReportRejected(ControlPlaneError):
    """The server rejects the report as invalid; a retry would fail again."""


class ControlPlane(Protocol):
    """The server, as the agent uses it."""

    async def get_config(self, etag: str) -> tuple[str, bytes] | None:
        """Returns the configuration and its ETag; None if the ETag has not changed. Raises ControlPlaneError."""

    async def send_report(self, spec: Object) -> None:
        """Sends a report. Raises ControlPlaneError."""


class ControlPlaneClient:
    """HTTP client for the server. `read_key` returns the agent's current access key, which may be rotated."""

    def __init__(self, http: httpx.AsyncClient, api_group: str, cluster: str, read_key: Callable[[], str]) -> None:
        self._http = http
        self._group = api_group
        self._path = f"/kubernetes/management/apis/{api_group}/v1/clusters/{quote(cluster, safe='')}"
        self._read_key = read_key

    async def get_config(self, etag: str) -> tuple[str, bytes] | None:
        headers = {"If-None-Match": etag} if etag else {}
        response = await self._send("GET", "agentconfig", headers, b"")
        if response.status_code == httpx.codes.NOT_MODIFIED:
            return None
        return response.headers.get("etag", ""), response.content

    async def send_report(self, spec: Object) -> None:
        body = {"apiVersion": f"{self._group}/v1", "kind": "ClusterAgentReport", "spec": spec}
        await self._send("POST", "agentreport", {"Content-Type": "application/json"}, orjson.dumps(body))

    async def _send(self, method: str, subresource: str, headers: dict[str, str], body: bytes) -> httpx.Response:
        headers = {**headers, "Authorization": f"Bearer {self._read_key()}", "Accept": "application/json"}
        try:
            response = await self._http.request(method, f"{self._path}/{subresource}", headers=headers, content=body)
        except httpx.HTTPError as error:
            raise ControlPlaneError(f"the server is unreachable ({type(error).__name__})") from None
        if response.status_code in (200, 201, 304):
            return response
        reason = f"the server responded with status {response.status_code}"
        if response.status_code in AGENT_REJECTED_STATUSES:
            raise AgentRejected(
                f"{reason}; check that the cluster is still connected, and that the key is its agent's key"
            )
        raise ReportRejected(reason) if response.status_code in REPORT_REJECTED_STATUSES else ControlPlaneError(reason)
