"""A row of single requests: a real one first, whose response the ceiling copies, then rounds of wrk at each server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import count
from resource import RUSAGE_CHILDREN, getrusage

import orjson

from bench import wrk
from bench.aims import PEER_RATE, Aim, PeerAim
from bench.ceiling import RESPONSE
from bench.compare import Measure, ServerSet
from bench.connection import Connection
from bench.failure import Failure
from bench.figures import Reading
from bench.objects import name_object, read_revision
from bench.preparation import prepare_load, prepare_request
from bench.servers import CEILING, Server
from bench.wrk import Load, Request, Summary

NUMBERS_PER_ROUND = 1_000 * wrk.STRIDE
_starts = count(NUMBERS_PER_ROUND, NUMBERS_PER_ROUND)
"""The first number of the next round, so that no two rounds send the same name."""


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests of one kind per second. `items` is the number of objects that a list must have."""

    name: str
    request: Request
    connections: int = 32
    items: int | None = None
    aim: Aim | None = None
    peer_aim: PeerAim | None = PEER_RATE
    unit: str = "requests/s"
    falling: bool = False

    @asynccontextmanager
    async def session(self, server_set: ServerSet) -> AsyncIterator[Measure]:
        responses = {server.name: await self.send_first(server) for server in server_set.real}
        ceiling_response = responses[server_set.ceiling.name] = responses[server_set.ours.name]
        async with Connection.to(server_set.ceiling) as ceiling_connection:
            await ceiling_connection.request("PUT", f"{RESPONSE}?{self.request.success}", ceiling_response)

        async def measure(server: Server) -> Reading:
            load = self.load(server_set.scale.seconds, server_set.scale.objects, responses[server.name])
            return await self.round(server, load)

        yield measure

    async def send_first(self, server: Server) -> bytes:
        """Sends a single request and checks its response: later ones are only counted."""
        async with Connection.to(server) as connection:
            request = await prepare_request(connection, self._fill_placeholders(next(_starts)))
            response = await connection.request(
                request.method, request.path, request.body.encode(), request.content_type
            )
        content = orjson.loads(response)
        if self.items is not None and len(content["items"]) != self.items:
            raise Failure(f"{request.path}: {len(content['items'])} objects are listed instead of {self.items}")
        return response

    def _fill_placeholders(self, number: int) -> Request:
        """Fills the placeholders for one request, like load.lua."""
        first = name_object(0).rpartition("-")[2]
        path, body = (
            text.replace("{n}", str(number)).replace("{object}", first)
            for text in (self.request.path, self.request.body)
        )
        return replace(self.request, path=path, body=body)

    def load(self, seconds: int, objects: int, response: bytes) -> Load:
        """The load of a round at a server with this many objects."""
        return Load(self.connections, seconds, next(_starts), objects, len(response))

    async def round(self, server: Server, load: Load) -> Reading:
        """Runs a round. At a server that stores objects, the writes must exist afterwards."""
        is_checked = self.request.writes and server.name != CEILING
        async with prepare_load(server, self.request, load) as prepared:
            before = await read_revision(server) if is_checked else 0
            cpu_before = server.cpu_seconds()
            load_before = _children_seconds()
            summary = await wrk.run(server, self.request, prepared)
            busy = (_children_seconds() - load_before) / (summary.duration_us / 1e6) / load.threads
            cpu_us = server.cpu_us_since(cpu_before, summary.requests)
            if is_checked:
                self._check_written(summary, await read_revision(server) - before)
        rate = summary.requests / summary.duration_us * 1e6
        return Reading(
            figure=rate,
            p99_ms=summary.p99_us / 1e3,
            cpu_us=cpu_us,
            load_busy=busy,
            p50_ms=summary.p50_us / 1e3,
            max_ms=summary.max_us / 1e3,
        )

    def _check_written(self, summary: Summary, revisions: int) -> None:
        """Checks that no write is lost. Writes in progress when wrk stops may add a few revisions."""
        if revisions < summary.requests:
            raise Failure(f"{self.name}: {summary.requests} writes were acknowledged, but only {revisions} applied")


def _children_seconds() -> float:
    """Processor time of ended child processes: during a round, that is only wrk."""
    used = getrusage(RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
