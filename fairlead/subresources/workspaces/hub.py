"""The connections of runners to this process, by the name of the runner, and the streams over them.

A runner has one connection. A second one of the same process replaces the first, which is usually dead then. A
connection of another process supersedes it for good: the old process is told so, and is rejected from then on. So two
processes with one key do not take turns.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

import structlog

from fairlead.core.bounded_cache import BoundedCache
from fairlead.core.clock import Clock, timestamp
from fairlead.core.waiting import background_task
from fairlead.links.connection import Link, watch_access
from fairlead.links.contract import CLOSED, GOING_AWAY, SUPERSEDED, MessageTransport, Stream
from fairlead.links.limits import LinkLimits
from fairlead.links.requests import CONFLICT, TOO_MANY, UNAVAILABLE, OpenRequest, Refused
from fairlead.subresources.workspaces.peers import CHECK, CLAIM, NoPeers, RunnerPeers

MAX_USER_SHARE = 2
"""A user may have one in this many of the streams that are left on a runner."""
MAX_FORMER_PROCESSES = 16
"""Superseded processes that are remembered for each runner."""
MAX_KNOWN_RUNNERS = 4096

log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class _Connection:
    link: Link
    streams: Counter[str] = field(default_factory=Counter)
    """Open streams by user."""


class RunnerHub:
    """`process_id` identifies this process to runners."""

    def __init__(self, clock: Clock, process_id: str, limits: LinkLimits | None = None) -> None:
        self._clock = clock
        self._process_id = process_id
        self._limits = limits or LinkLimits()
        self._started_at = clock.now()
        self._connections: dict[str, _Connection] = {}
        self._lost_at: BoundedCache[str, datetime] = BoundedCache(MAX_KNOWN_RUNNERS)
        self._former: BoundedCache[str, deque[str]] = BoundedCache(MAX_KNOWN_RUNNERS)
        self._elsewhere: BoundedCache[str, bool] = BoundedCache(MAX_KNOWN_RUNNERS)
        """Runners that were reached through another process, and not missed since."""
        self._registering: Counter[str] = Counter()
        self.peers: RunnerPeers = NoPeers()

    def is_connected(self, runner: str) -> bool:
        """Whether the runner has a connection to this process."""
        return runner in self._connections

    # --- the connection of a runner ----------------------------------------------------------------------------------

    async def serve(self, runner: str, transport: MessageTransport, recheck: Callable[[], None]) -> None:
        """Runs the connection of a runner until it ends, or `recheck` raises: then its key is not valid any more."""
        link = Link(transport, boot_id=self._process_id, is_dialer=False, limits=self._limits)
        connection = _Connection(link)
        async with background_task(link.run()) as running:
            try:
                if await link.wait_ready() and await self._register(runner, connection):
                    log.info("a runner has connected", runner=runner, boot_id=link.peer_boot_id)
                    await watch_access(link, running, recheck)
                    log.info("a runner has disconnected", runner=runner, reason=link.end.reason if link.end else "")
            finally:
                self._unregister(runner, connection)

    async def _register(self, runner: str, connection: _Connection) -> bool:
        link = connection.link
        boot_id = link.peer_boot_id
        self._registering[runner] += 1
        try:
            self.check_superseded(runner, boot_id)
            for action in (CHECK, CLAIM):
                await self.peers.announce(action, runner, boot_id)
            self.check_superseded(runner, boot_id)
        except Refused as refusal:
            log.warning("a runner process was rejected", runner=runner, boot_id=boot_id, reason=refusal.message)
            # After any other refusal, it connects again a little later.
            await link.close(SUPERSEDED if refusal.code == CONFLICT else CLOSED, refusal.message)
            return False
        finally:
            _discount(self._registering, runner)
        if link.end is not None:
            return False
        self.supersede(runner, boot_id)
        self._connections[runner] = connection
        return True

    def check_superseded(self, runner: str, boot_id: str) -> None:
        """Raises Refused if another process has connected as this runner after that one."""
        if boot_id in (self._former.get(runner) or ()):
            raise Refused(CONFLICT, f'another process has connected as runner "{runner}"; stop one of them')

    def check_claim(self, runner: str, boot_id: str) -> None:
        """Whether this process of the runner may connect to another process of this server. Raises Refused.

        Of two that connect to different processes of this server at the same moment, neither knows of the other yet. So
        a claim fails while a connection is being registered here: at least one of them has to try again.
        """
        self.check_superseded(runner, boot_id)
        if self._registering[runner]:
            raise Refused(UNAVAILABLE, f'runner "{runner}" is connecting to another process of this server right now')

    def supersede(self, runner: str, boot_id: str) -> None:
        """Ends the connection of the runner here, because the process `boot_id` has another one now."""
        current = self._connections.pop(runner, None)
        if current is None:
            return
        code, reason = CLOSED, "replaced by a new connection of the same process"
        if current.link.peer_boot_id != boot_id:
            former = self._former.get(runner) or deque(maxlen=MAX_FORMER_PROCESSES)
            former.append(current.link.peer_boot_id)
            self._former[runner] = former
            code, reason = SUPERSEDED, f'another process has connected as runner "{runner}"'
        current.link.close_soon(code, reason)

    def _unregister(self, runner: str, connection: _Connection) -> None:
        if self._connections.get(runner) is connection:
            del self._connections[runner]
            self._lost_at[runner] = self._clock.now()

    async def close(self) -> None:
        """Tells all runners that this process stops; they connect again."""
        links = [each.link for each in self._connections.values()]
        await asyncio.gather(*(link.close(GOING_AWAY, "the server stops") for link in links), return_exceptions=True)
        await self.peers.close()

    # --- streams -----------------------------------------------------------------------------------------------------

    async def open(self, request: OpenRequest) -> Stream:
        """A stream to a runner. Raises Refused; with 503 if it is not connected."""
        runner = request.runner
        stream = await self.open_here(request)
        if stream is None:
            stream = await self.peers.open(request)
            if stream is None:
                if self._elsewhere.pop(runner, False):
                    self._lost_at[runner] = self._clock.now()
                raise Refused(UNAVAILABLE, self.describe_absence(runner))
            self._elsewhere[runner] = True
        return stream

    async def open_here(self, request: OpenRequest) -> Stream | None:
        """A stream over the connection of this process; None if it has none. Raises Refused."""
        connection = self._connections.get(request.runner)
        if connection is None:
            return None
        if connection.link.end is not None:  # it is being closed
            self._unregister(request.runner, connection)
            return None
        user, streams, link = request.user, connection.streams, connection.link
        free = self._limits.max_streams - link.stream_count
        if streams[user] > free // MAX_USER_SHARE:
            taken = (
                f'you have {streams[user]} streams to runner "{request.runner}" open, and {free} are left for all users'
            )
            raise Refused(TOO_MANY, f"{taken}; close streams that you do not need, or try again later")
        streams[user] += 1
        try:
            stream = await link.open(request)
        except BaseException:
            _discount(streams, user)
            raise
        stream.on_ended(lambda: _discount(streams, user))
        return stream

    def describe_absence(self, runner: str) -> str:
        """Why there is no connection, and since when."""
        lost = self._lost_at.get(runner)
        started = f"and has not been since this server was started at {timestamp(self._started_at)}"
        since = f"since {timestamp(lost)}" if lost is not None else started
        return f'runner "{runner}" is not connected {since}; check whether it is running and can reach this server'


def _discount(counter: Counter[str], name: str) -> None:
    counter[name] -= 1
    if not counter[name]:
        del counter[name]
