"""The process that serves SSH for one workspace whose image has no sshd, as the runner sees it.

It has its own event loop, so that no session slows down the runner, and no privileges (`confinement.py`). It gets each
connection as a socket, over a control socket, and what that needs of the workspace from `requests.py`. It ends with the
control socket: when the runner ends, or when no connection was open for a minute.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import structlog

from fairlead.core.waiting import end_tasks, start_task
from fairlead.runner.engines.contract import Engine, EngineError, Reason
from fairlead.runner.ssh.confinement import can_create_namespaces, describe_command, describe_environment
from fairlead.runner.ssh.groups import close_group, open_group
from fairlead.runner.ssh.limits import RequestRate
from fairlead.runner.ssh.messages import (
    InvalidMessage,
    MessageSocket,
    NewConnection,
    ServerSettings,
    open_message_sockets,
)
from fairlead.runner.ssh.requests import WorkspaceRequests

IDLE_SECONDS = 60.0
END_SECONDS = 5.0
SEND_SECONDS = 10.0
LOG_BYTES, LOGS_PER_SECOND = 4096, 5.0
NO_RESPONSE = "the SSH server of the workspace does not respond; try again"

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class ServerProcess:
    process: asyncio.subprocess.Process
    control: MessageSocket
    serving: asyncio.Task[None]
    connections: int = 0
    end_timer: asyncio.TimerHandle | None = None


@dataclass(slots=True)
class ServerProcesses:
    """The processes of this runner, by the uid of the workspace."""

    _processes: dict[str, ServerProcess] = field(default_factory=dict)
    _locks: dict[str, asyncio.Lock] = field(default_factory=dict)
    _ending: set[asyncio.Task[None]] = field(default_factory=set)

    @contextlib.asynccontextmanager
    async def connect(
        self, engine: Engine, settings: ServerSettings, connection: NewConnection
    ) -> AsyncIterator[socket.socket]:
        """The runner's end of a new connection. The process stays for the next one, for a while."""
        server = await self._get(engine, settings)
        server.connections += 1
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        try:
            with theirs:
                await _send(server.control, connection, theirs)
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

    async def _get(self, engine: Engine, settings: ServerSettings) -> ServerProcess:
        async with self._locks.setdefault(settings.uid, asyncio.Lock()):
            server = self._processes.get(settings.uid)
            if server is None or server.serving.done():
                server = self._processes[settings.uid] = await _start(engine, settings)
            if server.end_timer is not None:
                server.end_timer.cancel()
                server.end_timer = None
            return server

    def _end_soon(self, uid: str, server: ServerProcess) -> None:
        if self._processes.get(uid) is server:
            del self._processes[uid]
            self._locks.pop(uid, None)
        # Its sessions end, and then the process.
        start_task(self._ending, end_tasks(server.serving))


async def _start(engine: Engine, settings: ServerSettings) -> ServerProcess:
    """What it prints goes to the log of the runner, not to its descriptors: those may be a terminal or a file."""
    control, theirs = open_message_sockets()
    groups = open_group(settings.uid) if os.geteuid() == 0 and can_create_namespaces() else ()
    with theirs:
        try:
            process = await asyncio.create_subprocess_exec(
                *describe_command(settings.uid, theirs.fileno(), groups),
                env=describe_environment(),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        except BaseException:
            await close_group(groups)
            raise
    log.info("a process for SSH was started", uid=settings.uid, pid=process.pid)
    serving = asyncio.create_task(_serve(process, groups, WorkspaceRequests(engine, settings.uid, control)))
    await _send(control, settings)
    return ServerProcess(process, control, serving)


async def _serve(process: asyncio.subprocess.Process, groups: Sequence[str], requests: WorkspaceRequests) -> None:
    """Serves the process to its end. One that breaks the rules ends at once."""
    logging = asyncio.create_task(_log_output(process, requests.uid))
    try:
        await requests.serve()
    except* InvalidMessage as errors:
        log.error("a process for SSH was ended: it broke the protocol", uid=requests.uid, error=str(errors.exceptions))
    finally:
        requests.control.close()
        try:
            await asyncio.wait_for(process.wait(), END_SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()
        await logging  # when the last process that could print has ended
        await close_group(groups)


async def _log_output(process: asyncio.subprocess.Process, uid: str) -> None:
    """Slowly, if it prints much: it waits then."""
    assert process.stderr is not None
    rate = RequestRate(per_second=LOGS_PER_SECOND)
    while data := await process.stderr.read(LOG_BYTES):
        await rate.wait()
        log.info("a process for SSH says", uid=uid, output=data.decode(errors="replace"))


async def _send(
    control: MessageSocket, message: ServerSettings | NewConnection, passed: socket.socket | None = None
) -> None:
    try:
        async with asyncio.timeout(SEND_SECONDS):
            await control.send(message, [passed.fileno()] if passed is not None else [])
    except (OSError, TimeoutError) as error:
        raise EngineError(Reason.NOT_RUNNING, NO_RESPONSE) from error
