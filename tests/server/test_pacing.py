"""How far behind a client is: told by the kernel, on real connections."""

import asyncio
import os
import socket
from collections.abc import Callable, Iterator

import pytest

from fairlead.server import pacing
from fairlead.server.pacing import HIGH_WATER, Account, Pace, Paces

Pair = tuple[socket.socket, socket.socket]
"""The server's and the client's end."""


@pytest.fixture
def connected() -> Iterator[Callable[..., Pair]]:
    """Makes connections over loopback, and surely closes them."""
    opened: list[socket.socket] = []

    def connect(host: str = "127.0.0.1") -> Pair:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.create_server((host, 0), family=family) as listener:
            client = socket.create_connection(listener.getsockname()[:2])
            server, _ = listener.accept()
        server.setblocking(False)
        opened.extend((server, client))
        return server, client

    yield connect
    for each in opened:
        each.close()


def address_of(client: socket.socket) -> str:
    """The client as the HTTP server names it."""
    host, port, *_ = client.getsockname()
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def delivered(server: socket.socket, client: socket.socket, size: int) -> None:
    """Sends so many bytes, and has the client read them."""
    loop = asyncio.get_running_loop()
    client.setblocking(False)
    sending = asyncio.ensure_future(loop.sock_sendall(server, bytes(size)))
    while size:
        size -= len(await loop.sock_recv(client, 1 << 20))
    await sending


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110  # the kernel cannot be waited for, only asked
            await asyncio.sleep(0.005)


async def test_a_client_that_reads_may_be_sent_more(connected: Callable[..., Pair]) -> None:
    server, client = connected()
    account = Account(server.dup())
    for _ in range(5):
        account.add(HIGH_WATER)
        await delivered(server, client, HIGH_WATER)
        await until(lambda: not account.is_full())
    account.close()


async def test_a_client_that_does_not_read_is_full_soon(connected: Callable[..., Pair]) -> None:
    server, _ = connected()
    account = Account(server.dup())
    account.add(HIGH_WATER - 1)
    assert not account.is_full()
    account.add(1)
    assert account.is_full()
    assert account.is_full(), "asking does not help"
    account.close()


async def test_what_was_sent_before_is_nobodys_credit(connected: Callable[..., Pair]) -> None:
    server, client = connected()
    await delivered(server, client, 3 * HIGH_WATER)
    account = Account(server.dup())
    account.add(HIGH_WATER)
    assert account.is_full()
    account.close()


async def test_what_is_acknowledged_beyond_what_was_counted_does_not_pile_up(connected: Callable[..., Pair]) -> None:
    server, client = connected()
    account = Account(server.dup())
    account.add(HIGH_WATER)
    await delivered(server, client, 3 * HIGH_WATER)
    await until(lambda: not account.is_full())
    account.add(HIGH_WATER)
    assert account.is_full(), "the client has had what came before; this it has not had"
    account.close()


async def test_a_pace_waits_until_the_client_has_caught_up(connected: Callable[..., Pair]) -> None:
    server, client = connected()
    paces = Paces()
    pace = paces.enter(address_of(client))
    pace.sent(HIGH_WATER)
    waiting = asyncio.ensure_future(pace.may_go_on())
    done, _ = await asyncio.wait((waiting,), timeout=0.2)
    assert not done
    await delivered(server, client, HIGH_WATER)
    async with asyncio.timeout(10):
        assert await waiting
    paces.leave(address_of(client), pace)


async def test_streams_on_one_connection_share_its_account(connected: Callable[..., Pair]) -> None:
    _, client = connected()
    paces = Paces()
    one, other = paces.enter(address_of(client)), paces.enter(address_of(client))
    assert one.account is not None and one.account is other.account
    paces.leave(address_of(client), one)
    one.account.is_full()
    paces.leave(address_of(client), other)
    with pytest.raises(OSError):
        other.account._asked()


async def test_connections_have_accounts_of_their_own(connected: Callable[..., Pair]) -> None:
    (_, first), (_, second) = connected(), connected()
    paces = Paces()
    slow, quick = paces.enter(address_of(first)), paces.enter(address_of(second))
    slow.sent(HIGH_WATER)
    assert slow.account is not None and slow.account.is_full()
    assert quick.account is not None and not quick.account.is_full()
    assert await quick.may_go_on()
    paces.leave(address_of(first), slow)
    paces.leave(address_of(second), quick)


async def test_no_descriptor_is_kept_after_the_last_stream(connected: Callable[..., Pair]) -> None:
    pairs = [connected() for _ in range(5)]
    before = len(os.listdir("/proc/self/fd"))
    paces = Paces()
    entered = [(address_of(client), paces.enter(address_of(client))) for _, client in pairs for _ in range(2)]
    assert len(os.listdir("/proc/self/fd")) == before + 5
    for client, pace in entered:
        paces.leave(client, pace)
    assert len(os.listdir("/proc/self/fd")) == before


async def test_a_descriptor_that_now_belongs_to_another_client_is_not_mistaken(connected: Callable[..., Pair]) -> None:
    paces = Paces()
    server, client = connected()
    paces.leave(address_of(client), paces.enter(address_of(client)))
    gone = address_of(client)
    server.close()
    client.close()
    other, newcomer = connected()
    assert paces.enter(gone).account is None
    pace = paces.enter(address_of(newcomer))
    assert pace.account is not None
    assert pace.account._connection.getpeername() == other.getpeername()
    paces.leave(address_of(newcomer), pace)


async def test_clients_over_ipv6_are_found(connected: Callable[..., Pair]) -> None:
    try:
        _, client = connected("::1")
    except OSError as error:
        pytest.skip(f"no IPv6 on this machine: {error}")
    paces = Paces()
    pace = paces.enter(address_of(client))
    assert pace.account is not None
    paces.leave(address_of(client), pace)


@pytest.mark.parametrize("client", ["", "nonsense", "127.0.0.1:1", "unix:/somewhere"])
async def test_a_client_whom_the_kernel_does_not_know_is_not_paced(client: str) -> None:
    paces = Paces()
    pace = paces.enter(client)
    pace.sent(100 * HIGH_WATER)
    assert await pace.may_go_on()
    paces.leave(client, pace)


async def test_without_an_account_there_is_nothing_to_wait_for() -> None:
    pace = Pace(None)
    pace.sent(100 * HIGH_WATER)
    assert await pace.may_go_on()


async def test_who_reads_nothing_for_long_is_given_up(
    connected: Callable[..., Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pacing, "STALL_SECONDS", 0.2)
    _, client = connected()
    paces = Paces()
    pace = paces.enter(address_of(client))
    pace.sent(HIGH_WATER)
    assert not await pace.may_go_on()
    paces.leave(address_of(client), pace)


async def test_other_answers_count_for_the_connection_that_they_go_over(connected: Callable[..., Pair]) -> None:
    _, client = connected()
    paces = Paces()
    paces.note(address_of(client), HIGH_WATER)
    pace = paces.enter(address_of(client))
    assert pace.account is not None
    assert not pace.account.is_full(), "nobody kept an account yet"
    paces.note(address_of(client), HIGH_WATER)
    assert pace.account.is_full()
    paces.leave(address_of(client), pace)
