"""The SSH server of a runner, with a real SSH client and an engine whose sessions are processes of this machine."""

import asyncio
import os
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import asyncssh
import msgspec
import pytest

from fairlead.core.crypto.ssh_certificates import (
    CertificateFields,
    find_public_key,
    generate_private_key,
    parse_public_key,
    sign_user_certificate,
)
from fairlead.runner.engines.contract import Engine
from fairlead.runner.engines.process_trees import read_mark
from fairlead.runner.ssh.access import Access
from fairlead.runner.ssh.channels import Target
from fairlead.runner.ssh.limits import MAX_WORKSPACE_CHANNELS, WorkspaceChannels
from fairlead.runner.ssh.messages import (
    MAX_AGENTS,
    MAX_DESCRIPTORS,
    MAX_MESSAGE_BYTES,
    MessageSocket,
    NewConnection,
    Reply,
    open_message_sockets,
)
from fairlead.runner.ssh.requests import WorkspaceRequests
from fairlead.runner.ssh.server import serve_connection
from tests.harness.eventually import eventually
from tests.runner.harness.processes import find_marked, list_pids
from tests.runner.ssh.local_engine import CopiedEngine, LocalEngine, SocketsEngine

UID = "uid-of-server-tests"
AUTHORITY, HOST_KEY, CLIENT_KEY = generate_private_key(), generate_private_key(), generate_private_key()
SFTP_SERVER = "/bin/cat"
"""Sends back what it gets: what matters is which program is started."""


def certificate(authority: str = AUTHORITY, principal: str = UID, minutes: int = 5) -> str:
    now = datetime.now(UTC)
    fields = CertificateFields(principal, "ada", 1, now - timedelta(minutes=10), now + timedelta(minutes=minutes))
    return sign_user_certificate(authority, parse_public_key(find_public_key(CLIENT_KEY)), fields)


@asynccontextmanager
async def connect(
    engine: LocalEngine,
    cert: str = "",
    user: str = "dev",
    sftp_server: str = SFTP_SERVER,
    channels: WorkspaceChannels | None = None,
    agent: str = "",
) -> AsyncIterator[asyncssh.SSHClientConnection]:
    ours, theirs = socket.socketpair()
    accepted = NewConnection((find_public_key(AUTHORITY),), "dev", "/tmp", "/bin/sh", sftp_server)
    host_key = asyncssh.import_private_key(HOST_KEY)
    key = asyncssh.import_private_key(CLIENT_KEY)
    identity = (key, asyncssh.import_certificate(cert or certificate()))
    known = asyncssh.import_known_hosts(f"workspace {find_public_key(HOST_KEY)}")
    async with open_access(engine) as access:
        target = Target(access, UID, accepted)
        serving = asyncio.create_task(serve_connection(theirs, host_key, target, channels or WorkspaceChannels()))
        try:
            async with asyncssh.connect(
                "workspace",
                sock=ours,
                username=user,
                client_keys=[identity],
                known_hosts=known,
                config=None,
                agent_path=agent or None,
                agent_forwarding=bool(agent),
            ) as connection:
                yield connection
        finally:
            async with asyncio.timeout(20):
                await serving


@asynccontextmanager
async def open_access(engine: LocalEngine) -> AsyncIterator[Access]:
    """What the process for SSH has of the runner; here, both are this process."""
    control, theirs = open_message_sockets()
    access = Access(MessageSocket(theirs))
    requests = WorkspaceRequests(cast(Engine, engine), UID, control)

    async def receive_replies() -> None:
        while (received := await access.control.receive(MAX_MESSAGE_BYTES, MAX_DESCRIPTORS))[0]:
            content, descriptors = received
            access.handle_reply(msgspec.msgpack.decode(content, type=Reply), descriptors)

    tasks = (asyncio.create_task(requests.serve()), asyncio.create_task(receive_replies()))
    try:
        yield access
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        control.close()
        theirs.close()


@pytest.fixture(params=[LocalEngine, CopiedEngine], ids=["descriptors", "copied"])
def engine(request: pytest.FixtureRequest) -> LocalEngine:
    created: LocalEngine = request.param()
    return created


async def test_a_command_gets_input_variables_and_the_home_folder_and_its_exit_code_is_passed_on(
    engine: LocalEngine,
) -> None:
    environment = {"LANG": "C.UTF-8", "LC_ALL": "C", "LD_PRELOAD": "/tmp/x"}
    async with connect(engine) as connection:
        script = "cat; echo $GREETING $LANG $LC_ALL $LD_PRELOAD; echo bad >&2; exit 7"
        result = await connection.run(script, input="in ", env=environment)
        assert (result.exit_status, result.stdout, result.stderr) == (7, "in hello C.UTF-8 C\n", "bad\n")
    command, options = engine.commands[0]
    assert (command, options.folder, options.tty) == (("/bin/sh", "-c", script), "/tmp", False)


async def test_megabytes_pass_both_ways_and_the_end_of_input_is_passed_on(engine: LocalEngine) -> None:
    content = b"".join(sha256(b"%d" % index).digest() for index in range(200_000))
    async with connect(engine) as connection:
        result = await connection.run("cat", input=content, encoding=None)
    assert sha256(cast(bytes, result.stdout)).digest() == sha256(content).digest()


async def test_a_terminal_has_the_size_of_the_client_and_changes_with_it(engine: LocalEngine) -> None:
    async with connect(engine) as connection:
        script = "echo $TERM; stty size; until stty size | grep '22 88'; do sleep 0.1; done"
        async with connection.create_process(script, term_type="vt100", term_size=(101, 41)) as process:
            assert await process.stdout.readline() == "vt100\r\n"
            assert await process.stdout.readline() == "41 101\r\n"
            process.change_terminal_size(88, 22)
            assert "22 88" in await process.stdout.read()


async def test_signals_reach_the_process(engine: LocalEngine) -> None:
    script = "trap 'exit 9' TERM; echo on; while :; do sleep 0.05; done"
    async with connect(engine) as connection, connection.create_process(script) as process:
        assert await process.stdout.readline() == "on\n"
        process.send_signal("TERM")
        assert (await process.wait()).exit_status == 9


async def test_a_session_says_that_its_workspace_has_stopped(engine: LocalEngine) -> None:
    async with connect(engine) as connection, connection.create_process("echo on; read x; kill -9 $$") as process:
        assert await process.stdout.readline() == "on\n"
        engine.is_running = False
        process.stdin.write("\n")
        result = await process.wait()
        assert (result.exit_status, result.stderr) == (137, "the workspace has stopped\r\n")


async def test_a_client_that_disconnects_leaves_no_process(engine: LocalEngine) -> None:
    async with connect(engine) as connection:
        process = await connection.create_process("echo on; sleep 1000")
        assert await process.stdout.readline() == "on\n"
        marks = {mark for mark in map(read_mark, list_pids()) if mark.startswith(UID)}
        assert marks
        connection.abort()
    await eventually(lambda: not any(find_marked(mark) for mark in marks))


async def test_sftp_is_the_program_of_the_image(engine: LocalEngine) -> None:
    async with connect(engine) as connection:
        result = await connection.run(subsystem="sftp", input="x")
        assert (result.exit_status, result.stdout) == (0, "x")
        with pytest.raises(asyncssh.ChannelOpenError):
            await connection.run(subsystem="other")
    assert engine.commands[0][0] == (SFTP_SERVER,)


async def test_without_an_sftp_server_the_client_gets_the_remedy(engine: LocalEngine) -> None:
    async with connect(engine, sftp_server="") as connection:
        result = await connection.run(subsystem="sftp")
        assert result.exit_status == 1
        assert "openssh-sftp-server" in str(result.stderr)
    assert engine.commands == []


async def test_ports_of_the_workspace_are_forwarded_and_no_others(engine: LocalEngine) -> None:
    async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.read()).upper())
        writer.close()

    server = await asyncio.start_server(shout, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, connect(engine) as connection:
        reader, writer = await connection.open_connection("localhost", port)
        writer.write(b"half close")
        writer.write_eof()
        assert await reader.read() == b"HALF CLOSE"
        for host, closed in (("example.com", port), ("10.0.0.1", port), ("localhost", 1)):
            with pytest.raises(asyncssh.ChannelOpenError):
                await connection.open_connection(host, closed)


@pytest.mark.parametrize("port", [0, 65536, 65536 + 22, 2**32 - 1])
async def test_a_port_that_is_none_is_refused(engine: LocalEngine, port: int) -> None:
    """OpenSSH does not send them; other clients may."""
    async with connect(engine) as connection:
        with pytest.raises(asyncssh.ChannelOpenError, match="from 1 to 65535"):
            await connection.open_connection("localhost", port)
        assert (await connection.run("echo on")).stdout == "on\n"


async def test_a_command_that_is_too_long_or_no_text_is_refused_and_others_go_on(engine: LocalEngine) -> None:
    async with connect(engine) as connection:
        result = await connection.run("echo " + "x" * 200_000)
        assert (result.exit_status, result.stderr) == (1, "the command is too long\n")
        variables = dict.fromkeys((f"LC_{each}" for each in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"), "\u00e9" * 4096)
        result = await connection.run("echo " + "x" * 250_000, env=variables)
        assert (result.exit_status, result.stderr) == (1, "the command is too long\n")
        with pytest.raises(asyncssh.ChannelOpenError):
            await connection.run("echo a\0b")
        assert (await connection.run("echo on")).stdout == "on\n"


async def test_a_port_of_the_workspace_is_forwarded_to_the_client() -> None:
    async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.read()).upper())
        writer.close()

    server = await asyncio.start_server(shout, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, connect(SocketsEngine()) as connection:
        forwarded = await connection.forward_remote_port("", 0, "127.0.0.1", port)
        inside = forwarded.get_port()
        reader, writer = await asyncio.open_connection("127.0.0.1", inside)
        writer.write(b"half close")
        writer.write_eof()
        assert await reader.read() == b"HALF CLOSE"
        writer.close()
        forwarded.close()
        await forwarded.wait_closed()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", inside)
        with pytest.raises(asyncssh.ChannelListenError):
            await connection.forward_remote_port("", 80, "127.0.0.1", port)
        again = await connection.forward_remote_port("", 0, "127.0.0.1", port)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", again.get_port())


async def test_listening_ports_take_the_place_of_channels() -> None:
    async with connect(SocketsEngine(), channels=WorkspaceChannels(MAX_WORKSPACE_CHANNELS - 1)) as connection:
        await connection.forward_remote_port("", 0, "127.0.0.1", 1)
        with pytest.raises(asyncssh.ChannelListenError):
            await connection.forward_remote_port("", 0, "127.0.0.1", 1)


@contextmanager
def running_agent(folder: Path) -> Iterator[str]:
    """The path of a real agent with one key."""
    path = str(folder / "own-agent")
    key = folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "of-ada", "-f", str(key)], check=True)
    with subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.DEVNULL) as agent:
        try:
            while not Path(path).exists():
                time.sleep(0.02)
            subprocess.run(["ssh-add", "-q", str(key)], env={**os.environ, "SSH_AUTH_SOCK": path}, check=True)
            yield path
        finally:
            agent.terminate()


async def test_a_forwarded_agent_has_the_same_socket_for_the_next_connection(tmp_path: Path) -> None:
    engine = SocketsEngine(folder=str(tmp_path))
    channels = WorkspaceChannels()
    with running_agent(tmp_path) as agent:
        for _ in range(2):
            async with connect(engine, channels=channels, agent=agent) as connection:
                result = await connection.run("ssh-add -l; echo $SSH_AUTH_SOCK")
                assert isinstance(result.stdout, str)
                listed, path = result.stdout.splitlines()
                assert "of-ada" in listed and path == f"{tmp_path}/agent-0"
                async with connect(engine, channels=channels, agent=agent) as other:
                    assert (await other.run("echo $SSH_AUTH_SOCK")).stdout == f"{tmp_path}/agent-1\n"
            assert channels.agents == set()
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_unix_connection(path)


async def test_there_is_a_limit_for_forwarded_agents(tmp_path: Path) -> None:
    channels = WorkspaceChannels(agents=set(range(MAX_AGENTS)))
    engine = SocketsEngine(folder=str(tmp_path))
    with running_agent(tmp_path) as agent:
        async with connect(engine, channels=channels, agent=agent) as connection:
            assert (await connection.run("echo agent=$SSH_AUTH_SOCK")).stdout == "agent=\n"


async def test_a_client_that_forwards_no_agent_gets_none_of_others(tmp_path: Path) -> None:
    engine = SocketsEngine(folder=str(tmp_path))
    channels = WorkspaceChannels()
    with running_agent(tmp_path) as agent:
        async with (
            connect(engine, channels=channels, agent=agent) as first,
            connect(engine, channels=channels) as other,
        ):
            assert (await first.run("echo $SSH_AUTH_SOCK")).stdout == f"{tmp_path}/agent-0\n"
            assert (await other.run("echo agent=$SSH_AUTH_SOCK")).stdout == "agent=\n"


async def test_nothing_listens_on_the_machine_of_the_runner(engine: LocalEngine) -> None:
    async with connect(engine) as connection:
        with pytest.raises(asyncssh.ChannelListenError):
            await connection.forward_remote_port("127.0.0.1", 0, "127.0.0.1", 1)
        with pytest.raises(asyncssh.ChannelListenError):
            await connection.forward_remote_path("/tmp/fairlead-test-socket", "/tmp/x")
        with pytest.raises(asyncssh.ChannelOpenError):
            await connection.open_unix_connection("/run/docker.sock")
        result = await connection.run("echo agent=$SSH_AUTH_SOCK")
        assert result.stdout == "agent=\n"


@pytest.mark.parametrize(
    "refused",
    [
        {"cert": certificate(minutes=-1)},
        {"cert": certificate(generate_private_key())},
        {"cert": certificate(principal="another-uid")},
        {"cert": certificate(principal="dev")},
        {"user": "root"},
    ],
    ids=["expired", "foreign", "other-workspace", "user-name", "root"],
)
async def test_other_certificates_and_users_are_refused(engine: LocalEngine, refused: dict[str, Any]) -> None:
    with pytest.raises(asyncssh.PermissionDenied):
        async with connect(engine, **refused):
            pass
    assert engine.commands == []
