"""Watchers who stop reading: they are told that they fell behind, and they cost neither memory nor anybody else."""

import itertools
import json
import ssl
import time
from collections.abc import Callable, Iterator

import pytest

from tests.harness.server_process import CONFIGMAPS, Server, configmap, running
from tests.live.http2_client import Http2

QUEUE = 5
SIZE = 300_000
MEGABYTE = 1024 * 1024
STUCK_SECONDS = 12.0
"""Somebody who has made no progress for so long will make none."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("slow") / "data", watch_queue=QUEUE) as started:
        yield started


@pytest.fixture
def writes(server: Server) -> Iterator[Callable[[int], None]]:
    """Changes one large object so many times."""
    with server.client() as client:
        client.post(CONFIGMAPS, json=configmap("large", text="x" * SIZE))
        numbers = itertools.count()

        def write(times: int) -> None:
            for number in itertools.islice(numbers, times):
                answer = client.put(f"{CONFIGMAPS}/large", json=configmap("large", text=f"{number}" + "x" * SIZE))
                assert answer.status_code == 200

        yield write


def begun(server: Server, query: str = "") -> ssl.SSLSocket:
    """A watch over HTTP/1.1 of which nothing is read."""
    connection = server.connect()
    lines = (f"GET {CONFIGMAPS}?watch=1{query} HTTP/1.1", "Host: server", f"Authorization: Bearer {server.key}", "", "")
    connection.sendall("\r\n".join(lines).encode())
    time.sleep(0.1)
    return connection


def rest_of(connection: ssl.SSLSocket) -> bytes:
    """Everything up to the last chunk, which is empty."""
    answer = b""
    while not answer.endswith(b"\r\n0\r\n\r\n"):
        piece = connection.recv(1 << 18)
        assert piece, "the stream broke off"
        answer += piece
    return answer


def expired(line: bytes) -> bool:
    event = json.loads(line)
    return (event["type"], event["object"].get("code")) == ("ERROR", 410)


def test_who_falls_behind_is_told_so_in_the_end(server: Server, writes: Callable[[int], None]) -> None:
    with begun(server) as slow:
        writes(60)
        answer = rest_of(slow)
    events = [line for line in answer.split(b"\r\n") if line.startswith(b'{"type":')]
    assert expired(events[-1])
    assert answer.count(b'"type":"MODIFIED"') < 60


def test_who_falls_behind_costs_little_memory(server: Server, writes: Callable[[int], None]) -> None:
    """Twenty who read nothing, while 18 MB happen: kept for each of them that would be 360 MB."""
    slow = [begun(server) for _ in range(20)]
    before = server.resident()
    writes(60)
    grown = server.resident() - before
    for connection in slow:
        connection.close()
    assert grown < 150 * MEGABYTE


def test_who_keeps_up_is_not_cut_off_with_the_others(server: Server, writes: Callable[[int], None]) -> None:
    with begun(server), server.client() as client:
        version = client.get(CONFIGMAPS).json()["metadata"]["resourceVersion"]
        with client.stream("GET", CONFIGMAPS, params={"watch": "1", "resourceVersion": version}) as watch:
            lines = watch.iter_lines()
            for _ in range(30):
                writes(1)
                assert json.loads(next(lines))["type"] == "MODIFIED"


def test_a_stream_that_nobody_reads_is_told_so_in_the_end(server: Server, writes: Callable[[int], None]) -> None:
    client = Http2(server)
    watch = client.request("GET", f"{CONFIGMAPS}?watch=1")
    client.shut.add(watch)
    assert client.read(lambda: len(client.bodies[watch]) > 1000)
    writes(30)
    client.open(watch)
    assert client.read(lambda: watch in client.ended)
    assert expired(client.lines(watch)[-1])
    client.close()


def test_other_answers_on_its_connection_are_no_credit_for_who_reads_nothing(
    server: Server, writes: Callable[[int], None]
) -> None:
    """Reading those says nothing about the watch, of which more and more would pile up."""
    client = Http2(server)
    watch = client.request("GET", f"{CONFIGMAPS}?watch=1")
    client.shut.add(watch)
    assert client.read(lambda: len(client.bodies[watch]) > 1000)
    for _ in range(40):
        writes(1)
        for _ in range(2):
            other = client.request("GET", f"{CONFIGMAPS}/large")
            assert client.read(lambda stream=other: stream in client.ended)  # type: ignore[misc]
    client.open(watch)
    assert client.read(lambda: watch in client.ended, seconds=5), "all forty events had been kept for it"
    assert expired(client.lines(watch)[-1])
    client.close()


def test_who_reads_nothing_is_let_go_and_holds_up_nobody_for_good(
    server: Server, writes: Callable[[int], None]
) -> None:
    """All watches of a program often share a connection. What cannot go on there must end: then they all come again."""
    before = server.descriptors()
    slow = begun(server, "&timeoutSeconds=1")
    client = Http2(server)
    unread, read = (client.request("GET", f"{CONFIGMAPS}?watch=1") for _ in range(2))
    client.shut.add(unread)
    for number in range(20):
        writes(1)

        def went_on(seen: int = number + 1) -> bool:
            return len(client.lines(read)) > seen

        client.read(lambda heard=went_on: heard() or read in client.ended, STUCK_SECONDS)  # type: ignore[misc]
        assert went_on() or client.closed or read in client.ended, f"stuck after {number + 1} events"
        if not went_on():
            break
    client.close()
    deadline = time.monotonic() + STUCK_SECONDS
    while server.descriptors() > before + 1 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert server.descriptors() <= before + 1, "the connection may stay, the watch may not"
    slow.close()
