"""What a client of SSH can make the runner do at most."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, cast

import asyncssh
import pytest

from fairlead.runner.engines.contract import ByteStream, EngineError, ExecOptions, Reason
from fairlead.runner.ssh import limits
from fairlead.runner.ssh.access import Access, Command
from fairlead.runner.ssh.channels import CommandSession, ForwardedAgent, Target
from fairlead.runner.ssh.limits import ConnectionChannels, TooManyChannels, WorkspaceChannels
from fairlead.runner.ssh.messages import MAX_VARIABLES, NewConnection
from fairlead.runner.ssh.variables import select_variables
from tests.harness.eventually import eventually
from tests.runner.ssh.local_engine import LocalEngine
from tests.runner.ssh.test_server import connect


class IdleSession(asyncssh.SSHClientSession[bytes]):
    """A session of a client."""


class SlowProcess:
    """Signals and changes of size take until they are let through."""

    def __init__(self) -> None:
        self.received: list[object] = []
        self.allowed = asyncio.Event()

    async def send_signal(self, name: str) -> None:
        self.received.append(name)
        await self.allowed.wait()

    async def resize(self, columns: int, rows: int) -> None:
        self.received.append((columns, rows))
        await self.allowed.wait()


@pytest.fixture
def few_channels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(limits, "MAX_CHANNELS", 3)
    monkeypatch.setattr(limits, "MAX_WORKSPACE_CHANNELS", 4)
    yield


async def start_idle(connection: asyncssh.SSHClientConnection) -> asyncssh.SSHClientProcess[str]:
    process = await connection.create_process("echo on; exec cat")
    assert await process.stdout.readline() == "on\n"
    return process


# --- channels ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("few_channels")
async def test_channels_of_a_connection_and_of_a_workspace_are_limited_and_freed() -> None:
    engine, channels = LocalEngine(), WorkspaceChannels()
    async with connect(engine, channels=channels) as first, connect(engine, channels=channels) as second:
        processes = [await start_idle(first) for _ in range(3)]
        with pytest.raises(asyncssh.ChannelOpenError, match="3 channels of this connection"):
            await first.create_process("true")
        await start_idle(second)
        with pytest.raises(asyncssh.ChannelOpenError, match="4 channels of this workspace"):
            await second.create_process("true")
        assert len(engine.commands) == channels.count == 4
        processes[0].stdin.write_eof()
        await processes[0].wait()
        await eventually(lambda: channels.count == 3)
        await start_idle(second)
    assert channels.count == 0


@pytest.mark.usefixtures("few_channels")
async def test_a_channel_counts_before_a_command_is_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client may open many channels, and request commands only then."""
    requests: list[asyncio.Event] = []

    async def hold(*_: Any, **__: Any) -> None:
        requests.append(asyncio.Event())
        await requests[-1].wait()

    monkeypatch.setattr(asyncssh.SSHClientChannel, "_make_request", hold)
    channels = WorkspaceChannels()
    async with connect(LocalEngine(), channels=channels) as connection:
        opening = [asyncio.create_task(connection.create_session(IdleSession, "true")) for _ in range(10)]
        await eventually(lambda: len(requests) == 3 and sum(task.done() for task in opening) == 7)
        assert channels.count == 3
        for task in opening:
            task.cancel()
        outcomes = await asyncio.gather(*opening, return_exceptions=True)
        assert sum(isinstance(each, asyncssh.ChannelOpenError) for each in outcomes) == 7
        connection.abort()
    assert channels.count == 0


@pytest.mark.usefixtures("few_channels")
async def test_ports_count_while_they_are_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    opened, refused = list[int](), asyncio.Event()

    async def refuse(_: LocalEngine, uid: str, port: int) -> ByteStream:
        opened.append(port)
        await refused.wait()
        raise EngineError(Reason.NOT_RUNNING, "nothing answers")

    monkeypatch.setattr(LocalEngine, "open_port", refuse)
    channels = WorkspaceChannels()
    async with connect(LocalEngine(), channels=channels) as connection:
        opening = [asyncio.create_task(connection.open_connection("localhost", 80)) for _ in range(10)]
        await eventually(lambda: sum(task.done() for task in opening) == 7 and len(opened) == 3)
        assert channels.count == 3
        refused.set()
        outcomes = await asyncio.gather(*opening, return_exceptions=True)
        assert all(isinstance(each, asyncssh.ChannelOpenError) for each in outcomes)
        assert channels.count == 0


async def test_a_channel_counts_until_its_tasks_have_ended() -> None:
    """Else a client could start the next process before the last one has ended."""
    channels = WorkspaceChannels()
    connection = ConnectionChannels(channels)
    may_end, has_begun = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        try:
            has_begun.set()
            await asyncio.Event().wait()
        finally:
            await may_end.wait()

    slot = connection.take()
    slot.start(work())
    await has_begun.wait()
    slot.close()
    connection.close()  # a second request to end does not interrupt the first one
    await asyncio.sleep(0)
    assert channels.count == 1
    may_end.set()
    await connection.wait_ended()
    await eventually(lambda: channels.count == 0)
    with pytest.raises(TooManyChannels):
        connection.take()


# --- requests of a channel --------------------------------------------------------------------------------------------


def make_session(process: SlowProcess) -> CommandSession:
    target = Target(cast(Access, None), "uid", NewConnection((), "dev", "/", "/bin/sh", ""))
    session = CommandSession(target, ConnectionChannels(WorkspaceChannels()).take(), ForwardedAgent())
    session._command = cast(Command, process)
    return session


async def test_signals_are_dropped_while_one_is_under_way() -> None:
    process = SlowProcess()
    session = make_session(process)
    for _ in range(100):
        session.signal_received("INT")
        await asyncio.sleep(0)
    assert process.received == ["INT"]
    process.allowed.set()
    await session._slot.channels.wait_ended()
    session.signal_received("TERM")
    await session._slot.channels.wait_ended()
    assert process.received == ["INT", "TERM"]


async def test_of_changes_of_size_only_the_newest_waits() -> None:
    process = SlowProcess()
    session = make_session(process)
    for width in range(1, 101):
        session.terminal_size_changed(width, 24, 0, 0)
        await asyncio.sleep(0)
    assert len(session._slot.tasks) == 1
    process.allowed.set()
    await session._slot.channels.wait_ended()
    assert process.received == [(1, 24), (100, 24)]


@pytest.mark.parametrize(
    "name", ["LC_X=1;id", "LC_$(id)", "LC_A\nid", "LC_", "LC_a", "LANGUAGE", "PATH", "", "LC_ALL\n", "LC_" + "A" * 33]
)
def test_other_variables_than_those_of_the_language_are_dropped(name: str) -> None:
    assert select_variables({name: "x", "LANG": "C", "LC_ALL": "C"}) == {"LANG": "C", "LC_ALL": "C"}


def test_variables_are_limited_in_number_and_size() -> None:
    names = [f"LC_{first}{second}" for first in "ABCDEFGHIJ" for second in "ABCDEFGHIJ"]
    assert len(select_variables(dict.fromkeys(names, "x"))) == MAX_VARIABLES
    assert select_variables({"LANG": "x" * 4097, "LC_ALL": "a\nb"}) == {}


async def test_a_client_cannot_pass_a_name_with_a_command() -> None:
    engine = LocalEngine()
    async with connect(engine) as connection:
        await connection.run("true", env={"LC_X=1;touch /tmp/x;Y": "1", "LC_ALL": "C"})
    commands: list[tuple[Sequence[str], ExecOptions]] = engine.commands
    assert dict(commands[0][1].environment) == {"LC_ALL": "C"}
