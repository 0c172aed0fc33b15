"""Watchers who hardly read, at a replica that hears of every change from another one: they cost nobody anything.

They neither fill its memory nor hold up who reads beside them, and what they are told is in order and whole: a bookmark
never comes before an event that it stands for.
"""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.harness.replicas import STORES, Replicas, new_secrets, store_for
from tests.harness.server_process import CONFIGMAPS, TIMEOUT_SECONDS, configmap
from tests.live.test_slow_watchers import begun

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
        made = Replicas(folder, store_for(request.param, folder), stack, variables)
        for _ in range(2):
            made.start()
        yield made


def test_who_reads_nothing_at_one_replica_holds_up_neither_it_nor_who_reads_beside_them(group: Replicas) -> None:
    """Twenty who read nothing, while 18 MB happen: kept for each of them that would be 360 MB."""
    writer, server = group.servers
    with ExitStack() as stack, writer.client() as writing, server.client() as reading:
        writing.post(CONFIGMAPS, json=configmap("large")).raise_for_status()
        since = reading.get(CONFIGMAPS).json()["metadata"]["resourceVersion"]
        for _ in range(SLOW):
            stack.enter_context(begun(server))
        before = server.resident()
        with reading.stream("GET", CONFIGMAPS, params={"watch": "1", "resourceVersion": since}) as watch:
            lines = watch.iter_lines()
            for number in range(EVENTS):
                text = f"{number}" + "x" * SIZE
                writing.put(f"{CONFIGMAPS}/large", json=configmap("large", text=text)).raise_for_status()
                assert json.loads(next(lines))["object"]["data"]["text"] == text
        assert server.resident() - before < 150 * MEGABYTE
        assert reading.get(f"{CONFIGMAPS}/large").json()["data"]["text"] == text


def test_a_slow_watcher_is_told_everything_in_order_or_that_it_is_too_late(group: Replicas) -> None:
    """Many changes at one replica, followed at another one by somebody who reads a little at a time."""
    writer, server = group.servers
    with writer.client() as client:
        since = int(client.get(CONFIGMAPS).json()["metadata"]["resourceVersion"])
    versions: list[int] = []

    def write() -> None:
        with writer.client() as client:
            for number in range(MANY):
                body = configmap(f"n{number % 7}", text=f"{number}" + "y" * 2_000)
                path = f"{CONFIGMAPS}/n{number % 7}"
                answer = client.put(path, json=body) if number >= 7 else client.post(CONFIGMAPS, json=body)
                versions.append(int(answer.raise_for_status().json()["metadata"]["resourceVersion"]))

    writing = threading.Thread(target=write)
    query = f"&resourceVersion={since}&allowWatchBookmarks=true&timeoutSeconds=8"
    with begun(server, query) as connection:
        writing.start()
        told = list(read_slowly(connection.recv))
        writing.join()
    assert told
    assert_in_order(told, since, versions)


def read_slowly(receive: Any) -> Iterator[dict[str, Any]]:
    """Lines of the watch, until it ends."""
    buffer, deadline = b"", time.monotonic() + 3 * TIMEOUT_SECONDS
    while not buffer.endswith(b"\r\n0\r\n\r\n"):
        assert time.monotonic() < deadline
        piece = receive(16_384)
        assert piece, "the stream broke off"
        buffer += piece
        time.sleep(0.002)
    yield from map(json.loads, unchunked(buffer).splitlines())


def unchunked(buffer: bytes) -> bytes:
    """What the chunks of an answer hold together: one may end in the middle of a line."""
    content, buffer = b"", buffer.partition(b"\r\n\r\n")[2]
    while buffer:
        size, _, rest = buffer.partition(b"\r\n")
        length = int(size, 16)
        content += rest[:length]
        buffer = rest[length + 2 :]
    return content


def assert_in_order(told: list[dict[str, Any]], since: int, versions: list[int]) -> None:
    """Each event once, none left out up to where the watch came; a bookmark only after all that it stands for."""
    heard: list[int] = []
    reached = since
    for event in told:
        if event["type"] == "ERROR":
            assert event["object"]["code"] == 410
            break
        revision = int(event["object"]["metadata"]["resourceVersion"])
        if event["type"] == "BOOKMARK":
            assert revision >= reached
        else:
            assert revision > reached, f"{revision} came after {reached}"
            heard.append(revision)
        reached = revision
    assert heard == [version for version in versions if since < version <= reached]
