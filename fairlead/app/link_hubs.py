"""Builds the hubs for the connections of runners and agents, and connects them with other workers and replicas."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import uuid4

import structlog

from fairlead.app.workers.context import WorkerContext
from fairlead.authn.replica_authority import ReplicaAuthority
from fairlead.core.clock import Clock
from fairlead.core.validators import format_host
from fairlead.core.waiting import background_task
from fairlead.kinds.core.namespace import SYSTEM_NAMESPACE
from fairlead.registry.registry import Registry
from fairlead.settings import Settings, StartError
from fairlead.subresources.agents.hub import AgentHub
from fairlead.subresources.workspaces.hub import RunnerHub
from fairlead.subresources.workspaces.peers import PeerGroups, RunnerPeers
from fairlead.subresources.workspaces.replica_leases import ReplicaLeases
from fairlead.subresources.workspaces.replica_peers import ReplicaPeers
from fairlead.subresources.workspaces.worker_peers import WorkerPeers

LISTEN_BACKLOG = 128

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LinkHubs:
    """The connections of this process. Both hubs have the same peers."""

    runners: RunnerHub
    agents: AgentHub

    def use_peers(self, peers: RunnerPeers) -> None:
        self.runners.peers = peers
        self.agents.peers = peers


@asynccontextmanager
async def open_link_hubs(settings: Settings, clock: Clock, worker: WorkerContext | None) -> AsyncIterator[LinkHubs]:
    process_id = uuid4().hex
    hubs = LinkHubs(RunnerHub(clock, process_id), AgentHub(clock, process_id))
    if worker is None or worker.count == 1:
        yield hubs
        return
    peers = WorkerPeers(settings.data, worker.index, worker.count, hubs.runners, hubs.agents)
    hubs.use_peers(peers)
    async with peers.serve():
        yield hubs


@asynccontextmanager
async def connect_replicas(
    settings: Settings, registry: Registry, hubs: LinkHubs, worker: WorkerContext | None
) -> AsyncIterator[None]:
    """Connects the hubs with those of other replicas, if they have addresses. The first worker listens for all."""
    if not settings.replica_address:
        yield
        return
    listener = _listen(settings) if worker is None or worker.index == 1 else None
    port = listener.getsockname()[1] if listener is not None else settings.replica_port
    identity = uuid4().hex
    address = f"{format_host(settings.replica_address)}:{port}"
    leases = ReplicaLeases(registry, SYSTEM_NAMESPACE, identity, address)
    authority = ReplicaAuthority(registry, SYSTEM_NAMESPACE, identity, settings.data)
    workers = hubs.runners.peers
    replicas = ReplicaPeers(identity, hubs.runners, workers, leases, authority, hubs.agents)
    hubs.use_peers(PeerGroups((workers, replicas)))
    async with replicas.serve(listener):
        if listener is None:
            yield
            return
        log.info("other replicas reach this one", address=address, identity=identity)
        try:
            async with background_task(leases.renew_forever()):
                yield
        finally:
            await leases.release()


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.listen else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setblocking(False)
        listener.bind((settings.listen, settings.replica_port))
        listener.listen(LISTEN_BACKLOG)
    except OSError as error:
        listener.close()
        place = f"{settings.listen} port {settings.replica_port}"
        raise StartError(
            f"cannot listen on {place} for other replicas: {error.strerror}; choose another replica_port"
        ) from None
    return listener
