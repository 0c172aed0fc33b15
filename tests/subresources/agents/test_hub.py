"""Which session a stream takes: the least busy one, another one if an agent refuses it, or that of another process."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fairlead.core.clock import SystemClock
from fairlead.core.errors import Unauthorized
from fairlead.links.connection import Link
from fairlead.links.contract import OpenHandler, Stream
from fairlead.links.requests import HTTP, UNAVAILABLE, OpenRequest, Refused, RequestHead, ResponseHead
from fairlead.links.streams import Exit
from fairlead.subresources.agents import hub as hub_module
from fairlead.subresources.agents.hub import AgentHub
from fairlead.subresources.workspaces.hub import RunnerHub
from fairlead.subresources.workspaces.worker_peers import WorkerPeers
from tests.harness.eventually import eventually
from tests.links.pipes import pipe_pair

REQUEST = OpenRequest(HTTP, cluster="berlin", http=RequestHead("GET", "/version"))


def allow() -> None:
    """The recheck of a key that stays valid."""


@asynccontextmanager
async def agent(
    hub: AgentHub, serve: OpenHandler, cluster: str = "berlin", recheck: Callable[[], None] = allow
) -> AsyncIterator[Link]:
    """A session that is registered."""
    server_pipe, agent_pipe = pipe_pair()
    before = hub.count_sessions()
    serving = asyncio.create_task(hub.serve(cluster, "key", server_pipe, recheck))
    link = Link(agent_pipe, serve, boot_id="agent", is_dialer=True)
    running = asyncio.create_task(link.run())
    await eventually(lambda: hub.count_sessions() > before)
    try:
        yield link
    finally:
        for task in (running, serving):
            task.cancel()
        await asyncio.gather(running, serving, return_exceptions=True)


def named(name: str, seen: list[str]) -> OpenHandler:
    async def hold(request: OpenRequest, stream: Stream) -> None:
        seen.append(name)
        await stream.accept({})
        await asyncio.Event().wait()

    return hold


async def refuse(request: OpenRequest, stream: Stream) -> None:
    raise Refused(UNAVAILABLE, "not begun")


async def test_streams_go_to_the_session_with_the_fewest() -> None:
    hub, seen = AgentHub(SystemClock(), "server"), list[str]()
    async with agent(hub, named("one", seen)), agent(hub, named("two", seen)):
        for _ in range(6):
            await hub.open(REQUEST)
    assert sorted(seen) == ["one"] * 3 + ["two"] * 3


async def test_an_agent_that_has_not_begun_a_request_leaves_it_to_the_next() -> None:
    hub, seen = AgentHub(SystemClock(), "server"), list[str]()
    async with agent(hub, refuse), agent(hub, named("two", seen)):
        for _ in range(3):
            await hub.open(REQUEST)
    assert seen == ["two"] * 3


async def test_a_draining_session_gets_no_new_streams_and_keeps_those_it_has() -> None:
    hub, seen = AgentHub(SystemClock(), "server"), list[str]()
    async with agent(hub, named("old", seen)) as old:
        stream = await hub.open(REQUEST)
        async with agent(hub, named("new", seen)):
            old.drain("replaced", 60)
            await eventually(lambda: not hub._sessions["berlin"][0].link.takes_streams)
            await hub.open(REQUEST)
            await hub.open(REQUEST)
            assert seen == ["old", "new", "new"]
            assert old.end is None
            await stream.reset("read enough")
            await eventually(lambda: old.end is not None)


async def test_a_cluster_without_a_session_is_unavailable_with_the_reason() -> None:
    hub = AgentHub(SystemClock(), "server")
    with pytest.raises(Refused, match="no agent of the cluster is connected and was not since"):
        await hub.open(REQUEST)
    async with agent(hub, refuse, cluster="oslo"):
        with pytest.raises(Refused) as refused:
            await hub.open(REQUEST)
        assert refused.value.code == UNAVAILABLE


async def test_a_stream_of_one_cluster_never_reaches_the_agent_of_another() -> None:
    hub, seen = AgentHub(SystemClock(), "server"), list[str]()
    async with agent(hub, named("oslo", seen), cluster="oslo"):
        with pytest.raises(Refused):
            await hub.open(REQUEST)
    assert seen == []


async def test_an_agent_opens_no_streams_at_the_server() -> None:
    hub = AgentHub(SystemClock(), "server")
    async with agent(hub, refuse) as link:
        with pytest.raises(Refused, match="serves no streams"):
            await link.open(OpenRequest(HTTP, http=RequestHead("GET", "/")))


async def test_a_session_ends_when_its_key_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.links.connection.RECHECK_SECONDS", 0.05)
    is_valid = True

    def recheck() -> None:
        if not is_valid:
            raise Unauthorized("the key of the agent is not valid any more")

    hub = AgentHub(SystemClock(), "server")
    async with agent(hub, refuse, recheck=recheck) as link:
        is_valid = False
        await eventually(lambda: link.end is not None)
        assert link.end is not None
        assert "not valid any more" in link.end.reason
        await eventually(lambda: not hub.count_sessions())


async def test_the_oldest_of_too_many_sessions_is_replaced() -> None:
    hub = AgentHub(SystemClock(), "server")
    async with agent(hub, refuse) as first:
        for _ in range(hub_module.MAX_SESSIONS):
            server_pipe, _ = pipe_pair()
            hub._add("berlin", hub_module.Session(Link(server_pipe, refuse, boot_id="s", is_dialer=False), "key"))
        await eventually(lambda: first.end is not None)
        hub._sessions.clear()


async def test_changes_of_the_first_and_the_last_session_are_reported() -> None:
    hub, changes = AgentHub(SystemClock(), "server"), list[str]()
    hub.on_change = changes.append
    async with agent(hub, refuse), agent(hub, refuse):
        assert changes == ["berlin"]
    await eventually(lambda: len(changes) == 2)


async def test_a_request_reaches_the_agent_at_another_worker_in_one_hop(tmp_path: Path) -> None:
    async def answer(request: OpenRequest, stream: Stream) -> None:
        assert request.http is not None
        await stream.send_head(ResponseHead(200, request.http.headers))
        await stream.send(1, b"pods" * 100_000)
        await stream.send_exit(0)

    agents = [AgentHub(SystemClock(), f"w{number}") for number in (1, 2)]
    peers = [
        WorkerPeers(tmp_path, number, 2, RunnerHub(SystemClock(), f"w{number}"), agents[number - 1])
        for number in (1, 2)
    ]
    for hub, others in zip(agents, peers, strict=True):
        hub.peers = others
    async with peers[0].serve(), peers[1].serve(), agent(agents[1], answer):
        for hub in agents:
            stream = await hub.open(REQUEST)
            messages = []
            while (message := await stream.receive()) is not None:
                messages.append(message)
            assert messages[0] == ResponseHead(200)
            assert messages[-1] == Exit(0)
        with pytest.raises(Refused):
            await agents[0].open(OpenRequest(HTTP, cluster="oslo", http=RequestHead("GET", "/")))
