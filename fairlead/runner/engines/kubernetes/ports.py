"""TCP ports inside a workspace: on the Pod's own 127.0.0.1, over `pods/portforward`.

A connection has two streams, one for data and one on which the node reports an error. Container runtimes do not pass on
the end of one direction: they close the connection a second later, also if the answer is not complete. So that end is
sent only after the other side has been silent for a while.
"""

import asyncio
import contextlib

from fairlead.runner.engines.contract import EngineError, ListeningPort, Reason
from fairlead.runner.engines.devcontainer.ports import parse_listening
from fairlead.runner.engines.kubernetes.exec_protocol import PING_SECONDS, Pipe
from fairlead.runner.engines.kubernetes.place import PODS, Place
from fairlead.runner.engines.kubernetes.spdy import MAX_DATA_BYTES, SUBPROTOCOL, SpdyClient, StreamData, StreamReset
from fairlead.upstream.errors import ProtocolError
from fairlead.upstream.websocket import UpstreamWebSocket

REFUSAL_SECONDS = 0.05
"""How long a refusal of the port is waited for: the node connects only after it has accepted the stream. A later one
looks like the end of the connection."""


LINGER_SECONDS = 10.0
"""How long the other side must be silent before it gets the end."""


class PortConnection:
    """`ByteStream` of the contract; it is its own writer."""

    def __init__(self, websocket: UpstreamWebSocket, port: int) -> None:
        self.reader = Pipe()
        self.error = b""
        self.has_ended = asyncio.Event()
        self._websocket = websocket
        self._spdy = SpdyClient()
        self._error_stream = self._data_stream = 0
        self._port = port
        self._is_closed = False
        self._received_at = 0.0
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def writer(self) -> "PortConnection":
        return self

    async def open(self) -> None:
        headers = {"port": str(self._port), "requestID": "0"}
        self._error_stream, error = self._spdy.open_stream({"streamType": "error", **headers}, is_half_closed=True)
        self._data_stream, data = self._spdy.open_stream({"streamType": "data", **headers})
        await self._websocket.send(error)
        await self._websocket.send(data)
        self._tasks += [asyncio.create_task(self._receive(), name="port"), asyncio.create_task(self._ping())]

    async def write(self, data: bytes, /) -> None:
        for start in range(0, len(data), MAX_DATA_BYTES):
            if self._is_closed:
                return
            part = data[start : start + MAX_DATA_BYTES]
            await self._websocket.send(self._spdy.encode_data(self._data_stream, part))

    async def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._tasks.append(asyncio.create_task(self._linger(), name="port end"))

    async def abort(self) -> None:
        await self.reader.end()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._websocket.close(1000, "")

    async def _receive(self) -> None:
        try:
            while (message := await self._websocket.receive()) is not None:
                for event in self._spdy.receive(message.encode() if isinstance(message, str) else message):
                    if isinstance(event, bytes):
                        await self._websocket.send(event)
                    elif not await self._handle(event):
                        return
        except ProtocolError:
            return
        finally:
            self.has_ended.set()
            await self.reader.end()

    async def _handle(self, event: StreamData | StreamReset) -> bool:
        """False at the end of the connection."""
        if isinstance(event, StreamReset):
            return event.stream not in (0, self._data_stream)
        if event.stream == self._error_stream:
            self.error += event.data
            if self.error:
                self.has_ended.set()
        elif event.stream == self._data_stream:
            self._received_at = asyncio.get_running_loop().time()
            await self.reader.feed(event.data)
            if event.is_last:
                await self.reader.end()
        return True

    async def _linger(self) -> None:
        clock = asyncio.get_running_loop().time
        self._received_at = clock()
        while (rest := self._received_at + LINGER_SECONDS - clock()) > 0:  # noqa: ASYNC110  # until it is silent
            await asyncio.sleep(rest)
        await self._websocket.send(self._spdy.encode_data(self._data_stream, b"", is_last=True))

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(PING_SECONDS)
            self._websocket.ping()


async def open_port(place: Place, port: int) -> PortConnection:
    query = [("ports", str(port))]
    websocket = await place.cluster.open_websocket(f"{place.path(PODS)}/portforward", query, (SUBPROTOCOL,))
    connection = PortConnection(websocket, port)
    await connection.open()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(connection.has_ended.wait(), REFUSAL_SECONDS)
    if connection.error:
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
