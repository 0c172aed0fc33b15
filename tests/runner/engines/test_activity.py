"""What engines measure in real workspaces, and what the runner concludes from it. Only the time is simulated.

What matters is how they are seen from outside.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from fairlead.runner import activity as activity_module
from fairlead.runner.activity import KEEPALIVE_BYTES, SAMPLE_SECONDS, ActivityTracker, Cause, SessionTraffic
from fairlead.runner.decisions import ACTIVE, IDLE
from fairlead.runner.engines import measurement
from fairlead.runner.engines.contract import (
    ActivitySample,
    ExecOptions,
    FolderSource,
    GitSource,
    MeasuringEngine,
    WorkspaceSpec,
)
from fairlead.runner.engines.devcontainer.connections import ESTABLISHED, LISTEN, TcpSocket, select_incoming
from fairlead.runner.engines.devcontainer.engine import DevcontainerEngine
from fairlead.runner.engines.devcontainer.programs import PATH, run_program
from fairlead.runner.engines.measurement import WriteScanner, has_writes_since
from tests.harness.eventually import eventually, poll_until_found
from tests.runner.harness.podman import IMAGE, Containers, list_loop_devices
from tests.runner.harness.sessions import run_inside
from tests.runner.harness.tasks import RecordedTask
from tests.runner.process_engine import ProcessEngine

UID = "ac710174-0000-4000-8000-000000000001"
LISTENER = """
import socket
server = socket.create_server(("0.0.0.0", 8080))
print("ready", flush=True)
connection, _ = server.accept()
while connection.recv(65536):
    pass
"""


@dataclass(slots=True)
class Watched:
    """A workspace, and a tracker whose time passes with each sample."""

    engine: MeasuringEngine
    tracker: ActivityTracker
    traffic: SessionTraffic
    now: float = 0.0

    async def sample(self) -> ActivitySample:
        found = await self.engine.measure(UID)
        assert found is not None
        self.now += SAMPLE_SECONDS
        self.tracker.observe(found, self.traffic.collect(UID), False, self.now)
        return found

    async def watch(self, minutes: int) -> str:
        for _ in range(2 * minutes):
            await self.sample()
        return self.tracker.state(self.now)


@pytest.fixture(scope="module")
def engine(containers: Containers) -> DevcontainerEngine:
    configuration = {"image": IMAGE, "remoteUser": "root", "userEnvProbe": "none"}
    url = containers.commit("demo", {".devcontainer/devcontainer.json": json.dumps(configuration)})
    engine = containers.engine()
    asyncio.run(engine.up(WorkspaceSpec(UID, "project", "demo", "ada", GitSource(url)), RecordedTask()))
    return engine


@pytest.fixture
def watched(engine: DevcontainerEngine) -> Watched:
    engine.writes.forget(UID)
    return Watched(engine, ActivityTracker(0.0), SessionTraffic())


@contextmanager
def frequent_scans() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measurement, "SCAN_SECONDS", 0.0)
        patch.setattr(measurement, "SCAN_SHARE", 0.0)
        yield


async def test_a_container_that_does_nothing_is_idle(watched: Watched) -> None:
    assert await watched.watch(6) == IDLE
    assert watched.tracker.cause is Cause.STARTED


async def test_a_busy_loop_is_activity(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activity_module, "CPU_SECONDS", 0.5)
    assert await watched.watch(6) == IDLE
    process = await watched.engine.exec(UID, ["sh", "-c", "while :; do :; done"], ExecOptions())  # type: ignore[attr-defined]
    try:
        before = (await watched.sample()).cpu_seconds

        async def has_used_cpu() -> bool:
            found = await watched.engine.measure(UID)
            return found is not None and found.cpu_seconds > before + 0.6

        await wait_for(has_used_cpu)
        await watched.sample()
        assert (watched.tracker.cause, watched.tracker.state(watched.now)) == (Cause.CPU, ACTIVE)
    finally:
        await process.kill()


async def test_typing_in_a_terminal_is_activity_and_its_open_session_is_not(watched: Watched) -> None:
    process = await watched.engine.exec(UID, ["sh"], ExecOptions(tty=True))  # type: ignore[attr-defined]
    reading = asyncio.create_task(_read(process.stdout))
    try:
        await wait_for(lambda: _has_terminal(watched))
        with watched.traffic.measure(UID, KEEPALIVE_BYTES) as meter:
            assert await watched.watch(6) == IDLE  # the client may be gone long since
            await wait_for(lambda: _is_at_its_prompt(watched))  # the shell may still be starting
            (terminal,) = (await watched.sample()).terminals.values()

            async def has_typed() -> bool:
                """The kernel updates the times of terminals every eight seconds only."""
                await process.stdin.write(b"\n")
                await asyncio.sleep(0.2)
                return any(now.input_at != terminal.input_at for now in (await watched.sample()).terminals.values())

            await wait_for(has_typed)
            assert watched.tracker.cause is Cause.TERMINAL_INPUT
            meter.add(200)
            assert await watched.watch(6) == IDLE
            await process.stdin.write(b"sleep 60\n")
            await wait_for(lambda: _has_job(watched))
    finally:
        await process.kill()
        await reading


async def test_bytes_from_outside_to_a_port_are_activity_and_those_within_are_not(
    watched: Watched, containers: Containers
) -> None:
    process = await watched.engine.exec(UID, ["python3", "-uc", LISTENER], ExecOptions())  # type: ignore[attr-defined]
    try:
        assert (await process.stdout.read(100)).startswith(b"ready")
        listed = await run_inside(watched.engine, UID, "hostname -I")  # type: ignore[arg-type]
        _, writer = await asyncio.open_connection(listed.output.strip(), 8080)
        assert await watched.watch(6) == IDLE
        assert list((await watched.sample()).connections.values()) == [0]
        writer.write(bytes(100_000))
        await writer.drain()

        async def has_arrived() -> bool:
            return sum((await watched.sample()).connections.values()) >= 100_000

        await wait_for(has_arrived)
        assert watched.tracker.cause is Cause.PORT_TRAFFIC
        writer.close()
    finally:
        await process.kill()


def test_programs_of_a_workspace_that_talk_to_each_other_are_no_traffic() -> None:
    server, client, outside = ("127.0.0.1", 8080), ("127.0.0.1", 4000), ("10.0.0.1", 5000)
    sockets = [
        TcpSocket(LISTEN, ("0.0.0.0", 8080), ("0.0.0.0", 0), 0),
        TcpSocket(ESTABLISHED, server, client, 7),
        TcpSocket(ESTABLISHED, client, server, 7),
        TcpSocket(ESTABLISHED, ("10.0.0.2", 8080), outside, 9),
        TcpSocket(ESTABLISHED, ("10.0.0.2", 6000), ("10.0.0.9", 443), 11),
    ]
    assert select_incoming(sockets) == {"8080 10.0.0.1 5000": 9}


async def test_writes_below_the_work_folder_are_activity(watched: Watched) -> None:
    engine = watched.engine
    assert isinstance(engine, DevcontainerEngine)
    assert (await run_inside(engine, UID, "mkdir -p deep/er && touch deep/er/file")).code == 0
    with frequent_scans():
        await asyncio.sleep(1.1)  # the beginning of the first scan is compared with the times of files
        assert await watched.watch(6) == IDLE
        script = "cd deep/er && echo more >>file && touch -d 2001-01-01 file"
        assert (await run_inside(engine, UID, script)).code == 0
        await watched.sample()
        assert watched.tracker.cause is Cause.FILES_WRITTEN


async def test_a_stopped_workspace_ends_what_users_have_started_before_it_is_killed(
    engine: DevcontainerEngine, containers: Containers
) -> None:
    script = "trap 'sleep 0.5; echo saved >/workspaces/demo/saved; exit' TERM; echo ready; while :; do sleep 0.1; done"
    process = await engine.exec(UID, ["sh", "-c", script], ExecOptions())
    shell = await engine.exec(UID, ["sh", "-i"], ExecOptions(tty=True))  # it ignores TERM
    reading = asyncio.create_task(_read(shell.stdout))
    assert (await process.stdout.read(100)).startswith(b"ready")
    await engine.stop(UID, RecordedTask())
    disk = containers.folder / "state/workspaces" / UID / "disk.img"
    await eventually(lambda: not list_loop_devices(disk), 30)
    read = await run_program(["debugfs", "-R", "cat work/demo/saved", str(disk)], {"PATH": PATH})
    assert read.output == "saved\n"
    for each in (process, shell):
        await each.kill()
    await reading
    assert await engine.measure(UID) is None


def test_a_hostile_work_folder_is_not_followed_and_is_read_with_few_open_files(tmp_path: Path) -> None:
    outside, work = tmp_path / "outside", tmp_path / "work"
    outside.mkdir()
    work.mkdir()
    (work / "link").symlink_to(outside)
    (work / "loop").symlink_to(work)
    for number in range(300):
        (work / f"folder-{number}").mkdir()
    deep = os.open(work, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=deep)
        below = os.open("d", os.O_RDONLY, dir_fd=deep)
        os.close(deep)
        deep = below
    os.close(deep)
    program = (
        "import resource, sys, pathlib; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
        "from fairlead.runner.engines.measurement import has_writes_since\n"
        "print(has_writes_since(pathlib.Path(sys.argv[1]), float(sys.argv[2])))"
    )
    time.sleep(0.05)  # the clock of files is a little behind
    moment = time.time()
    time.sleep(0.05)
    (outside / "file").touch()
    command = [sys.executable, "-c", program, str(work), str(moment)]
    found = subprocess.run(command, check=False, capture_output=True, text=True)
    assert found.stdout == "False\n", found.stderr
    assert not has_writes_since(work / "link", 0.0)  # a work folder that was replaced by a link
    (work / "folder-7/file").touch()
    assert has_writes_since(work, moment)
    subprocess.run(["rm", "-rf", str(work)], check=True)


async def test_a_scanner_forgets_what_is_gone(tmp_path: Path) -> None:
    scanner = WriteScanner()
    with frequent_scans():
        assert await scanner.find_newest(UID, tmp_path) == 0.0
        (tmp_path / "file").touch()
        assert await scanner.find_newest(UID, tmp_path) > 0.0
        scanner.forget(UID)
        assert await scanner.find_newest(UID, tmp_path) == 0.0


async def test_the_engine_of_processes_measures_its_own_processes_only(tmp_path: Path) -> None:
    engine = ProcessEngine(tmp_path / "state")
    (tmp_path / "source").mkdir()
    assert await engine.measure(UID) is None
    spec = WorkspaceSpec(UID, "project", "demo", "ada", FolderSource(str(tmp_path / "source")))
    await engine.up(spec, RecordedTask())
    first = await engine.measure(UID)
    assert first is not None
    assert (first.cpu_seconds, first.terminals, first.started_at is not None) == (0.0, {}, True)
    process = await engine.exec(UID, ["sh", "-c", "while :; do :; done"], ExecOptions(tty=True))

    async def is_busy() -> bool:
        found = await engine.measure(UID)
        return found is not None and found.cpu_seconds > 0.2 and len(found.terminals) == 1

    try:
        await wait_for(is_busy)
    finally:
        await process.kill()
        await engine.delete(UID, RecordedTask())


async def wait_for(check: Callable[[], Awaitable[bool]]) -> None:
    async def poll() -> bool | None:
        return await check() or None

    await poll_until_found(poll, "the condition holds", 40, NotImplementedError)


async def _read(reader: object) -> None:
    while await reader.read(1 << 16):  # type: ignore[attr-defined]
        pass


async def _has_terminal(watched: Watched) -> bool:
    found = await watched.engine.measure(UID)
    return found is not None and len(found.terminals) == 1


async def _is_at_its_prompt(watched: Watched) -> bool:
    return not await _has_job(watched)


async def _has_job(watched: Watched) -> bool:
    found = await watched.engine.measure(UID)
    return found is not None and any(each.has_job for each in found.terminals.values())
