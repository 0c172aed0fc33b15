"""server.http.slow_clients: a connection stays open until its client has read everything, within limits."""

import asyncio
import socket
from collections.abc import Collection, Iterator

import pytest

from fairlead.server.http import disconnect, slow_clients
from fairlead.server.http.disconnect import dup_connection
from fairlead.server.http.slow_clients import (
    MIN_PROGRESS_BYTES,
    StallDetector,
    bytes_acknowledged,
    bytes_unacknowledged,
    linger,
)

Pair = tuple[socket.socket, socket.socket]
LARGE_SIZE = 200_000


@pytest.fixture
def pair() -> Iterator[Pair]:
    """The sockets of the server and the client; the client has a small receive buffer."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    with socket.create_server(("127.0.0.1", 0)) as listener, client:
        client.connect(listener.getsockname())
        server, _ = listener.accept()
        client.settimeout(10)
        with server:
            yield server, client


def format_address(client: socket.socket) -> str:
    host, port = client.getsockname()
    return f"{host}:{port}"


async def dup_client_connection(client: socket.socket) -> socket.socket:
    handle = await dup_connection(format_address(client))
    assert handle is not None
    return handle


def read_all(client: socket.socket) -> bytes:
    received = b""
    while data := client.recv(1000):
        received += data
        client.sendall(b"ping")  # resets a connection that is already closed
    return received


async def test_a_slow_client_gets_all_data(pair: Pair) -> None:
    server, client = pair
    server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LARGE_SIZE)
    server.sendall(b"x" * LARGE_SIZE)
    handle = await dup_client_connection(client)
    server.close()
    assert bytes_unacknowledged(handle) > 0
    lingering = asyncio.create_task(linger(handle))
    assert await asyncio.to_thread(read_all, client) == b"x" * LARGE_SIZE
    client.close()
    await asyncio.wait_for(lingering, 40)
    assert handle.fileno() == -1


async def test_a_connection_without_progress_is_closed(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_clients, "POLL_SECONDS", 0.001)
    server, client = pair
    server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LARGE_SIZE)
    server.sendall(b"x" * LARGE_SIZE)
    handle = await dup_client_connection(client)
    server.close()
    await asyncio.wait_for(linger(handle), 40)
    assert handle.fileno() == -1


async def test_a_client_that_has_everything_is_closed_after_the_timeout(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slow_clients, "CLOSE_TIMEOUT", 0.01)
    server, client = pair
    handle = await dup_client_connection(client)
    server.close()
    await asyncio.wait_for(linger(handle), 40)
    assert client.recv(1) == b""


async def test_lingering_has_a_timeout(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_clients, "LINGER_TIMEOUT", 0.0)
    monkeypatch.setattr(slow_clients, "MAX_STALLED_POLLS", 1_000_000)
    server, client = pair
    server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LARGE_SIZE)
    server.sendall(b"x" * LARGE_SIZE)
    handle = await dup_client_connection(client)
    await asyncio.wait_for(linger(handle), 40)
    assert handle.fileno() == -1 and not slow_clients._lingering_sockets


async def test_the_number_of_lingering_connections_is_limited(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_clients, "MAX_LINGERING", 1)
    _, client = pair
    first, second = await dup_client_connection(client), await dup_client_connection(client)
    lingering = asyncio.create_task(linger(first))
    await asyncio.sleep(0)
    assert not slow_clients.can_linger()
    await linger(second)
    assert (second.fileno(), lingering.done()) == (-1, False)
    client.close()
    await asyncio.wait_for(lingering, 40)
    assert slow_clients.can_linger()


@pytest.fixture
def detector(pair: Pair) -> Iterator[StallDetector]:
    detector = StallDetector(format_address(pair[1]))
    yield detector
    detector.close()


async def fill_buffers(server: socket.socket, detector: StallDetector) -> None:
    """Sends until the buffers of the client are full."""
    server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LARGE_SIZE)
    server.sendall(b"x" * LARGE_SIZE)
    while await detector.is_making_progress():
        pass


async def check_progress_while_reading(detector: StallDetector, client: socket.socket) -> bool:
    checking = asyncio.create_task(detector.is_making_progress())
    while not checking.done():
        await asyncio.to_thread(client.recv, 1000)
    return await checking


async def test_a_client_that_reads_makes_progress_and_others_do_not(
    pair: Pair, detector: StallDetector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slow_clients, "POLL_SECONDS", 0.001)
    server, client = pair
    assert not await detector.is_making_progress(), "nothing has been sent"
    await fill_buffers(server, detector)
    monkeypatch.setattr(slow_clients, "MAX_PROGRESS_POLLS", 10_000)
    assert await check_progress_while_reading(detector, client)
    assert not await StallDetector("192.0.2.1:4711").is_making_progress()


async def test_a_client_that_reads_too_slowly_makes_no_progress(
    pair: Pair, detector: StallDetector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slow_clients, "POLL_SECONDS", 0.001)
    server, client = pair
    await fill_buffers(server, detector)
    detector.reset()
    monkeypatch.setattr(slow_clients, "MAX_PROGRESS_POLLS", 10_000)
    monkeypatch.setattr(slow_clients, "PROGRESS_WINDOW_SECONDS", 0.0)
    assert await check_progress_while_reading(detector, client), "the progress window has only begun"
    assert not await detector.is_making_progress(), "it reads something, but not enough in this window"
    handle = await dup_client_connection(client)
    with handle:
        acknowledged = bytes_acknowledged(handle)
        while bytes_acknowledged(handle) < acknowledged + MIN_PROGRESS_BYTES:
            await asyncio.to_thread(client.recv, 1000)
    assert await check_progress_while_reading(detector, client), "it has read enough since then"
    detector.reset()
    assert await check_progress_while_reading(detector, client), "the detector was reset"


async def test_the_connection_of_a_slow_client_is_looked_up_once(
    pair: Pair, detector: StallDetector, monkeypatch: pytest.MonkeyPatch
) -> None:
    lookup_sizes, dup_connections = list[int](), disconnect._dup_connections

    def dup_and_count(clients: Collection[str]) -> list[socket.socket]:
        lookup_sizes.append(len(clients))
        return dup_connections(clients)

    monkeypatch.setattr(disconnect, "_dup_connections", dup_and_count)
    assert not detector.shut_down(), "its connection has not been found yet"
    for _ in range(3):
        await detector.is_making_progress()
    assert lookup_sizes == [1]
    assert detector.shut_down()
    assert pair[1].recv(1) == b""


async def test_each_stream_of_a_connection_has_its_own_handle(pair: Pair) -> None:
    one, other = await asyncio.gather(dup_client_connection(pair[1]), dup_client_connection(pair[1]))
    one.close()
    assert other.getpeername() == pair[1].getsockname()
    other.close()


async def test_a_cancelled_lookup_leaves_no_handle(pair: Pair) -> None:
    lookup = asyncio.create_task(dup_connection(format_address(pair[1])))
    await asyncio.sleep(0)
    lookup.cancel()
    other = await dup_client_connection(pair[1])
    other.close()
    assert lookup.cancelled()
    (handle,) = disconnect._dup_connections([format_address(pair[1])])
    handle.close()


async def test_a_lookup_of_a_disconnected_client_returns_none(pair: Pair) -> None:
    _, client = pair
    host, port = client.getsockname()
    assert await dup_connection("192.0.2.1:4711") is None
    one, other = await asyncio.gather(dup_connection(f"{host}:{port}"), dup_connection("192.0.2.1:4712"))
    assert one is not None and other is None
    one.close()


async def test_many_connections_are_found_in_one_lookup(monkeypatch: pytest.MonkeyPatch) -> None:
    lookup_sizes, dup_connections = list[int](), disconnect._dup_connections

    def dup_and_count(clients: Collection[str]) -> list[socket.socket]:
        lookup_sizes.append(len(clients))
        return dup_connections(clients)

    monkeypatch.setattr(disconnect, "_dup_connections", dup_and_count)
    await asyncio.gather(*(dup_connection(f"192.0.2.1:{port}") for port in range(1, 50)))
    assert lookup_sizes == [49]
