"""The connections of runners and agents to other workers of this server, over Unix sockets in the data folder."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fairlead.core.bounded_cache import BoundedCache
from fairlead.core.waiting import end_tasks, start_task
from fairlead.links.connection import Link
from fairlead.links.contract import GOING_AWAY, Stream
from fairlead.links.requests import OpenRequest
from fairlead.links.sockets import SocketTransport, connect_transport, serve_transports
from fairlead.subresources.workspaces.hub import MAX_KNOWN_RUNNERS, RunnerHub
from fairlead.subresources.workspaces.peers import NO_AGENTS, PEER_LIMITS, LocalAgents, NoPeers, PeerService, open_there


class WorkerPeers:
    """The other workers. `index` is the number of this one, from 1 to `count`."""

    def __init__(self, folder: Path, index: int, count: int, hub: RunnerHub, agents: LocalAgents = NO_AGENTS) -> None:
        self._paths = {number: folder / f"runners-{number}.socket" for number in range(1, count + 1)}
        self._index = index
        self._service = PeerService(hub, agents, NoPeers())
        self._links: dict[int, Link] = {}
        self._locks = {number: asyncio.Lock() for number in self._paths}
        self._known: BoundedCache[str, int] = BoundedCache(MAX_KNOWN_RUNNERS)
        """Where a runner or an agent was connected last."""
        self._tasks: set[asyncio.Task[object]] = set()

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        """Accepts the connections of other workers while the context is open."""
        async with serve_transports(self._paths[self._index], self._accept):
            try:
                yield
            finally:
                await self.close()

    async def open(self, request: OpenRequest) -> Stream | None:
        others = [number for number in self._paths if number != self._index]
        others.sort(key=lambda number: number != self._known.get(request.peer))
        for number in others:
            stream = await self._open_at(number, request)
            if stream is not None:
                self._known[request.peer] = number
                return stream
        return None

    async def announce(self, action: str, runner: str, boot_id: str) -> None:
        request = OpenRequest(action, runner, task_id=boot_id)
        await asyncio.gather(*(self._open_at(number, request) for number in self._paths if number != self._index))

    async def close(self) -> None:
        links, self._links = list(self._links.values()), {}
        await asyncio.gather(*(link.close(GOING_AWAY, "the worker stops") for link in links))
        await end_tasks(*self._tasks)

    async def _open_at(self, number: int, request: OpenRequest) -> Stream | None:
        """A stream to a worker; None if it does not run or does not have the runner. Raises Refused."""
        return await open_there(await self._connect(number), request)

    async def _connect(self, number: int) -> Link | None:
        async with self._locks[number]:
            link = self._links.get(number)
            if link is not None and link.end is None:
                return link
            try:
                transport = await connect_transport(self._paths[number])
            except OSError:  # it is being started
                return None
            self._links[number] = link = self._run(transport, is_dialer=True)
            return link

    def _accept(self, transport: SocketTransport) -> None:
        self._run(transport, is_dialer=False)

    def _run(self, transport: SocketTransport, *, is_dialer: bool) -> Link:
        boot_id = f"worker-{self._index}"
        link = Link(transport, self._service.serve, boot_id=boot_id, is_dialer=is_dialer, limits=PEER_LIMITS)
        start_task(self._tasks, link.run())
        return link
