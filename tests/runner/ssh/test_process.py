"""The process for SSH as a whole: a real one, started as the runner starts it, and what it could do if taken over."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import asyncssh
import msgspec
import pytest
import structlog
from asyncssh.encryption import get_default_encryption_algs
from asyncssh.kex import get_default_kex_algs
from asyncssh.mac import get_default_mac_algs

from fairlead.core.waiting import end_tasks
from fairlead.runner.engines.contract import Engine
from fairlead.runner.engines.descriptors import Connection
from fairlead.runner.engines.devcontainer.isolation.cgroups import create_group, list_groups, remove_group
from fairlead.runner.engines.process_trees import read_mark
from fairlead.runner.services import RunnerServices
from fairlead.runner.settings import RunnerSettings
from fairlead.runner.ssh.actions import create_ssh_actions
from fairlead.runner.ssh.confinement import PROCESS_NAME, choose_owner
from fairlead.runner.ssh.groups import PREFIX, close_group, open_group, remove_unused_groups
from fairlead.runner.ssh.limits import RequestRate
from fairlead.runner.ssh.messages import (
    MAX_DESCRIPTORS,
    MAX_MESSAGE_BYTES,
    MAX_REQUEST_BYTES,
    CommandRequest,
    InvalidMessage,
    MessageSocket,
    PortRequest,
    Reply,
    ServerSettings,
    SignalRequest,
    open_message_sockets,
)
from fairlead.runner.ssh.process import _start
from fairlead.runner.ssh.requests import WorkspaceRequests
from tests.harness.eventually import eventually, wait_until
from tests.harness.server_process import ROOT
from tests.runner.harness.processes import find_marked, find_tree, list_pids
from tests.runner.ssh import greedy_process, taken_over_process
from tests.runner.ssh.local_engine import LocalEngine
from tests.runner.ssh.served_process import ServedWorkspace, serve_workspace
from tests.runner.ssh.test_server import HOST_KEY, UID

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="the process is confined where the runner is root")


@pytest.fixture
async def served() -> AsyncIterator[ServedWorkspace]:
    async with serve_workspace(LocalEngine()) as served:
        yield served


def find_server(served: ServedWorkspace) -> int:
    """The pid of the process that reads what clients send."""
    tree = find_tree(served.server.process.pid)
    (pid,) = [each for each in tree if Path(f"/proc/{each}/comm").read_text().strip() == PROCESS_NAME]
    return pid


def read(pid: int, name: str) -> str:
    return Path(f"/proc/{pid}/{name}").read_text()


def read_status(pid: int) -> dict[str, str]:
    lines = read(pid, "status").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


# --- what it has ------------------------------------------------------------------------------------------------------


@needs_root
async def test_it_has_no_privilege_no_network_no_files_and_no_key(served: ServedWorkspace) -> None:
    async with served.connect() as connection:
        assert (await connection.run("echo in")).stdout == "in\n"
        pid = find_server(served)
        status, owner = read_status(pid), str(choose_owner(UID))
        assert status["Uid"].split() == status["Gid"].split() == [owner] * 4
        assert status["Groups"] == ""
        assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {"0" * 16}
        assert (status["NoNewPrivs"], status["Threads"], status["NSpid"].split()[-1]) == ("1", "1", "2")
        assert os.listdir(f"/proc/{pid}/root") == []
        assert os.statvfs(f"/proc/{pid}/root").f_flag & os.ST_RDONLY
        assert read(pid, "mountinfo") == ""  # nothing is mounted below its root
        devices = read(pid, "net/dev").splitlines()[2:]
        assert [line.split(":")[0].strip() for line in devices] == ["lo"]
        for name in ("mnt", "net", "pid", "ipc", "uts", "cgroup"):
            assert os.readlink(f"/proc/{pid}/ns/{name}") != os.readlink(f"/proc/self/ns/{name}")
        names = {each.partition("=")[0] for each in read(pid, "environ").split("\0")}
        assert "HOME" in names
        assert not any(name.startswith(("FAIRLEAD", "KUBE", "PYTEST")) for name in names)


@needs_root
async def test_its_descriptors_are_sockets_and_pipes(served: ServedWorkspace) -> None:
    """No file or folder of the machine, from which it could reach others."""
    async with (
        served.connect() as connection,
        connection.create_process("echo on; exec cat", term_type="xterm") as process,
    ):
        assert await process.stdout.readline() == "on\r\n"
        pid = find_server(served)
        links = [os.readlink(f"/proc/{pid}/fd/{each}") for each in os.listdir(f"/proc/{pid}/fd")]
    assert links.count("/dev/null") == 2  # stdin and stdout
    assert "/dev/ptmx" in "".join(links)
    others = [each for each in links if each != "/dev/null" and not each.endswith("/ptmx")]
    assert all(re.fullmatch(r"socket:\[\d+\]|pipe:\[\d+\]|anon_inode:\[eventpoll\]", each) for each in others), others


@needs_root
async def test_it_can_start_no_process_and_has_limits(served: ServedWorkspace) -> None:
    async with served.connect():
        lines = read(find_server(served), "limits").splitlines()[1:]
    limits = {line[:25].strip(): tuple(line[25:].split()[:2]) for line in lines}
    for name in ("Max processes", "Max file size", "Max core file size"):
        assert limits[name] == ("0", "0")
    assert limits["Max data size"] == (str(2 << 30), str(2 << 30))
    assert limits["Max address space"] == (str(4 << 30), str(4 << 30))
    assert int(limits["Max open files"][1]) <= 4096


# asyncssh offers Diffie-Hellman over finite fields by default, for old clients.
@pytest.mark.filterwarnings("ignore:Diffie-Hellman over:cryptography.utils.CryptographyDeprecationWarning")
async def test_it_works_without_files_with_every_algorithm_that_it_offers(served: ServedWorkspace) -> None:
    """A library may import something only when it is needed. Then, nothing is there any more."""
    choices: list[dict[str, list[bytes]]] = [
        *({"kex_algs": [each]} for each in get_default_kex_algs() if not each.startswith(b"gss")),
        *({"encryption_algs": [each]} for each in get_default_encryption_algs()),
        *({"encryption_algs": [b"aes128-ctr"], "mac_algs": [each]} for each in get_default_mac_algs()),
    ]
    assert len(choices) > 20
    for each in choices:
        options = {name: [value.decode()] for name, (value,) in each.items()}
        async with served.connect(**options) as connection:
            result = await connection.run("echo out; echo bad >&2; exit 3")
            assert (result.exit_status, result.stdout, result.stderr) == (3, "out\n", "bad\n"), each


# --- how it ends ------------------------------------------------------------------------------------------------------


async def test_its_sessions_end_with_it_and_the_next_connection_gets_another(served: ServedWorkspace) -> None:
    with pytest.raises(asyncssh.ConnectionLost):
        async with served.connect() as connection:
            process = await connection.create_process("echo on; sleep 1000")
            assert await process.stdout.readline() == "on\n"
            marks = {mark for mark in map(read_mark, list_pids()) if mark.startswith(f"{UID}.")}
            assert marks
            first = served.server
            os.kill(find_server(served), signal.SIGKILL)
            await connection.wait_closed()
            raise asyncssh.ConnectionLost("it has ended")
    await eventually(lambda: not any(find_marked(mark) for mark in marks))
    await eventually(first.serving.done)
    async with served.connect() as connection:
        assert (await connection.run("echo again")).stdout == "again\n"


@needs_root
async def test_one_that_is_taken_over_gets_no_capabilities_and_ends_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fairlead.runner.ssh.confinement.MODULE", taken_over_process.__name__)
    monkeypatch.setattr("fairlead.runner.ssh.process.END_SECONDS", 0.5)
    with structlog.testing.capture_logs() as logs:
        server = await _start(cast(Engine, LocalEngine()), ServerSettings(UID, HOST_KEY))
        await eventually(lambda: any("output" in each for each in logs), 30)
        tree = find_tree(server.process.pid)
        assert PROCESS_NAME in {read(each, "comm").strip() for each in tree}
        await asyncio.wait_for(end_tasks(server.serving), 10)
    (said,) = (each["output"] for each in logs if "output" in each)
    assert said == "a user namespace: Operation not permitted\n"
    await eventually(lambda: not tree & set(list_pids()))


def find_groups() -> list[Path]:
    """The control groups of processes that this one has started."""
    return sorted(Path("/sys/fs/cgroup").glob(f"**/fairlead-ssh-{os.getpid()}-*"))


@needs_root
async def test_it_is_in_a_control_group_that_ends_with_it(served: ServedWorkspace) -> None:
    async with served.connect():
        pid, groups = find_server(served), find_groups()
        assert groups
        tree = find_tree(served.server.process.pid)
        for group in groups:
            assert tree == {int(each) for each in (group / "cgroup.procs").read_text().split()}
            assert group.name in read(pid, "cgroup") or "/../" in read(pid, "cgroup")
        found = {path.name: path.read_text().strip() for group in groups for path in group.glob("*") if is_limit(path)}
    assert found["pids.max"] == "16"
    assert str(1 << 30) in (found.get("memory.max"), found.get("memory.limit_in_bytes"))
    assert "100000 100000" in (
        found.get("cpu.max"),
        f"{found.get('cpu.cfs_quota_us')} {found.get('cpu.cfs_period_us')}",
    )
    await served.processes.close()
    assert find_groups() == []


def is_limit(path: Path) -> bool:
    return path.name.startswith(("memory.max", "memory.limit", "pids.max", "cpu.max", "cpu.cfs"))


@needs_root
async def test_one_that_is_taken_over_gets_no_more_memory_than_its_group_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shared memory that it is not attached to any more is not counted by the limits of a process."""
    monkeypatch.setattr("fairlead.runner.ssh.confinement.MODULE", greedy_process.__name__)
    monkeypatch.setattr("fairlead.runner.ssh.groups.MEMORY_BYTES", 192 << 20)
    with structlog.testing.capture_logs() as logs:
        server = await _start(cast(Engine, LocalEngine()), ServerSettings(UID, HOST_KEY))
        await asyncio.wait_for(server.serving, 60)
    said = "".join(each["output"] for each in logs if "output" in each)
    assert "64 MiB" in said and "512 MiB" not in said
    assert find_groups() == []


@needs_root
def test_groups_of_a_runner_that_is_gone_are_removed_when_the_next_one_starts(tmp_path: Path) -> None:
    gone = subprocess.Popen(["/bin/true"])
    gone.wait()
    names = [f"{PREFIX}-{gone.pid}-00-0", f"{PREFIX}-{os.getppid()}-00-0", f"{PREFIX}-others"]
    for name in names:
        create_group(name, {})
    try:
        create_ssh_actions(cast(RunnerServices, None), RunnerSettings("runner", "https://127.0.0.1:1", tmp_path))
        assert [name for name in list_groups(PREFIX) if name in names] == sorted(names[1:])
    finally:
        for name in names:
            remove_group(name)


@needs_root
def test_a_group_that_was_not_empty_at_its_end_is_removed_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.runner.ssh.groups.CLOSE_SECONDS", 0.1)
    used = open_group("one")
    closed = open_group("another")
    left = subprocess.Popen(["/bin/sleep", "600"])
    try:
        for folder in closed:
            Path(folder, "cgroup.procs").write_text(str(left.pid))
        asyncio.run(close_group(closed))
        assert Path(closed[0]).exists()
        left.kill()
        left.wait()
        remove_unused_groups()
        assert not any(Path(folder).exists() for folder in closed)
        assert all(Path(folder).exists() for folder in used)
    finally:
        left.kill()
        asyncio.run(close_group(used))
    assert find_groups() == []


RUNNER = """
import asyncio
from tests.runner.ssh import taken_over_process
from tests.runner.ssh.local_engine import LocalEngine
from tests.runner.ssh.served_process import serve_workspace

async def main():
    async with serve_workspace(LocalEngine()) as served, served.connect() as connection:
        print((await connection.run("echo on")).stdout, flush=True)
        await asyncio.sleep(1000)

asyncio.run(main())
"""


def test_it_ends_with_a_runner_that_is_killed() -> None:
    command = [sys.executable, "-c", RUNNER]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as runner:
        assert runner.stdout is not None
        while runner.stdout.readline() != b"on\n":
            assert runner.poll() is None
        tree = find_tree(runner.pid) - {runner.pid}
        assert tree
        runner.kill()
    wait_until(lambda: not tree & set(list_pids()), what="its processes have ended")


# --- what it may request ----------------------------------------------------------------------------------------------


class TakenOver:
    """The side of a process that is in the hands of a client: it sends what it likes."""

    def __init__(self, rate: RequestRate | None = None) -> None:
        self.engine = LocalEngine()
        control, theirs = open_message_sockets()
        self.control = MessageSocket(theirs)
        self.requests = WorkspaceRequests(cast(Engine, self.engine), UID, control, rate or RequestRate())
        self.serving = asyncio.create_task(self.requests.serve())

    async def request(self, request: msgspec.Struct) -> tuple[Reply, list[int]]:
        await self.control.send(request)
        return await self.receive()

    async def receive(self) -> tuple[Reply, list[int]]:
        content, descriptors = await self.control.receive(MAX_MESSAGE_BYTES, MAX_DESCRIPTORS)
        return msgspec.msgpack.decode(content, type=Reply), descriptors

    async def wait_ended(self) -> str:
        """Why the runner has ended it."""
        with pytest.raises(ExceptionGroup) as raised:
            await asyncio.wait_for(self.serving, 20)
        assert all(isinstance(each, InvalidMessage) for each in raised.value.exceptions)
        return str(raised.value.exceptions[0])

    async def close(self) -> None:
        self.serving.cancel()
        await asyncio.gather(self.serving, return_exceptions=True)
        self.control.close()
        self.requests.control.close()


@pytest.fixture
async def taken_over() -> AsyncIterator[TakenOver]:
    taken = TakenOver()
    yield taken
    await taken.close()


@pytest.mark.parametrize(
    "content",
    [
        b"\xff",
        msgspec.msgpack.encode({"type": "reply", "number": 1}),
        msgspec.msgpack.encode({"type": "port", "number": 1, "port": 0}),
        msgspec.msgpack.encode({"type": "port", "number": 1, "port": 65536}),
        msgspec.msgpack.encode({"type": "port", "number": 1, "port": "22; id"}),
        msgspec.msgpack.encode({"type": "port", "number": 1, "port": 22, "host": "10.0.0.1"} | {"port": -1}),
        msgspec.msgpack.encode({"type": "command", "number": 1, "words": ["a", "b", "c", "d"]}),
        msgspec.msgpack.encode({"type": "command", "number": 1, "words": ["a\0b"]}),
        msgspec.msgpack.encode({"type": "command", "number": 1, "words": [], "folder": "/" * 4097}),
        msgspec.msgpack.encode({"type": "command", "number": 1, "words": [], "columns": 1 << 20}),
        msgspec.msgpack.encode({"type": "command", "number": 1, "words": [], "environment": {"A": "x" * 4097}}),
    ],
)
async def test_a_request_that_breaks_the_rules_ends_the_process(taken_over: TakenOver, content: bytes) -> None:
    taken_over.control.socket.send(content)
    assert "invalid" in await taken_over.wait_ended()
    assert taken_over.engine.commands == []


async def test_a_request_that_is_too_large_ends_the_process(taken_over: TakenOver) -> None:
    taken_over.control.socket.send(bytes(MAX_REQUEST_BYTES + 1))
    assert "more bytes" in await taken_over.wait_ended()


async def test_a_request_with_a_descriptor_ends_the_process(taken_over: TakenOver) -> None:
    content = msgspec.msgpack.encode(PortRequest(1, 22))
    socket.send_fds(taken_over.control.socket, [content], [0])
    assert "descriptors" in await taken_over.wait_ended()


async def test_it_chooses_neither_user_nor_other_variables_than_a_client(taken_over: TakenOver) -> None:
    variables = {"LANG": "C", "LD_PRELOAD": "/x", "TERM": "vt100", "PATH": "/x", "CONTAINERS_CONF": "/x"}
    message = {"type": "command", "number": 1, "words": ["true"], "environment": variables, "user": "root", "uid": "b"}
    taken_over.control.socket.send(msgspec.msgpack.encode(message))
    reply, descriptors = await taken_over.receive()
    assert (reply, len(descriptors)) == (Reply(1), 4)
    for each in descriptors:
        os.close(each)
    ((words, options),) = taken_over.engine.commands
    assert (words, options.user, dict(options.environment)) == (("true",), "", {"LANG": "C"})


async def test_commands_under_way_are_limited_and_end_when_their_socket_is_closed(
    taken_over: TakenOver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.runner.ssh.requests.MAX_WORKSPACE_CHANNELS", 2)
    held = []
    for number in (1, 2):
        reply, descriptors = await taken_over.request(CommandRequest(number, ("sleep", "1000")))
        assert reply == Reply(number)
        held.append(descriptors)
    reply, descriptors = await taken_over.request(CommandRequest(3, ("sleep", "1000")))
    assert (reply.number, "are open" in reply.error, descriptors) == (3, True, [])
    for each in held.pop():
        os.close(each)
    await eventually(lambda: taken_over.requests._under_way == 1)
    reply, descriptors = await taken_over.request(CommandRequest(4, ("true",)))
    assert reply == Reply(4)
    for each in (*held.pop(), *descriptors):
        os.close(each)
    await eventually(lambda: taken_over.requests._under_way == 0)


async def test_requests_wait_their_turn() -> None:
    taken = TakenOver(RequestRate(burst=5, per_second=10))
    try:
        began = asyncio.get_running_loop().time()
        for number in range(10):
            reply, _ = await taken.request(PortRequest(number, 1))
            assert "nothing answers" in reply.error
        assert asyncio.get_running_loop().time() - began >= 0.4
    finally:
        await taken.close()


async def test_signals_wait_their_turn_and_unknown_ones_are_ignored() -> None:
    taken = TakenOver(RequestRate(burst=3, per_second=10))
    try:
        script = "trap 'exit 9' USR1; while :; do sleep 0.05; done"
        _, descriptors = await taken.request(CommandRequest(1, ("sh", "-c", script)))
        session = MessageSocket(socket.socket(fileno=descriptors[0]))
        began = asyncio.get_running_loop().time()
        for _ in range(5):
            await session.send(SignalRequest("NONE"))
        await session.send(SignalRequest("USR1"))
        content, _ = await session.receive(4096)
        assert msgspec.msgpack.decode(content)["code"] == 9
        assert asyncio.get_running_loop().time() - began >= 0.3
        session.close()
        for each in descriptors[1:]:
            os.close(each)
    finally:
        await taken.close()


async def test_a_port_that_is_passed_on_is_the_socket_itself(taken_over: TakenOver) -> None:
    async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.read()).upper())
        writer.close()

    async with await asyncio.start_server(shout, "127.0.0.1", 0) as server:
        reply, (descriptor,) = await taken_over.request(PortRequest(1, server.sockets[0].getsockname()[1]))
        assert reply == Reply(1)
        connection = Connection(descriptor)
        await connection.write(b"hello")
        await connection.close()
        assert await connection.read() == b"HELLO"
        await connection.abort()
    await eventually(lambda: taken_over.requests._under_way == 0)
