"""A connection stays open until its client has read everything, and no longer than that makes sense."""

import asyncio
import socket
from collections.abc import Collection, Iterator

import pytest

from fairlead.server import connections, lingering
from fairlead.server.connections import hold
from fairlead.server.lingering import linger, takes_something, unacknowledged

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


async def handle_on(client: socket.socket) -> socket.socket:
    host, port = client.getsockname()
    handle = await hold(f"{host}:{port}")
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
    assert unacknowledged(handle) > 0
    lingered = asyncio.create_task(linger(handle))
    assert await asyncio.to_thread(read_all, client) == b"x" * MUCH
    client.close()
    await asyncio.wait_for(lingered, 10)
    assert handle.fileno() == -1


async def test_a_client_that_takes_nothing_is_given_up(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lingering, "LOOK_SECONDS", 0.001)
    server, client = pair
    server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MUCH)
    server.sendall(b"x" * MUCH)
    handle = await handle_on(client)
    server.close()
    await asyncio.wait_for(linger(handle), 10)
    assert handle.fileno() == -1


async def test_a_client_that_has_everything_and_stays_is_left(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lingering, "LEAVE_SECONDS", 0.01)
    server, client = pair
    handle = await handle_on(client)
    server.close()
    await asyncio.wait_for(linger(handle), 10)
    assert client.recv(1) == b""


async def test_a_client_that_reads_is_told_from_one_that_does_not(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lingering, "LOOK_SECONDS", 0.001)
    server, client = pair
    host, port = client.getsockname()
    address = f"{host}:{port}"
    assert not await takes_something(address), "nothing is on its way"
    server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MUCH)
    server.sendall(b"x" * MUCH)
    while await takes_something(address):  # until there is no room for more at the client
        pass
    monkeypatch.setattr(lingering, "TAKING_LOOKS", 10_000)
    taking = asyncio.create_task(takes_something(address))
    while not taking.done():
        await asyncio.to_thread(client.recv, 1000)
    assert await taking
    assert not await takes_something("192.0.2.1:4711")


async def test_who_is_gone_is_not_held(pair: Pair) -> None:
    _, client = pair
    host, port = client.getsockname()
    assert await hold("192.0.2.1:4711") is None
    one, other = await asyncio.gather(hold(f"{host}:{port}"), hold("192.0.2.1:4712"))
    assert one is not None and other is None
    one.close()


async def test_many_are_found_in_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, look = list[int](), connections._connections_to

    def counted(clients: Collection[str]) -> list[socket.socket]:
        looks.append(len(clients))
        return look(clients)

    monkeypatch.setattr(connections, "_connections_to", counted)
    await asyncio.gather(*(hold(f"192.0.2.1:{port}") for port in range(1, 50)))
    assert looks == [49]
