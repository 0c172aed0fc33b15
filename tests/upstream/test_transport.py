"""Tests of `fairlead.upstream.transport`: all data of a cluster arrives, however slowly it is read and however it
ends."""

import asyncio
import hashlib
import socket
import ssl
from typing import Any

import pytest
from websockets.frames import Frame, Opcode
from websockets.protocol import OPEN
from websockets.server import ServerProtocol

from fairlead.upstream import transport as transport_module
from fairlead.upstream.connection import Connection
from fairlead.upstream.errors import ProtocolError, Unreachable
from fairlead.upstream.transport import MAX_READS_PER_TURN, TlsTransport
from fairlead.upstream.upstream import Request
from fairlead.upstream.websocket import UpstreamWebSocket
from tests.fake_cluster.exchange import RecordedRequest
from tests.fake_cluster.exec_websockets import SUCCESS, build_upgrade_response
from tests.fake_cluster.large_outputs import CLOSE_CODES, ERROR, generate_output, respond_with_body, respond_with_output
from tests.fake_cluster.server import FakeCluster
from tests.harness.eventually import eventually
from tests.upstream.upstreams import READ_LIMIT, connect_upstream

OUTPUT_SIZES = [1_000_000, 5_000_000]


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


async def expect_complete_output(websocket: UpstreamWebSocket, size: int, reply: bytes = b"") -> None:
    """Reads slowly to the end, and sends `reply` after each message."""
    messages = list[bytes]()
    while (message := await websocket.receive()) is not None:
        assert isinstance(message, bytes)
        messages.append(message)
        if reply:
            await websocket.send(reply)
        await asyncio.sleep(0.002)
    assert messages.pop() == ERROR + SUCCESS
    assert digest(b"".join(message[1:] for message in messages)) == digest(generate_output(size))


@pytest.mark.parametrize("ending", CLOSE_CODES)
@pytest.mark.parametrize("size", OUTPUT_SIZES)
async def test_a_slow_reader_of_a_websocket_gets_all_messages_and_the_close_frame(
    fake_cluster: FakeCluster, size: int, ending: str
) -> None:
    fake_cluster.set_upgrade_behaviour("/flood", respond_with_output(size, ending))
    async with connect_upstream(fake_cluster) as upstream:
        websocket = await upstream.open_websocket(Request("GET", "/flood"), ("v5.channel.k8s.io",))
        await expect_complete_output(websocket, size)
        assert websocket.close_reason == CLOSE_CODES[ending]
        await eventually(lambda: upstream.in_use == 0)


async def test_the_output_of_a_cluster_that_closed_during_writes_is_read_to_the_end(fake_cluster: FakeCluster) -> None:
    """As with a command that exits before it has read its input: its output arrives anyway."""
    size = 1_000_000
    fake_cluster.set_upgrade_behaviour("/flood", respond_with_output(size, "tcp-reset"))
    async with connect_upstream(fake_cluster) as upstream:
        websocket = await upstream.open_websocket(Request("GET", "/flood"), ("v5.channel.k8s.io",))
        await expect_complete_output(websocket, size, b"\x00input that is not read")


@pytest.mark.parametrize(
    ("ending", "is_sized"), [("no-close-frame", True), ("no-close-frame", False), ("tcp-close", True)]
)
async def test_a_slow_reader_of_a_body_gets_all_of_it(fake_cluster: FakeCluster, is_sized: bool, ending: str) -> None:
    fake_cluster.set_behaviour("/flood", respond_with_body(5_000_000, ending, is_sized=is_sized))
    async with connect_upstream(fake_cluster) as upstream:
        response = await upstream.send(Request("GET", "/flood"))
        chunks = list[bytes]()
        while chunk := await response.read_chunk():
            chunks.append(chunk)
            await asyncio.sleep(0.002)
        assert digest(b"".join(chunks)) == digest(generate_output(5_000_000))
        await eventually(lambda: upstream.in_use == 0)


@pytest.mark.parametrize("ending", ["tcp-reset", "tcp-close"])
async def test_an_interrupted_body_is_read_as_far_as_it_arrived_and_is_then_an_error(
    fake_cluster: FakeCluster, ending: str
) -> None:
    """If only the end of the connection marks the end of the body, TLS has to confirm it: anyone can close TCP."""
    fake_cluster.set_behaviour("/flood", respond_with_body(3_000_000, ending, is_sized=False))
    async with connect_upstream(fake_cluster) as upstream:
        response = await upstream.send(Request("GET", "/flood"))
        chunks = list[bytes]()
        with pytest.raises(ProtocolError):
            while chunk := await response.read_chunk():
                chunks.append(chunk)
                await asyncio.sleep(0.002)
        assert digest(b"".join(chunks)) == digest(generate_output(3_000_000))


class EndlessSocket(socket.socket):
    """A socket that always has more data."""

    def recv_into(self, *arguments: Any) -> int:
        return 1


async def test_a_connection_that_always_has_data_is_read_a_limited_number_of_times_per_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reads = list[int]()
    monkeypatch.setattr(TlsTransport, "_decrypt", lambda transport: reads.append(1))
    monkeypatch.setattr(transport_module, "MAX_TURN_SECONDS", 60.0)
    reader, writer = socket.socketpair()
    with reader, writer:
        writer.send(b"x")
        endless_socket = EndlessSocket(fileno=reader.detach())
        endless_socket.setblocking(False)
        transport = TlsTransport(endless_socket, ssl.create_default_context(), "cluster.example")
        transport.start(Connection(lambda connection: None))
        for _ in range(100):
            before = len(reads)
            await asyncio.sleep(0)
            assert len(reads) <= before + MAX_READS_PER_TURN
        assert len(reads) > MAX_READS_PER_TURN, "reading continues"
        transport.abort()


async def test_an_exception_in_a_protocol_closes_its_connection(
    fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(connection: Connection, data: memoryview) -> None:
        raise RuntimeError("a fault")

    errors = list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: errors.append(context["exception"]))
    monkeypatch.setattr(Connection, "data_received", fail)
    async with connect_upstream(fake_cluster) as upstream:
        with pytest.raises(Unreachable):
            await asyncio.wait_for(upstream.send(Request("POST", "/version")), 40)
        await eventually(lambda: upstream.in_use == 0 and not fake_cluster.open_connections)
    assert [str(error) for error in errors] == ["a fault"]


async def test_backpressure_applies_to_a_response_that_closes_its_connection(fake_cluster: FakeCluster) -> None:
    """A body that is not read is not buffered, even if the connection will be closed after it."""
    fake_cluster.set_behaviour("/flood", respond_with_body(30_000_000, "no-close-frame", is_sized=True))
    async with connect_upstream(fake_cluster) as upstream:
        response = await upstream.send(Request("GET", "/flood"))
        for _ in range(50):
            await asyncio.sleep(0.002)
        assert not response.is_complete
        assert digest(await response.read(READ_LIMIT)) == digest(generate_output(30_000_000))


async def test_data_sent_to_a_cluster_that_reads_slowly_arrives_complete(fake_cluster: FakeCluster) -> None:
    received, done, loop = bytearray(), asyncio.Event(), asyncio.get_running_loop()

    async def receive_slowly(
        request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        writer.write(build_upgrade_response(request))
        protocol = ServerProtocol(state=OPEN, max_size=None)
        while protocol.state is OPEN and (data := await reader.read(200_000)):
            protocol.receive_data(data)
            for event in protocol.events_received():
                if isinstance(event, Frame) and event.opcode is Opcode.BINARY:
                    received.extend(event.data)
            await asyncio.sleep(0.001)
        loop.call_soon_threadsafe(done.set)
        return False

    fake_cluster.set_upgrade_behaviour("/slow", receive_slowly)
    content = generate_output(5_000_000)
    async with connect_upstream(fake_cluster) as upstream:
        websocket = await upstream.open_websocket(Request("GET", "/slow"), ())
        for start in range(0, len(content), 500_000):
            await websocket.send(content[start : start + 500_000])
        await websocket.close(1000, "")
        await asyncio.wait_for(done.wait(), 20)
    assert digest(bytes(received)) == digest(content)
