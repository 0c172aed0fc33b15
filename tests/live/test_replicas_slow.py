"""Slow watch clients at a replica that receives all changes from another one.

They neither fill its memory nor delay other clients, and their events are complete and in order: a bookmark never comes
before an event that it covers.
"""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.harness.replicas import STORES, Replicas, new_secrets, store_address
from tests.harness.server_process import CONFIGMAPS, TIMEOUT_SECONDS, configmap
from tests.live.unread_watch import open_watch

MEGABYTE = 1024 * 1024
SIZE = 300_000
EVENTS = 60
SLOW = 20
MANY = 600


@pytest.fixture(scope="module", params=STORES)
def group(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    folder = tmp_path_factory.mktemp(request.param)
    with ExitStack() as stack:
        variables = {**new_secrets(), "watch_queue": "50"}
        replicas = Replicas(folder, store_address(request.param, folder), stack, variables)
        for _ in range(2):
            replicas.start()
        yield replicas


def test_unread_watches_at_a_replica_delay_neither_it_nor_other_clients(group: Replicas) -> None:
    """Twenty clients read nothing during 18 MB of events: buffered for each of them, that would be 360 MB."""
    writer, server = group.servers
    with ExitStack() as stack, writer.client() as writing_client, server.client() as reading_client:
        writing_client.post(CONFIGMAPS, json=configmap("large")).raise_for_status()
        since = reading_client.get(CONFIGMAPS).json()["metadata"]["resourceVersion"]
        for _ in range(SLOW):
            stack.enter_context(open_watch(server))
        before = server.resident_bytes()
        with reading_client.stream("GET", CONFIGMAPS, params={"watch": "1", "resourceVersion": since}) as watch:
            lines = watch.iter_lines()
            for number in range(EVENTS):
                text = f"{number}" + "x" * SIZE
                writing_client.put(f"{CONFIGMAPS}/large", json=configmap("large", text=text)).raise_for_status()
                assert json.loads(next(lines))["object"]["data"]["text"] == text
        assert server.resident_bytes() - before < 150 * MEGABYTE
        assert reading_client.get(f"{CONFIGMAPS}/large").json()["data"]["text"] == text


def test_a_slow_watch_gets_all_events_in_order_or_410(group: Replicas) -> None:
    """Many changes at one replica, and a slow watch at another one."""
    writer, server = group.servers
    with writer.client() as client:
        since = int(client.get(CONFIGMAPS).json()["metadata"]["resourceVersion"])
    versions: list[int] = []

    def write() -> None:
        with writer.client() as client:
            for number in range(MANY):
                body = configmap(f"n{number % 7}", text=f"{number}" + "y" * 2_000)
                path = f"{CONFIGMAPS}/n{number % 7}"
                response = client.put(path, json=body) if number >= 7 else client.post(CONFIGMAPS, json=body)
                versions.append(int(response.raise_for_status().json()["metadata"]["resourceVersion"]))

    writing = threading.Thread(target=write)
    query = f"&resourceVersion={since}&allowWatchBookmarks=true&timeoutSeconds=8"
    with open_watch(server, query) as connection:
        writing.start()
        events = list(read_slowly(connection.recv))
        writing.join()
    assert events
    check_order(events, since, versions)


def read_slowly(receive: Any) -> Iterator[dict[str, Any]]:
    """Reads the events of a watch slowly, until it ends."""
    buffer, deadline = b"", time.monotonic() + 3 * TIMEOUT_SECONDS
    while not buffer.endswith(b"\r\n0\r\n\r\n"):
        assert time.monotonic() < deadline
        piece = receive(16_384)
        assert piece, "the stream was interrupted"
        buffer += piece
        time.sleep(0.002)
    yield from map(json.loads, decode_chunks(buffer).splitlines())


def decode_chunks(buffer: bytes) -> bytes:
    """Returns the content of a chunked response; a chunk may end in the middle of a line."""
    content, buffer = b"", buffer.partition(b"\r\n\r\n")[2]
    while buffer:
        size, _, rest = buffer.partition(b"\r\n")
        length = int(size, 16)
        content += rest[:length]
        buffer = rest[length + 2 :]
    return content


def check_order(events: list[dict[str, Any]], since: int, versions: list[int]) -> None:
    """Each event comes once, without gaps, and a bookmark only after all events that it covers."""
    received: list[int] = []
    last_revision = since
    for event in events:
        if event["type"] == "ERROR":
            assert event["object"]["code"] == 410
            break
        revision = int(event["object"]["metadata"]["resourceVersion"])
        if event["type"] == "BOOKMARK":
            assert revision >= last_revision
        else:
            assert revision > last_revision, f"{revision} came after {last_revision}"
            received.append(revision)
        last_revision = revision
    assert received == [version for version in versions if since < version <= last_revision]
