"""Watch clients that stop reading: they get an error, and cost neither memory nor the responses of other clients."""

import itertools
import json
import ssl
import time
from collections.abc import Callable, Iterator

import pytest

from tests.harness.server_process import CONFIGMAPS, Server, configmap, running_server
from tests.live.http2_client import Http2Client
from tests.live.unread_watch import open_watch

QUEUE = 5
SIZE = 300_000
MEGABYTE = 1024 * 1024
STUCK_SECONDS = 30.0
"""A client without progress for so long is stuck."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("slow") / "data", watch_queue=QUEUE) as server:
        yield server


@pytest.fixture
def update_object(server: Server) -> Iterator[Callable[[int], None]]:
    """Updates one large object the given number of times."""
    with server.client() as client:
        client.post(CONFIGMAPS, json=configmap("large", text="x" * SIZE))
        numbers = itertools.count()

        def write(times: int) -> None:
            for number in itertools.islice(numbers, times):
                response = client.put(f"{CONFIGMAPS}/large", json=configmap("large", text=f"{number}" + "x" * SIZE))
                assert response.status_code == 200

        yield write


def read_to_end(connection: ssl.SSLSocket) -> bytes:
    """Reads up to the last chunk, which is empty."""
    response = b""
    while not response.endswith(b"\r\n0\r\n\r\n"):
        piece = connection.recv(1 << 18)
        assert piece, "the stream was interrupted"
        response += piece
    return response


def is_expired(line: bytes) -> bool:
    event = json.loads(line)
    return (event["type"], event["object"].get("code")) == ("ERROR", 410)


def test_a_slow_watch_ends_with_410(server: Server, update_object: Callable[[int], None]) -> None:
    with open_watch(server) as slow:
        update_object(60)
        response = read_to_end(slow)
    events = [line for line in response.split(b"\r\n") if line.startswith(b'{"type":')]
    assert is_expired(events[-1])
    assert response.count(b'"type":"MODIFIED"') < 60


def test_slow_watches_use_little_memory(server: Server, update_object: Callable[[int], None]) -> None:
    """Twenty clients read nothing during 18 MB of events: buffered for each of them, that would be 360 MB."""
    slow = [open_watch(server) for _ in range(20)]
    before = server.resident_bytes()
    update_object(60)
    growth = server.resident_bytes() - before
    for connection in slow:
        connection.close()
    assert growth < 150 * MEGABYTE


def test_a_watch_that_keeps_up_continues_beside_a_slow_one(
    server: Server, update_object: Callable[[int], None]
) -> None:
    with open_watch(server), server.client() as client:
        version = client.get(CONFIGMAPS).json()["metadata"]["resourceVersion"]
        with client.stream("GET", CONFIGMAPS, params={"watch": "1", "resourceVersion": version}) as watch:
            lines = watch.iter_lines()
            for _ in range(30):
                update_object(1)
                assert json.loads(next(lines))["type"] == "MODIFIED"


def test_an_unread_http2_stream_ends_with_410(server: Server, update_object: Callable[[int], None]) -> None:
    client = Http2Client(server)
    watch = client.request("GET", f"{CONFIGMAPS}?watch=1")
    client.blocked.add(watch)
    assert client.read(lambda: len(client.bodies[watch]) > 1000)
    update_object(30)
    client.unblock(watch)
    assert client.read(lambda: watch in client.ended)
    assert is_expired(client.lines(watch)[-1])
    client.close()


def test_other_responses_on_the_connection_do_not_count_as_progress_of_an_unread_watch(
    server: Server, update_object: Callable[[int], None]
) -> None:
    """They must not count as progress of the watch, whose events would accumulate."""
    client = Http2Client(server)
    watch = client.request("GET", f"{CONFIGMAPS}?watch=1")
    client.blocked.add(watch)
    assert client.read(lambda: len(client.bodies[watch]) > 1000)
    for _ in range(40):
        update_object(1)
        for _ in range(2):
            other = client.request("GET", f"{CONFIGMAPS}/large")
            assert client.read(lambda stream=other: stream in client.ended)  # type: ignore[misc]
    client.unblock(watch)
    assert client.read(lambda: watch in client.ended), "all forty events were buffered for it"
    assert is_expired(client.lines(watch)[-1])
    client.close()


def test_an_unread_watch_is_closed_and_does_not_block_others_forever(
    server: Server, update_object: Callable[[int], None]
) -> None:
    """The watches of a program often share a connection. A stuck one must end, so that all can be opened again."""
    before = server.count_descriptors()
    slow = open_watch(server, "&timeoutSeconds=1")
    client = Http2Client(server)
    unread, read = (client.request("GET", f"{CONFIGMAPS}?watch=1") for _ in range(2))
    client.blocked.add(unread)
    for number in range(20):
        update_object(1)

        def has_progress(count: int = number + 1) -> bool:
            return len(client.lines(read)) > count

        client.read(lambda condition=has_progress: condition() or read in client.ended, STUCK_SECONDS)  # type: ignore[misc]
        assert has_progress() or client.closed or read in client.ended, f"stuck after {number + 1} events"
        if not has_progress():
            break
    client.close()
    deadline = time.monotonic() + STUCK_SECONDS
    while server.count_descriptors() > before + 1 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert server.count_descriptors() <= before + 1, "the watch is still open"
    slow.close()
