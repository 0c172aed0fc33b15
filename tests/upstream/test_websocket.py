"""WebSockets to a cluster, framed as exec and port-forward are."""

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
from tests.fake_cluster.behaviours import sending
from tests.fake_cluster.exchange import RecordedRequest
from tests.fake_cluster.exec_websockets import accepted
from tests.fake_cluster.server import FakeCluster
from tests.upstream.upstreams import reaching, until

EXEC = Request("GET", "/api/v1/namespaces/n/pods/p/exec?command=sh&stdin=true")
FORWARD = Request("GET", "/api/v1/namespaces/n/pods/p/portforward")
CHANNELS = ("v5.channel.k8s.io",)
TUNNEL = ("SPDY/3.1+portforward.k8s.io",)


async def all_gone(upstream: Upstream) -> None:
    await until(lambda: upstream.in_use == 0)


async def test_exec_talks_both_ways_and_ends_with_a_status(fake_cluster: FakeCluster) -> None:
    async with reaching(fake_cluster) as upstream:
        far = await upstream.open_websocket(EXEC, ("v9.channel.k8s.io", *CHANNELS))
        assert far.subprotocol == "v5.channel.k8s.io"
        await far.send(b"\x00ls\n")
        assert await far.receive() == b"\x01ls\n"
        await far.send(b"\xff\x00")
        assert await far.receive() == b'\x03{"metadata":{},"status":"Success"}'
        assert await far.receive() is None
        assert far.close_reason == (1000, "")
        await far.send(b"\x00more\n")
        await all_gone(upstream)


async def test_a_tunnel_carries_any_bytes(fake_cluster: FakeCluster) -> None:
    async with reaching(fake_cluster) as upstream:
        far = await upstream.open_websocket(FORWARD, TUNNEL)
        assert far.subprotocol == TUNNEL[0]
        for message in (b"\x80\x03\x00\x01" * 50_000, b"", bytes(range(256)), "text"):
            await far.send(message)
            assert await far.receive() == message
        await far.close(1000, "done")
        assert await far.receive() is None
        await all_gone(upstream)


async def test_the_credential_goes_along_and_the_clients_handshake_does_not(fake_cluster: FakeCluster) -> None:
    headers = [
        ("Sec-WebSocket-Key", "x"),
        ("sec-websocket-extensions", "permessage-deflate"),
        ("Cookie", "a"),
        ("X", "y"),
    ]
    async with reaching(fake_cluster, base_path="/below") as upstream:
        await upstream.open_websocket(
            Request("GET", "/x/exec?a=b", [*headers, ("Authorization", "Bearer client")]), CHANNELS
        )
    seen = fake_cluster.seen[0]
    assert seen.target == "/below/x/exec?a=b"
    assert seen.all("authorization") == ["Bearer stored-token"]
    assert (seen.all("x"), seen.all("cookie"), seen.all("sec-websocket-extensions")) == (["y"], [], [])
    assert seen.all("sec-websocket-key") != ["x"]


async def test_t20_any_answer_but_101_closes_the_connection(fake_cluster: FakeCluster) -> None:
    async with reaching(fake_cluster) as upstream:
        with pytest.raises(HandshakeRejected) as caught:
            await upstream.open_websocket(Request("GET", "/far/refuse"), CHANNELS)
        assert caught.value.status == 403
        assert b"no exec for you" in caught.value.body
        assert upstream.in_use == 0
        await until(lambda: not fake_cluster.open)


SWITCH = b"HTTP/1.1 101 Switching Protocols\r\n"


@pytest.mark.parametrize(
    "answer",
    [
        SWITCH + b"upgrade: websocket\r\nconnection: upgrade\r\n\r\n",
        SWITCH + b"upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-accept: wrong\r\n\r\n",
        SWITCH + b"\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 100000000\r\n\r\n",
    ],
)
async def test_t20_a_101_that_is_not_right_opens_nothing(fake_cluster: FakeCluster, answer: bytes) -> None:
    fake_cluster.behave_on_upgrade("/wrong", sending(answer))
    async with reaching(fake_cluster, Limits(response_header_seconds=0.3)) as upstream:
        with pytest.raises((ProtocolError, TimedOut)):
            await upstream.open_websocket(Request("GET", "/wrong"), CHANNELS)
        assert upstream.in_use == 0
        await until(lambda: not fake_cluster.open)


async def test_a_cluster_that_hangs_up_is_told_by_receive(fake_cluster: FakeCluster) -> None:
    async with reaching(fake_cluster) as upstream:
        far = await upstream.open_websocket(Request("GET", "/far/slam"), ())
        assert await far.receive() is None
        assert far.close_reason == (1006, "")
        await all_gone(upstream)


async def test_a_cluster_that_does_not_listen_holds_back_the_sender_until_closed(fake_cluster: FakeCluster) -> None:
    async with reaching(fake_cluster) as upstream:
        far = await upstream.open_websocket(Request("GET", "/far/deaf"), ())

        async def flood() -> None:
            for _ in range(200):
                await far.send(b"x" * 1_000_000)

        flooding = asyncio.create_task(flood())
        done, _ = await asyncio.wait([flooding], timeout=0.3)
        assert not done
        await far.close(1008, "key revoked")
        await asyncio.wait_for(flooding, 5)
        assert await far.receive() is None
        await all_gone(upstream)


async def test_messages_that_nobody_takes_hold_back_the_cluster(fake_cluster: FakeCluster) -> None:
    async with reaching(fake_cluster) as upstream:
        far = await upstream.open_websocket(FORWARD, TUNNEL)

        async def flood() -> None:
            for _ in range(100):
                await far.send(b"x" * 1_000_000)

        flooding = asyncio.create_task(flood())
        done, _ = await asyncio.wait([flooding], timeout=0.3)
        assert not done
        for _ in range(100):
            assert await far.receive() == b"x" * 1_000_000
        await flooding


async def test_sockets_have_a_limit_of_their_own(fake_cluster: FakeCluster) -> None:
    async with reaching(fake_cluster, Limits(max_websockets=1, max_queued=0)) as upstream:
        far = await upstream.open_websocket(EXEC, CHANNELS)
        with pytest.raises(ClusterLimitExceeded):
            await upstream.open_websocket(EXEC, CHANNELS)
        assert upstream.in_use == 1
        await far.close(1000, "")
        await all_gone(upstream)
        await upstream.open_websocket(EXEC, CHANNELS)


async def test_closing_the_upstream_ends_its_sockets(fake_cluster: FakeCluster) -> None:
    async with reaching(fake_cluster) as upstream:
        far = await upstream.open_websocket(EXEC, CHANNELS)
        await upstream.close()
        assert await far.receive() is None
        await all_gone(upstream)


@pytest.mark.parametrize("code", [1000, 1005, 1006, 0, 5000])
async def test_any_code_closes(fake_cluster: FakeCluster, code: int) -> None:
    async with reaching(fake_cluster) as upstream:
        far = await upstream.open_websocket(EXEC, CHANNELS)
        await far.close(code, "\u20ac" * 100)
        await all_gone(upstream)


async def test_frames_that_are_none_end_the_socket(fake_cluster: FakeCluster) -> None:
    async def nonsense(asked: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(accepted(asked) + b"\xff\xff\xff\xff\xff")
        await reader.read()
        return False

    fake_cluster.behave_on_upgrade("/nonsense", nonsense)
    async with reaching(fake_cluster) as upstream:
        far = await upstream.open_websocket(Request("GET", "/nonsense"), CHANNELS)
        assert await far.receive() is None
        await all_gone(upstream)


class Line(asyncio.Transport):
    """A transport to nowhere, which keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.reads = True
        self.is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent.append(bytes(data))

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True


def on_a_line() -> tuple[UpstreamWebSocket, Line]:
    far, line = UpstreamWebSocket(""), Line()
    far.connection_made(line)
    return far, line


def frame(opcode: Opcode, data: bytes = b"", *, fin: bool = True) -> bytes:
    return Frame(opcode, data, fin=fin).serialize(mask=False)


async def test_empty_messages_that_nobody_takes_stop_the_reading_too() -> None:
    far, line = on_a_line()
    far.data_received(frame(Opcode.BINARY) * (HIGH_WATER_BYTES // MIN_MESSAGE_WEIGHT))
    await until(lambda: line.reads)  # all of it is parsed
    far.data_received(frame(Opcode.BINARY))
    assert not line.reads
    for _ in range(HIGH_WATER_BYTES // MIN_MESSAGE_WEIGHT + 1):
        assert await far.receive() == b""
    assert line.reads, "all of it was taken"


async def test_a_message_in_very_many_pieces_takes_no_more_than_its_bytes() -> None:
    far, _ = on_a_line()
    far.data_received(frame(Opcode.BINARY, b"a", fin=False) + frame(Opcode.CONT, fin=False) * 1000)
    far.data_received(frame(Opcode.CONT, b"b", fin=False) + frame(Opcode.CONT, b"c"))
    assert await far.receive() == b"abc"
    far.data_received(frame(Opcode.TEXT, b"next"))
    assert await far.receive() == "next"


async def test_pings_of_a_cluster_that_does_not_listen_fill_no_memory() -> None:
    far, line = on_a_line()
    far.data_received(frame(Opcode.PING, b"heard"))
    assert len(line.sent) == 1
    far.pause_writing()
    for number in range(1000):
        far.data_received(frame(Opcode.PING, b"%d" % number))
    far.data_received(frame(Opcode.BINARY, b"message"))
    assert await far.receive() == b"message", "what the cluster says is heard meanwhile"
    assert len(line.sent) == 1
    far.resume_writing()
    (_, last) = line.sent
    server = Protocol(SERVER)
    server.receive_data(last)
    (pong,) = server.events_received()
    assert isinstance(pong, Frame) and (pong.opcode, bytes(pong.data)) == (Opcode.PONG, b"999")


async def test_very_small_frames_are_parsed_slice_by_slice_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "MAX_TURN_SECONDS", 0.0)
    far, line = on_a_line()
    messages = [b"%d" % number for number in range(1000)]
    far.data_received(b"".join(frame(Opcode.BINARY, each) for each in messages))
    assert 0 < len(far._messages) * 3 <= PARSE_SLICE_BYTES
    assert not line.reads, "no more is taken in meanwhile"
    far.data_received(frame(Opcode.BINARY, b"last"))
    assert [await far.receive() for _ in range(1001)] == [*messages, b"last"]
    assert line.reads


async def test_what_is_not_parsed_yet_outlives_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "MAX_TURN_SECONDS", 0.0)
    monkeypatch.setattr(websocket, "HIGH_WATER_BYTES", 10 * MIN_MESSAGE_WEIGHT)
    far, _ = on_a_line()
    far.data_received(frame(Opcode.BINARY, b"x") * 5000 + frame(Opcode.CLOSE, b"\x03\xe8"))
    far.connection_lost(None)
    assert [await far.receive() for _ in range(5001)] == [b"x"] * 5000 + [None]
    assert far.close_reason == (1000, "")


SCRAPS = {
    "pings": frame(Opcode.PING),
    "pongs": frame(Opcode.PONG),
    "empty": frame(Opcode.CONT, fin=False),
    "small": frame(Opcode.CONT, b"a", fin=False),
}


@pytest.mark.parametrize("scrap", SCRAPS)
async def test_a_cluster_that_sends_very_many_frames_with_nothing_in_them_is_left(scrap: str) -> None:
    far, line = on_a_line()
    far.data_received(frame(Opcode.BINARY, b"heard") + frame(Opcode.BINARY, b"begun", fin=False))
    far.data_received(SCRAPS[scrap] * 20_000)
    assert await far.receive() == b"heard"
    assert await asyncio.wait_for(far.receive(), 10) is None
    assert line.is_aborted and len(line.sent) < MAX_IDLE_FRAMES_PER_SECOND * 2
    assert far.close_reason == (1008, "the cluster sent more than 2000 empty frames a second")


async def test_a_fault_of_ours_ends_a_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(far: UpstreamWebSocket, piece: bytes) -> None:
        raise RuntimeError("a fault")

    told = list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context["exception"]))
    far, line = on_a_line()
    monkeypatch.setattr(UpstreamWebSocket, "_parse_slice", fail)
    far.data_received(frame(Opcode.BINARY, b"x"))
    assert await far.receive() is None
    assert line.is_aborted and [str(each) for each in told] == ["a fault"]


async def test_everybody_who_wants_to_know_is_told_that_a_socket_is_gone() -> None:
    far, _ = on_a_line()
    told = list[str]()
    far.on_closed(lambda gone: told.append("one"))
    far.on_closed(lambda gone: told.append("other"))
    far.connection_lost(None)
    far.on_closed(lambda gone: told.append("late"))
    assert told == ["one", "other", "late"]
