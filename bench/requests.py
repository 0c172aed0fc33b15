"""A row of single requests: a real one first, whose answer the ceiling is taught, then rounds of wrk at both."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import count

import orjson

from bench import wrk
from bench.compare import Measure
from bench.connection import Connection
from bench.failure import Failure
from bench.figures import Reading
from bench.objects import revision
from bench.servers import Server
from bench.wrk import Load, Request, Summary

NUMBERS_PER_ROUND = 10_000_000
_starts = count(NUMBERS_PER_ROUND, NUMBERS_PER_ROUND)
"""Where the numbering of the next round begins, so that no two rounds send the same name."""


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests of one sort per second. `items` is how many objects the answer must list, for those that list."""

    name: str
    request: Request
    connections: int = 32
    items: int | None = None
    unit: str = "requests/s"
    falling: bool = False

    @asynccontextmanager
    async def session(self, ours: Server, ceiling: Server, seconds: int) -> AsyncIterator[Measure]:
        answer = await self._first_answer(ours)
        async with Connection.to(ceiling) as teacher:
            await teacher.ask("PUT", f"/?{self.request.success}", answer)
        async with Connection.to(ours) as witness:

            async def measure(server: Server) -> Reading:
                load = Load(self.connections, seconds, next(_starts), len(answer))
                revision_before, cpu_before = await revision(witness), server.cpu_seconds()
                summary = await wrk.run(server, self.request, load)
                worked = server.cpu_seconds() - cpu_before
                if self.request.writes and server is ours:
                    self._check_written(summary, await revision(witness) - revision_before)
                return _reading(summary, worked)

            yield measure

    async def _first_answer(self, ours: Server) -> bytes:
        """The answer to a single such request, looked at: later ones are only counted."""
        filled = self._filled(next(_starts))
        async with Connection.to(ours) as connection:
            answer = await connection.ask(filled.method, filled.path, filled.body.encode(), filled.content_type)
        found = orjson.loads(answer)
        if self.items is not None and len(found["items"]) != self.items:
            raise Failure(f"{filled.path}: {len(found['items'])} objects are listed where {self.items} should be")
        return answer

    def _filled(self, number: int) -> Request:
        """What load.lua does for each of its requests, done for one."""
        path, body = (
            text.replace("{n}", str(number)).replace("{object}", "00000")
            for text in (self.request.path, self.request.body)
        )
        return replace(self.request, path=path, body=body)

    def _check_written(self, summary: Summary, revisions: int) -> None:
        """Writes still under way when wrk stops may make a few revisions more; fewer would be writes that are lost."""
        if revisions < summary.requests:
            raise Failure(f"{self.name}: {summary.requests} writes were acknowledged, but {revisions} were made")


def _reading(summary: Summary, worked: float) -> Reading:
    return Reading(
        figure=summary.requests / summary.duration_us * 1e6,
        p99_ms=summary.p99_us / 1e3,
        cpu_us=worked / summary.requests * 1e6,
    )
