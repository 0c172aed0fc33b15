"""The process that serves SSH for one workspace whose image has no sshd, as the runner sees it.

It has its own event loop and its own engine, so that no session slows down the runner. It gets each connection as a
socket, over a control socket, and it ends with that: when the runner ends, or when no connection was open for a minute.
"""

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import msgspec
import structlog

from fairlead.runner.engines.contract import EngineError, Reason
from fairlead.runner.engines.sessions import BOOT_ID, BOOT_VARIABLE
from fairlead.runner.settings import KEY_VARIABLE

IDLE_SECONDS = 60.0
END_SECONDS = 5.0
MAX_MESSAGE_BYTES = 64 * 1024
MODULE = "fairlead.runner.ssh.server"

log = structlog.get_logger(__name__)


class ServerSettings(msgspec.Struct, frozen=True):
    """The first message to the process. `engine` is its name as the runner was started with it."""

    engine: str
    runner: str
    state_folder: str
    allowed_folders: tuple[str, ...]
    kubeconfig: str
    uid: str
    host_key: str


class NewConnection(msgspec.Struct, frozen=True):
    """Comes with the socket of a connection. Without a `user`, any name may log in: the user inside has none."""

    authorities: tuple[str, ...]
    user: str
    home: str
    shell: str
    sftp_server: str


@dataclass(slots=True)
class ServerProcess:
    process: asyncio.subprocess.Process
    control: socket.socket
    connections: int = 0
    end_timer: asyncio.TimerHandle | None = None


@dataclass(slots=True)
class ServerProcesses:
    """The processes of this runner, by the uid of the workspace."""

    _processes: dict[str, ServerProcess] = field(default_factory=dict)
    _locks: dict[str, asyncio.Lock] = field(default_factory=dict)
    _ending: set[asyncio.Task[None]] = field(default_factory=set)

    @contextlib.asynccontextmanager
    async def connect(self, settings: ServerSettings, connection: NewConnection) -> AsyncIterator[socket.socket]:
        """The runner's end of a new connection. The process stays for the next one, for a while."""
        server = await self._get(settings)
        server.connections += 1
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                _send(server.control, connection, theirs)
            yield ours
        finally:
            ours.close()
            server.connections -= 1
            if server.connections == 0:
                loop = asyncio.get_running_loop()
                server.end_timer = loop.call_later(IDLE_SECONDS, self._end_soon, settings.uid, server)

    async def close(self) -> None:
        for uid, server in list(self._processes.items()):
            self._end_soon(uid, server)
        await asyncio.gather(*self._ending)

    async def _get(self, settings: ServerSettings) -> ServerProcess:
        async with self._locks.setdefault(settings.uid, asyncio.Lock()):
            server = self._processes.get(settings.uid)
            if server is None or server.process.returncode is not None:
                server = self._processes[settings.uid] = await _start(settings)
            if server.end_timer is not None:
                server.end_timer.cancel()
                server.end_timer = None
            return server

    def _end_soon(self, uid: str, server: ServerProcess) -> None:
        if self._processes.get(uid) is server:
            del self._processes[uid]
            self._locks.pop(uid, None)
        task = asyncio.create_task(_end(server))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)


async def _start(settings: ServerSettings) -> ServerProcess:
    """Without the key of the runner: the process has no use for it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    environment = {name: value for name, value in os.environ.items() if name != KEY_VARIABLE}
    with theirs:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", MODULE, str(theirs.fileno())),
            env={**environment, BOOT_VARIABLE: BOOT_ID},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
        )
    _send(ours, settings)
    log.info("a process for SSH was started", uid=settings.uid, pid=process.pid)
    return ServerProcess(process, ours)


async def _end(server: ServerProcess) -> None:
    """The process ends its sessions when the control socket closes."""
    server.control.close()
    try:
        await asyncio.wait_for(server.process.wait(), END_SECONDS)
    except TimeoutError:
        server.process.kill()
        await server.process.wait()


def _send(control: socket.socket, message: ServerSettings | NewConnection, passed: socket.socket | None = None) -> None:
    try:
        socket.send_fds(control, [msgspec.json.encode(message)], [passed.fileno()] if passed is not None else [])
    except OSError as error:
        raise EngineError(Reason.NOT_RUNNING, "the SSH server of the workspace does not respond; try again") from error
