"""server.http.disconnect: closing the connection of one client."""

import asyncio
import os
import socket
from collections.abc import Collection, Iterator

import pytest

from fairlead.server.http import disconnect
from fairlead.server.http.disconnect import close_connection, close_connections, dup_connection

Pair = tuple[socket.socket, socket.socket]
"""The sockets of the server and the client."""


def connect(host: str) -> Pair:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as listener:
        client = socket.create_connection(listener.getsockname()[:2])
        server, _ = listener.accept()
    client.settimeout(10)
    return server, client


@pytest.fixture(params=["127.0.0.1", "::1"])
def pairs(request: pytest.FixtureRequest) -> Iterator[tuple[Pair, Pair]]:
    sockets = connect(request.param), connect(request.param)
    yield sockets
    for sock in (*sockets[0], *sockets[1]):
        sock.close()


def format_address(client: socket.socket) -> str:
    """The client as the HTTP server names it."""
    host, port, *_ = client.getsockname()
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def test_only_the_connection_of_the_client_is_closed(pairs: tuple[Pair, Pair]) -> None:
    (_, closed), (other, open_client) = pairs
    assert close_connections([format_address(closed)]) == 1
    assert closed.recv(1) == b"", "the connection is closed"
    other.sendall(b"x")
    assert open_client.recv(1) == b"x"


def test_a_client_that_is_not_connected_is_ignored(pairs: tuple[Pair, Pair]) -> None:
    one, other = socket.socketpair()  # a socket without an address
    with one, other:
        assert close_connections(["192.0.2.1:4711", ""]) == 0
        one.sendall(b"x")
        assert other.recv(1) == b"x"


def test_nothing_is_closed_on_a_system_without_a_descriptor_directory(
    pairs: tuple[Pair, Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disconnect, "DESCRIPTOR_DIRECTORY", "/nowhere")
    assert close_connections([format_address(pairs[0][1])]) == 0


async def test_several_connections_are_closed_with_one_lookup(
    pairs: tuple[Pair, Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    lookups = []

    def close_and_count(clients: Collection[str]) -> int:
        lookups.append(set(clients))
        return close_connections(clients)

    monkeypatch.setattr(disconnect, "close_connections", close_and_count)
    addresses = [format_address(client) for _, client in pairs]
    for address in addresses:
        close_connection(address)
    assert lookups == [], "not before the next iteration of the event loop"
    await asyncio.sleep(0)
    assert lookups == [set(addresses)]
    assert [client.recv(1) for _, client in pairs] == [b"", b""]
    close_connection("192.0.2.1:4711")
    await asyncio.sleep(0)
    assert lookups[1:] == [{"192.0.2.1:4711"}]


async def test_a_duplicate_does_not_make_the_connection_blocking(pairs: tuple[Pair, Pair]) -> None:
    (server, client), _ = pairs
    server.setblocking(False)
    first, second = await asyncio.gather(*(dup_connection(format_address(client)) for _ in range(2)))
    assert first is not None
    assert second is not None
    with first, second:
        assert os.get_blocking(server.fileno()) is False
        first.sendall(b"x")
        assert client.recv(1) == b"x"
