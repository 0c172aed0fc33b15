"""Helpers for tests of the upstream package: an Upstream that is connected to a fake cluster, and requests to it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from fairlead.upstream.access import ClusterEndpoint
from fairlead.upstream.dial import DirectDialer
from fairlead.upstream.upstream import Limits, Request, Response, Upstream, dialled_upstream
from tests.fake_cluster.server import FakeCluster

READ_LIMIT = 64 * 2**20


async def resolve_unchanged(host: str, port: int) -> str:
    return host


def build_endpoint(fake_cluster: FakeCluster, **fields: Any) -> ClusterEndpoint:
    endpoint = ClusterEndpoint("127.0.0.1", fake_cluster.port, "", "127.0.0.1", fake_cluster.ca_pem, "stored-token")
    return replace(endpoint, **fields)


@asynccontextmanager
async def connect_upstream(
    fake_cluster: FakeCluster, limits: Limits | None = None, /, **fields: str
) -> AsyncIterator[Upstream]:
    endpoint = build_endpoint(fake_cluster, **fields)
    upstream = dialled_upstream(endpoint, DirectDialer(endpoint, resolve_unchanged), limits or Limits())
    try:
        yield upstream
    finally:
        await upstream.close()


async def send_request(upstream: Upstream, target: str, method: str = "GET", seconds: float | None = None) -> Response:
    return await upstream.send(Request(method, target), seconds=seconds)


async def fetch_body(upstream: Upstream, target: str, method: str = "GET") -> bytes:
    return await (await send_request(upstream, target, method)).read(READ_LIMIT)
