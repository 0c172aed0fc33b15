"""A connection stays open until its client has read everything, and no longer than that makes sense."""

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
MUCH = 200_000


@pytest.fixture
def pair() -> Iterator[Pair]:
    """The server's and the client's end, of which the latter has room for little."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    with socket.create_server(("127.0.0.1", 0)) as listener, client:
        client.connect(listener.getsockname())
        server, _ = listener.accept()
        client.settimeout(10)
        with server:
            yield server, client


def address_of(client: socket.socket) -> str:
    host, port = client.getsockname()
    return f"{host}:{port}"


async def handle_on(client: socket.socket) -> socket.socket:
    handle = await dup_connection(address_of(client))
    assert handle is not None
    return handle


def read_all(client: socket.socket) -> bytes:
    arrived = b""
    while data := client.recv(1000):
        arrived += data
        client.sendall(b"ping")  # which resets a connection that is closed already
    return arrived


async def test_a_slow_client_gets_all_that_was_sent(pair: Pair) -> None:
    server, client = pair
    server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MUCH)
    server.sendall(b"x" * MUCH)
    handle = await handle_on(client)
    server.close()
    assert bytes_unacknowledged(handle) > 0
    lingered = asyncio.create_task(linger(handle))
    assert await asyncio.to_thread(read_all, client) == b"x" * MUCH
    client.close()
    await asyncio.wait_for(lingered, 10)
    assert handle.fileno() == -1


async def test_a_client_that_takes_nothing_is_given_up(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_clients, "POLL_SECONDS", 0.001)
    server, client = pair
    server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MUCH)
    server.sendall(b"x" * MUCH)
    handle = await handle_on(client)
    server.close()
    await asyncio.wait_for(linger(handle), 10)
    assert handle.fileno() == -1


async def test_a_client_that_has_everything_and_stays_is_left(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_clients, "CLOSE_TIMEOUT", 0.01)
    server, client = pair
    handle = await handle_on(client)
    server.close()
    await asyncio.wait_for(linger(handle), 10)
    assert client.recv(1) == b""


async def test_nobody_is_waited_for_longer_than_a_minute(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_clients, "LINGER_TIMEOUT", 0.0)
    monkeypatch.setattr(slow_clients, "MAX_STALLED_POLLS", 1_000_000)
    server, client = pair
    server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MUCH)
    server.sendall(b"x" * MUCH)
    handle = await handle_on(client)
    await asyncio.wait_for(linger(handle), 10)
    assert handle.fileno() == -1 and not slow_clients._lingering_sockets


async def test_only_so_many_are_waited_for_at_once(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_clients, "MAX_LINGERING", 1)
    _, client = pair
    first, second = await handle_on(client), await handle_on(client)
    waiting = asyncio.create_task(linger(first))
    await asyncio.sleep(0)
    assert not slow_clients.can_linger()
    await linger(second)
    assert (second.fileno(), waiting.done()) == (-1, False)
    client.close()
    await asyncio.wait_for(waiting, 10)
    assert slow_clients.can_linger()


@pytest.fixture
def slow(pair: Pair) -> Iterator[StallDetector]:
    made = StallDetector(address_of(pair[1]))
    yield made
    made.close()


async def fill(server: socket.socket, slow: StallDetector) -> None:
    """Sends until there is no room for more at the client."""
    server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MUCH)
    server.sendall(b"x" * MUCH)
    while await slow.is_making_progress():
        pass


async def reads_meanwhile(slow: StallDetector, client: socket.socket) -> bool:
    taking = asyncio.create_task(slow.is_making_progress())
    while not taking.done():
        await asyncio.to_thread(client.recv, 1000)
    return await taking


async def test_a_client_that_reads_is_told_from_one_that_does_not(
    pair: Pair, slow: StallDetector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slow_clients, "POLL_SECONDS", 0.001)
    server, client = pair
    assert not await slow.is_making_progress(), "nothing is on its way"
    await fill(server, slow)
    monkeypatch.setattr(slow_clients, "MAX_PROGRESS_POLLS", 10_000)
    assert await reads_meanwhile(slow, client)
    assert not await StallDetector("192.0.2.1:4711").is_making_progress()


async def test_a_client_that_reads_too_slowly_is_given_up(
    pair: Pair, slow: StallDetector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slow_clients, "POLL_SECONDS", 0.001)
    server, client = pair
    await fill(server, slow)
    slow.reset()
    monkeypatch.setattr(slow_clients, "MAX_PROGRESS_POLLS", 10_000)
    monkeypatch.setattr(slow_clients, "PROGRESS_WINDOW_SECONDS", 0.0)
    assert await reads_meanwhile(slow, client), "it has only begun to be slow"
    assert not await slow.is_making_progress(), "it takes something, but not enough in this time"
    handle = await handle_on(client)
    with handle:
        taken = bytes_acknowledged(handle)
        while bytes_acknowledged(handle) < taken + MIN_PROGRESS_BYTES:
            await asyncio.to_thread(client.recv, 1000)
    assert await reads_meanwhile(slow, client), "it has taken enough meanwhile"
    slow.reset()
    assert await reads_meanwhile(slow, client), "its stream did not stall meanwhile"


async def test_a_slow_clients_connection_is_looked_for_once(
    pair: Pair, slow: StallDetector, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, look = list[int](), disconnect._dup_connections

    def counted(clients: Collection[str]) -> list[socket.socket]:
        looks.append(len(clients))
        return look(clients)

    monkeypatch.setattr(disconnect, "_dup_connections", counted)
    assert not slow.shut_down(), "it is not known yet"
    for _ in range(3):
        await slow.is_making_progress()
    assert looks == [1]
    assert slow.shut_down()
    assert pair[1].recv(1) == b""


async def test_each_stream_of_a_connection_has_a_handle_of_its_own(pair: Pair) -> None:
    one, other = await asyncio.gather(handle_on(pair[1]), handle_on(pair[1]))
    one.close()
    assert other.getpeername() == pair[1].getsockname()
    other.close()


async def test_who_does_not_wait_for_a_handle_leaves_none_behind(pair: Pair) -> None:
    waiting = asyncio.create_task(dup_connection(address_of(pair[1])))
    await asyncio.sleep(0)
    waiting.cancel()
    other = await handle_on(pair[1])
    other.close()
    assert waiting.cancelled()
    (own,) = disconnect._dup_connections([address_of(pair[1])])
    own.close()


async def test_who_is_gone_is_not_held(pair: Pair) -> None:
    _, client = pair
    host, port = client.getsockname()
    assert await dup_connection("192.0.2.1:4711") is None
    one, other = await asyncio.gather(dup_connection(f"{host}:{port}"), dup_connection("192.0.2.1:4712"))
    assert one is not None and other is None
    one.close()


async def test_many_are_found_in_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, look = list[int](), disconnect._dup_connections

    def counted(clients: Collection[str]) -> list[socket.socket]:
        looks.append(len(clients))
        return look(clients)

    monkeypatch.setattr(disconnect, "_dup_connections", counted)
    await asyncio.gather(*(dup_connection(f"192.0.2.1:{port}") for port in range(1, 50)))
    assert looks == [49]
