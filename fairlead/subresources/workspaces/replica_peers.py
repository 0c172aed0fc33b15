"""The connections of runners to other replicas on the same store, over TLS with certificates at both ends.

Each replica listens at an address of its own, and connects to those of the others when it needs them. Where a runner is
connected, it asks all of them at once, and remembers the one that has it. A replica that does not respond within a
second counts as absent, and is tried again a little later.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Protocol

import structlog

from fairlead.core.bounded_cache import BoundedCache
from fairlead.core.crypto.peer_certificates import PeerContexts, peer_name
from fairlead.core.errors import ApiError
from fairlead.core.waiting import end_tasks, start_task
from fairlead.links.connection import Link
from fairlead.links.contract import GOING_AWAY, Stream
from fairlead.links.requests import UNAVAILABLE, OpenRequest, Refused
from fairlead.links.sockets import SocketTransport
from fairlead.links.tls_sockets import TlsError, TlsLimits, connect_tls, serve_tls
from fairlead.subresources.workspaces.hub import MAX_KNOWN_RUNNERS, RunnerHub
from fairlead.subresources.workspaces.peers import (
    LOCATE,
    NO_AGENTS,
    PEER_LIMITS,
    LocalAgents,
    PeerService,
    RunnerPeers,
    open_there,
)
from fairlead.subresources.workspaces.replica_leases import Replica

CONNECT_SECONDS = 1.0
"""How long a new connection may take, with the first frame of the other end."""
ASK_SECONDS = 1.0
"""How long a replica may take to say whether it has a runner, or to confirm an announcement."""
RETRY_SECONDS = 2.0
"""How long a replica that could not be reached is not tried again."""
MAX_CONNECTIONS, MAX_HANDSHAKES = 1024, 32
DEAD_SECONDS = 10.0
REPLICA_LIMITS = replace(PEER_LIMITS, ping_seconds=3.0, dead_seconds=DEAD_SECONDS)

log = structlog.get_logger(__name__)


class Authority(Protocol):
    async def contexts(self) -> PeerContexts: ...


class Membership(Protocol):
    def others(self) -> list[Replica]: ...


@dataclass(slots=True, eq=False)
class _Peer:
    """What this process knows of another replica."""

    lock: asyncio.Lock
    link: Link | None = None
    retry_at: float = 0.0
    is_unreachable: bool = False
    """Whether the last attempt to reach it has failed."""


class ReplicaPeers:
    """The other replicas. `identity` is that of this process; `workers` are the other workers of this replica."""

    def __init__(
        self,
        identity: str,
        hub: RunnerHub,
        workers: RunnerPeers,
        membership: Membership,
        authority: Authority,
        agents: LocalAgents = NO_AGENTS,
    ) -> None:
        self._identity = identity
        self._membership = membership
        self._authority = authority
        self._service = PeerService(hub, agents, workers)
        self._peers: dict[str, _Peer] = {}
        self._known: BoundedCache[str, str] = BoundedCache(MAX_KNOWN_RUNNERS)
        """The identity of the replica where a runner was connected last."""
        self._tasks: set[asyncio.Task[object]] = set()

    @asynccontextmanager
    async def serve(self, listener: socket.socket | None) -> AsyncIterator[None]:
        """Accepts the connections of other replicas while the context is open, if there is a listener."""
        try:
            if listener is None:
                yield
                return
            limits = TlsLimits(MAX_HANDSHAKES, MAX_CONNECTIONS)
            async with serve_tls(listener, self._server_context, self._accept, limits):
                yield
        finally:
            await self.close()

    async def open(self, request: OpenRequest) -> Stream | None:
        """A stream; None if no replica has the runner. Raises Refused, also if one of them does not respond."""
        replicas = {each.identity: each for each in self._membership.others()}
        known = replicas.get(self._known.get(request.peer, ""))
        if known is not None:
            stream = await self._open_at(known, request)
            if stream is not None:
                return stream
        for found in await self._locate(list(replicas.values()), request):
            stream = await self._open_at(found, request)
            if stream is not None:
                self._known[request.peer] = found.identity
                return stream
        unreachable = [f'"{each.identity}"' for each in replicas.values() if self._is_unreachable(each)]
        if unreachable:
            elsewhere = f"it may be connected to {', '.join(unreachable)}, which could not be reached; try again"
            raise Refused(UNAVAILABLE, f"no replica that responds has {_describe(request)}: {elsewhere}")
        return None

    async def announce(self, action: str, runner: str, boot_id: str) -> None:
        request = OpenRequest(action, runner, task_id=boot_id)
        await asyncio.gather(*(self._ask(each, request) for each in self._membership.others()))

    async def close(self) -> None:
        links = [peer.link for peer in self._peers.values() if peer.link is not None]
        self._peers = {}
        await asyncio.gather(*(link.close(GOING_AWAY, "the replica stops") for link in links))
        await end_tasks(*self._tasks)

    async def _locate(self, replicas: list[Replica], request: OpenRequest) -> list[Replica]:
        """The replicas that have the runner (one, or for a moment two), or agents of the cluster."""
        question = OpenRequest(LOCATE, request.runner, cluster=request.cluster)
        answers = await asyncio.gather(*(self._ask(each, question) for each in replicas))
        return [each for each, has_it in zip(replicas, answers, strict=True) if has_it]

    async def _ask(self, replica: Replica, request: OpenRequest) -> bool:
        """Whether the replica accepts the request, in time. Raises Refused."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS + ASK_SECONDS):
                stream = await self._open_at(replica, request)
        except TimeoutError:
            self._back_off(replica, "it does not respond")
            return False
        peer = self._peers.get(replica.identity)
        if peer is not None and peer.link is not None and peer.link.end is None:
            peer.is_unreachable = False
        if stream is not None:
            await stream.reset("answered")
        return stream is not None

    async def _open_at(self, replica: Replica, request: OpenRequest) -> Stream | None:
        """A stream to a replica; None if it is not reached or does not have the runner. Raises Refused."""
        return await open_there(await self._connect(replica), request)

    async def _connect(self, replica: Replica) -> Link | None:
        peer = self._peers.get(replica.identity)
        if peer is None:
            self._forget_ended()
            peer = self._peers[replica.identity] = _Peer(asyncio.Lock())
        async with peer.lock:
            if peer.link is not None and peer.link.end is None:
                return peer.link
            if self._is_backing_off(replica):
                return None
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    peer.link = await self._dial(replica)
            except (TlsError, ApiError, TimeoutError) as error:
                self._back_off(replica, str(error) or "no response in time")
                peer.link = None
            return peer.link

    async def _dial(self, replica: Replica) -> Link:
        context = (await self._authority.contexts()).client
        name = peer_name(replica.identity)
        transport = await connect_tls((replica.host, replica.port), context, name, CONNECT_SECONDS)
        link = self._run(transport, is_dialer=True)
        # With TLS 1.3, the other end may still reject our certificate: only its first frame shows that it has not.
        try:
            if await link.wait_ready():
                return link
        except asyncio.CancelledError:
            link.close_soon(GOING_AWAY, "not ready in time")
            raise
        raise TlsError(f"the other end has closed the connection: {link.end.reason if link.end else ''}")

    def _back_off(self, replica: Replica, reason: str) -> None:
        peer = self._peers.get(replica.identity)
        if peer is not None:
            peer.is_unreachable, peer.retry_at = True, asyncio.get_running_loop().time() + RETRY_SECONDS
        address = f"{replica.host}:{replica.port}"
        log.warning("another replica cannot be reached", replica=replica.identity, address=address, reason=reason)

    def _is_backing_off(self, replica: Replica) -> bool:
        peer = self._peers.get(replica.identity)
        return peer is not None and asyncio.get_running_loop().time() < peer.retry_at

    def _is_unreachable(self, replica: Replica) -> bool:
        """Not the same as backing off: that may be over by the time that all others have answered."""
        peer = self._peers.get(replica.identity)
        return peer is not None and peer.is_unreachable

    def _forget_ended(self) -> None:
        """Drops what is known of replicas that have ended."""
        current = {each.identity for each in self._membership.others()}
        gone = [name for name, peer in self._peers.items() if name not in current and not peer.lock.locked()]
        for name in gone:
            link = self._peers.pop(name).link
            if link is not None:
                link.close_soon(GOING_AWAY, "the other replica has ended")

    async def _server_context(self) -> ssl.SSLContext:
        return (await self._authority.contexts()).server

    def _accept(self, transport: SocketTransport) -> None:
        self._run(transport, is_dialer=False)

    def _run(self, transport: SocketTransport, *, is_dialer: bool) -> Link:
        boot_id = f"replica-{self._identity}"
        link = Link(transport, self._service.serve, boot_id=boot_id, is_dialer=is_dialer, limits=REPLICA_LIMITS)
        start_task(self._tasks, link.run())
        return link


def _describe(request: OpenRequest) -> str:
    return f'an agent of cluster "{request.cluster}"' if request.cluster else f'runner "{request.runner}"'
