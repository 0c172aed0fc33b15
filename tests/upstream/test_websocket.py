"""Tests of `fairlead.upstream.websocket`: WebSockets to a cluster, with the framing of exec and port-forward."""

import asyncio

import pytest
from websockets.frames import Frame, Opcode
from websockets.protocol import SERVER, Protocol

from fairlead.upstream import websocket
from fairlead.upstream.errors import ClusterLimitExceeded, HandshakeRejected, ProtocolError, TimedOut
from fairlead.upstream.upstream import Limits, Request, Upstream
from fairlead.upstream.websocket import (
    HIGH_WATER_BYTES,
    MAX_IDLE_FRAMES_PER_SECOND,
    MIN_MESSAGE_WEIGHT,
    PARSE_SLICE_BYTES,
    UpstreamWebSocket,
)
from tests.fake_cluster.behaviours import respond_with_bytes
from tests.fake_cluster.exchange import RecordedRequest
from tests.fake_cluster.exec_websockets import build_upgrade_response
from tests.fake_cluster.server import FakeCluster
from tests.harness.eventually import eventually
from tests.upstream.upstreams import connect_upstream

EXEC = Request("GET", "/api/v1/namespaces/n/pods/p/exec?command=sh&stdin=true")
FORWARD = Request("GET", "/api/v1/namespaces/n/pods/p/portforward")
CHANNELS = ("v5.channel.k8s.io",)
TUNNEL = ("SPDY/3.1+portforward.k8s.io",)


async def wait_until_unused(upstream: Upstream) -> None:
    await eventually(lambda: upstream.in_use == 0)


async def test_exec_sends_and_receives_and_ends_with_a_status(fake_cluster: FakeCluster) -> None:
    async with connect_upstream(fake_cluster) as upstream:
        socket = await upstream.open_websocket(EXEC, ("v9.channel.k8s.io", *CHANNELS))
        assert socket.subprotocol == "v5.channel.k8s.io"
        await socket.send(b"\x00ls\n")
        assert await socket.receive() == b"\x01ls\n"
        await socket.send(b"\xff\x00")
        assert await socket.receive() == b'\x03{"metadata":{},"status":"Success"}'
        assert await socket.receive() is None
        assert socket.close_reason == (1000, "")
        await socket.send(b"\x00more\n")
        await wait_until_unused(upstream)


async def test_port_forward_transfers_any_bytes(fake_cluster: FakeCluster) -> None:
    async with connect_upstream(fake_cluster) as upstream:
        socket = await upstream.open_websocket(FORWARD, TUNNEL)
        assert socket.subprotocol == TUNNEL[0]
        for message in (b"\x80\x03\x00\x01" * 50_000, b"", bytes(range(256)), "text"):
            await socket.send(message)
            assert await socket.receive() == message
        await socket.close(1000, "done")
        assert await socket.receive() is None
        await wait_until_unused(upstream)


async def test_the_stored_credential_is_sent_and_the_handshake_of_the_client_is_not(fake_cluster: FakeCluster) -> None:
    headers = [
        ("Sec-WebSocket-Key", "x"),
        ("sec-websocket-extensions", "permessage-deflate"),
        ("Cookie", "a"),
        ("X", "y"),
    ]
    async with connect_upstream(fake_cluster, base_path="/below") as upstream:
        await upstream.open_websocket(
            Request("GET", "/x/exec?a=b", [*headers, ("Authorization", "Bearer client")]), CHANNELS
        )
    request = fake_cluster.requests[0]
    assert request.target == "/below/x/exec?a=b"
    assert request.header_values("authorization") == ["Bearer stored-token"]
    assert (
        request.header_values("x"),
        request.header_values("cookie"),
        request.header_values("sec-websocket-extensions"),
    ) == (["y"], [], [])
    assert request.header_values("sec-websocket-key") != ["x"]


async def test_t20_any_status_but_101_closes_the_connection(fake_cluster: FakeCluster) -> None:
    async with connect_upstream(fake_cluster) as upstream:
        with pytest.raises(HandshakeRejected) as caught:
            await upstream.open_websocket(Request("GET", "/fake/refuse"), CHANNELS)
        assert caught.value.status == 403
        assert b"exec is forbidden" in caught.value.body
        assert upstream.in_use == 0
        await eventually(lambda: not fake_cluster.open_connections)


SWITCHING_PROTOCOLS = b"HTTP/1.1 101 Switching Protocols\r\n"


@pytest.mark.parametrize(
    "response",
    [
        SWITCHING_PROTOCOLS + b"upgrade: websocket\r\nconnection: upgrade\r\n\r\n",
        SWITCHING_PROTOCOLS + b"upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-accept: wrong\r\n\r\n",
        SWITCHING_PROTOCOLS + b"\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 100000000\r\n\r\n",
    ],
)
async def test_t20_an_invalid_101_does_not_open_a_websocket(fake_cluster: FakeCluster, response: bytes) -> None:
    fake_cluster.set_upgrade_behaviour("/wrong", respond_with_bytes(response))
    async with connect_upstream(fake_cluster, Limits(response_header_seconds=0.3)) as upstream:
        with pytest.raises((ProtocolError, TimedOut)):
            await upstream.open_websocket(Request("GET", "/wrong"), CHANNELS)
        assert upstream.in_use == 0
        await eventually(lambda: not fake_cluster.open_connections)


async def test_receive_returns_none_when_the_cluster_disconnects(fake_cluster: FakeCluster) -> None:
    async with connect_upstream(fake_cluster) as upstream:
        socket = await upstream.open_websocket(Request("GET", "/fake/slam"), ())
        assert await socket.receive() is None
        assert socket.close_reason == (1006, "")
        await wait_until_unused(upstream)


async def test_a_cluster_that_does_not_read_blocks_the_sender_until_closed(fake_cluster: FakeCluster) -> None:
    async with connect_upstream(fake_cluster) as upstream:
        socket = await upstream.open_websocket(Request("GET", "/fake/deaf"), ())

        async def send_many() -> None:
            for _ in range(200):
                await socket.send(b"x" * 1_000_000)

        send_task = asyncio.create_task(send_many())
        done, _ = await asyncio.wait([send_task], timeout=0.3)
        assert not done
        await socket.close(1008, "key revoked")
        await asyncio.wait_for(send_task, 40)
        assert await socket.receive() is None
        await wait_until_unused(upstream)


async def test_messages_that_are_not_read_block_the_cluster(fake_cluster: FakeCluster) -> None:
    async with connect_upstream(fake_cluster) as upstream:
        socket = await upstream.open_websocket(FORWARD, TUNNEL)

        async def send_many() -> None:
            for _ in range(100):
                await socket.send(b"x" * 1_000_000)

        send_task = asyncio.create_task(send_many())
        done, _ = await asyncio.wait([send_task], timeout=0.3)
        assert not done
        for _ in range(100):
            assert await socket.receive() == b"x" * 1_000_000
        await send_task


async def test_websockets_have_their_own_limit(fake_cluster: FakeCluster) -> None:
    async with connect_upstream(fake_cluster, Limits(max_websockets=1, max_queued=0)) as upstream:
        socket = await upstream.open_websocket(EXEC, CHANNELS)
        with pytest.raises(ClusterLimitExceeded):
            await upstream.open_websocket(EXEC, CHANNELS)
        assert upstream.in_use == 1
        await socket.close(1000, "")
        await wait_until_unused(upstream)
        await upstream.open_websocket(EXEC, CHANNELS)


async def test_closing_the_upstream_closes_its_websockets(fake_cluster: FakeCluster) -> None:
    async with connect_upstream(fake_cluster) as upstream:
        socket = await upstream.open_websocket(EXEC, CHANNELS)
        await upstream.close()
        assert await socket.receive() is None
        await wait_until_unused(upstream)


@pytest.mark.parametrize("code", [1000, 1005, 1006, 0, 5000])
async def test_any_close_code_closes_the_websocket(fake_cluster: FakeCluster, code: int) -> None:
    async with connect_upstream(fake_cluster) as upstream:
        socket = await upstream.open_websocket(EXEC, CHANNELS)
        await socket.close(code, "\u20ac" * 100)
        await wait_until_unused(upstream)


async def test_invalid_frames_close_the_websocket(fake_cluster: FakeCluster) -> None:
    async def send_garbage(
        request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        writer.write(build_upgrade_response(request) + b"\xff\xff\xff\xff\xff")
        await reader.read()
        return False

    fake_cluster.set_upgrade_behaviour("/nonsense", send_garbage)
    async with connect_upstream(fake_cluster) as upstream:
        socket = await upstream.open_websocket(Request("GET", "/nonsense"), CHANNELS)
        assert await socket.receive() is None
        await wait_until_unused(upstream)


class RecordingTransport(asyncio.Transport):
    """A transport that records what is sent."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.reads_data = True
        self.is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent.append(bytes(data))

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.reads_data = False

    def resume_reading(self) -> None:
        self.reads_data = True


def open_socket() -> tuple[UpstreamWebSocket, RecordingTransport]:
    socket, transport = UpstreamWebSocket(""), RecordingTransport()
    socket.connection_made(transport)
    return socket, transport


def build_frame(opcode: Opcode, data: bytes = b"", *, fin: bool = True) -> bytes:
    return Frame(opcode, data, fin=fin).serialize(mask=False)


async def test_empty_messages_that_are_not_read_pause_reading() -> None:
    socket, transport = open_socket()
    socket.data_received(build_frame(Opcode.BINARY) * (HIGH_WATER_BYTES // MIN_MESSAGE_WEIGHT))
    await eventually(lambda: transport.reads_data)  # all frames are parsed
    socket.data_received(build_frame(Opcode.BINARY))
    assert not transport.reads_data
    for _ in range(HIGH_WATER_BYTES // MIN_MESSAGE_WEIGHT + 1):
        assert await socket.receive() == b""
    assert transport.reads_data, "all messages were read"


async def test_a_message_in_very_many_fragments_is_joined() -> None:
    socket, _ = open_socket()
    socket.data_received(build_frame(Opcode.BINARY, b"a", fin=False) + build_frame(Opcode.CONT, fin=False) * 1000)
    socket.data_received(build_frame(Opcode.CONT, b"b", fin=False) + build_frame(Opcode.CONT, b"c"))
    assert await socket.receive() == b"abc"
    socket.data_received(build_frame(Opcode.TEXT, b"next"))
    assert await socket.receive() == "next"


async def test_pings_of_a_cluster_that_does_not_read_are_not_buffered() -> None:
    socket, transport = open_socket()
    socket.data_received(build_frame(Opcode.PING, b"first"))
    assert len(transport.sent) == 1
    socket.pause_writing()
    for number in range(1000):
        socket.data_received(build_frame(Opcode.PING, b"%d" % number))
    socket.data_received(build_frame(Opcode.BINARY, b"message"))
    assert await socket.receive() == b"message", "messages of the cluster are received meanwhile"
    assert len(transport.sent) == 1
    socket.resume_writing()
    (_, last) = transport.sent
    server = Protocol(SERVER)
    server.receive_data(last)
    (pong,) = server.events_received()
    assert isinstance(pong, Frame) and (pong.opcode, bytes(pong.data)) == (Opcode.PONG, b"999")


async def test_very_small_frames_are_parsed_in_slices_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "MAX_TURN_SECONDS", 0.0)
    socket, transport = open_socket()
    messages = [b"%d" % number for number in range(1000)]
    socket.data_received(b"".join(build_frame(Opcode.BINARY, message) for message in messages))
    assert 0 < len(socket._messages) * 3 <= PARSE_SLICE_BYTES
    assert not transport.reads_data, "reading is paused meanwhile"
    socket.data_received(build_frame(Opcode.BINARY, b"last"))
    assert [await socket.receive() for _ in range(1001)] == [*messages, b"last"]
    assert transport.reads_data


async def test_unparsed_data_is_parsed_after_the_connection_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "MAX_TURN_SECONDS", 0.0)
    monkeypatch.setattr(websocket, "HIGH_WATER_BYTES", 10 * MIN_MESSAGE_WEIGHT)
    socket, _ = open_socket()
    socket.data_received(build_frame(Opcode.BINARY, b"x") * 5000 + build_frame(Opcode.CLOSE, b"\x03\xe8"))
    socket.connection_lost(None)
    assert [await socket.receive() for _ in range(5001)] == [b"x"] * 5000 + [None]
    assert socket.close_reason == (1000, "")


IDLE_FRAMES = {
    "pings": build_frame(Opcode.PING),
    "pongs": build_frame(Opcode.PONG),
    "empty": build_frame(Opcode.CONT, fin=False),
    "small": build_frame(Opcode.CONT, b"a", fin=False),
}


@pytest.mark.parametrize("frame_kind", IDLE_FRAMES)
async def test_a_cluster_that_sends_too_many_idle_frames_is_disconnected(frame_kind: str) -> None:
    socket, transport = open_socket()
    socket.data_received(build_frame(Opcode.BINARY, b"first") + build_frame(Opcode.BINARY, b"partial", fin=False))
    socket.data_received(IDLE_FRAMES[frame_kind] * 20_000)
    assert await socket.receive() == b"first"
    assert await asyncio.wait_for(socket.receive(), 40) is None
    assert transport.is_aborted and len(transport.sent) < MAX_IDLE_FRAMES_PER_SECOND * 2
    assert socket.close_reason == (1008, "the cluster sent more than 2000 empty frames a second")


async def test_an_exception_in_the_parser_closes_the_websocket(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(socket: UpstreamWebSocket, data: bytes) -> None:
        raise RuntimeError("a fault")

    errors = list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: errors.append(context["exception"]))
    socket, transport = open_socket()
    monkeypatch.setattr(UpstreamWebSocket, "_parse_slice", fail)
    socket.data_received(build_frame(Opcode.BINARY, b"x"))
    assert await socket.receive() is None
    assert transport.is_aborted and [str(error) for error in errors] == ["a fault"]


async def test_all_close_callbacks_are_called_even_if_added_late() -> None:
    socket, _ = open_socket()
    callbacks = list[str]()
    socket.on_closed(lambda socket: callbacks.append("one"))
    socket.on_closed(lambda socket: callbacks.append("other"))
    socket.connection_lost(None)
    socket.on_closed(lambda socket: callbacks.append("late"))
    assert callbacks == ["one", "other", "late"]
