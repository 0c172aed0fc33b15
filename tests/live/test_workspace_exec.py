"""`exec` of a workspace: a real server, a real runner with the engine `process`, and commands with and without a
terminal."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from tests.harness.eventually import wait_until
from tests.harness.server_process import Server, running_server
from tests.live.runner_process import PROCESS_ENGINE, running_runner
from tests.live.websocket_client import UpgradeRejected, WebSocket
from tests.live.workspace_setup import WORKSPACE, M, create_object

V5 = "v5.channel.k8s.io"
MERGE = {"Content-Type": "application/merge-patch+json"}


@dataclass(slots=True)
class Terminal:
    """The client's end of an exec."""

    socket: WebSocket
    output: dict[int, bytes] = field(default_factory=lambda: {1: b"", 2: b"", 3: b""})

    def type(self, text: str) -> None:
        self.socket.send(b"\x00" + text.encode())

    def resize(self, columns: int, rows: int) -> None:
        self.socket.send(b"\x04" + json.dumps({"Width": columns, "Height": rows}).encode())

    def read_until(self, text: bytes) -> None:
        while text not in self.output[1]:
            assert self._read(), self.output

    def read_status(self) -> dict[str, Any]:
        while self._read():
            pass
        status: dict[str, Any] = json.loads(self.output[3])
        return status

    def _read(self) -> bool:
        message = self.socket.receive()
        if message is not None:
            self.output[message[0]] += message[1:]
        return message is not None


@contextmanager
def run(server: Server, *command: str, key: str = "", protocol: str = V5, **query: str) -> Iterator[Terminal]:
    parameters = urlencode([*(("command", each) for each in command), *query.items()])
    with WebSocket(server, f"{WORKSPACE}/exec?{parameters}", key or server.key, protocol) as socket:
        socket.set_timeout(20)
        yield Terminal(socket)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("exec")
    source = folder / "source"
    source.mkdir()
    (source / "README").write_text("read me\n")
    with (
        running_server(folder / "data") as server,
        server.client() as admin,
        running_runner(server, admin, folder / "runner", PROCESS_ENGINE, flags=("--allow-folder", str(source))),
    ):
        start_workspace(admin, f"local:{source}")
        yield server


def start_workspace(admin: httpx.Client, source: str) -> None:
    spec = {"runnerRef": {"runner": "local"}, "template": {"provider": {"name": "process"}}}
    create_object(admin, WORKSPACE.removesuffix("/dev"), "DevPodWorkspaceInstance", "dev", **spec)
    wait_until(lambda: admin.get(f"{WORKSPACE}/tasks").status_code == 200, 20, what="the runner has taken it")
    response = admin.post(f"{WORKSPACE}/up", json={"spec": {"options": json.dumps({"source": source})}})
    assert response.status_code == 201, response.text
    wait_until(lambda: read_status(admin).get("lastWorkspaceStatus") == "Running", 20, what="it runs")


def read_status(admin: httpx.Client) -> dict[str, Any]:
    return dict(admin.get(WORKSPACE).json().get("status") or {})


def test_a_shell_at_a_terminal_gets_input_and_the_size_of_the_window(server: Server) -> None:
    with run(server, "sh", stdin="true", tty="true") as terminal:
        terminal.resize(101, 37)
        terminal.type("until stty size | grep '37 101'; do sleep 0.1; done; echo $TERM $((6 * 7)) && cat README\n")
        terminal.read_until(b"read me")
        assert b"37 101\r\n" in terminal.output[1]
        assert b"xterm-256color 42\r\n" in terminal.output[1]
        terminal.resize(60, 20)
        terminal.type("until stty size | grep '20 60'; do sleep 0.1; done; exit 3\n")
        status = terminal.read_status()
    assert status["details"]["causes"] == [{"reason": "ExitCode", "message": "3"}]
    assert terminal.socket.code == 1000


def test_without_a_terminal_outputs_are_separate_and_stdin_can_be_closed(server: Server) -> None:
    with run(server, "sh", "-c", "cat; echo wrong >&2", stdin="true") as terminal:
        terminal.type("a line\n")
        terminal.socket.send(b"\xff\x00")
        assert terminal.read_status() == {"metadata": {}, "status": "Success"}
    assert (terminal.output[1], terminal.output[2]) == (b"a line\n", b"wrong\n")


def test_a_command_without_stdin_finds_its_end_at_once(server: Server) -> None:
    with run(server, "sh", "-c", "cat; echo done; echo hidden >&2", stderr="false") as terminal:
        assert terminal.read_status()["status"] == "Success"
    assert (terminal.output[1], terminal.output[2]) == (b"done\n", b"")


def test_a_client_that_disconnects_leaves_no_process(server: Server) -> None:
    with run(server, "sh", stdin="true", tty="true") as terminal:
        terminal.type("echo $$ is my number; exec sleep 4321\n")
        terminal.read_until(b" is my number\r\n")

    def count() -> bytes:
        with run(server, "sh", "-c", "ps -eo args | grep -c '^[s]leep 4321'") as counting:
            counting.read_status()
        return counting.output[1]

    wait_until(lambda: count() == b"0\n", 20, what="the shell has ended")


def test_what_cannot_start_has_its_reason_as_a_status(server: Server) -> None:
    with server.client() as admin:
        create_object(
            admin, WORKSPACE.removesuffix("/dev"), "DevPodWorkspaceInstance", "idle", runnerRef={"runner": "x"}
        )
    path = WORKSPACE.removesuffix("dev") + "idle/exec"
    with WebSocket(server, path, server.key, V5) as socket:
        terminal = Terminal(socket)
        status = terminal.read_status()
    assert (status["code"], status["reason"]) == (503, "ServiceUnavailable")
    assert "not connected" in status["message"]
    assert socket.code == 1011


@pytest.mark.parametrize("protocol", ["", "base64.channel.k8s.io", "v3.channel.k8s.io"])
def test_other_subprotocols_are_rejected(server: Server, protocol: str) -> None:
    with pytest.raises(UpgradeRejected) as rejected, run(server, protocol=protocol):
        pass
    assert rejected.value.status == 400
    assert V5 in rejected.value.body


@pytest.mark.parametrize("command", [["x" * 9000], ["x" * 3000] * 3, ["a\0b"]])
def test_commands_are_bounded(server: Server, command: list[str]) -> None:
    with pytest.raises(UpgradeRejected) as rejected, run(server, *command):
        pass
    assert rejected.value.status == 400
    assert "command:" in rejected.value.body


@pytest.mark.parametrize("message", [b"", b"\x07x", b"\x04{}", b"\x04[", b"\x00" + bytes(70_000)])
def test_invalid_messages_end_the_session(server: Server, message: bytes) -> None:
    with run(server, "cat", stdin="true", tty="true") as terminal:
        terminal.socket.send(message)
        assert terminal.read_status()["status"] == "Failure"
    assert terminal.socket.code in (1002, 1009)


def test_a_terminal_ends_when_the_permission_is_revoked(server: Server) -> None:
    with server.client() as admin:
        create_object(admin, f"{M}/users", "User", "guest")
        body = {"apiVersion": "management.service.sh/v1", "kind": "OwnedAccessKey", "spec": {"user": "guest"}}
        created = admin.post(f"{M}/ownedaccesskeys", json={**body, "metadata": {"name": "guest-key"}})
        key = created.json()["spec"]["key"]
        with pytest.raises(UpgradeRejected) as rejected, run(server, "cat", key=key):
            pass
        assert rejected.value.status == 403
        share = [{"name": "guest", "users": ["guest"], "verbs": ["use"]}]
        assert admin.patch(WORKSPACE, json={"spec": {"access": share}}, headers=MERGE).status_code == 200
        with run(server, "cat", key=key, stdin="true", tty="true") as terminal:
            terminal.type("hello\n")
            terminal.read_until(b"hello\r\nhello\r\n")
            assert admin.patch(WORKSPACE, json={"spec": {"access": []}}, headers=MERGE).status_code == 200
            status = terminal.read_status()
    assert (status["code"], status["reason"]) == (403, "Forbidden")
    assert terminal.socket.code == 1008
