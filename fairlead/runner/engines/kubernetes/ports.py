"""TCP ports inside a workspace: on the Pod's own 127.0.0.1, over `pods/portforward`.

Container runtimes do not pass on the end of one direction: they close the connection a second later, also if the answer
is not complete. So that end is sent only after the other side has been silent for a while.
"""

import asyncio
import contextlib

from fairlead.core.waiting import end_tasks
from fairlead.runner.engines.contract import EngineError, ListeningPort, Reason
from fairlead.runner.engines.devcontainer.ports import parse_listening
from fairlead.runner.engines.kubernetes.place import PODS, Place
from fairlead.runner.engines.kubernetes.sessions import Pipe
from fairlead.upstream.port_forward import SUBPROTOCOL, Forward, ForwardStream

REFUSAL_SECONDS = 0.05
"""How long a refusal of the port is waited for: the node connects only after it has accepted the stream. A later one
looks like the end of the connection."""


LINGER_SECONDS = 10.0
"""How long the other side must be silent before it gets the end."""


class PortConnection:
    """`ByteStream` of the contract; it is its own writer, and the sink of its stream."""

    def __init__(self, forward: Forward) -> None:
        self.reader = Pipe()
        self._forward = forward
        self._stream: ForwardStream | None = None
        self._linger_task: asyncio.Task[None] | None = None
        self._received_at = 0.0

    @property
    def writer(self) -> "PortConnection":
        return self

    async def open(self, port: int) -> str:
        """Returns the error of the node, if it reports one at once."""
        self._stream = await self._forward.open(port, self)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stream.has_reported.wait(), REFUSAL_SECONDS)
        return self._stream.error.decode(errors="replace")

    async def write(self, data: bytes, /) -> None:
        if self._stream is not None and self._linger_task is None:
            await self._stream.write(data)

    async def close(self) -> None:
        if self._linger_task is None:
            self._linger_task = asyncio.create_task(self._linger(), name=type(self).__name__)

    async def abort(self) -> None:
        await self.reader.end()
        if self._linger_task is not None:
            await end_tasks(self._linger_task)
        await self._forward.close()

    async def feed(self, data: bytes, /) -> None:
        self._received_at = asyncio.get_running_loop().time()
        await self.reader.feed(data)

    async def end(self) -> None:
        await self.reader.end()

    async def _linger(self) -> None:
        clock = asyncio.get_running_loop().time
        self._received_at = clock()
        while (rest := self._received_at + LINGER_SECONDS - clock()) > 0:  # noqa: ASYNC110  # until it is silent
            await asyncio.sleep(rest)
        if self._stream is not None:
            await self._stream.finish()


async def open_port(place: Place, port: int) -> PortConnection:
    query = [("ports", str(port))]
    websocket = await place.cluster.open_websocket(f"{place.path(PODS)}/portforward", query, (SUBPROTOCOL,))
    connection = PortConnection(Forward(websocket))
    if await connection.open(port):
        await connection.abort()
        raise EngineError(Reason.NOT_RUNNING, f"nothing answers on port {port} of the workspace")
    return connection


def parse_ports(output: str) -> list[ListeningPort]:
    """The ports in the output of `scripts.LIST_PORTS`, which the workspace controls: other lines are ignored."""
    lines = output.splitlines()
    names = dict[str, str]()
    owners = dict[str, str]()
    pid = ""
    for line in lines:
        if line.startswith("process /proc/"):
            path, _, name = line.removeprefix("process ").partition(" ")
            names[path.split("/")[2]] = name
        elif line.startswith("/proc/"):
            pid = line.split("/")[2]
        elif " -> socket:[" in line:
            owners.setdefault(line.rpartition("[")[2].removesuffix("]"), names.get(pid, ""))
    found: dict[int, ListeningPort] = {}
    for port, address, inode in parse_listening(lines):
        found.setdefault(port, ListeningPort(port, address, owners.get(inode, "")))
    return [found[port] for port in sorted(found)]
