"""Tests of `fairlead.upstream.connection`: connections share a receive buffer without mixing their data, and a response
without body data is interrupted."""

import asyncio

import pytest

from fairlead.upstream.connection import MAX_FRAMING_BYTES, Connection
from fairlead.upstream.errors import ProtocolError
from fairlead.upstream.messages import Response

RECEIVE_BUFFER = memoryview(bytearray(65536))


class NullTransport(asyncio.Transport):
    """A transport that discards everything."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None:
        pass

    def close(self) -> None:
        pass


def build_connection() -> Connection:
    connection = Connection(lambda connection: None)
    connection.connection_made(NullTransport())
    return connection


def start_exchange(connection: Connection) -> Response:
    return connection.start_exchange(False, 1.0, 1.0)


def receive(connection: Connection, data: bytes) -> None:
    RECEIVE_BUFFER[: len(data)] = data
    connection.data_received(RECEIVE_BUFFER[: len(data)])


async def test_interleaved_responses_are_not_mixed() -> None:
    first, second = build_connection(), build_connection()
    first_response, second_response = start_exchange(first), start_exchange(second)
    receive(first, b"HTTP/1.1 200 OK\r\nx-whose: one\r\ncontent-length: 8\r\n\r\nours")
    receive(second, b"HTTP/1.1 200 OK\r\nx-whose: other\r\ncontent-length: 6\r\n\r\ntheirs")
    receive(first, b"-too")
    assert (first_response.buffered_body(), second_response.buffered_body()) == (b"ours-too", b"theirs")
    assert (dict(first_response.headers)["x-whose"], dict(second_response.headers)["x-whose"]) == ("one", "other")


async def test_response_headers_in_parts_are_complete_although_others_are_received_in_between() -> None:
    first, second = build_connection(), build_connection()
    first_response, second_response = start_exchange(first), start_exchange(second)
    receive(first, b"HTTP/1.1 200 OK\r\nx-whose: on")
    receive(second, b"HTTP/1.1 204 OK\r\nx-whose: other\r\n\r\n")
    receive(first, b"e\r\ncontent-length: 0\r\n\r\n")
    assert dict(first_response.headers)["x-whose"] == "one"
    assert second_response.status == 204


async def test_data_after_a_protocol_switch_is_copied_from_the_buffer() -> None:
    connection, received = build_connection(), list[bytes]()
    start_exchange(connection)
    connection.on_upgrade = lambda transport, headers, rest: received.append(rest)
    receive(connection, b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\nfirst")
    RECEIVE_BUFFER[:] = bytes(len(RECEIVE_BUFFER))
    assert received == [b"first"]


CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n"
CHUNK_SIZE = 1000


@pytest.mark.parametrize(
    ("prefix", "chunk"),
    [
        pytest.param(b"0\r\n", b"x-more: " + b"y" * CHUNK_SIZE + b"\r\n", id="many trailers"),
        pytest.param(b"0\r\nx-more: ", b"y" * CHUNK_SIZE, id="one trailer"),
        pytest.param(b"5;more=", b"y" * CHUNK_SIZE, id="a chunk extension"),
    ],
)
async def test_a_response_that_goes_on_without_body_data_is_interrupted(prefix: bytes, chunk: bytes) -> None:
    connection = build_connection()
    response = start_exchange(connection)
    receive(connection, CHUNKED)
    receive(connection, prefix)
    assert await response.read_chunk() == b"first"
    for _ in range(MAX_FRAMING_BYTES // len(chunk)):
        receive(connection, chunk)
    was_usable = connection.is_usable
    receive(connection, chunk * 2)
    assert (was_usable, connection.is_usable) == (True, False)
    with pytest.raises(ProtocolError, match="without any body data"):
        await response.read_chunk()


async def test_a_few_trailers_and_a_long_body_in_small_chunks_are_accepted() -> None:
    connection = build_connection()
    response = start_exchange(connection)
    receive(connection, CHUNKED)
    for _ in range(3 * MAX_FRAMING_BYTES // 1000):
        receive(connection, b"5;" + b"e" * 1000)
        receive(connection, b"\r\nagain\r\n")
    receive(connection, b"0\r\nx-sum: 1\r\n")
    receive(connection, b"\r\n")
    assert (response.buffered_body() or b"").startswith(b"firstagainagain")
    assert connection.is_usable


async def finish_upload(failure: Exception | None) -> None:
    if failure is not None:
        raise failure


@pytest.mark.parametrize(("failure", "is_usable"), [(None, True), (ValueError("too short"), False)])
async def test_a_response_after_a_complete_upload_leaves_the_connection_usable(
    failure: Exception | None, is_usable: bool
) -> None:
    connection = build_connection()
    start_exchange(connection)
    connection.upload = asyncio.create_task(finish_upload(failure))
    await asyncio.wait([connection.upload])
    receive(connection, b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
    assert connection.is_usable is is_usable


async def test_a_response_before_the_end_of_the_upload_closes_the_connection() -> None:
    connection = build_connection()
    start_exchange(connection)
    upload = connection.upload = asyncio.create_task(asyncio.sleep(3600))
    receive(connection, b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
    assert not connection.is_usable
    with pytest.raises(asyncio.CancelledError):
        await upload
