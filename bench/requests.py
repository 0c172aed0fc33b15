"""A row of single requests: a real one first, whose answer the ceiling is taught, then rounds of wrk at each server."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import count
from resource import RUSAGE_CHILDREN, getrusage

import orjson

from bench import wrk
from bench.aims import Aim
from bench.compare import Lineup, Measure
from bench.connection import Connection
from bench.failure import Failure
from bench.figures import Reading
from bench.objects import name_of, revision
from bench.servers import Server
from bench.wrk import Load, Request, Summary

NUMBERS_PER_ROUND = 1_000 * wrk.STRIDE
_starts = count(NUMBERS_PER_ROUND, NUMBERS_PER_ROUND)
"""Where the numbering of the next round begins, so that no two rounds send the same name."""


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests of one sort per second. `items` is how many objects the answer must list, for those that list."""

    name: str
    request: Request
    connections: int = 32
    items: int | None = None
    aim: Aim | None = None
    unit: str = "requests/s"
    falling: bool = False

    @asynccontextmanager
    async def session(self, lineup: Lineup) -> AsyncIterator[Measure]:
        answers = {server.name: await self.first_answer(server) for server in lineup.real}
        taught = answers[lineup.ceiling.name] = answers[lineup.ours.name]
        async with Connection.to(lineup.ceiling) as teacher:
            await teacher.ask("PUT", f"/?{self.request.success}", taught)

        async def measure(server: Server) -> Reading:
            load = self.load(lineup.scale.seconds, lineup.scale.objects, answers[server.name])
            return await self.round(server, load, stores=server is not lineup.ceiling)

        yield measure

    async def first_answer(self, server: Server) -> bytes:
        """The answer to a single such request, looked at: later ones are only counted."""
        filled = self._filled(next(_starts))
        async with Connection.to(server) as connection:
            answer = await connection.ask(filled.method, filled.path, filled.body.encode(), filled.content_type)
        found = orjson.loads(answer)
        if self.items is not None and len(found["items"]) != self.items:
            raise Failure(f"{filled.path}: {len(found['items'])} objects are listed where {self.items} should be")
        return answer

    def _filled(self, number: int) -> Request:
        """What load.lua does for each of its requests, done for one."""
        first = name_of(0).rpartition("-")[2]
        path, body = (
            text.replace("{n}", str(number)).replace("{object}", first)
            for text in (self.request.path, self.request.body)
        )
        return replace(self.request, path=path, body=body)

    def load(self, seconds: int, objects: int, answer: bytes) -> Load:
        """A round of such requests to a server with so many objects."""
        return Load(self.connections, seconds, next(_starts), objects, len(answer))

    async def round(self, server: Server, load: Load, stores: bool = True) -> Reading:
        """At a server that `stores` anything, what was written must be there afterwards."""
        counted = stores and self.request.writes
        before = await revision(server) if counted else 0
        worked, loaded, begun = server.cpu_seconds(), _children_seconds(), time.monotonic()
        summary = await wrk.run(server, self.request, load)
        busy = (_children_seconds() - loaded) / (time.monotonic() - begun) / min(wrk.THREADS, load.connections)
        cpu_us = server.cpu_us_since(worked, summary.requests)
        if counted:
            self._check_written(summary, await revision(server) - before)
        return Reading(summary.requests / summary.duration_us * 1e6, summary.p99_us / 1e3, cpu_us, busy)

    def _check_written(self, summary: Summary, revisions: int) -> None:
        """Writes still under way when wrk stops may make a few revisions more; fewer would be writes that are lost."""
        if revisions < summary.requests:
            raise Failure(f"{self.name}: {summary.requests} writes were acknowledged, but {revisions} were made")


def _children_seconds() -> float:
    """Processor time of the children that have ended: while a round lasts, only wrk does."""
    used = getrusage(RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
