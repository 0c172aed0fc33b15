"""What the live tests of workspaces share: objects, and a client of the WebSocket of a subresource."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.harness.server_process import MANAGEMENT, TIMEOUT_SECONDS, Server, build_tls_context

M = f"{MANAGEMENT}/apis/management.service.sh/v1"
WORKSPACE = f"{M}/namespaces/service-p-web/devpodworkspaceinstances/dev"


def create_object(client: httpx.Client, path: str, kind: str, name: str, **spec: Any) -> dict[str, Any]:
    body = {"apiVersion": "management.service.sh/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    response = client.post(path, json=body)
    assert response.status_code == 201, response.text
    created: dict[str, Any] = response.json()
    return created


def create_workspace(client: httpx.Client) -> str:
    """A project `web`, a runner `local`, and the workspace `dev` on it. Returns the key of the runner."""
    create_object(client, f"{M}/projects", "Project", "web")
    create_object(client, f"{M}/runners", "Runner", "local")
    workspaces = WORKSPACE.removesuffix("/dev")
    create_object(client, workspaces, "DevPodWorkspaceInstance", "dev", runnerRef={"runner": "local"})
    key: str = client.get(f"{M}/runners/local/accesskey").json()["accessKey"]
    return key


@dataclass(slots=True)
class Output:
    """What has arrived on a WebSocket until its end."""

    stdout: bytearray = field(default_factory=bytearray)
    stderr: bytearray = field(default_factory=bytearray)
    closed: list[int] = field(default_factory=list)
    exit_message: bytes = b""
    code: int = 0
    reason: str = ""


class WorkspaceSocket:
    """The WebSocket of a subresource, as tools use it."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    async def send_stdin(self, content: bytes) -> None:
        await self.connection.send(b"\x04" + content)

    async def close_stdin(self) -> None:
        await self.connection.send(b"\x05")

    async def receive(self) -> bytes:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            message = await self.connection.recv()
        assert isinstance(message, bytes)
        assert len(message) <= 32 * 1024
        return message

    async def read_all(self) -> Output:
        output = Output()
        while True:
            try:
                message = await self.receive()
            except ConnectionClosed:
                break
            assert not output.exit_message, "a message after the exit code"
            match message[0]:
                case 0:
                    output.stdout += message[1:]
                case 2:
                    output.stderr += message[1:]
                case 1 | 3:
                    output.closed.append(message[0])
                case 6:
                    output.exit_message = message[1:]
        output.code, output.reason = self.connection.close_code or 0, self.connection.close_reason or ""
        return output


async def wait_for_runner(server: Server) -> None:
    """Waits until the server can reach the runner."""
    async with server.async_client() as client, asyncio.timeout(TIMEOUT_SECONDS):
        while (await client.get(f"{WORKSPACE}/tasks")).status_code == 503:
            continue


@asynccontextmanager
async def open_socket(
    server: Server, subresource: str, key: str = "", path: str = WORKSPACE, **query: str
) -> AsyncIterator[WorkspaceSocket]:
    url = f"wss{server.url.removeprefix('https')}{path}/{subresource}" + (f"?{urlencode(query)}" if query else "")
    headers = {"Authorization": f"Bearer {key or server.key}"}
    context = build_tls_context(server.ca_file)
    async with connect(url, ssl=context, additional_headers=headers, compression=None, max_size=2**20) as connection:
        yield WorkspaceSocket(connection)
