"""Links of runners when processes die: the server, a worker, or the runner. Also the audit log."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.fake_runner import connected_runner
from tests.harness.server_process import ROOT, Server, running_server
from tests.live.workspace_setup import WORKSPACE, create_workspace, open_socket, wait_for_runner

RUNNER_PROGRAM = """
import asyncio, sys
from pathlib import Path
from tests.harness.fake_runner import FakeRunner
from tests.harness.server_process import Server
server = Server(None, sys.argv[1], "", sys.argv[2], Path("/"))
asyncio.run(FakeRunner(sys.argv[4]).run(lambda: server, "local", sys.argv[3]))
"""


def start_runner(server: Server, key: str, boot_id: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-c", RUNNER_PROGRAM, server.url, server.ca_file, key, boot_id]
    return subprocess.Popen(command, cwd=ROOT)


async def read_status(server: Server) -> bytes:
    """The exit message of `getstatus`, as soon as the runner is connected."""
    await wait_for_runner(server)
    async with open_socket(server, "getstatus") as socket:
        return (await socket.read_all()).exit_message


@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_a_runner_connects_again_after_a_restart_of_the_server_and_goes_on(tmp_path: Path, how: str) -> None:
    servers: list[Server] = []
    with running_server(tmp_path / "data") as first:
        servers.append(first)
        with first.client() as admin:
            key = create_workspace(admin)
        async with connected_runner(lambda: servers[-1], "local", key) as runner:
            await wait_for_runner(first)
            async with open_socket(first, "up") as socket:
                await socket.receive()
                if how == "stop":
                    assert await asyncio.to_thread(first.stop) == 0
                else:
                    first.kill()
                output = await socket.read_all()
                assert not output.exit_message
            with running_server(tmp_path / "data") as second:
                servers.append(Server(second.process, second.url, first.key, second.ca_file, second.log))
                assert await read_status(servers[-1]) == b"\x00"
                assert runner.link_count == 2
                runner.finish_up.set()
                async with open_socket(servers[-1], "up") as socket:
                    assert (await socket.read_all()).exit_message == b"\x00"
                assert "Traceback" not in first.log.read_text()


async def test_every_worker_serves_the_workspaces_of_one_runner(tmp_path: Path) -> None:
    with running_server(tmp_path / "data", workers=3) as server:
        with server.client() as admin:
            key = create_workspace(admin)
        async with connected_runner(server, "local", key) as runner:
            await wait_for_runner(server)
            for _ in range(12):  # each connection is served by any of the workers
                async with open_socket(server, "ssh") as socket:
                    await socket.send_stdin(b"hello")
                    await socket.close_stdin()
                    output = await socket.read_all()
                assert (bytes(output.stdout), output.exit_message) == (b"hello", bytes((14,)))
            for worker in [pid for pid in server.pids() if _is_worker(pid)]:
                if runner.link_count == 1:  # this may be the worker with the link
                    os.kill(worker, signal.SIGKILL)
                    assert await read_status(server) == b"\x00"
            assert runner.link_count == 2
        assert server.stop() == 0
        assert "Traceback" not in server.log.read_text()


def _is_worker(pid: int) -> bool:
    return "worker" in Path(f"/proc/{pid}/comm").read_text()


async def test_a_killed_runner_ends_its_sessions_and_the_next_process_takes_over(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as server:
        with server.client() as admin:
            key = create_workspace(admin)
        for round_number in range(3):
            process = start_runner(server, key, f"boot-{round_number}")
            try:
                assert await read_status(server) == b"\x00"
                async with open_socket(server, "ssh") as socket:
                    await socket.send_stdin(b"x")
                    assert await socket.receive() == b"\x00x"
                    process.kill()
                    output = await socket.read_all()
                assert (output.code, output.exit_message) == (1011, b"")
            finally:
                process.kill()
                process.wait()


@pytest.mark.long
async def test_a_runner_that_does_not_respond_is_missing_after_a_while(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as server, server.client() as admin:
        process = start_runner(server, create_workspace(admin), "boot")
        try:
            assert await read_status(server) == b"\x00"
            process.send_signal(signal.SIGSTOP)
            response = admin.get(f"{WORKSPACE}/tasks", timeout=60)
            assert response.status_code in (503, 504)
            while response.status_code == 504:
                response = admin.get(f"{WORKSPACE}/tasks", timeout=60)
            assert "is not connected since" in admin.get(f"{WORKSPACE}/tasks").json()["message"]
        finally:
            process.kill()
            process.wait()


async def test_who_did_what_is_audited_and_never_the_content(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(
        "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: RequestResponse}]}"
    )
    with running_server(tmp_path / "data", audit_policy=str(tmp_path / "policy.yaml")) as server:
        with server.client() as admin:
            key = create_workspace(admin)
            async with connected_runner(server, "local", key):
                await wait_for_runner(server)
                async with open_socket(server, "up", options='{"workspaceEnv":["TOKEN=canary-1"]}') as socket:
                    await socket.receive()
                async with open_socket(server, "ssh") as socket:
                    await socket.send_stdin(b"canary-2")
                    await socket.close_stdin()
                    await socket.read_all()
                for name, body in (("up", {"spec": {"options": '{"x":"canary-3"}'}}), ("state", {"state": "canary-4"})):
                    posted = await asyncio.to_thread(admin.post, f"{WORKSPACE}/{name}", json=body)
                    assert posted.status_code == 201, posted.text
        assert server.stop() == 0
        files = (tmp_path / "data").glob("audit*.log")
        events = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        seen = {
            (event["objectRef"].get("subresource"), event["verb"], event["user"]["username"])
            for event in events
            if event.get("objectRef", {}).get("name") in ("dev", "local")
        }
        assert {("up", "get", "admin"), ("ssh", "get", "admin"), ("up", "create", "admin")} <= seen
        assert ("link", "get", "service:runner:local") in seen
        for file in (path for path in (tmp_path / "data").rglob("*") if path.is_file()):
            assert b"canary-" not in file.read_bytes(), file
        assert "canary-" not in server.log.read_text()
