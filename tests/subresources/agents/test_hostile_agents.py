"""An agent that was broken into: whatever it sends, the requests to other clusters go on."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager

import pytest

from fairlead.core.clock import SystemClock
from fairlead.links import frames
from fairlead.links.connection import Link
from fairlead.links.contract import Stream
from fairlead.links.frames import STDOUT, FrameType, Hello
from fairlead.links.limits import MAX_WINDOW
from fairlead.links.requests import HTTP, OpenRequest, RequestHead, ResponseHead
from fairlead.subresources.agents.hub import AgentHub
from fairlead.upstream.access import Limits, Request
from fairlead.upstream.errors import UpstreamError
from fairlead.upstream.linked import LinkExchanges
from tests.harness.eventually import eventually
from tests.harness.virtual_time import on_virtual_time
from tests.links.pipes import Pipe, pipe_pair


class Fleet:
    """`berlin` has an honest agent, and a request under way. The test itself is the agent of `oslo`."""

    def __init__(self, hub: AgentHub, hostile: Pipe, finish: asyncio.Event) -> None:
        self.hub = hub
        self.hostile = hostile
        self.finish = finish
        """Lets the honest agent answer the rest."""
        self.received: list[tuple[FrameType, int, bytes]] = []
        """What the hostile agent got."""
        self.tasks: list[asyncio.Task[object]] = [asyncio.create_task(self._receive())]

    def exchanges(self, cluster: str) -> LinkExchanges:
        return LinkExchanges(cluster, self.hub.open, Limits())

    async def next_stream(self) -> int:
        """The number of the stream that the hostile agent gets."""
        return await eventually(
            lambda: next((number for kind, number, _ in self.received if kind == FrameType.OPEN), 0)
        )

    def attack(self, *sent: bytes) -> None:
        """Sends in the background: at some point, nobody takes it any more."""
        self.tasks.append(asyncio.create_task(self._send(sent)))

    async def _send(self, sent: Sequence[bytes]) -> None:
        for frame in sent:
            await self.hostile.send(frame)

    async def _receive(self) -> None:
        while (message := await self.hostile.receive()) is not None:
            self.received.append(frames.decode_frame(message))


@asynccontextmanager
async def open_fleet() -> AsyncIterator[Fleet]:
    hub, finish = AgentHub(SystemClock(), "server"), asyncio.Event()

    async def answer(request: OpenRequest, stream: Stream) -> None:
        assert request.cluster == "berlin"
        await stream.send_head(ResponseHead(200))
        await stream.send(STDOUT, b"first ")
        await finish.wait()
        await stream.send(STDOUT, b"second")
        await stream.send_exit(0)

    pipes = {name: pipe_pair() for name in ("berlin", "oslo")}
    link = Link(pipes["berlin"][1], answer, boot_id="berlin", is_dialer=True)
    tasks: list[asyncio.Task[object]] = [asyncio.create_task(link.run())]
    for name, (server_pipe, _) in pipes.items():
        tasks.append(asyncio.create_task(hub.serve(name, "key", server_pipe, lambda: None)))
    hostile = pipes["oslo"][1]
    await hostile.send(frames.encode_hello(Hello(1, 2, "oslo")))
    await eventually(lambda: hub.count_sessions() == 2)
    try:
        fleet = Fleet(hub, hostile, finish)
        tasks = fleet.tasks = fleet.tasks + tasks
        yield fleet
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def all_numbers(build: Callable[[int], bytes]) -> Iterator[bytes]:
    """A frame for each stream that `berlin` could have."""
    for number in (1, 2, 3, 4, 6, 100):
        yield build(number)


ATTACKS: dict[str, list[bytes]] = {
    "answers of streams that it did not get": [
        *all_numbers(lambda number: frames.encode_head(number, ResponseHead(200))),
        *all_numbers(lambda number: frames.encode_data(number, STDOUT, b"forged")),
        *all_numbers(lambda number: frames.encode_exit(number, 0)),
    ],
    "resets": list(all_numbers(lambda number: frames.encode_reason(FrameType.RESET, number, 1, "forged"))),
    "acceptances": list(all_numbers(lambda number: frames.encode_accept(number, {}))),
    "requests in the name of another cluster": [
        frames.encode_open(number, OpenRequest(HTTP, cluster="berlin", user="admin", http=RequestHead("GET", "/")))
        for number in (1, 3, 5, 3)
    ],
    "credit": list(all_numbers(lambda number: frames.encode_credit(number, 2**32 - 1))),
    "an oversized frame": [bytes((FrameType.DATA, 0, 0, 0, 2)) + bytes(1_000_000)],
    "no frame": [b"", b"\xff" * 40],
    "a second greeting": [frames.encode_hello(Hello(1, 2, "berlin"))],
    "a flood of pings": [frames.encode_ping(FrameType.PING, bytes(8))] * 5000,
}


@pytest.mark.parametrize("attack", ATTACKS)
@on_virtual_time
async def test_frames_of_one_cluster_change_nothing_in_another(attack: str) -> None:
    async with open_fleet() as fleet:
        response = await fleet.exchanges("berlin").send(Request("GET", "/api/v1/pods"), None)
        assert await response.read_chunk() == b"first "
        fleet.attack(*ATTACKS[attack])
        fleet.finish.set()
        assert await response.read(100) == b"second"
        again = await fleet.exchanges("berlin").send(Request("GET", "/api/v1/pods"), None)
        assert await again.read(100) == b"first second"


@pytest.mark.parametrize("attack", ATTACKS)
@on_virtual_time
async def test_a_request_to_the_hostile_cluster_itself_ends(attack: str) -> None:
    async with open_fleet() as fleet:
        waiting = asyncio.create_task(fleet.exchanges("oslo").send(Request("GET", "/version"), 20.0))
        await fleet.next_stream()
        fleet.attack(*ATTACKS[attack])
        with pytest.raises(UpstreamError):
            await (await waiting).read(1000)
        assert not any(each.link.stream_count for each in fleet.hub._sessions.get("oslo", ()))


@on_virtual_time
async def test_an_agent_that_never_reads_a_body_stops_that_request_and_no_other() -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            yield bytes(50_000)
            sent += 50_000

    async with open_fleet() as fleet:
        upload = asyncio.create_task(fleet.exchanges("oslo").send(Request("POST", "/api/v1/pods", (), endless()), 60.0))
        number = await fleet.next_stream()
        fleet.attack(frames.encode_accept(number, {}), frames.encode_credit(number, MAX_WINDOW // 2))
        await eventually(lambda: sent >= MAX_WINDOW // 2)
        fleet.finish.set()
        for _ in range(20):
            response = await fleet.exchanges("berlin").send(Request("GET", "/api/v1/pods"), None)
            assert await response.read(100) == b"first second"
        with pytest.raises(UpstreamError):
            await upload
        assert sent <= 2 * MAX_WINDOW


@on_virtual_time
async def test_a_reset_of_the_server_must_be_confirmed_or_the_session_ends() -> None:
    """So a stream that one end has forgotten is gone at the other one within two minutes."""
    async with open_fleet() as fleet:
        with pytest.raises(UpstreamError):
            await fleet.exchanges("oslo").send(Request("GET", "/version"), 1.0)
        fleet.tasks.append(asyncio.create_task(_stay_alive(fleet.hostile)))
        await eventually(lambda: fleet.hub.count_sessions() == 1, seconds=120)


async def _stay_alive(pipe: Pipe) -> None:
    while True:
        await pipe.send(frames.encode_ping(FrameType.PING, bytes(8)))
        await asyncio.sleep(1)
