"""An engine whose one workspace is this machine: sessions are real processes, ports are those of loopback."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field

from fairlead.runner.engines.contract import (
    ByteStream,
    ContainerState,
    EngineError,
    EngineStatus,
    ExecOptions,
    ListeningPort,
    ListeningSocket,
    Process,
    Reason,
)
from fairlead.runner.engines.descriptors import Connection
from fairlead.runner.engines.process_trees import MARK
from fairlead.runner.engines.sessions import find_session, new_mark, start_session
from tests.runner.harness.processes import list_pids


@dataclass(slots=True)
class LocalEngine:
    """`commands` are those that were started."""

    is_running: bool = True
    commands: list[tuple[Sequence[str], ExecOptions]] = field(default_factory=list)

    async def status(self, uid: str) -> EngineStatus:
        return EngineStatus(ContainerState.RUNNING if self.is_running else ContainerState.STOPPED, user="ada")

    async def exec(self, uid: str, command: Sequence[str], options: ExecOptions) -> Process:
        self.commands.append((command, options))
        mark = new_mark(uid)
        environment = {"PATH": os.defpath, "GREETING": "hello", **options.environment, MARK: mark}
        arguments = list(command) or ["/bin/sh"]
        size = (options.columns, options.rows) if options.tty else None
        return await start_session(arguments, find_session(mark, list_pids), environment, size)

    async def list_ports(self, uid: str) -> Sequence[ListeningPort]:
        return [ListeningPort(8080, "127.0.0.1", "node")]

    async def open_port(self, uid: str, port: int) -> ByteStream:
        connected = socket.socket()
        connected.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(connected, ("127.0.0.1", port))
        except OSError:
            connected.close()
            raise EngineError(Reason.NOT_RUNNING, f"nothing answers on port {port} of the workspace") from None
        return Connection(connected.detach())


@dataclass(slots=True)
class SocketsEngine(LocalEngine):
    """One with sockets for forwarded agents and ports, as dev containers have them."""

    folder: str = ""

    async def listen(self, uid: str, name: str) -> ListeningSocket:
        path = f"{self.folder}/{name}"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        listening = socket.socket(socket.AF_UNIX)
        listening.setblocking(False)
        listening.bind(path)
        listening.listen()
        return ListeningSocket(listening, path)

    async def listen_port(self, uid: str, port: int) -> socket.socket:
        listening = socket.create_server(("127.0.0.1", port))
        listening.setblocking(False)
        return listening


@dataclass(slots=True)
class CopiedEngine(LocalEngine):
    """One whose streams are no descriptors, as those of a cluster are."""

    async def exec(self, uid: str, command: Sequence[str], options: ExecOptions) -> Process:
        return CopiedProcess(await LocalEngine.exec(self, uid, command, options))

    async def open_port(self, uid: str, port: int) -> ByteStream:
        return CopiedStream(await LocalEngine.open_port(self, uid, port))


class CopiedProcess:
    def __init__(self, process: Process) -> None:
        self.stdin = process.stdin
        self.stdout = process.stdout
        self.stderr = process.stderr
        self.resize = process.resize
        self.send_signal = process.send_signal
        self.wait = process.wait
        self.kill = process.kill


class CopiedStream:
    def __init__(self, stream: ByteStream) -> None:
        self.reader = stream.reader
        self.writer = stream.writer
        self.abort = stream.abort
