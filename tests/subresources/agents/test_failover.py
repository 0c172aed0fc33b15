"""Of several agents, one is lost at any moment of a request: nothing is executed twice, and nothing hangs."""

import asyncio
from collections.abc import Callable

import pytest

from fairlead.core.clock import SystemClock
from fairlead.links.connection import Link
from fairlead.links.contract import OpenHandler, Stream
from fairlead.links.requests import HTTP, LOST, OpenRequest, Refused, RequestHead, ResponseHead
from fairlead.subresources.agents.hub import AgentHub
from fairlead.subresources.workspaces.peers import LOCATE, open_there
from fairlead.upstream.access import Limits, Request
from fairlead.upstream.errors import ProtocolError, Unreachable
from fairlead.upstream.linked import LinkExchanges
from tests.harness.eventually import eventually
from tests.harness.virtual_time import on_virtual_time
from tests.links.pipes import Pipe, pipe_pair


class CutPipe(Pipe):
    """The agent's end of a connection, which is cut after so many messages, in both directions together."""

    def __init__(self, pipe: Pipe, left: int) -> None:
        super().__init__(pipe._incoming, pipe._outgoing)
        self._left = left

    async def receive(self) -> bytes | None:
        message = await super().receive()
        return message if await self._pass() else None

    async def send(self, message: bytes) -> None:
        if await self._pass():
            await super().send(message)

    async def _pass(self) -> bool:
        self._left -= 1
        if self._left < 0:
            await self.close()
        return self._left >= 0


class Agents:
    """Agents of one cluster, and what they have executed."""

    def __init__(self) -> None:
        self.hub = AgentHub(SystemClock(), "server")
        self.executed: list[str] = []
        self._tasks: list[asyncio.Task[object]] = []

    async def add(self, name: str, wrap: Callable[[Pipe], Pipe] = lambda pipe: pipe) -> None:
        server_pipe, agent_pipe = pipe_pair()
        link = Link(wrap(agent_pipe), self._serve_as(name), boot_id=name, is_dialer=True)
        count = self.hub.count_sessions()
        serving = asyncio.create_task(self.hub.serve("berlin", "key", server_pipe, lambda: None))
        self._tasks += [serving, asyncio.create_task(link.run())]
        await eventually(lambda: self.hub.count_sessions() > count or serving.done())

    def _serve_as(self, name: str) -> OpenHandler:
        async def execute(request: OpenRequest, stream: Stream) -> None:
            await stream.accept({})
            self.executed.append(name)
            await stream.send_head(ResponseHead(201))
            await stream.send(1, b"created")
            await stream.send_exit(0)

        return execute

    async def post(self) -> int:
        exchanges = LinkExchanges("berlin", self.hub.open, Limits())
        response = await exchanges.send(Request("POST", "/api/v1/pods", (), b"{}"), None)
        await response.read(100)
        return response.status

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@on_virtual_time
async def test_a_request_whose_agent_is_lost_after_any_message_is_executed_once_at_most() -> None:
    outcomes = set()
    for left in range(1, 14):
        agents = Agents()
        await agents.add("lost", lambda pipe, left=left: CutPipe(pipe, left))  # type: ignore[misc]
        await agents.add("other")
        try:
            async with asyncio.timeout(30):
                assert await agents.post() == 201
            assert len(agents.executed) == 1, f"cut after {left} messages"
            outcomes.add(agents.executed[0])
        except (Unreachable, ProtocolError):
            assert len(agents.executed) <= 1, f"cut after {left} messages"
            assert "other" not in agents.executed
            outcomes.add("error")
        finally:
            await agents.close()
    assert outcomes == {"lost", "other", "error"}


async def lost_link() -> tuple[Link, "asyncio.Task[object]"]:
    """A link whose other end gets the first stream and says nothing, until it is gone."""

    async def hold(request: OpenRequest, stream: Stream) -> None:
        await asyncio.Event().wait()

    near, far = pipe_pair()
    link, other = Link(near, boot_id="a", is_dialer=True), Link(far, hold, boot_id="b", is_dialer=False)

    async def lose() -> None:
        running = [asyncio.create_task(each.run()) for each in (link, other)]
        await eventually(lambda: bool(other.mux.streams))
        await far.close()
        await asyncio.gather(*running)

    return link, asyncio.create_task(lose())


@on_virtual_time
async def test_a_request_that_another_process_had_is_not_sent_to_a_third() -> None:
    link, losing = await lost_link()
    with pytest.raises(Refused) as refused:
        await open_there(link, OpenRequest(HTTP, cluster="berlin", http=RequestHead("POST", "/")))
    assert refused.value.code == LOST
    await losing


@on_virtual_time
async def test_a_process_that_ends_without_saying_where_an_agent_is_does_not_have_it() -> None:
    link, losing = await lost_link()
    assert await open_there(link, OpenRequest(LOCATE, cluster="berlin")) is None
    await losing
