"""Serves the SSH connections of workspaces: by the sshd of the image, or else by a process of the runner.

A connection ends with the container, with the stream, and when the client closes it. Nothing of it stays behind.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from fairlead.core.waiting import end_tasks
from fairlead.links.contract import Stream
from fairlead.links.frames import STDERR, STDIN, STDOUT
from fairlead.links.streams import Data, Eof
from fairlead.runner.engines.contract import Engine, EngineError, Reason
from fairlead.runner.engines.descriptors import Connection
from fairlead.runner.sessions import READ_BYTES, relay_process
from fairlead.runner.ssh.host_keys import HostKeys
from fairlead.runner.ssh.image_sshd import start_sshd
from fairlead.runner.ssh.inside import Inside, find_inside
from fairlead.runner.ssh.messages import NewConnection, ServerSettings
from fairlead.runner.ssh.process import ServerProcesses
from fairlead.runner.ssh.stopping import MESSAGE, RUNNING_STATES, has_stopped, is_running

CHECK_SECONDS = 1.0
"""How often a connection that the runner serves checks that the container still runs."""
MAX_KNOWN = 1024


@dataclass(slots=True)
class SshEndpoint:
    host_keys: HostKeys
    processes: ServerProcesses = field(default_factory=ServerProcesses)
    _known: dict[str, tuple[datetime | None, Inside]] = field(default_factory=dict)
    """What images have, by uid, with the start of the container that it was found in."""

    async def find_inside(self, engine: Engine, uid: str) -> Inside:
        """Raises EngineError if the workspace does not run."""
        status = await engine.status(uid)
        if status.state not in RUNNING_STATES:
            raise EngineError(Reason.NOT_RUNNING, "the workspace is not running; start it with `fairlead workspace up`")
        known = self._known.get(uid)
        if known is not None and known[0] == status.started_at:
            return known[1]
        inside = await find_inside(engine, uid)
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        self._known[uid] = (status.started_at, inside)
        return inside

    async def serve(self, engine: Engine, uid: str, authorities: Sequence[str], stream: Stream) -> None:
        """Serves one connection to its end. Raises EngineError if the workspace does not run."""
        inside = await self.find_inside(engine, uid)
        if inside.sshd and inside.user:
            process = await start_sshd(engine, uid, inside, self.host_keys.get(uid), authorities)
            code = await relay_process(process, stream)
        else:
            code = await self._serve_by_process(engine, uid, inside, authorities, stream)
        if await has_stopped(engine, uid, code):
            await stream.send(STDERR, f"{MESSAGE}\n".encode())
        await stream.send_exit(code)

    async def _serve_by_process(
        self, engine: Engine, uid: str, inside: Inside, authorities: Sequence[str], stream: Stream
    ) -> int:
        settings = ServerSettings(uid=uid, host_key=self.host_keys.get(uid).private.decode())
        accepted = NewConnection(tuple(authorities), inside.user, inside.home, inside.shell, inside.sftp_server)
        async with self.processes.connect(engine, settings, accepted) as connected:
            connection = Connection(connected.detach())
            tasks = (
                asyncio.create_task(_send_output(connection, stream)),
                asyncio.create_task(_wait_stopped(engine, uid)),
                asyncio.create_task(_feed(stream, connection)),
            )
            try:
                await asyncio.wait(tasks[:2], return_when=asyncio.FIRST_COMPLETED)
                return 0 if tasks[0].done() else 255
            finally:
                await end_tasks(*tasks)
                await connection.abort()

    async def close(self) -> None:
        await self.processes.close()


async def _wait_stopped(engine: Engine, uid: str) -> None:
    while True:
        await asyncio.sleep(CHECK_SECONDS)
        if not await is_running(engine, uid):
            return


async def _send_output(reader: Connection, stream: Stream) -> None:
    """Returns when the SSH server has closed the connection."""
    try:
        while data := await reader.read(READ_BYTES):
            await stream.send(STDOUT, data)
    except ConnectionError:
        return


async def _feed(stream: Stream, writer: Connection) -> None:
    while (message := await stream.receive()) is not None:
        match message:
            case Data(channel, content) if channel == STDIN:
                await writer.write(content)
            case Eof(channel) if channel == STDIN:
                await writer.close()
            case _:
                pass
