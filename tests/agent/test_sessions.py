"""The agent's sessions with a server in memory, on virtual time: they are kept for ever, replaced in time, and the key
is replaced in steps of which each may be interrupted."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from fairlead.agent import sessions as sessions_module
from fairlead.agent.identity import Identity
from fairlead.agent.sessions import REPLACE_SECONDS, SESSIONS, AgentSessions, ServerError
from fairlead.core.crypto.agent_keys import JoinToken, generate_private_key
from fairlead.links.connection import Link
from fairlead.links.contract import DRAINING, GOING_AWAY, MessageTransport, Stream
from fairlead.links.dialing import DialError, LinkAddress
from fairlead.links.requests import HTTP, OpenRequest, RequestHead, ResponseHead
from tests.harness.eventually import eventually
from tests.harness.virtual_time import on_virtual_time
from tests.links.pipes import pipe_pair

TOKEN = JoinToken("berlin", "secret")


class MemoryStore:
    def __init__(self, identity: Identity | None = None) -> None:
        self.identity = identity

    async def load(self) -> Identity | None:
        return self.identity

    async def save(self, identity: Identity) -> Identity:
        self.identity = identity
        return identity


class Server:
    """The `ServerApi` of the agent, and what its WebSockets lead to. It accepts the keys in `keys`."""

    def __init__(self, *keys: str) -> None:
        self.keys = list(keys)
        self.pending = ""
        self.links: list[Link] = []
        self.dialled_at: list[float] = []
        self.joins = 0
        self.refusal: DialError | None = None
        self.fails_after_offer = False
        self.tasks: list[asyncio.Task[object]] = []

    @property
    def open_links(self) -> list[Link]:
        return [each for each in self.links if each.end is None and each.takes_streams]

    async def join(self, token: JoinToken, private_key: str) -> None:
        self.joins += 1
        self.keys = [private_key]

    async def offer_key(self, identity: Identity, current: str, new: str, instance: str) -> None:
        if current not in self.keys:
            raise ServerError("not the current key", 401)
        self.pending = new
        if self.fails_after_offer:
            raise ServerError("the response was lost")

    async def session_address(self, identity: Identity, key: str, instance: str) -> LinkAddress:
        return LinkAddress("wss://server/agents/session", key, None)

    async def dial(self, address: LinkAddress) -> MessageTransport:
        self.dialled_at.append(asyncio.get_running_loop().time())
        if self.refusal is not None:
            raise self.refusal
        if address.key == self.pending:
            self.keys, self.pending = [self.pending], ""
        if address.key not in self.keys:
            raise DialError("the key is not known", 401)
        server_pipe, agent_pipe = pipe_pair()
        link = Link(server_pipe, boot_id="server", is_dialer=False)
        self.links.append(link)
        self.tasks.append(asyncio.create_task(link.run()))
        return agent_pipe


async def answer(request: OpenRequest, stream: Stream) -> None:
    await stream.send_head(ResponseHead(200))
    await asyncio.sleep(float(request.user or 0))
    await stream.send_exit(0)


@asynccontextmanager
async def running(
    monkeypatch: pytest.MonkeyPatch, server: Server, store: MemoryStore, token: JoinToken | None = None
) -> AsyncIterator[AgentSessions]:
    monkeypatch.setattr(sessions_module, "dial", server.dial)
    agent = AgentSessions(server, store, answer, "one", token)  # type: ignore[arg-type]
    task = asyncio.create_task(agent.run())
    try:
        yield agent
    finally:
        task.cancel()
        await asyncio.gather(task, *server.tasks, return_exceptions=True)


def known(key: str = "") -> tuple[Server, MemoryStore, str]:
    key = key or generate_private_key()
    return Server(key), MemoryStore(Identity("berlin", (key,))), key


@on_virtual_time
async def test_an_agent_joins_once_and_keeps_two_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    server, store = Server(), MemoryStore()
    async with running(monkeypatch, server, store, TOKEN):
        await eventually(lambda: len(server.open_links) == SESSIONS)
        assert server.joins == 1
        assert store.identity is not None


@pytest.mark.parametrize("status", [0, 401, 429])
@on_virtual_time
async def test_an_agent_that_is_refused_for_an_hour_tries_again_and_not_in_step(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    server, store, _ = known()
    server.refusal = DialError("refused", status)
    async with running(monkeypatch, server, store):
        await asyncio.sleep(3600)
        assert len(server.dialled_at) > 2 * 3600 / 31
        dialled = server.dialled_at
        gaps = {round(later - earlier, 3) for earlier, later in pairwise(dialled)}
        assert len(gaps) > 100
        server.refusal = None
        await eventually(lambda: len(server.open_links) == SESSIONS, seconds=120)


@on_virtual_time
async def test_a_session_that_ends_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    server, store, _ = known()
    async with running(monkeypatch, server, store):
        await eventually(lambda: len(server.open_links) == SESSIONS)
        for _ in range(5):
            for link in server.open_links:
                await link.close(GOING_AWAY, "the server restarts")
            await eventually(lambda: len(server.open_links) == SESSIONS, seconds=120)


@on_virtual_time
async def test_sessions_are_replaced_before_a_proxy_cuts_them_and_requests_on_them_end_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server, store, _ = known()
    async with running(monkeypatch, server, store):
        await eventually(lambda: len(server.open_links) == SESSIONS)
        first = server.open_links
        request = OpenRequest(HTTP, user=str(REPLACE_SECONDS[1] + 60), http=RequestHead("GET", "/api"))
        stream = await first[0].open(request)
        await asyncio.sleep(REPLACE_SECONDS[1])
        assert not set(first) & set(server.open_links)
        assert len(server.open_links) == SESSIONS, "new ones are there"
        assert first[0].end is None
        assert first[0].mux.peer_goaway is not None
        assert first[0].mux.peer_goaway.code == DRAINING
        messages = []
        while (message := await stream.receive()) is not None:
            messages.append(message)
        assert len(messages) == 2, "the request has ended without an error"


@on_virtual_time
async def test_the_key_is_replaced_in_time_and_confirmed_by_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions_module, "KEY_SECONDS", (300.0, 310.0))
    server, store, old = known()
    async with running(monkeypatch, server, store):
        await eventually(lambda: old not in server.keys, seconds=400)
        await asyncio.sleep(100)
        assert store.identity is not None
        assert store.identity.keys == tuple(server.keys)
        assert old not in server.keys


@on_virtual_time
async def test_a_key_that_was_stored_and_never_offered_or_whose_offer_was_lost_leaves_the_agent_connected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server, store, old = known()
    new = generate_private_key()
    store.identity = Identity("berlin", (new, old))  # killed after it was stored
    server.fails_after_offer = True
    async with running(monkeypatch, server, store) as agent:
        await eventually(lambda: len(server.open_links) == SESSIONS)
        assert server.keys == [old]
        with pytest.raises(ServerError):
            await agent.replace_key()  # the server has it; the agent does not know
    server.links.clear()
    async with running(monkeypatch, server, store):  # killed, and started again
        await eventually(lambda: len(server.open_links) == SESSIONS)
        assert server.keys == [new]
        assert store.identity == Identity("berlin", (new,))


@on_virtual_time
async def test_an_older_backup_of_the_server_leaves_an_agent_connected_until_its_key_is_confirmed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server, store, old = known()
    async with running(monkeypatch, server, store) as agent:
        await eventually(lambda: len(server.open_links) == SESSIONS)
        server.fails_after_offer = True
        with pytest.raises(ServerError):
            await agent.replace_key()
        server.pending = ""  # the offer is not in the backup
        for link in server.open_links:
            await link.close(GOING_AWAY, "the server restarts")
        await eventually(lambda: len(server.open_links) == SESSIONS, seconds=120)
        assert server.keys == [old]
