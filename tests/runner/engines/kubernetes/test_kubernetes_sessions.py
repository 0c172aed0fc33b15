"""Processes and ports inside a workspace in a cluster."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.runner.engines.contract import EngineError, ExecOptions, ImageSource, ListeningPort, Reason
from fairlead.runner.engines.kubernetes.engine import KubernetesEngine
from fairlead.runner.engines.kubernetes.ports import parse_ports
from fairlead.runner.engines.kubernetes.scripts import SessionScript, build_session
from fairlead.runner.engines.kubernetes.sessions import MAX_OUTPUT_BYTES
from fairlead.runner.engines.kubernetes.settings import Settings
from fairlead.runner.engines.measurement import read_start_ticks
from tests.fake_cluster.workspace_node import WorkspaceNode
from tests.runner.engines.kubernetes.conftest import UID, make_spec
from tests.runner.harness.sessions import read_all, run_inside
from tests.runner.harness.tasks import RecordedTask


@pytest.fixture
async def running(engine: KubernetesEngine) -> AsyncIterator[KubernetesEngine]:
    await engine.up(make_spec("", source=ImageSource("tools:1")), RecordedTask())
    yield engine


async def is_gone(pid: int) -> bool:
    for _ in range(800):
        if not read_start_ticks(pid):
            return True
        await asyncio.sleep(0.05)
    return False


async def test_commands_have_streams_codes_variables_and_a_folder(
    running: KubernetesEngine, node: WorkspaceNode
) -> None:
    options = ExecOptions(environment={"A": "it's\n$(b) \u00e4"}, folder="/usr")
    outcome = await run_inside(running, UID, 'printf "%s" "$A"; pwd >&2; exit 7', options)
    assert (outcome.code, outcome.output, outcome.errors) == (7, "it's\n$(b) \u00e4", "/usr\n")
    urls = [each for each in node.cluster.request_lines() if "/exec?" in each]
    assert urls and not any("exit+7" in each or "it%27s" in each for each in urls)  # servers log URLs


async def test_no_byte_is_lost_in_either_direction(running: KubernetesEngine) -> None:
    data = os.urandom(3 << 20)
    process = await running.exec(UID, ["cat"], ExecOptions())

    async def feed() -> None:
        await process.stdin.write(data)
        await process.stdin.close()

    feeding = asyncio.create_task(feed())
    received = await read_all(process.stdout)
    await feeding
    assert hashlib.sha256(received).digest() == hashlib.sha256(data).digest()
    assert await process.wait() == 0
    await process.kill()


async def test_a_terminal_has_a_size_and_a_login_shell(running: KubernetesEngine) -> None:
    options = ExecOptions(tty=True, columns=101, rows=33, environment={"A": "b"})
    process = await running.exec(UID, ["/bin/sh"], options)
    await process.stdin.write(b"while [ $(stty size | cut -d' ' -f1) != 33 ]; do sleep 0.05; done; stty size\n")
    received = b""
    while b"33 101" not in received:
        received += await process.stdout.read()
    await process.resize(77, 22)
    await process.stdin.write(
        b"while [ $(stty size | cut -d' ' -f1) != 22 ]; do sleep 0.05; done; echo got-$A; exit 5\n"
    )
    received += await read_all(process.stdout)
    assert b"got-b\r\n" in received
    assert await process.wait() == 5
    await process.kill()


async def test_a_signal_reaches_the_process(running: KubernetesEngine) -> None:
    process = await running.exec(
        UID, ["/bin/sh", "-c", "trap 'kill $!; exit 9' TERM; sleep 60 & echo ready; wait"], ExecOptions()
    )
    assert await process.stdout.read() == b"ready\n"
    await process.send_signal("TERM")
    assert await process.wait() == 9
    await process.kill()


async def test_a_session_that_breaks_off_leaves_no_process(running: KubernetesEngine, node: WorkspaceNode) -> None:
    process = await running.exec(UID, ["/bin/sh", "-c", "sleep 61 & echo $$ $!; wait"], ExecOptions())
    pids = [int(each) for each in (await process.stdout.read()).split()]
    await process.kill()
    assert [await is_gone(pid) for pid in pids] == [True, True]
    assert await process.wait() == 137
    assert os.listdir(f"{node.folders.private}/sessions") == []


async def test_the_next_runner_ends_the_sessions_of_a_killed_one(
    running: KubernetesEngine, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.runner.engines.sessions.BOOT_ID", "earlier")
    process = await running.exec(UID, ["/bin/sh", "-c", "echo $$; sleep 62"], ExecOptions())
    pid = int(await process.stdout.read())
    monkeypatch.undo()
    later = KubernetesEngine(settings)
    await later.list_workspaces()
    assert await is_gone(pid)
    await process.kill()
    await later.contexts.close()


async def test_a_quiet_session_is_kept_alive(
    running: KubernetesEngine, node: WorkspaceNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.runner.engines.kubernetes.sessions.PING_SECONDS", 0.02)
    process = await running.exec(UID, ["cat"], ExecOptions())
    while node.sockets[-1].pings < 3:  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    await process.stdin.write(b"awake")
    await process.stdin.close()
    assert await read_all(process.stdout) == b"awake"
    await process.kill()


async def test_an_old_cluster_runs_commands_too(running: KubernetesEngine, node: WorkspaceNode) -> None:
    node.offers_v5 = False
    assert (await run_inside(running, UID, "echo old")).output == "old\n"


async def test_another_user_needs_a_container_of_root(running: KubernetesEngine) -> None:
    for user in ("no-such-user", "a;b"):
        try:
            outcome = await run_inside(running, UID, "id -u", ExecOptions(user=user))
        except EngineError as error:
            assert error.reason == Reason.NOT_RUNNING
        else:
            assert outcome.code != 0


@pytest.mark.parametrize("name", ["LC_X=1;id;Y", "A$(id)", "A\nid", "", "A B", "A\n"])
@pytest.mark.parametrize("kind", ["environment", "expressions"])
def test_names_of_variables_cannot_contain_commands(name: str, kind: str) -> None:
    variables: dict[str, Any] = {kind: {"GOOD": "1", name: "x"}}
    with pytest.raises(EngineError, match="is not the name of a variable"):
        build_session(SessionScript("mark", ("true",), "/", **variables), Settings(Path("/state"), "runner").folders)


@pytest.mark.parametrize("stream", [1, 2])
async def test_output_of_scripts_is_limited(running: KubernetesEngine, stream: int) -> None:
    """The programs that they run are those of the workspace."""
    inside = await running._enter(UID)
    script = f"head -c {3 * MAX_OUTPUT_BYTES} /dev/zero >&{stream}; exit 3"
    result = await inside.run_script(script, {})
    assert result.code == 3
    assert len(result.output if stream == 1 else result.errors) == MAX_OUTPUT_BYTES


def test_a_list_of_ports_may_be_cut_off_or_forged() -> None:
    good = "0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 42 1"
    forged = [good.replace("1F90", "xyz"), good.replace("0100007F", "01"), "process /proc/", "/proc/", "x -> socket:["]
    lines = [*forged, good, "process /proc/7/comm node", "/proc/7/fd:", "0 -> socket:[42]", "process /proc/1"]
    assert parse_ports("\n".join(lines)) == [ListeningPort(8080, "127.0.0.1", "node")]


async def test_ports_are_listed_and_connected(running: KubernetesEngine) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.readline()).upper())
        await asyncio.sleep(1.2)  # longer than a runtime waits after the end of the client's direction
        writer.write(b"late\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    listed = [each for each in await running.list_ports(UID) if each.port == port]
    assert [(each.port, each.address) for each in listed] == [(port, "127.0.0.1")]
    connection = await running.open_port(UID, port)
    await connection.writer.write(b"hello\n")
    await connection.writer.close()
    assert await read_all(connection.reader) == b"HELLO\nlate\n"
    await connection.abort()
    server.close()
    with pytest.raises(EngineError) as error:
        await running.open_port(UID, port)
    assert error.value.reason == Reason.NOT_RUNNING
    assert isinstance(listed[0], ListeningPort)
