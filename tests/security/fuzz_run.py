"""Sends the generator's requests, several at a time, and keeps what is wrong with the answers.

A finding is asked again, alone and with less and less in it, so that what is reported is small. Where it does not
happen again, it took what other requests did meanwhile: the seed brings all of them back.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.harness.server_process import Server
from tests.security import response_checks
from tests.security.api_resources import World
from tests.security.fuzz_requests import ask
from tests.security.raw_http import Answer, Ask, Line
from tests.security.watch_clients import watch

LINES = 8
WATCHERS = 27
ENOUGH = 5
"""Findings after which there is no point in going on."""


@dataclass(frozen=True, slots=True)
class Finding:
    number: int
    ask: Ask
    faults: tuple[str, ...]


@dataclass(slots=True)
class Storm:
    """What came of it."""

    seed: str
    asked: int = 0
    findings: list[Finding] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    watched: list[str] = field(default_factory=list)

    def report(self) -> str:
        lines = [f"seed {self.seed}, {self.asked} requests, answers {dict(sorted(self.statuses.items()))}"]
        for each in self.findings:
            lines += ["", f"request {each.number}: {'; '.join(each.faults)}", f"  {each.ask.wire()[:2000]!r}"]
        return "\n".join(lines)


async def rage(server: Server, world: World, seed: str, count: int) -> Storm:
    """All the requests, over a few connections side by side."""
    storm, numbers = Storm(seed), iter(range(count))
    watching = [asyncio.create_task(watch(server, world, number, storm.watched)) for number in range(WATCHERS)]
    await asyncio.gather(*(_send(server, world, storm, numbers) for _ in range(LINES)))
    for task in watching:
        task.cancel()
    await asyncio.gather(*watching, return_exceptions=True)
    async with Line(server) as line:
        storm.findings = [await _shrunk(line, world, each) for each in storm.findings]
    return storm


async def _send(server: Server, world: World, storm: Storm, numbers: Iterator[int]) -> None:
    async with Line(server) as line:
        for number in numbers:
            if len(storm.findings) >= ENOUGH:
                return
            made = ask(storm.seed, number, world)
            answer = await line.ask(made)
            storm.asked += 1
            storm.statuses[answer.status] += 1
            found = tuple(response_checks.faults(made, answer, world.key))
            if found:
                storm.findings.append(Finding(number, made, found))


async def _shrunk(line: Line, world: World, finding: Finding) -> Finding:
    """The smallest request that shows it."""
    for simpler in finding.ask.simpler():
        answer: Answer = await line.ask(simpler)
        found = tuple(response_checks.faults(simpler, answer, world.key))
        if found and answer.status:
            return await _shrunk(line, world, Finding(finding.number, simpler, found))
    return finding
