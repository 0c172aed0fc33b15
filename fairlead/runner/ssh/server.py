"""An SSH server for one workspace, in a process of its own: `python -m fairlead.runner.ssh.server
DESCRIPTOR OWNER`.

The descriptor is the control socket, over which `process.py` passes the connections, and `requests.py` serves what they
need: this process has neither engine nor files nor network (`confinement.py`). Only certificates of the server's
authority for the uid of this workspace are accepted. asyncssh's own sftp, scp and forwarding are not used.
"""

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import asyncssh
import msgspec
import structlog
from asyncssh.constants import OPEN_ADMINISTRATIVELY_PROHIBITED, OPEN_CONNECT_FAILED, OPEN_RESOURCE_SHORTAGE

from fairlead.core.log import configure_logging
from fairlead.core.waiting import end_tasks, start_task
from fairlead.runner.engines.contract import EngineError
from fairlead.runner.ssh.access import Access
from fairlead.runner.ssh.channels import CommandSession, ForwardedAgent, PortSession, Target
from fairlead.runner.ssh.confinement import confine
from fairlead.runner.ssh.limits import ChannelSlot, ConnectionChannels, TooManyChannels, WorkspaceChannels
from fairlead.runner.ssh.listening import WorkspaceListener
from fairlead.runner.ssh.messages import (
    MAX_AGENTS,
    MAX_DESCRIPTORS,
    MAX_MESSAGE_BYTES,
    NO_AGENT,
    MessageSocket,
    NewConnection,
    Reply,
    ServerSettings,
)

LOGIN_SECONDS = 60
KEEPALIVE_SECONDS, KEEPALIVE_COUNT = 15, 3
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1", "ip6-localhost"})

log = structlog.get_logger(__name__)


class WorkspaceServer(asyncssh.SSHServer):
    """One connection. Its tasks end with it."""

    def __init__(self, target: Target, channels: WorkspaceChannels) -> None:
        self._target = target
        self._channels = ConnectionChannels(channels)
        self._agent = ForwardedAgent()
        self._connection: Any = None
        self.closed = asyncio.Event()

    def connection_made(self, conn: Any) -> None:
        """asyncssh would create the socket of an agent on its own, in the file system of this process."""
        self._connection = conn
        conn.create_agent_listener = self._open_agent

    def connection_lost(self, exc: Exception | None) -> None:
        self._channels.close()
        self._channels.workspace.agents.discard(self._agent.number)
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
        return CommandSession(self._target, self._take_slot(), self._agent)

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> Any:
        if dest_host not in LOOPBACK:
            message = "only ports of the workspace itself are forwarded: use localhost"
            raise asyncssh.ChannelOpenError(OPEN_ADMINISTRATIVELY_PROHIBITED, message)
        return self._open_port(dest_port, self._take_slot())

    async def server_requested(self, listen_host: str, listen_port: int) -> Any:
        """`ssh -R`: on the workspace's own 127.0.0.1, whatever address the client wants, as with sshd's default."""
        connection = self._connection

        async def open_channel(create_session: Callable[[], Any]) -> None:
            await connection.create_connection(create_session, listen_host, listener.get_port())

        try:
            listening = await self._target.access.listen(listen_port)
            listener = WorkspaceListener(listening, self._channels, open_channel)
        except (EngineError, TooManyChannels) as error:
            log.info("a port is not forwarded", uid=self._target.uid, port=listen_port, reason=str(error))
            return False
        return listener

    async def _open_agent(self) -> bool:
        """When a session of the client wants its agent forwarded. All sessions of a connection share it."""
        if self._agent.number != NO_AGENT:
            return True
        agents = self._channels.workspace.agents
        number = next((each for each in range(MAX_AGENTS) if each not in agents), NO_AGENT)
        is_permitted = self._connection.check_certificate_permission("agent-forwarding")
        if number == NO_AGENT or not is_permitted:
            return False
        agents.add(number)
        self._agent.number = number
        connection = self._connection

        async def open_channel(create_session: Callable[[], Any]) -> None:
            await connection.create_agent_channel().open(create_session)

        try:
            WorkspaceListener(await self._target.access.open_agent(number), self._channels, open_channel)
        except (EngineError, TooManyChannels) as error:
            agents.discard(number)
            self._agent.number = NO_AGENT
            log.info("an agent is not forwarded", uid=self._target.uid, reason=str(error))
            return False
        return True

    async def _open_port(self, port: int, slot: ChannelSlot) -> PortSession:
        try:
            stream = await self._target.access.open_port(port)
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


async def serve(control: MessageSocket) -> None:
    """Serves connections until the control socket closes. Then all of them end."""
    content, _ = await control.receive(MAX_MESSAGE_BYTES)
    settings = msgspec.msgpack.decode(content, type=ServerSettings)
    host_key = asyncssh.import_private_key(settings.host_key)
    access = Access(control)
    channels = WorkspaceChannels()
    decoder: msgspec.msgpack.Decoder[NewConnection | Reply] = msgspec.msgpack.Decoder(NewConnection | Reply)
    tasks: set[asyncio.Task[None]] = set()
    while True:
        content, descriptors = await control.receive(MAX_MESSAGE_BYTES, MAX_DESCRIPTORS)
        if not content:
            break
        message = decoder.decode(content)
        if isinstance(message, Reply):
            access.handle_reply(message, descriptors)
            continue
        target = Target(access, settings.uid, message)
        connected = socket.socket(fileno=descriptors[0])
        task = start_task(tasks, serve_connection(connected, host_key, target, channels))
        task.add_done_callback(_report_fault)
    await end_tasks(*tasks)


def _report_fault(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("an SSH connection has failed", exc_info=error)


class CallerExecutor(ThreadPoolExecutor):
    """Runs everything at once, in the thread of the caller: a confined process can start none. asyncssh passes it the
    check of its options, which takes no time without files."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001  # it is the caller's
            future.set_exception(error)
        return future


def main() -> None:
    configure_logging("info", "json")
    asyncssh.set_log_level("WARNING")  # with more, it prints environments
    descriptor = int(sys.argv[1])
    owner = int(sys.argv[2])
    os.set_inheritable(descriptor, False)
    confine(owner)
    loop = asyncio.new_event_loop()
    loop.set_default_executor(CallerExecutor())
    with socket.socket(fileno=descriptor) as control, contextlib.closing(loop):
        control.setblocking(False)
        loop.run_until_complete(serve(MessageSocket(control)))


if __name__ == "__main__":
    main()
