"""Connections share the buffer that their data lands in: nothing of one may be seen by another. And what comes has to
get somewhere."""

import asyncio

import pytest

from fairlead.upstream.connection import MAX_FRAMING_BYTES, Connection
from fairlead.upstream.errors import ProtocolError
from fairlead.upstream.messages import Response

LANDING = memoryview(bytearray(65536))


class Line(asyncio.Transport):
    """A transport to nowhere."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None:
        pass

    def close(self) -> None:
        pass


def connected() -> Connection:
    connection = Connection(lambda settled: None)
    connection.connection_made(Line())
    return connection


def asked(connection: Connection) -> Response:
    return connection.start_exchange(False, 1.0, 1.0)


def land(connection: Connection, data: bytes) -> None:
    LANDING[: len(data)] = data
    connection.data_received(LANDING[: len(data)])


async def test_answers_that_come_in_turns_are_not_mixed() -> None:
    one, other = connected(), connected()
    ours, theirs = asked(one), asked(other)
    land(one, b"HTTP/1.1 200 OK\r\nx-whose: one\r\ncontent-length: 8\r\n\r\nours")
    land(other, b"HTTP/1.1 200 OK\r\nx-whose: other\r\ncontent-length: 6\r\n\r\ntheirs")
    land(one, b"-too")
    assert (ours.buffered_body(), theirs.buffered_body()) == (b"ours-too", b"theirs")
    assert (dict(ours.headers)["x-whose"], dict(theirs.headers)["x-whose"]) == ("one", "other")


async def test_a_head_that_comes_in_parts_is_whole_though_others_land_between() -> None:
    one, other = connected(), connected()
    ours, theirs = asked(one), asked(other)
    land(one, b"HTTP/1.1 200 OK\r\nx-whose: on")
    land(other, b"HTTP/1.1 204 OK\r\nx-whose: other\r\n\r\n")
    land(one, b"e\r\ncontent-length: 0\r\n\r\n")
    assert dict(ours.headers)["x-whose"] == "one"
    assert theirs.status == 204


async def test_what_follows_a_switch_of_protocols_is_kept_from_the_buffer() -> None:
    connection, kept = connected(), list[bytes]()
    asked(connection)
    connection.on_upgrade = lambda transport, headers, rest: kept.append(rest)
    land(connection, b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\nfirst")
    LANDING[:] = bytes(len(LANDING))
    assert kept == [b"first"]


CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n"
PIECE = 1000


@pytest.mark.parametrize(
    ("begun", "piece"),
    [
        pytest.param(b"0\r\n", b"x-more: " + b"y" * PIECE + b"\r\n", id="many trailers"),
        pytest.param(b"0\r\nx-more: ", b"y" * PIECE, id="one trailer"),
        pytest.param(b"5;more=", b"y" * PIECE, id="an extension of a chunk"),
    ],
)
async def test_an_answer_that_goes_on_without_a_body_is_broken_off(begun: bytes, piece: bytes) -> None:
    connection = connected()
    response = asked(connection)
    land(connection, CHUNKED)
    land(connection, begun)
    assert await response.read_chunk() == b"first"
    for _ in range(MAX_FRAMING_BYTES // len(piece)):
        land(connection, piece)
    before = connection.is_usable
    land(connection, piece * 2)
    assert (before, connection.is_usable) == (True, False)
    with pytest.raises(ProtocolError, match="without any body data"):
        await response.read_chunk()


async def test_a_few_trailers_and_a_long_body_in_small_chunks_are_fine() -> None:
    connection = connected()
    response = asked(connection)
    land(connection, CHUNKED)
    for _ in range(3 * MAX_FRAMING_BYTES // 1000):
        land(connection, b"5;" + b"e" * 1000)
        land(connection, b"\r\nagain\r\n")
    land(connection, b"0\r\nx-sum: 1\r\n")
    land(connection, b"\r\n")
    assert (response.buffered_body() or b"").startswith(b"firstagainagain")
    assert connection.is_usable


async def sent(failure: Exception | None) -> None:
    if failure is not None:
        raise failure


@pytest.mark.parametrize(("failure", "is_usable"), [(None, True), (ValueError("too short"), False)])
async def test_an_answer_in_the_moment_in_which_all_was_sent_leaves_the_connection_usable(
    failure: Exception | None, is_usable: bool
) -> None:
    connection = connected()
    asked(connection)
    connection.upload = asyncio.create_task(sent(failure))
    await asyncio.wait([connection.upload])
    land(connection, b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
    assert connection.is_usable is is_usable


async def test_an_answer_before_all_was_sent_ends_the_connection() -> None:
    connection = connected()
    asked(connection)
    upload = connection.upload = asyncio.create_task(asyncio.sleep(3600))
    land(connection, b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
    assert not connection.is_usable
    with pytest.raises(asyncio.CancelledError):
        await upload
