"""Cutting a client's connection: that one, and no other."""

import asyncio
import socket
from collections.abc import Collection, Iterator

import pytest

from fairlead.server.http import disconnect
from fairlead.server.http.disconnect import close_connection, close_connections

Pair = tuple[socket.socket, socket.socket]
"""The server's and the client's end."""


def connect(host: str) -> Pair:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as listener:
        client = socket.create_connection(listener.getsockname()[:2])
        server, _ = listener.accept()
    client.settimeout(10)
    return server, client


@pytest.fixture(params=["127.0.0.1", "::1"])
def pairs(request: pytest.FixtureRequest) -> Iterator[tuple[Pair, Pair]]:
    made = connect(request.param), connect(request.param)
    yield made
    for end in (*made[0], *made[1]):
        end.close()


def address_of(client: socket.socket) -> str:
    """The client as the HTTP server names it."""
    host, port, *_ = client.getsockname()
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def test_the_client_notices_and_others_do_not(pairs: tuple[Pair, Pair]) -> None:
    (_, ended), (other, kept) = pairs
    assert close_connections([address_of(ended)]) == 1
    assert ended.recv(1) == b"", "the connection is at its end"
    other.sendall(b"x")
    assert kept.recv(1) == b"x"


def test_who_is_not_there_cannot_be_cut(pairs: tuple[Pair, Pair]) -> None:
    one, other = socket.socketpair()  # leads to nobody with an address
    with one, other:
        assert close_connections(["192.0.2.1:4711", ""]) == 0
        one.sendall(b"x")
        assert other.recv(1) == b"x"


def test_where_nobody_tells_of_descriptors_nothing_is_cut(
    pairs: tuple[Pair, Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disconnect, "DESCRIPTOR_DIRECTORY", "/nowhere")
    assert close_connections([address_of(pairs[0][1])]) == 0


async def test_many_that_end_at_once_are_looked_for_once(
    pairs: tuple[Pair, Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []

    def counted(clients: Collection[str]) -> int:
        looks.append(set(clients))
        return close_connections(clients)

    monkeypatch.setattr(disconnect, "close_connections", counted)
    addresses = [address_of(client) for _, client in pairs]
    for address in addresses:
        close_connection(address)
    assert looks == [], "not in the middle of something"
    await asyncio.sleep(0)
    assert looks == [set(addresses)]
    assert [client.recv(1) for _, client in pairs] == [b"", b""]
    close_connection("192.0.2.1:4711")
    await asyncio.sleep(0)
    assert looks[1:] == [{"192.0.2.1:4711"}]
