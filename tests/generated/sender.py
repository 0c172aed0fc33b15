"""A sender process: receives chunks of templates and returns counts and findings. Several of them load one server."""

import asyncio
import multiprocessing as mp
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, cast

import httpx
import uvloop

from tests.generated.identities import Identities, Identity
from tests.generated.oracle import Oracle
from tests.generated.templates import Template, build_template
from tests.harness.server_process import Server, build_tls_context
from tests.requests import raw_http
from tests.requests.api_resources import ApiCatalog
from tests.requests.raw_http import RawConnection, RawRequest, RawResponse

CONNECTIONS = 8
"""Connections of one process. One of them speaks HTTP/2."""
MAX_SHOWN_BYTES = 1_500
HTTP2_EVERY = 16
MAX_FINDINGS = 40
"""How many findings of a chunk are recorded."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The parameters of a process. `chunk` is the number of templates in a chunk."""

    url: str
    ca_file: str
    seed: str
    chunk: int
    identities: Identities
    catalog: ApiCatalog


@dataclass(slots=True)
class ChunkResult:
    """The results of one chunk."""

    chunk: int
    sent: int = 0
    over_http2: int = 0
    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    causes: Counter[str] = field(default_factory=Counter)
    findings: list[dict[str, Any]] = field(default_factory=list)


def run_sender(plan: Plan, chunks: "mp.Queue[int | None]", results: "mp.Queue[ChunkResult]") -> None:
    """Sends chunks until it receives None. On a busy machine, responses may take as long as the server's own limit."""
    raw_http.RESPONSE_TIMEOUT_SECONDS = 70.0
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process ends this one
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_send_chunks(plan, chunks, results))


async def _send_chunks(plan: Plan, chunks: "mp.Queue[int | None]", results: "mp.Queue[ChunkResult]") -> None:
    server = Server(cast(Any, None), plan.url, "", plan.ca_file, Path())
    oracle = Oracle(plan.identities, frozenset(each.plural for each in plan.catalog.resources if not each.is_stored))
    connections = [RawConnection(server) for _ in range(CONNECTIONS - 1)]
    tls_context = build_tls_context(plan.ca_file, ("h2",))
    async with httpx.AsyncClient(
        base_url=plan.url, verify=tls_context, http1=False, http2=True, timeout=raw_http.RESPONSE_TIMEOUT_SECONDS
    ) as http2:
        while (chunk := await asyncio.to_thread(chunks.get)) is not None:
            sender = _Sender(plan, oracle, http2, ChunkResult(chunk))
            numbers = iter(range(chunk * plan.chunk, (chunk + 1) * plan.chunk))
            await asyncio.gather(*(sender.run(connection, numbers) for connection in connections))
            results.put(sender.result)
    for connection in connections:
        await connection.close()


class _Sender:
    def __init__(self, plan: Plan, oracle: Oracle, http2: httpx.AsyncClient, result: ChunkResult) -> None:
        self._plan = plan
        self._oracle = oracle
        self._http2 = http2
        self.result = result

    async def run(self, connection: RawConnection, numbers: Iterator[int]) -> None:
        plan = self._plan
        for number in numbers:
            template = build_template(plan.seed, number, plan.catalog)
            identities = list(plan.identities.identities)
            Random(number).shuffle(identities)
            uses_http2 = number % HTTP2_EVERY == 0 and template.can_use_http2
            for identity in identities:
                request = template.build_request(identity)
                if request is not None:
                    response = await (self._send_over_http2(request) if uses_http2 else connection.send(request))
                    self._record(template, identity, request, response)

    async def _send_over_http2(self, request: RawRequest) -> RawResponse:
        target = f"{request.path}?{'&'.join(request.query)}" if request.query else request.path
        fields = [
            (name, value) for name, value in request.headers if name.lower() not in ("connection", "upgrade", "host")
        ]
        try:
            http_request = self._http2.build_request(
                request.method, target, headers=fields, content=request.body or None
            )
            response = await self._http2.send(http_request, stream=True)
        except (httpx.InvalidURL, httpx.LocalProtocolError, ValueError):
            return RawResponse(-1)  # the client refuses to send it
        except httpx.TransportError as error:
            return RawResponse(0, body=repr(error).encode())
        self.result.over_http2 += 1
        response_fields = tuple((name.lower(), value) for name, value in response.headers.items())
        try:
            is_stream = "content-length" not in response.headers
            return RawResponse(response.status_code, response_fields, b"" if is_stream else await response.aread())
        except httpx.TransportError as error:
            return RawResponse(0, body=repr(error).encode())
        finally:
            await response.aclose()

    def _record(self, template: Template, identity: Identity, request: RawRequest, response: RawResponse) -> None:
        result = self.result
        if response.status < 0:
            return
        result.sent += 1
        result.statuses[identity.name, response.status] += 1
        if response.status >= 500:
            result.causes[f"{response.status} {response.body[:200].decode(errors='replace')}"] += 1
        faults = list(self._oracle.find_faults(identity, request, response))
        if faults and len(result.findings) < MAX_FINDINGS:
            sent = request.to_bytes()[:MAX_SHOWN_BYTES].decode("latin-1")
            found = {
                "template": template.number,
                "identity": identity.name,
                "status": response.status,
                "faults": faults,
            }
            result.findings.append({**found, "request": sent, "answer": response.body[:400].decode(errors="replace")})
