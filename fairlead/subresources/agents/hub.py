"""The sessions of agents with this process, by cluster, and the streams over them.

A cluster may have several agents, and each several sessions. A stream goes to the session with the fewest; if that
agent refuses it as not begun, to the next. Without a session here, the peers are tried: the other workers and replicas
of this server. Which cluster a session belongs to was proved by a key when it was opened, and is never read from a
frame.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import structlog

from fairlead.core.bounded_cache import BoundedCache
from fairlead.core.clock import Clock, timestamp
from fairlead.core.waiting import background_task
from fairlead.links.connection import Link, refuse_streams, watch_access
from fairlead.links.contract import CLOSED, GOING_AWAY, MessageTransport, Stream
from fairlead.links.limits import LinkLimits
from fairlead.links.requests import TOO_MANY, UNAVAILABLE, OpenRequest, Refused
from fairlead.subresources.workspaces.peers import NoPeers, RunnerPeers

MAX_SESSIONS = 16
"""Of one cluster in this process. A further one replaces the oldest."""
MAX_KNOWN_CLUSTERS = 16_384
AGENT_LIMITS = LinkLimits(max_streams=1024, waiting_ping_seconds=2.0, waiting_dead_seconds=4.0)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Session:
    link: Link
    key: str
    """ID of the key that has proved the session."""


class AgentHub:
    """`process_id` identifies this process to agents. `on_change` is called with a cluster whose first session has
    begun, or whose last one has ended."""

    def __init__(self, clock: Clock, process_id: str, limits: LinkLimits = AGENT_LIMITS) -> None:
        self._clock = clock
        self._process_id = process_id
        self._limits = limits
        self._started_at = clock.now()
        self._sessions: dict[str, list[Session]] = {}
        self._lost_at: BoundedCache[str, datetime] = BoundedCache(MAX_KNOWN_CLUSTERS)
        self.on_change: Callable[[str], None] = lambda cluster: None
        self.peers: RunnerPeers = NoPeers()

    def is_connected(self, cluster: str) -> bool:
        """Whether an agent of the cluster has a session with this process."""
        return any(each.link.takes_streams for each in self._sessions.get(cluster, ()))

    def count_sessions(self) -> int:
        return sum(len(sessions) for sessions in self._sessions.values())

    async def serve(self, cluster: str, key: str, transport: MessageTransport, recheck: Callable[[], None]) -> None:
        """Runs a session until it ends, or `recheck` raises: then its key is not valid any more."""
        link = Link(transport, refuse_streams, boot_id=self._process_id, is_dialer=False, limits=self._limits)
        session = Session(link, key)
        async with background_task(link.run()) as running:
            try:
                if await link.wait_ready():
                    self._add(cluster, session)
                    log.info("an agent has connected", cluster=cluster, instance=link.peer_boot_id, key=key)
                    await watch_access(link, running, recheck)
                    reason = link.end.reason if link.end else ""
                    log.info("an agent has disconnected", cluster=cluster, instance=link.peer_boot_id, reason=reason)
            finally:
                self._remove(cluster, session)

    def _add(self, cluster: str, session: Session) -> None:
        sessions = self._sessions.setdefault(cluster, [])
        sessions.append(session)
        if len(sessions) > MAX_SESSIONS:
            sessions.pop(0).link.close_soon(CLOSED, f"more than {MAX_SESSIONS} sessions of this cluster are open")
        if len(sessions) == 1:
            self.on_change(cluster)

    def _remove(self, cluster: str, session: Session) -> None:
        sessions = self._sessions.get(cluster, [])
        if session in sessions:
            sessions.remove(session)
        if cluster in self._sessions and not sessions:
            del self._sessions[cluster]
            self._lost_at[cluster] = self._clock.now()
            self.on_change(cluster)

    async def close(self) -> None:
        """Tells all agents that this process stops; they connect again."""
        links = [each.link for sessions in self._sessions.values() for each in sessions]
        await asyncio.gather(*(link.close(GOING_AWAY, "the server stops") for link in links), return_exceptions=True)

    # --- streams -----------------------------------------------------------------------------------------------------

    async def open(self, request: OpenRequest) -> Stream:
        """A stream to an agent of `request.cluster`. Raises Refused; nothing has begun then."""
        stream = await self.open_here(request)
        if stream is None:
            stream = await self.peers.open(request)
        if stream is None:
            raise Refused(UNAVAILABLE, self.describe_absence(request.cluster))
        return stream

    async def open_here(self, request: OpenRequest) -> Stream | None:
        """A stream over a session of this process; None if it has none that takes streams. Raises Refused."""
        refusal: Refused | None = None
        usable = [each for each in self._sessions.get(request.cluster, ()) if each.link.takes_streams]
        for session in sorted(usable, key=lambda each: each.link.stream_count):
            try:
                return await session.link.open(request)
            except Refused as error:
                if error.code not in (UNAVAILABLE, TOO_MANY):
                    raise
                refusal = error
        if refusal is not None and refusal.code == TOO_MANY:
            raise refusal
        return None

    def describe_absence(self, cluster: str) -> str:
        """Why there is no session, and since when."""
        lost = self._lost_at.get(cluster)
        since = f"since {timestamp(lost)}" if lost is not None else f"and was not since {timestamp(self._started_at)}"
        return f"no agent of the cluster is connected {since}; check whether it is running and can reach this server"
