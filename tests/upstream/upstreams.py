"""An Upstream to a far side, as tests want it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from fairlead.upstream.access import ClusterEndpoint
from fairlead.upstream.upstream import Limits, Request, Response, Upstream
from tests.fake_cluster.server import FakeCluster

MUCH = 64 * 2**20


async def as_it_is(host: str, port: int) -> str:
    return host


def access_to(far: FakeCluster, **fields: Any) -> ClusterEndpoint:
    access = ClusterEndpoint("127.0.0.1", far.port, "", "127.0.0.1", far.ca_pem, "stored-token")
    return replace(access, **fields)


@asynccontextmanager
async def reaching(far: FakeCluster, limits: Limits | None = None, /, **access: str) -> AsyncIterator[Upstream]:
    upstream = Upstream(access_to(far, **access), as_it_is, limits or Limits())
    try:
        yield upstream
    finally:
        await upstream.close()


async def until(holds: Callable[[], bool]) -> None:
    """Waits for something that nobody announces."""
    while not holds():
        await _a_moment()


async def _a_moment() -> None:
    await asyncio.sleep(0.01)


async def asked(upstream: Upstream, target: str, method: str = "GET", seconds: float | None = None) -> Response:
    return await upstream.send(Request(method, target), seconds=seconds)


async def got(upstream: Upstream, target: str, method: str = "GET") -> bytes:
    return await (await asked(upstream, target, method)).read(MUCH)
