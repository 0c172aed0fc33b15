"""Sends the generated requests over several connections and records faults in the responses.

A request with a fault is repeated alone and simplified step by step, so that the report is small. A fault that does
not appear again depends on other requests: run the same seed again.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.harness.server_process import Server
from tests.requests import response_checks
from tests.requests.api_resources import ApiCatalog
from tests.requests.generator import build_request
from tests.requests.raw_http import RawConnection, RawRequest, RawResponse
from tests.security.watch_clients import run_watch

CONNECTIONS = 8
WATCHERS = 27
MAX_FINDINGS = 5
"""The run ends after this many findings."""


@dataclass(frozen=True, slots=True)
class Finding:
    number: int
    request: RawRequest
    faults: tuple[str, ...]


@dataclass(slots=True)
class FuzzResult:
    """The results of a run."""

    seed: str
    request_count: int = 0
    findings: list[Finding] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    watch_faults: list[str] = field(default_factory=list)

    def report(self) -> str:
        lines = [f"seed {self.seed}, {self.request_count} requests, responses {dict(sorted(self.statuses.items()))}"]
        for each in self.findings:
            lines += [
                "",
                f"request {each.number}: {'; '.join(each.faults)}",
                f"  {each.request.to_bytes()[:2000]!r}",
            ]
        return "\n".join(lines)


async def run_fuzzing(server: Server, catalog: ApiCatalog, seed: str, count: int) -> FuzzResult:
    """Sends all requests over a few concurrent connections."""
    result, numbers = FuzzResult(seed), iter(range(count))
    watch_tasks = [
        asyncio.create_task(run_watch(server, catalog, number, result.watch_faults)) for number in range(WATCHERS)
    ]
    await asyncio.gather(*(_send_requests(server, catalog, result, numbers) for _ in range(CONNECTIONS)))
    for task in watch_tasks:
        task.cancel()
    await asyncio.gather(*watch_tasks, return_exceptions=True)
    async with RawConnection(server) as connection:
        result.findings = [await _shrink_finding(connection, catalog, each) for each in result.findings]
    return result


async def _send_requests(server: Server, catalog: ApiCatalog, result: FuzzResult, numbers: Iterator[int]) -> None:
    async with RawConnection(server) as connection:
        for number in numbers:
            if len(result.findings) >= MAX_FINDINGS:
                return
            request = build_request(result.seed, number, catalog)
            response = await connection.send(request)
            result.request_count += 1
            result.statuses[response.status] += 1
            faults = tuple(response_checks.find_faults(request, response, catalog.key))
            if faults:
                result.findings.append(Finding(number, request, faults))


async def _shrink_finding(connection: RawConnection, catalog: ApiCatalog, finding: Finding) -> Finding:
    """The smallest request with the same kind of fault."""
    for simplified in finding.request.iter_simplified():
        response: RawResponse = await connection.send(simplified)
        faults = tuple(response_checks.find_faults(simplified, response, catalog.key))
        if faults and response.status:
            return await _shrink_finding(connection, catalog, Finding(finding.number, simplified, faults))
    return finding
