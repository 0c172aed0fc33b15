"""What a cluster has sent arrives whole, however it leaves and however slowly it is read."""

import asyncio
import hashlib
import socket
import ssl
from typing import Any

import pytest
from websockets.frames import Frame, Opcode
from websockets.protocol import OPEN
from websockets.server import ServerProtocol

from fairlead.upstream import transport as transports
from fairlead.upstream.connection import Connection
from fairlead.upstream.errors import ProtocolError, Unreachable
from fairlead.upstream.transport import MAX_READS_PER_TURN, TlsTransport
from fairlead.upstream.upstream import Request
from fairlead.upstream.websocket import UpstreamWebSocket
from tests.fake_cluster.exchange import RecordedRequest
from tests.fake_cluster.exec_websockets import SUCCESS, accepted
from tests.fake_cluster.floods import ENDINGS, ERROR, flooding, flooding_body, output
from tests.fake_cluster.server import FakeCluster
from tests.upstream.upstreams import MUCH, reaching, until

MEGABYTES = [1_000_000, 5_000_000]


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


async def assert_whole_output(far: UpstreamWebSocket, size: int, said: bytes = b"") -> None:
    """Reads slowly to the end, and says something after each message."""
    messages = list[bytes]()
    while (message := await far.receive()) is not None:
        assert isinstance(message, bytes)
        messages.append(message)
        if said:
            await far.send(said)
        await asyncio.sleep(0.002)
    assert messages.pop() == ERROR + SUCCESS
    assert digest(b"".join(each[1:] for each in messages)) == digest(output(size))


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("size", MEGABYTES)
async def test_a_slow_reader_of_a_websocket_gets_all_of_it_and_then_the_end(
    fake_cluster: FakeCluster, size: int, ending: str
) -> None:
    fake_cluster.behave_on_upgrade("/flood", flooding(size, ending))
    async with reaching(fake_cluster) as upstream:
        far = await upstream.open_websocket(Request("GET", "/flood"), ("v5.channel.k8s.io",))
        await assert_whole_output(far, size)
        assert far.close_reason == ENDINGS[ending]
        await until(lambda: upstream.in_use == 0)


async def test_a_cluster_that_is_gone_while_it_is_written_to_is_read_to_its_end(fake_cluster: FakeCluster) -> None:
    """As with a command that ends before it has read its input: its output is there all the same."""
    size = 1_000_000
    fake_cluster.behave_on_upgrade("/flood", flooding(size, "reset"))
    async with reaching(fake_cluster) as upstream:
        far = await upstream.open_websocket(Request("GET", "/flood"), ("v5.channel.k8s.io",))
        await assert_whole_output(far, size, b"\x00input that nobody reads")


@pytest.mark.parametrize(("ending", "is_sized"), [("silent", True), ("silent", False), ("cut", True)])
async def test_a_slow_reader_of_a_body_gets_all_of_it(fake_cluster: FakeCluster, is_sized: bool, ending: str) -> None:
    fake_cluster.behave("/flood", flooding_body(5_000_000, ending, is_sized=is_sized))
    async with reaching(fake_cluster) as upstream:
        response = await upstream.send(Request("GET", "/flood"))
        pieces = list[bytes]()
        while piece := await response.read_chunk():
            pieces.append(piece)
            await asyncio.sleep(0.002)
        assert digest(b"".join(pieces)) == digest(output(5_000_000))
        await until(lambda: upstream.in_use == 0)


@pytest.mark.parametrize("ending", ["reset", "cut"])
async def test_a_body_that_breaks_off_is_read_as_far_as_it_came_and_then_is_broken(
    fake_cluster: FakeCluster, ending: str
) -> None:
    """Where only the end of the connection says that all has come, TLS has to say so: TCP can be closed by anybody."""
    fake_cluster.behave("/flood", flooding_body(3_000_000, ending, is_sized=False))
    async with reaching(fake_cluster) as upstream:
        response = await upstream.send(Request("GET", "/flood"))
        pieces = list[bytes]()
        with pytest.raises(ProtocolError):
            while piece := await response.read_chunk():
                pieces.append(piece)
                await asyncio.sleep(0.002)
        assert digest(b"".join(pieces)) == digest(output(3_000_000))


class Spout(socket.socket):
    """Always has more to read."""

    def recv_into(self, *arguments: Any) -> int:
        return 1


async def test_a_connection_that_never_pauses_is_read_once_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = list[int]()
    monkeypatch.setattr(TlsTransport, "_decrypt", lambda transport: reads.append(1))
    monkeypatch.setattr(transports, "MAX_TURN_SECONDS", 60.0)
    one, other = socket.socketpair()
    with one, other:
        other.send(b"x")
        spout = Spout(fileno=one.detach())
        spout.setblocking(False)
        transport = TlsTransport(spout, ssl.create_default_context(), "far")
        transport.start(Connection(lambda gone: None))
        for _ in range(100):
            before = len(reads)
            await asyncio.sleep(0)
            assert len(reads) <= before + MAX_READS_PER_TURN
        assert len(reads) > MAX_READS_PER_TURN, "it goes on"
        transport.abort()


async def test_a_fault_of_a_protocol_ends_its_connection(
    fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(connection: Connection, data: memoryview) -> None:
        raise RuntimeError("a fault")

    told = list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context["exception"]))
    monkeypatch.setattr(Connection, "data_received", fail)
    async with reaching(fake_cluster) as upstream:
        with pytest.raises(Unreachable):
            await asyncio.wait_for(upstream.send(Request("POST", "/version")), 10)
        await until(lambda: upstream.in_use == 0 and not fake_cluster.open)
    assert [str(each) for each in told] == ["a fault"]


async def test_an_answer_that_ends_its_connection_is_held_back_like_any_other(fake_cluster: FakeCluster) -> None:
    """A body of which nobody takes anything fills no memory, whatever is to become of the connection."""
    fake_cluster.behave("/flood", flooding_body(30_000_000, "silent", is_sized=True))
    async with reaching(fake_cluster) as upstream:
        response = await upstream.send(Request("GET", "/flood"))
        for _ in range(50):
            await asyncio.sleep(0.002)
        assert not response.is_complete
        assert digest(await response.read(MUCH)) == digest(output(30_000_000))


async def test_what_is_sent_to_a_cluster_that_reads_slowly_arrives_whole(fake_cluster: FakeCluster) -> None:
    arrived, done, loop = bytearray(), asyncio.Event(), asyncio.get_running_loop()

    async def slowly(asked: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(accepted(asked))
        frames = ServerProtocol(state=OPEN, max_size=None)
        while frames.state is OPEN and (data := await reader.read(200_000)):
            frames.receive_data(data)
            for each in frames.events_received():
                if isinstance(each, Frame) and each.opcode is Opcode.BINARY:
                    arrived.extend(each.data)
            await asyncio.sleep(0.001)
        loop.call_soon_threadsafe(done.set)
        return False

    fake_cluster.behave_on_upgrade("/slow", slowly)
    content = output(5_000_000)
    async with reaching(fake_cluster) as upstream:
        far = await upstream.open_websocket(Request("GET", "/slow"), ())
        for start in range(0, len(content), 500_000):
            await far.send(content[start : start + 500_000])
        await far.close(1000, "")
        await asyncio.wait_for(done.wait(), 20)
    assert digest(bytes(arrived)) == digest(content)
