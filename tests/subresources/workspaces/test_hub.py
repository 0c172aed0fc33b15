"""The hub: which connection of a runner counts, who may open how many streams, and forwarding between workers."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fairlead.core.clock import SystemClock
from fairlead.core.errors import Forbidden
from fairlead.links.connection import Link
from fairlead.links.contract import CLOSED, GOING_AWAY, SUPERSEDED, LinkEnd, OpenHandler, Stream
from fairlead.links.frames import STDIN, STDOUT
from fairlead.links.limits import LinkLimits
from fairlead.links.requests import OpenRequest, Refused
from fairlead.links.streams import Data, Eof, Exit, StreamReset
from fairlead.subresources.workspaces.hub import RunnerHub
from fairlead.subresources.workspaces.worker_peers import WorkerPeers
from tests.harness.eventually import TIMEOUT_SECONDS, eventually, poll_until_found
from tests.links.pipes import pipe_pair

REQUEST = OpenRequest("ssh", "local", user="ada")


async def echo(request: OpenRequest, stream: Stream) -> None:
    await stream.accept({"user": request.user})
    while isinstance(message := await stream.receive(), Data):
        await stream.send(STDOUT, message.content)
    await stream.send_exit(7)


def allow() -> None:
    """The recheck of a key that stays valid."""


class Runner:
    """The connection of a runner process to a hub."""

    def __init__(self, hub: RunnerHub, boot_id: str, serve: OpenHandler, recheck: Callable[[], None]) -> None:
        server_pipe, runner_pipe = pipe_pair()
        self.serving = asyncio.create_task(hub.serve("local", server_pipe, recheck))
        self.link = Link(runner_pipe, serve, boot_id=boot_id, is_dialer=True)
        self.running: asyncio.Task[LinkEnd] = asyncio.create_task(self.link.run())

    async def end(self) -> LinkEnd:
        async with asyncio.timeout(40):
            return await self.running


@asynccontextmanager
async def connected(
    hub: RunnerHub, boot_id: str = "boot", serve: OpenHandler = echo, recheck: Callable[[], None] = allow
) -> AsyncIterator[Runner]:
    former = hub._connections.get("local")
    runner = Runner(hub, boot_id, serve, recheck)
    await runner.link.wait_ready()
    # With replicas, all of them are asked before a connection is accepted.
    await eventually(lambda: runner.serving.done() or hub._connections.get("local") not in (None, former))
    try:
        yield runner
    finally:
        for task in (runner.running, runner.serving):
            task.cancel()
        await asyncio.gather(runner.running, runner.serving, return_exceptions=True)


@pytest.fixture
def hub() -> RunnerHub:
    return RunnerHub(SystemClock(), "server")


async def converse(stream: Stream) -> tuple[bytes, int]:
    async def write() -> None:
        await stream.send(STDIN, b"hello" * 100_000)
        await stream.send_eof(STDIN)

    writing, output = asyncio.create_task(write()), bytearray()
    async with asyncio.timeout(40):
        while isinstance(message := await stream.receive(), Data | Eof):
            output += message.content if isinstance(message, Data) else b""
        await writing
    assert isinstance(message, Exit)
    return bytes(output), message.code


async def test_a_runner_that_never_connected_is_described_as_such(hub: RunnerHub) -> None:
    with pytest.raises(
        Refused, match="is not connected and has not been since this server was started at 20"
    ) as refused:
        await hub.open(REQUEST)
    assert refused.value.code == 503


async def test_a_runner_that_has_disconnected_is_missing_since_then(hub: RunnerHub) -> None:
    async with connected(hub):
        await hub.open(REQUEST)
    with pytest.raises(Refused, match="is not connected since 20"):
        await hub.open(REQUEST)


async def test_a_new_connection_of_the_same_process_replaces_the_old_one(hub: RunnerHub) -> None:
    async with connected(hub, "boot") as old, connected(hub, "boot"):
        assert (await old.end()).code == CLOSED
        assert await converse(await hub.open(REQUEST)) == (b"hello" * 100_000, 7)


async def test_another_process_supersedes_and_the_old_one_is_rejected_from_then_on(hub: RunnerHub) -> None:
    async with connected(hub, "old") as old, connected(hub, "new") as new:
        assert (await old.end()).code == SUPERSEDED
        async with connected(hub, "old") as again:
            assert (await again.end()).code == SUPERSEDED
        assert not new.running.done()
        await hub.open(REQUEST)


async def test_streams_of_a_replaced_connection_end(hub: RunnerHub) -> None:
    async with connected(hub, "boot"):
        stream = await hub.open(REQUEST)
        async with connected(hub, "boot"):
            with pytest.raises(StreamReset):
                async with asyncio.timeout(40):
                    await stream.receive()


async def test_a_user_cannot_take_all_streams_of_a_runner() -> None:
    hub = RunnerHub(SystemClock(), "server", LinkLimits(max_streams=12))
    async with connected(hub):
        opened = []
        with pytest.raises(Refused, match="you have 5 streams") as refused:
            for _ in range(12):
                opened.append(await hub.open(REQUEST))
        assert refused.value.code == 429
        await hub.open(OpenRequest("ssh", "local", user="bob"))
        for stream in opened:
            assert (await converse(stream))[1] == 7
        await poll_until_found(lambda: hub.open(REQUEST), "the ended streams count no longer", TIMEOUT_SECONDS, Refused)


async def test_a_link_ends_when_its_key_is_revoked(hub: RunnerHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.links.connection.RECHECK_SECONDS", 0.1)

    def deny() -> None:
        raise Forbidden("the key was revoked")

    async with connected(hub, recheck=deny) as runner:
        end = await runner.end()
        assert (end.code, end.reason) == (GOING_AWAY, "the key was revoked")


async def test_runners_learn_that_the_server_stops(hub: RunnerHub) -> None:
    async with connected(hub) as runner:
        await hub.close()
        assert await runner.end() == LinkEnd(GOING_AWAY, "the server stops")


# --- several workers -------------------------------------------------------------------------------------------------


@asynccontextmanager
async def workers(folder: Path, count: int) -> AsyncIterator[list[RunnerHub]]:
    hubs = [RunnerHub(SystemClock(), f"server-{index}") for index in range(count)]
    peers = [WorkerPeers(folder, index + 1, count, hub) for index, hub in enumerate(hubs)]
    entered = []
    try:
        for hub, each in zip(hubs, peers, strict=True):
            hub.peers = each
            context = each.serve()
            await context.__aenter__()
            entered.append(context)
        yield hubs
    finally:
        for context in reversed(entered):
            await context.__aexit__(None, None, None)


async def test_every_worker_reaches_a_runner_that_one_of_them_has(tmp_path: Path) -> None:
    async with workers(tmp_path, 3) as hubs, connected(hubs[1]):
        for hub in hubs:
            stream = await hub.open(REQUEST)
            assert stream.details == {"user": "ada"}
            assert await converse(stream) == (b"hello" * 100_000, 7)


async def test_a_refusal_and_a_reset_pass_through_a_worker(tmp_path: Path) -> None:
    cancelled = asyncio.Event()

    async def serve(request: OpenRequest, stream: Stream) -> None:
        if request.action == "up":
            raise Refused(409, "busy")
        await stream.accept({})
        try:
            await stream.receive()
        finally:
            cancelled.set()

    async with workers(tmp_path, 2) as hubs, connected(hubs[1], serve=serve):
        with pytest.raises(Refused, match="busy") as refused:
            await hubs[0].open(OpenRequest("up", "local", user="ada"))
        assert refused.value.code == 409
        stream = await hubs[0].open(REQUEST)
        await stream.reset("the client has disconnected")
        async with asyncio.timeout(40):
            await cancelled.wait()


async def test_without_the_runner_at_any_worker_there_is_a_503(tmp_path: Path) -> None:
    async with workers(tmp_path, 2) as hubs:
        with pytest.raises(Refused, match="is not connected"):
            await hubs[0].open(REQUEST)


async def test_a_process_that_was_superseded_at_another_worker_is_rejected_everywhere(tmp_path: Path) -> None:
    async with workers(tmp_path, 3) as hubs, connected(hubs[0], "old") as old, connected(hubs[1], "new") as new:
        assert (await old.end()).code == SUPERSEDED
        for hub in hubs:
            async with connected(hub, "old") as again:
                assert (await again.end()).code == SUPERSEDED
        assert not new.running.done()
        assert await converse(await hubs[2].open(REQUEST)) == (b"hello" * 100_000, 7)


async def test_a_reconnect_at_another_worker_moves_the_runner(tmp_path: Path) -> None:
    async with workers(tmp_path, 2) as hubs, connected(hubs[0], "boot") as old, connected(hubs[1], "boot"):
        assert (await old.end()).code == CLOSED
        assert not hubs[0].is_connected("local")
        assert await converse(await hubs[0].open(REQUEST)) == (b"hello" * 100_000, 7)


async def test_a_worker_that_is_restarted_is_reached_again(tmp_path: Path) -> None:
    first = RunnerHub(SystemClock(), "first")
    first.peers = peers = WorkerPeers(tmp_path, 1, 2, first)
    async with peers.serve():
        for _ in range(2):
            second = RunnerHub(SystemClock(), "second")
            second.peers = other = WorkerPeers(tmp_path, 2, 2, second)
            async with other.serve(), connected(second):
                assert await converse(await first.open(REQUEST)) == (b"hello" * 100_000, 7)
            with pytest.raises(Refused, match="is not connected"):
                await first.open(REQUEST)
