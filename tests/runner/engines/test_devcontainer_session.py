"""One real dev container, seen from inside and from outside. The tests share it, up to those at the end of the file,
which stop and delete it."""

import asyncio
import hashlib
import ipaddress
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from fairlead.runner.engines import sessions
from fairlead.runner.engines.contract import ContainerState, EngineError, ExecOptions, GitSource, Reason, WorkspaceSpec
from fairlead.runner.engines.devcontainer.engine import DevcontainerEngine
from fairlead.runner.engines.devcontainer.grant import CONTAINER
from fairlead.runner.engines.devcontainer.isolation.cgroups import find_box
from fairlead.runner.engines.devcontainer.isolation.holder import find_holder
from fairlead.runner.engines.devcontainer.layout import open_folder
from fairlead.runner.engines.devcontainer.programs import run_program
from fairlead.runner.engines.process_trees import read_mark
from tests.harness.eventually import eventually
from tests.runner.harness.podman import IMAGE, SMALL, Containers, expect_nothing_left
from tests.runner.harness.processes import list_pids
from tests.runner.harness.sessions import read_all, run_inside
from tests.runner.harness.tasks import RecordedTask

UID = "5e55104e-0000-4000-8000-000000000001"
SECRET = "canary-of-a-secret"
LIMIT_FILES = (("memory", "memory.max", "memory.limit_in_bytes"), ("pids", "pids.max"))
CONFIGURATION = {
    "image": IMAGE,
    "remoteUser": "dev",
    "containerEnv": {"LEAK": "${localEnv:RUNNER_CANARY}", "KEPT": "yes"},
    "postCreateCommand": "git status --porcelain >/tmp/status 2>&1; echo $? >>/tmp/status; echo secret $API_TOKEN",
}


@dataclass(frozen=True, slots=True)
class Running:
    containers: Containers
    engine: DevcontainerEngine
    spec: WorkspaceSpec
    task: RecordedTask

    async def run(self, script: str, **options: object) -> str:
        outcome = await run_inside(self.engine, UID, script, ExecOptions(**options))  # type: ignore[arg-type]
        assert outcome.code == 0, outcome.errors
        return outcome.output

    def inspect(self) -> str:
        return self.containers.podman(UID, "container", "inspect", CONTAINER)


@pytest.fixture(scope="module")
def running(containers: Containers) -> Iterator[Running]:
    containers.commit("demo", {"README": "of the first commit\n"})
    url = containers.commit("demo", {".devcontainer/devcontainer.json": json.dumps(CONFIGURATION)})
    secrets = {"API_TOKEN": SECRET, "FAIRLEAD_GIT_TOKEN": "canary-of-git"}
    options = {"dotfiles": "https://127.0.0.1:9/dotfiles.git"}
    spec = WorkspaceSpec(
        uid=UID,
        namespace="project",
        name="demo",
        owner="ada",
        source=GitSource(url),
        clone_strategy="shallow",
        environment={"GIVEN": "1"},
        secrets=secrets,
        options=options,
    )
    os.environ["RUNNER_CANARY"] = "canary-of-the-runner"
    engine, task = containers.engine(), RecordedTask()
    try:
        asyncio.run(engine.up(spec, task))
        yield Running(containers, engine, spec, task)
    finally:
        del os.environ["RUNNER_CANARY"]


async def test_a_session_is_that_of_the_remote_user_in_the_work_folder(running: Running) -> None:
    assert await run_lines(running, "id -un; pwd") == ["dev", "/workspaces/demo"]
    status = await running.engine.status(UID)
    assert (status.state, status.user, status.folder) == (ContainerState.RUNNING, "dev", "/workspaces/demo")
    assert status.memory_bytes and status.started_at
    while not (await running.engine.status(UID)).disk_bytes:  # noqa: ASYNC110  # it is measured in the background
        await asyncio.sleep(0.05)


async def test_a_shallow_clone_has_one_commit_and_the_origin_of_the_source(running: Running) -> None:
    assert await run_lines(running, "cat README; grep -c . .git/shallow") == ["of the first commit", "1"]
    assert await run_lines(running, "grep -c 'url = file:///.*/demo$' .git/config") == ["1"]


async def test_dotfiles_that_cannot_be_installed_do_not_fail_the_workspace(running: Running) -> None:
    assert "the dotfiles could not be installed" in running.task.text


async def test_the_work_folder_belongs_to_the_user_before_the_first_command_runs(running: Running) -> None:
    assert await run_lines(running, "cat /tmp/status") == ["0"]
    assert await run_lines(running, "git log --format=%s; touch new && stat -c %U new .git") == ["First", "dev", "dev"]


def list_owners(folder: Path) -> set[int]:
    return {path.lstat().st_uid for path in folder.rglob("*")}


async def test_files_of_the_workspace_belong_to_ids_that_the_host_does_not_use(running: Running) -> None:
    holder = find_holder(open_folder(running.engine.settings.state_folder, UID).holder)
    assert holder is not None
    first = running.engine.settings.first_uid
    assert list_owners(Path(f"/proc/{holder.pid}/root/workspaces/demo")) == {first + 1000}
    assert (await running.run("cat /proc/self/uid_map")).split() == ["0", str(first), "65536"]


async def test_nothing_of_the_environment_of_the_runner_is_inside(running: Running) -> None:
    assert await run_lines(running, 'echo "<$LEAK>$KEPT$GIVEN"') == ["<>yes1"]
    assert "canary-of-the-runner" not in running.inspect() + running.task.text


async def test_secrets_are_files_of_the_user_and_nowhere_else(running: Running) -> None:
    lines = await run_lines(running, "cd /run/fairlead/secrets; cat API_TOKEN; echo; stat -c '%U %a' *; ls")
    assert lines == [SECRET, "dev 400", "API_TOKEN"]
    assert "secret ********" in running.task.text
    assert SECRET not in running.task.text + running.inspect()
    assert "canary-of-git" not in await running.run("env; cat .git/config")
    state = running.containers.folder / "state/workspaces" / UID
    files = [path for path in state.rglob("*") if path.is_file() and path.name != "disk.img"]
    assert [path.name for path in files if SECRET.encode() in path.read_bytes()] == []
    folders = ("/ws", "/var", "/private", "/workspaces")
    kept = running.containers.run(UID, "grep", "-rlsF", SECRET, *folders, check=False)
    assert kept.split() == ["/private/secrets/API_TOKEN"]


async def test_the_workspace_cannot_change_its_own_secrets_folder(running: Running) -> None:
    outcome = await run_inside(running.engine, UID, "touch /run/fairlead/x", ExecOptions(user="root"))
    assert "Read-only file system" in outcome.errors


async def test_the_container_has_the_limits_and_no_way_to_more_privileges(running: Running) -> None:
    memory, processes = (read_limit(running, controller, *names) for controller, *names in LIMIT_FILES)
    assert (memory, processes) == (SMALL.memory_bytes, SMALL.processes)
    assert not json.loads(running.inspect())[0]["HostConfig"]["Privileged"]
    status = await running.run("cat /proc/self/status", user="root")
    assert "NoNewPrivs:\t1" in status
    capabilities = int(re.findall(r"CapBnd:\s+(\w+)", status)[0], 16)
    assert not capabilities & (1 << 21 | 1 << 13 | 1 << 12)  # SYS_ADMIN, NET_RAW, NET_ADMIN


async def test_a_process_that_takes_too_much_memory_ends_alone(running: Running) -> None:
    outcome = await run_inside(running.engine, UID, "python3 -c 'x = b\"x\" * (1 << 30)'")
    assert outcome.code == 137
    status = await running.engine.status(UID)
    assert (status.state, status.cause.split(":")[0]) == (ContainerState.RUNNING, "OutOfMemory")


async def test_neither_metadata_services_nor_the_machine_of_the_runner_can_be_reached(running: Running) -> None:
    """A connection that is refused would mean that the packet arrived."""
    program = """
import socket, struct
def connect(host, port):
    try:
        socket.create_connection((host, port), 1).close()
        return "connected"
    except OSError as error:
        return type(error).__name__
route = [line.split() for line in open("/proc/net/route").readlines()[1:]]
gateway = next(socket.inet_ntoa(struct.pack("<I", int(r[2], 16))) for r in route if r[1] == "00000000")
print(connect("169.254.169.254", 80), connect(gateway, 9))
"""
    assert (await running.run(f"python3 -c '{program}'")).split() == ["TimeoutError"] * 2


async def test_no_packet_of_ipv6_passes_the_interface_of_a_workspace(running: Running) -> None:
    address = ipaddress.ip_address((await running.run("hostname -I")).strip())
    routes = await run_program(["/usr/sbin/ip", "-brief", "-4", "address"], {})
    bridge = next(
        line.split()[0]
        for line in routes.output.splitlines()
        if any(address in ipaddress.ip_interface(each).network for each in line.split()[2:3])
    )
    rules = await run_program(["/usr/sbin/ip6tables", "--wait", "-t", "mangle", "-S", "PREROUTING"], {})
    assert bridge.startswith("flwv") and "-A PREROUTING -i flwv+ -j DROP" in rules.output


async def test_no_byte_is_lost_in_either_direction(running: Running) -> None:
    block = hashlib.sha256(b"seed").digest() * 2048
    process = await running.engine.exec(UID, ["cat"], ExecOptions())

    async def send() -> None:
        for _ in range(256):
            await process.stdin.write(block)
        await process.stdin.close()

    _, received = await asyncio.gather(send(), read_all(process.stdout))
    assert await process.wait() == 0
    await process.kill()
    assert hashlib.sha256(received).hexdigest() == hashlib.sha256(block * 256).hexdigest()


async def test_the_exit_code_and_both_outputs_come_back(running: Running) -> None:
    outcome = await run_inside(running.engine, UID, "echo out; echo err >&2; exit 7")
    assert (outcome.code, outcome.output, outcome.errors) == (7, "out\n", "err\n")


async def test_a_killed_session_leaves_no_process_behind(running: Running) -> None:
    process = await running.engine.exec(UID, ["sh", "-c", "env -i sleep 4242 & sleep 4242; true"], ExecOptions())
    await eventually(lambda: len(find_sleepers()) == 2)
    await process.kill()
    assert find_sleepers() == []
    assert [pid for pid in list_pids() if UID in read_mark(pid)] == []


KEEP_STARTING = """
M=$FAIRLEAD_SESSION
export M
env -u FAIRLEAD_SESSION setsid sh -c '
    while [ ! -e /tmp/enough ]; do
        FAIRLEAD_SESSION=$M sleep 2 &
        sleep 0.1
    done' >/dev/null 2>&1 </dev/null &
sleep 0.5
"""


async def test_a_detached_process_that_keeps_starting_others_of_its_session_holds_up_no_sessions(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "KILL_SECONDS", 2.0)
    try:
        async with asyncio.timeout(60):
            await asyncio.gather(*(run_inside(running.engine, UID, KEEP_STARTING) for _ in range(3)))
            assert await run_lines(running, "echo on") == ["on"]
    finally:
        await running.run("touch /tmp/enough; sleep 0.5; rm /tmp/enough")


async def test_a_session_of_a_killed_runner_is_ended_by_the_next_one(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = await running.engine.exec(UID, ["sleep", "4242"], ExecOptions())
    await eventually(lambda: len(find_sleepers()) == 1)
    monkeypatch.setattr(sessions, "BOOT_ID", "that-of-the-next-runner")
    assert not await running.containers.engine().adopt(UID, RecordedTask("task-of-no-run"))
    assert await process.wait() == 137
    await process.kill()


async def test_signals_reach_the_process(running: Running) -> None:
    process = await running.engine.exec(
        UID, ["sh", "-c", "trap 'echo caught; exit 3' INT; echo ready; while :; do sleep 0.1; done"], ExecOptions()
    )
    assert await process.stdout.read(6) == b"ready\n"
    await process.send_signal("INT")
    assert (await read_all(process.stdout), await process.wait()) == (b"caught\n", 3)
    await process.kill()


async def test_a_terminal_has_the_size_of_the_client_and_follows_it(running: Running) -> None:
    process = await running.engine.exec(UID, ["/bin/sh"], ExecOptions(tty=True, columns=101, rows=31))
    await process.stdin.write(b"stty size; echo d''one\n")
    assert b"31 101" in await read_until(process.stdout, b"done")
    await process.resize(77, 21)
    await process.stdin.write(b"until stty size | grep '21 77'; do sleep 0.1; done; echo d''one\n")
    assert b"21 77" in await read_until(process.stdout, b"done")
    await process.stdin.write(b"exit 5\n")
    assert await process.wait() == 5
    await process.kill()


async def test_a_port_that_listens_only_inside_is_listed_and_reached(running: Running) -> None:
    server = (
        "import socket; s = socket.create_server(('127.0.0.1', 8765)); c, _ = s.accept(); c.sendall(c.recv(99)[::-1])"
    )
    process = await running.engine.exec(UID, ["python3", "-c", server], ExecOptions())

    while not (ports := await running.engine.list_ports(UID)):  # noqa: ASYNC110  # there is no event to wait for
        await asyncio.sleep(0.05)
    assert [(port.port, port.address, port.process) for port in ports] == [(8765, "127.0.0.1", "python3")]
    stream = await running.engine.open_port(UID, 8765)
    await stream.writer.write(b"abc")
    assert await read_all(stream.reader) == b"cba"
    await stream.abort()
    await process.kill()
    with pytest.raises(EngineError, match="8765"):
        await running.engine.open_port(UID, 8765)


async def test_a_neighbour_with_a_volume_reaches_nothing_of_it(running: Running) -> None:
    configuration = {
        "image": IMAGE,
        "userEnvProbe": "none",
        "mounts": [{"type": "volume", "source": "cache", "target": "/cache"}],
    }
    files = {".devcontainer/devcontainer.json": json.dumps(configuration)}
    uid, engine = UID.replace("0001", "0002"), running.engine
    source = GitSource(running.containers.commit("neighbour", files))
    spec = WorkspaceSpec(uid, "project", "two", "bob", source, permissions=frozenset({"mounts"}))
    task = RecordedTask("task-of-the-neighbour")
    await engine.up(spec, task)
    try:
        assert (await run_inside(engine, uid, "touch /cache/x && stat -c %U /cache")).output.split() == ["dev"]
        address = (await running.run("hostname -I")).strip()
        program = f"import socket; socket.create_connection(('{address}', 9), 1)"
        assert "TimeoutError" in (await run_inside(engine, uid, f'python3 -c "{program}"')).errors
        maps = [(await run_inside(engine, each, "cat /proc/self/uid_map")).output.split()[1] for each in (UID, uid)]
        assert int(maps[1]) - int(maps[0]) == 65536
    finally:
        await engine.delete(uid, RecordedTask("task-of-the-neighbour"))
    assert not (running.containers.folder / "state/workspaces" / uid).exists()
    expect_nothing_left(uid, int(maps[1]))


async def test_up_of_a_running_workspace_changes_nothing(running: Running) -> None:
    before = running.containers.podman(UID, "ps", "-q")
    task = RecordedTask("task-2")
    await running.engine.up(running.spec, task)
    assert (running.containers.podman(UID, "ps", "-q"), task.steps) == (before, [])


async def test_a_stopped_workspace_says_so_and_comes_back_with_its_files(running: Running) -> None:
    await running.run("echo kept >file; sudo -n true 2>/dev/null; true")
    before = running.containers.podman(UID, "ps", "-q")
    await running.engine.stop(UID, RecordedTask("task-3"))
    status = await running.engine.status(UID)
    assert (status.state, status.cause) == (ContainerState.STOPPED, "Stopped")
    with pytest.raises(EngineError) as raised:
        await running.engine.exec(UID, ["true"], ExecOptions())
    assert raised.value.reason == Reason.NOT_RUNNING
    await running.engine.up(running.spec, RecordedTask("task-4"))
    assert await run_lines(running, "cat file") == ["kept"]
    assert (await running.engine.status(UID)).cause == ""
    assert running.containers.podman(UID, "ps", "-q") == before


async def test_a_workspace_whose_main_process_is_killed_says_so(running: Running) -> None:
    await running.run(
        "mkdir -p deep/er && touch deep/er/file && chmod 0 deep/er && ln -s /etc/passwd link", user="root"
    )
    running.containers.podman(UID, "kill", "--signal=KILL", CONTAINER)
    await eventually(lambda: "Exited" in running.containers.podman(UID, "ps", "--all", "--format={{.Status}}"))
    status = await running.engine.status(UID)
    assert (status.state, status.cause.split(":")[0]) == (ContainerState.STOPPED, "OutOfMemory")


async def test_delete_leaves_nothing(running: Running) -> None:
    await running.engine.delete(UID, RecordedTask("task-6"))
    assert (await running.engine.status(UID)).state is ContainerState.NOT_FOUND
    assert await running.engine.list_workspaces() == {}
    assert list((running.containers.folder / "state/workspaces").iterdir()) == []
    expect_nothing_left(UID, running.engine.settings.first_uid)
    assert os.listdir("/etc")


def read_limit(running: Running, controller: str, *names: str) -> int:
    box = find_box(open_folder(running.engine.settings.state_folder, UID), controller)
    return next(int((box / name).read_text()) for name in names if (box / name).exists())


async def run_lines(running: Running, script: str) -> list[str]:
    return (await running.run(script)).splitlines()


async def read_until(reader: object, end: bytes) -> bytes:
    received = b""
    while end not in received:
        received += await reader.read(1024)  # type: ignore[attr-defined]
    return received


def find_sleepers() -> list[str]:
    lines = [read_command_line(path) for path in Path("/proc").glob("[0-9]*/cmdline")]
    return [line.decode() for line in lines if line.startswith(b"sleep\x004242")]


def read_command_line(path: Path) -> bytes:
    """Empty if the process has ended meanwhile."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
