"""An SSH server for one workspace, in a process of its own: `python -m fairlead.runner.ssh.server DESCRIPTOR`.

The descriptor is the control socket, over which `process.py` passes the connections. Only certificates of the server's
authority for the uid of this workspace are accepted. Files of this machine play no part: there are no configuration
files, and asyncssh's own sftp, scp and forwarding are not used.
"""

import array
import asyncio
import contextlib
import os
import resource
import socket
import sys
from pathlib import Path
from typing import Any

import asyncssh
import msgspec
import structlog
from asyncssh.constants import OPEN_ADMINISTRATIVELY_PROHIBITED, OPEN_CONNECT_FAILED, OPEN_RESOURCE_SHORTAGE

from fairlead.core.log import configure_logging
from fairlead.runner.engines.contract import Engine, EngineError
from fairlead.runner.registry import load_engines
from fairlead.runner.settings import ClusterAccess
from fairlead.runner.ssh.channels import CommandSession, PortSession, Target
from fairlead.runner.ssh.limits import ChannelSlot, ConnectionChannels, TooManyChannels, WorkspaceChannels
from fairlead.runner.ssh.process import MAX_MESSAGE_BYTES, NewConnection, ServerSettings

MAX_MEMORY_BYTES = 2 << 30
LOGIN_SECONDS = 60
KEEPALIVE_SECONDS, KEEPALIVE_COUNT = 15, 3
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1", "ip6-localhost"})

log = structlog.get_logger(__name__)


class WorkspaceServer(asyncssh.SSHServer):
    """One connection. Its tasks end with it."""

    def __init__(self, target: Target, channels: WorkspaceChannels) -> None:
        self._target = target
        self._channels = ConnectionChannels(channels)
        self._connection: Any = None
        self.closed = asyncio.Event()

    def connection_made(self, conn: Any) -> None:
        self._connection = conn

    def connection_lost(self, exc: Exception | None) -> None:
        self._channels.close()
        self.closed.set()

    def begin_auth(self, username: str) -> bool:
        """Other names than that of the user inside have no keys, so they are denied."""
        connection = self._target.connection
        if connection.user in ("", username):
            lines = (f'cert-authority,principals="{self._target.uid}" {key}\n' for key in connection.authorities)
            self._connection.set_authorized_keys(asyncssh.import_authorized_keys("".join(lines)))
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def session_requested(self) -> Any:
        return CommandSession(self._target, self._take_slot())

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> Any:
        if dest_host not in LOOPBACK:
            message = "only ports of the workspace itself are forwarded: use localhost"
            raise asyncssh.ChannelOpenError(OPEN_ADMINISTRATIVELY_PROHIBITED, message)
        return self._open_port(dest_port, self._take_slot())

    async def _open_port(self, port: int, slot: ChannelSlot) -> PortSession:
        try:
            stream = await self._target.open_port(port)
        except EngineError as error:
            slot.close()
            raise asyncssh.ChannelOpenError(OPEN_CONNECT_FAILED, error.message) from None
        except BaseException:
            slot.close()
            raise
        if slot.is_closed:
            await stream.abort()
            raise asyncssh.ChannelOpenError(OPEN_CONNECT_FAILED, "the connection has ended")
        return PortSession(stream, slot)

    def _take_slot(self) -> ChannelSlot:
        try:
            return self._channels.take()
        except TooManyChannels as error:
            raise asyncssh.ChannelOpenError(OPEN_RESOURCE_SHORTAGE, str(error)) from None

    async def wait_ended(self) -> None:
        """Waits until the connection has ended, and with it all of its processes."""
        await self.closed.wait()
        await self._channels.wait_ended()


async def serve_connection(
    connected: socket.socket, host_key: asyncssh.SSHKey, target: Target, channels: WorkspaceChannels
) -> None:
    """Serves one connection to its end."""
    server = WorkspaceServer(target, channels)
    try:
        connection = await asyncssh.run_server(
            connected,
            server_factory=lambda: server,
            server_host_keys=[host_key],
            encoding=None,
            line_editor=False,
            allow_scp=False,
            agent_forwarding=False,
            x11_forwarding=False,
            gss_host=None,
            compression_algs=None,
            login_timeout=LOGIN_SECONDS,
            keepalive_interval=KEEPALIVE_SECONDS,
            keepalive_count_max=KEEPALIVE_COUNT,
        )
    except (OSError, asyncssh.Error) as error:
        log.info("an SSH connection was refused", uid=target.uid, reason=str(error))
        connected.close()
        return
    try:
        await server.wait_ended()
    finally:
        connection.abort()
        server.connection_lost(None)
        with contextlib.suppress(asyncio.CancelledError):
            await server.wait_ended()


async def serve(control: socket.socket) -> None:
    """Serves connections until the control socket closes. Then all of them end."""
    control.setblocking(False)
    content, _ = await _receive(control)
    settings = msgspec.json.decode(content, type=ServerSettings)
    engine = _create_engine(settings)
    host_key = asyncssh.import_private_key(settings.host_key)
    channels = WorkspaceChannels()
    tasks: set[asyncio.Task[None]] = set()
    while True:
        content, connected = await _receive(control)
        if connected is None:
            break
        target = Target(engine, settings.uid, msgspec.json.decode(content, type=NewConnection))
        task = asyncio.create_task(serve_connection(connected, host_key, target, channels))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _create_engine(settings: ServerSettings) -> Engine:
    folders = tuple(Path(each) for each in settings.allowed_folders)
    clusters = ClusterAccess(Path(settings.kubeconfig) if settings.kubeconfig else None)  # it creates no workspaces
    engines = load_engines((settings.engine,), settings.runner, Path(settings.state_folder), folders, clusters)
    return next(iter(engines.values()))


async def _receive(control: socket.socket) -> tuple[bytes, socket.socket | None]:
    """The next message, with the socket that came with it. Empty at the end."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            content, ancillary, _, _ = control.recvmsg(MAX_MESSAGE_BYTES, socket.CMSG_SPACE(4))
            break
        except BlockingIOError:
            readable = asyncio.Event()
            loop.add_reader(control, readable.set)
            try:
                await readable.wait()
            finally:
                loop.remove_reader(control)
    descriptors = array.array("i")
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    return content, socket.socket(fileno=descriptors[0]) if descriptors else None


def main() -> None:
    configure_logging("info", "json")
    asyncssh.set_log_level("WARNING")  # with more, it prints environments
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = MAX_MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(hard, MAX_MEMORY_BYTES)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)
    with socket.socket(fileno=descriptor) as control:
        asyncio.run(serve(control))


if __name__ == "__main__":
    main()
