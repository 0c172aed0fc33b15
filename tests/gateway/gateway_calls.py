"""Helpers for tests of the gateway: calls, a connected fake cluster, and the client side of a WebSocket."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager

from fairlead.core.call import Call, Reply, RequestInfo
from fairlead.core.user import User
from fairlead.domain.cluster_identity import ClusterIdentityMapper
from fairlead.gateway.proxy import forward
from fairlead.upstream.access import Limits
from fairlead.upstream.dial import DirectDialer
from fairlead.upstream.kubeconfig import parse_kubeconfig
from fairlead.upstream.upstream import Upstream, dialled_upstream
from tests.fake_cluster.server import FakeCluster
from tests.harness.calls import FakeHeaders

ANNA = User("anna", ("devs", "system:nodes", "system:authenticated"), uid="u-anna", key="k")
STORED_TOKEN = "stored-credential"
CLUSTER_TITLE = 'cluster "c"'
IDENTITY_MAPPER = ClusterIdentityMapper("fairlead:")

HeaderMap = Mapping[str, str | Sequence[str]]


async def resolve_to_loopback(host: str, port: int) -> str:
    return "127.0.0.1"


@asynccontextmanager
async def connect_upstream(fake_cluster: FakeCluster, limits: Limits | None = None) -> AsyncIterator[Upstream]:
    endpoint = parse_kubeconfig(fake_cluster.build_kubeconfig(token=STORED_TOKEN))
    upstream = dialled_upstream(endpoint, DirectDialer(endpoint, resolve_to_loopback), limits or Limits())
    try:
        yield upstream
    finally:
        await upstream.close()


def build_call(
    raw_target: str,
    method: str = "GET",
    *,
    headers: HeaderMap | None = None,
    body: Iterable[bytes] = (),
    target: RequestInfo | None = None,
) -> Call:
    async def stream() -> AsyncIterator[bytes]:
        for chunk in body:
            await asyncio.sleep(0)
            yield chunk

    async def read() -> bytes:
        return b"".join(body)

    call = Call(
        method,
        raw_target.partition("?")[0],
        {},
        FakeHeaders(headers or {}),
        read,
        raw_target=raw_target,
        stream_body=stream,
    )
    call.user = ANNA
    if target is not None:
        call.target = target
    return call


async def forward_call(upstream: Upstream, call: Call) -> Reply:
    """The call's raw target is the path below the gateway's prefix."""
    assert call.user is not None
    return await forward(upstream, call.user, IDENTITY_MAPPER, call, call.raw_target, CLUSTER_TITLE)


async def read_body(reply: Reply) -> bytes:
    if reply.stream is None:
        return reply.body
    return b"".join([chunk async for chunk in reply.stream])


class WebSocketClient:
    """The client side of a WebSocket, as the HTTP server presents it."""

    def __init__(self) -> None:
        self.outgoing: asyncio.Queue[bytes | str | None] = asyncio.Queue()
        self.received: list[bytes | str] = []
        self.close_frame: tuple[int, str] | None = None

    async def receive(self) -> bytes | str | None:
        return await self.outgoing.get()

    async def send(self, message: bytes | str) -> None:
        self.received.append(message)

    async def close(self, code: int, reason: str) -> None:
        self.close_frame = self.close_frame or (code, reason)
