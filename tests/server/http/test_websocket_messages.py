"""Tests of `server/http/websocket.py`: what was read of a message counts until the message is complete."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack

import pytest

from fairlead.server.http.memory_budgets import MemoryLimits
from fairlead.server.http.websocket import IncomingMessage, MessageIntake

KIB = 1024
LIMITS = MemoryLimits(connection=100 * KIB, user=150 * KIB, total=300 * KIB)


class Connection:
    """A connection, whose bytes the server reads when a test says so."""

    def __init__(self, server: socket.socket, client: socket.socket, incoming: IncomingMessage) -> None:
        self.server, self.client, self.incoming = server, client, incoming

    def send(self, size: int) -> None:
        self.client.sendall(b"x" * size)
        while size:
            size -= len(self.server.recv(size))

    @property
    def is_open(self) -> bool:
        self.client.setblocking(False)
        try:
            return bool(self.client.recv(1))
        except BlockingIOError:
            return True


Connect = Callable[[str], "asyncio.Future[Connection]"]


@pytest.fixture
async def intake() -> AsyncIterator[MessageIntake]:
    yield MessageIntake(LIMITS)


@pytest.fixture
async def connect(intake: MessageIntake) -> AsyncIterator[Connect]:
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))

        async def open_connection(user: str) -> Connection:
            client = stack.enter_context(socket.create_connection(listener.getsockname()))
            server = stack.enter_context(listener.accept()[0])
            host, port = client.getsockname()
            incoming = await intake.add(f"{host}:{port}", user)
            stack.callback(intake.remove, incoming)
            return Connection(server, client, incoming)

        yield lambda user: asyncio.ensure_future(open_connection(user))


async def run_check(intake: MessageIntake) -> None:
    intake.check()
    await asyncio.sleep(0)  # connections are closed in the next iteration of the event loop


async def test_what_was_read_counts_until_the_message_is_complete(connect: Connect) -> None:
    one = await connect("ada")
    one.send(50 * KIB)
    assert one.incoming.size == 50 * KIB
    one.send(10 * KIB)
    assert one.incoming.size == 60 * KIB
    one.incoming.mark_complete()
    assert one.incoming.size == 0
    one.send(1)
    assert one.incoming.size == 1


async def test_what_the_server_has_not_read_does_not_count(connect: Connect) -> None:
    one = await connect("ada")
    one.client.sendall(b"x" * 32 * KIB)
    assert one.server.recv(1, socket.MSG_PEEK)
    assert one.incoming.size == 0


async def test_a_message_above_the_limit_of_a_connection_ends_it(intake: MessageIntake, connect: Connect) -> None:
    large, other = await connect("ada"), await connect("ada")
    large.send(101 * KIB)
    other.send(10 * KIB)
    await run_check(intake)
    assert not large.is_open and other.is_open


async def test_many_messages_that_are_complete_end_nothing(intake: MessageIntake, connect: Connect) -> None:
    one = await connect("ada")
    for _ in range(20):
        one.send(50 * KIB)
        one.incoming.mark_complete()
        await run_check(intake)
    assert one.is_open


async def test_above_the_limit_of_a_user_the_largest_message_ends(intake: MessageIntake, connect: Connect) -> None:
    small, large, foreign = await connect("ada"), await connect("ada"), await connect("bob")
    small.send(60 * KIB)
    large.send(95 * KIB)
    foreign.send(99 * KIB)
    await run_check(intake)
    assert small.is_open and foreign.is_open and not large.is_open


async def test_above_the_limit_of_all_users_the_largest_messages_end(intake: MessageIntake, connect: Connect) -> None:
    users = [await connect(f"user-{index}") for index in range(4)]
    for index, each in enumerate(users):
        each.send((80 + index) * KIB)
    await run_check(intake)
    assert [each.is_open for each in users] == [True, True, True, False]


async def test_a_connection_that_has_ended_is_not_touched(intake: MessageIntake, connect: Connect) -> None:
    """Its descriptor may belong to another connection by then."""
    one = await connect("ada")
    one.send(99 * KIB)
    intake.remove(one.incoming)
    assert one.incoming.size == 0
    await run_check(intake)
    assert one.is_open


async def test_bytes_of_another_connection_with_the_same_descriptor_do_not_count(
    intake: MessageIntake, connect: Connect
) -> None:
    """The HTTP server closes a connection before its handler has ended, and accepts another one meanwhile."""
    ended, uploading, other = await connect("ada"), await connect("ada"), await connect("ada")
    uploading.send(80 * KIB)
    uploading.incoming.mark_complete()
    other.send(90 * KIB)
    os.dup2(uploading.server.fileno(), ended.server.fileno())
    await run_check(intake)
    assert ended.incoming.size == 0
    assert other.is_open and uploading.is_open
