"""Calls as they come to a gateway, the far side as a connected cluster, and a client's end of a WebSocket."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager

from fairlead.core.call import Call, Reply, RequestInfo
from fairlead.core.cluster_identity import ClusterIdentityMapper
from fairlead.core.user import User
from fairlead.gateway.proxy import forward
from fairlead.upstream.access import Limits
from fairlead.upstream.kubeconfig import parse_kubeconfig
from fairlead.upstream.upstream import Upstream
from tests.fake_cluster.server import FakeCluster
from tests.harness.calls import FakeHeaders

ANNA = User("anna", ("devs", "system:nodes", "system:authenticated"), uid="u-anna", key="k")
STORED = "stored-credential"
WHAT = 'cluster "c"'
NAMES = ClusterIdentityMapper("fairlead:")

HeaderMap = Mapping[str, str | Sequence[str]]


async def loopback(host: str, port: int) -> str:
    return "127.0.0.1"


@asynccontextmanager
async def connected(far: FakeCluster, limits: Limits | None = None) -> AsyncIterator[Upstream]:
    upstream = Upstream(parse_kubeconfig(far.kubeconfig(token=STORED)), loopback, limits or Limits())
    try:
        yield upstream
    finally:
        await upstream.close()


def asking(
    raw: str,
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

    made = Call(method, raw.partition("?")[0], {}, FakeHeaders(headers or {}), read, raw_target=raw, stream_body=stream)
    made.user = ANNA
    if target is not None:
        made.target = target
    return made


async def through(upstream: Upstream, call: Call) -> Reply:
    """The call's raw target is what is behind the entrance."""
    assert call.user is not None
    return await forward(upstream, call.user, NAMES, call, call.raw_target, WHAT)


async def content(reply: Reply) -> bytes:
    if reply.stream is None:
        return reply.body
    return b"".join([chunk async for chunk in reply.stream])


async def until(holds: Callable[[], bool]) -> None:
    """Waits for something that happens elsewhere."""
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110 - it is another thread that it happens in
            await asyncio.sleep(0.005)


class Client:
    """The client's side of a WebSocket, as the server's front has it."""

    def __init__(self) -> None:
        self.said: asyncio.Queue[bytes | str | None] = asyncio.Queue()
        self.heard: list[bytes | str] = []
        self.goodbye: tuple[int, str] | None = None

    async def receive(self) -> bytes | str | None:
        return await self.said.get()

    async def send(self, message: bytes | str) -> None:
        self.heard.append(message)

    async def close(self, code: int, reason: str) -> None:
        self.goodbye = self.goodbye or (code, reason)
