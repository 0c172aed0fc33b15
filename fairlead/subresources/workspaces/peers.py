"""The contract between the processes of a server that runners and agents are connected to: workers, and replicas.

A runner or an agent is connected to one process, and a client to any. A process opens a stream at another one with the
request for the runner, over the same links as to runners, and the process with the connection forwards it. A process
without it refuses with 421. `worker_peers.py` and `replica_peers.py` find and reach the other processes.

Connects two streams, so that what one end sends arrives at the other. Credit is given as the slower one reads.
"""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from fairlead.core.waiting import end_tasks
from fairlead.links.connection import Link
from fairlead.links.contract import Stream
from fairlead.links.limits import LinkLimits
from fairlead.links.requests import LOST, OpenRequest, Refused, ResponseHead
from fairlead.links.streams import Data, Eof, Exit, StreamReset


async def relay(outer: Stream, inner: Stream) -> None:
    """Runs until one of the streams has ended; then both have."""
    pumps = [asyncio.create_task(_pump(outer, inner)), asyncio.create_task(_pump(inner, outer))]
    reason = "the other stream has ended"
    try:
        done, _ = await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in done:
            error = pump.exception()
            if isinstance(error, StreamReset):
                reason = error.reason or reason
            elif error is not None:
                raise error
    finally:
        await end_tasks(*pumps)
        await inner.reset(reason)
        await outer.reset(reason)


async def _pump(source: Stream, sink: Stream) -> None:
    """Returns after an exit code, or at the end of the source."""
    while (message := await source.receive()) is not None:
        match message:
            case ResponseHead():
                await sink.send_head(message)
            case Data(channel, content):
                await sink.send(channel, content)
            case Eof(channel):
                await sink.send_eof(channel)
            case Exit(code):
                await sink.send_exit(code)
                return


CHECK, CLAIM = "check-claim", "claim"
"""Actions by which a process asks whether a process of a runner may connect to it, and announces that it has. `task_id`
is the boot ID. All are asked first: a process that is rejected must not end the connection of another."""
LOCATE = "locate"
"""Asks whether the runner is connected there, and has no other effect. So all can be asked at once."""
NOT_HERE = 421
MAX_STREAMS = 4096
PEER_LIMITS = LinkLimits(max_streams=MAX_STREAMS, total_window=256 * 1024 * 1024, idle_frames_per_second=20_000)
"""The processes of a server trust each other, and one link has the streams of all runners."""


class RunnerPeers(Protocol):
    """Other processes of this server."""

    async def open(self, request: OpenRequest) -> Stream | None:
        """A stream over the connection that another process has; None if none has one. Raises Refused."""

    async def announce(self, action: str, runner: str, boot_id: str) -> None:
        """Sends CHECK or CLAIM to all. Raises Refused: with 409 if one knows that this process of the runner was
        superseded, with 503 if the runner connects to one of them at this moment."""

    async def close(self) -> None: ...


class LocalRunners(Protocol):
    """The runners that are connected to this process. Implemented by `hub.py`."""

    def is_connected(self, runner: str) -> bool: ...

    def check_claim(self, runner: str, boot_id: str) -> None: ...

    def supersede(self, runner: str, boot_id: str) -> None: ...

    async def open_here(self, request: OpenRequest) -> Stream | None: ...


class NoPeers:
    """The peers of a server with one process."""

    async def open(self, request: OpenRequest) -> Stream | None:
        return None

    async def announce(self, action: str, runner: str, boot_id: str) -> None:
        return None

    async def close(self) -> None:
        return None


class PeerGroups:
    """Several kinds of peers, the nearest first."""

    def __init__(self, groups: Sequence[RunnerPeers]) -> None:
        self._groups = tuple(groups)

    async def open(self, request: OpenRequest) -> Stream | None:
        for group in self._groups:
            stream = await group.open(request)
            if stream is not None:
                return stream
        return None

    async def announce(self, action: str, runner: str, boot_id: str) -> None:
        await asyncio.gather(*(group.announce(action, runner, boot_id) for group in self._groups))

    async def close(self) -> None:
        await asyncio.gather(*(group.close() for group in self._groups))


async def open_there(link: Link | None, request: OpenRequest) -> Stream | None:
    """A stream at another process; None if it is not reached or does not have the runner. Raises Refused, with LOST if
    it has ended with an HTTP request: an agent may have that already, so no other process must get it."""
    if link is None:
        return None
    try:
        return await link.open(request)
    except Refused as refusal:
        may_have_begun = refusal.code == LOST and request.http is not None
        if refusal.code == NOT_HERE or (link.end is not None and not may_have_begun):
            return None
        raise


class LocalAgents(Protocol):
    """The agents of clusters that are connected to this process. Implemented by `agents/hub.py`."""

    def is_connected(self, cluster: str) -> bool: ...

    async def open_here(self, request: OpenRequest) -> Stream | None: ...


class NoAgents:
    """The agents of a process that serves none."""

    def is_connected(self, cluster: str) -> bool:
        return False

    async def open_here(self, request: OpenRequest) -> Stream | None:
        return None


NO_AGENTS = NoAgents()


class PeerService:
    """Serves the streams of other processes. `beyond` are peers that a request may be forwarded to once more: a replica
    forwards to its own workers, and a worker to none. So a request never goes in circles."""

    def __init__(self, local: LocalRunners, agents: LocalAgents, beyond: RunnerPeers) -> None:
        self._local = local
        self._agents = agents
        self._beyond = beyond

    async def serve(self, request: OpenRequest, stream: Stream) -> None:
        local, runner = self._local, request.runner
        if request.action in (CHECK, CLAIM):
            local.check_claim(runner, request.task_id)
            await self._beyond.announce(request.action, runner, request.task_id)
            if request.action == CLAIM:
                local.supersede(runner, request.task_id)
            await stream.send_exit(0)
            return
        if request.action == LOCATE and self._is_connected(request):
            await stream.send_exit(0)
            return
        inner = await self._open_inner(request)
        if inner is None:
            raise Refused(NOT_HERE, "it is not connected here")
        try:
            await stream.accept(inner.details)
            await relay(stream, inner)
        finally:
            await inner.reset("the other process has ended the stream")

    async def _open_inner(self, request: OpenRequest) -> Stream | None:
        local = self._agents if request.cluster else self._local
        inner = None if request.action == LOCATE else await local.open_here(request)
        return inner or await self._beyond.open(request)

    def _is_connected(self, request: OpenRequest) -> bool:
        if request.cluster:
            return self._agents.is_connected(request.cluster)
        return self._local.is_connected(request.runner)
