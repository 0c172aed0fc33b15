"""core/framed_socket.py: frames between processes, on asyncio's event loop and on uvloop, which the server uses."""

import asyncio
import os
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from fairlead.core import framed_socket
from fairlead.core.framed_socket import (
    HIGH_WATER_BYTES,
    LENGTH,
    FramedConnection,
    connect_framed,
    encode_frame,
    serve_framed,
)

MAX_FRAME_BYTES = 4 * 1024 * 1024


class Peer:
    """One end of a connection, which records its frames."""

    def __init__(self, connection: FramedConnection) -> None:
        self.connection = connection
        self.batches: list[list[bytes]] = []
        self.is_closed = False
        self._changed = asyncio.Event()

    @property
    def frames(self) -> list[bytes]:
        return [frame for batch in self.batches for frame in batch]

    def on_frames(self, frames: list[bytes]) -> None:
        self.batches.append(frames)
        self._changed.set()

    def on_closed(self) -> None:
        assert not self.is_closed
        self.is_closed = True
        self._changed.set()

    async def wait_frames(self, count: int) -> list[bytes]:
        async with asyncio.timeout(30):
            while len(self.frames) < count:
                self._changed.clear()
                await self._changed.wait()
        return self.frames

    async def wait_closed(self) -> None:
        async with asyncio.timeout(30):
            await self.connection.wait_closed()


class Ends:
    """A server and its connected peers."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.accepted: list[Peer] = []
        self.has_accepted = asyncio.Event()

    def accept(self, connection: FramedConnection) -> Peer:
        self.accepted.append(Peer(connection))
        self.has_accepted.set()
        return self.accepted[-1]

    def serve(self) -> AbstractAsyncContextManager[None]:
        return serve_framed(self.path, self.accept, MAX_FRAME_BYTES)

    async def connect(self) -> Peer:
        peers: list[Peer] = []

        def build(connection: FramedConnection) -> Peer:
            peers.append(Peer(connection))
            return peers[-1]

        await connect_framed(self.path, build, MAX_FRAME_BYTES)
        return peers[0]

    async def connect_pair(self) -> tuple[Peer, Peer]:
        self.has_accepted.clear()
        peer = await self.connect()
        peer.connection.send(b"hello")
        async with asyncio.timeout(30):
            await self.has_accepted.wait()
        await self.accepted[-1].wait_frames(1)
        self.accepted[-1].batches.clear()
        return peer, self.accepted[-1]


@pytest.fixture
async def ends(tmp_path: Path) -> AsyncIterator[Ends]:
    ends = Ends(tmp_path / "test.socket")
    async with ends.serve():
        yield ends


async def test_frames_arrive_whole_and_in_order_in_both_directions(ends: Ends) -> None:
    client, server = await ends.connect_pair()
    sent = [b"", b"x", bytes(range(256)), b"y" * 100_000, b"z"]
    for frame in sent:
        client.connection.send(frame)
    assert await server.wait_frames(len(sent)) == sent
    server.connection.send(b"a", b"b", b"")
    server.connection.send_encoded(encode_frame(b"c", b"d") + encode_frame(b"e"))
    assert await client.wait_frames(3) == [b"ab", b"cd", b"e"]


async def test_frames_of_one_iteration_arrive_together(ends: Ends) -> None:
    client, server = await ends.connect_pair()
    for number in range(200):
        client.connection.send(b"%d" % number)
    await server.wait_frames(200)
    assert len(server.batches) == 1


async def test_a_frame_of_the_maximum_size_passes_and_a_larger_one_does_not(ends: Ends) -> None:
    client, server = await ends.connect_pair()
    largest = os.urandom(MAX_FRAME_BYTES)
    client.connection.send(largest)
    client.connection.send(b"next")
    assert await server.wait_frames(2) == [largest, b"next"]
    with pytest.raises(ValueError, match="at most 4,194,304 bytes"):
        client.connection.send(largest, b"x")


async def test_a_peer_that_announces_too_large_a_frame_is_disconnected(ends: Ends) -> None:
    client, server = await ends.connect_pair()
    client.connection.send_encoded(LENGTH.pack(MAX_FRAME_BYTES + 1))
    await server.wait_closed()
    await client.wait_closed()
    assert server.is_closed
    assert server.frames == []


async def test_frames_that_arrive_byte_by_byte_are_put_together(ends: Ends) -> None:
    client, server = await ends.connect_pair()
    for byte in encode_frame(b"slow") + encode_frame(b"") + encode_frame(b"ly"):
        client.connection.send_encoded(bytes([byte]))
        await asyncio.sleep(0.001)
    assert await server.wait_frames(3) == [b"slow", b"", b"ly"]


async def test_closing_sends_everything_first(ends: Ends) -> None:
    client, server = await ends.connect_pair()
    for _ in range(20):
        client.connection.send(bytes(1024 * 1024))
    client.connection.close()
    client.connection.send(b"too late")
    await server.wait_closed()
    assert [len(frame) for frame in server.frames] == [1024 * 1024] * 20
    assert server.is_closed
    assert client.is_closed


async def test_a_server_that_ends_sends_everything_closes_connections_and_removes_its_socket(tmp_path: Path) -> None:
    ends = Ends(tmp_path / "test.socket")
    async with ends.serve():
        client, server = await ends.connect_pair()
        server.connection.send(b"last")
    assert await client.wait_frames(1) == [b"last"]
    await client.wait_closed()
    assert server.is_closed
    assert not ends.path.exists()
    with pytest.raises(FileNotFoundError):
        await ends.connect()


async def test_a_server_that_ends_does_not_wait_forever_for_a_peer_that_does_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(framed_socket, "CLOSE_SECONDS", 0.05)
    ends = Ends(tmp_path / "test.socket")
    with socket.socket(socket.AF_UNIX) as silent:
        async with asyncio.timeout(30), ends.serve():
            silent.connect(str(ends.path))
            await ends.has_accepted.wait()
            ends.accepted[0].connection.send(bytes(MAX_FRAME_BYTES))


async def test_a_server_replaces_the_socket_of_a_killed_one(tmp_path: Path) -> None:
    ends = Ends(tmp_path / "test.socket")
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(ends.path))
    async with ends.serve():
        await ends.connect_pair()


async def test_the_socket_belongs_to_this_user_only(ends: Ends) -> None:
    assert stat.S_IMODE(ends.path.stat().st_mode) == 0o600


async def test_processes_of_other_users_are_rejected_by_both_ends(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    with pytest.raises(PermissionError, match="another user"):
        await connect_framed(ends.path, Peer, MAX_FRAME_BYTES)
    reader, writer = await asyncio.open_unix_connection(str(ends.path))
    async with asyncio.timeout(30):
        assert await reader.read() == b""
    writer.close()
    assert ends.accepted == []


async def test_the_path_may_be_longer_than_the_address_of_a_socket(tmp_path: Path) -> None:
    folder = tmp_path / ("deep" * 30)
    folder.mkdir()
    ends = Ends(folder / "test.socket")
    async with ends.serve():
        client, server = await ends.connect_pair()
        client.connection.send(b"x")
        assert await server.wait_frames(1) == [b"x"]
    assert not ends.path.exists()


async def test_a_server_does_not_read_from_a_peer_that_does_not_read(ends: Ends) -> None:
    client, server = await ends.connect_pair()
    blocked = client.connection._transport
    assert blocked is not None
    blocked.pause_reading()
    for _ in range(8):
        server.connection.send(bytes(1024 * 1024))
    await asyncio.sleep(0.01)
    assert server.connection.pending_bytes > HIGH_WATER_BYTES
    drained = asyncio.create_task(server.connection.drain())
    client.connection.send(b"request")
    await asyncio.sleep(0.05)
    assert server.frames == []
    assert not drained.done()
    blocked.resume_reading()
    assert await server.wait_frames(1) == [b"request"]
    await drained
    await client.wait_frames(8)
    assert server.connection.pending_bytes == 0


async def test_a_handler_that_fails_loses_its_connection_only(ends: Ends) -> None:
    client, server = await ends.connect_pair()
    other, other_server = await ends.connect_pair()

    def fail(frames: list[bytes]) -> None:
        raise ValueError("a handler's error")

    server.on_frames = fail  # type: ignore[method-assign]
    # The loop reports the error to its exception handler, which would log it.
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
    client.connection.send(b"x")
    await client.wait_closed()
    other.connection.send(b"y")
    assert await other_server.wait_frames(1) == [b"y"]
    assert [str(error) for error in reported] == ["a handler's error"]
