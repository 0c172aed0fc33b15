"""The server that an agent belongs to: asking it what to know, and telling it what has happened.

Two sorts of failures are far apart. A server that cannot be reached is no news: the agent goes on with what it knows. A
server that answers that this agent is none of its own, or that its cluster is gone, has been heard.
"""

from collections.abc import Callable
from typing import Protocol
from urllib.parse import quote

import httpx
import orjson

from fairlead.core.objects import Object

SECONDS = 10.0
"""How long the server gets for an answer."""

DISMISSALS = frozenset({401, 403, 404, 409})
UNFIT = frozenset({400, 413, 415, 422})


class HomeProblem(Exception):
    """The server cannot be asked now. The message is for a log, and has no credential in it."""


class Dismissed(HomeProblem):
    """The server does not take this agent for one of its own, or no longer has its cluster."""


class Unfit(HomeProblem):
    """The server will never take what it was told."""


class Home(Protocol):
    """What an agent asks of its server."""

    async def configuration(self, etag: str) -> tuple[str, bytes] | None:
        """The configuration and its ETag; None if it is still the one with the ETag given. Raises HomeProblem."""

    async def report(self, spec: Object) -> None:
        """Raises HomeProblem."""


class HomeServer:
    """`key` reads the agent's access key, which may be another one by tomorrow."""

    def __init__(self, http: httpx.AsyncClient, api_group: str, cluster: str, key: Callable[[], str]) -> None:
        self._http = http
        self._group = api_group
        self._path = f"/kubernetes/management/apis/{api_group}/v1/clusters/{quote(cluster, safe='')}"
        self._key = key

    async def configuration(self, etag: str) -> tuple[str, bytes] | None:
        headers = {"If-None-Match": etag} if etag else {}
        answer = await self._send("GET", "agentconfig", headers, b"")
        if answer.status_code == httpx.codes.NOT_MODIFIED:
            return None
        return answer.headers.get("etag", ""), answer.content

    async def report(self, spec: Object) -> None:
        body = {"apiVersion": f"{self._group}/v1", "kind": "ClusterAgentReport", "spec": spec}
        await self._send("POST", "agentreport", {"Content-Type": "application/json"}, orjson.dumps(body))

    async def _send(self, method: str, part: str, headers: dict[str, str], body: bytes) -> httpx.Response:
        headers = {**headers, "Authorization": f"Bearer {self._key()}", "Accept": "application/json"}
        try:
            answer = await self._http.request(method, f"{self._path}/{part}", headers=headers, content=body)
        except httpx.HTTPError as error:
            raise HomeProblem(f"the server cannot be reached ({type(error).__name__})") from None
        if answer.status_code in (200, 201, 304):
            return answer
        why = f"the server answered {answer.status_code}"
        if answer.status_code in DISMISSALS:
            raise Dismissed(f"{why}: see that the cluster is still connected and the key is the one of its agent")
        raise Unfit(why) if answer.status_code in UNFIT else HomeProblem(why)
