"""Watches over real connections: live events, timeouts, resuming after a restart, and cleanup after disconnects."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.harness.eventually import wait_until
from tests.harness.server_process import CONFIGMAPS, MANAGEMENT, Server, configmap, running_server
from tests.live.http2_client import Http2Client

SETTLED_COUNTS = 5
VERSIONS = pytest.mark.parametrize("http2", [False, True], ids=["HTTP/1.1", "HTTP/2"])
NAMESPACES = f"{MANAGEMENT}/api/v1/namespaces"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("watch") / "data") as server:
        yield server


@pytest.fixture
def configmaps_path(server: Server) -> str:
    """The path of the config maps of a new namespace."""
    with server.client() as client:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "test-"}}
        name = client.post(NAMESPACES, json=body).json()["metadata"]["name"]
    return f"{NAMESPACES}/{name}/configmaps"


@contextmanager
def open_watch(client: httpx.Client, configmaps_path: str, **query: str) -> Iterator[Iterator[Any]]:
    with client.stream("GET", configmaps_path, params={"watch": "1", **query}) as response:
        assert response.status_code == 200, response.read()
        yield map(json.loads, response.iter_lines())


def summarize_event(event: Any) -> str:
    return f"{event['type']} {event['object']['metadata'].get('name', '')}".strip()


def get_version(event: Any) -> int:
    return int(event["object"]["metadata"]["resourceVersion"])


@VERSIONS
def test_changes_are_sent_as_they_happen(server: Server, configmaps_path: str, http2: bool) -> None:
    with server.client(http2=http2) as client, server.client() as writer, open_watch(client, configmaps_path) as events:
        created = writer.post(configmaps_path, json=configmap("a")).json()
        event = next(events)
        assert (summarize_event(event), event["object"]) == ("ADDED a", created)
        writer.put(f"{configmaps_path}/a", json=configmap("a", b="1"))
        assert summarize_event(next(events)) == "MODIFIED a"
        writer.delete(f"{configmaps_path}/a")
        last = next(events)
        assert summarize_event(last) == "DELETED a"
        assert get_version(last) > int(created["metadata"]["resourceVersion"])


@VERSIONS
def test_a_watch_ends_properly_at_its_timeout(server: Server, configmaps_path: str, http2: bool) -> None:
    """The client would raise an error if the stream were interrupted."""
    with server.client(http2=http2) as client:
        client.post(configmaps_path, json=configmap("a"))
        with open_watch(client, configmaps_path, timeoutSeconds="1") as events:
            assert [summarize_event(event) for event in events] == ["ADDED a"]
        assert client.get(configmaps_path).status_code == 200


@VERSIONS
def test_bookmarks_are_sent_only_on_request(server: Server, configmaps_path: str, http2: bool) -> None:
    with (
        server.client(http2=http2) as client,
        open_watch(client, configmaps_path, timeoutSeconds="1", allowWatchBookmarks="true") as with_bookmarks,
        open_watch(client, configmaps_path, timeoutSeconds="1") as without_bookmarks,
    ):
        assert [summarize_event(event) for event in with_bookmarks] == ["BOOKMARK", "BOOKMARK"]
        assert [summarize_event(event) for event in without_bookmarks] == []


@VERSIONS
def test_a_list_can_be_streamed_as_a_watch(server: Server, configmaps_path: str, http2: bool) -> None:
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    with server.client(http2=http2) as client, server.client() as writer:
        for name in ("a", "b"):
            writer.post(configmaps_path, json=configmap(name))
        with open_watch(client, configmaps_path, **query) as events:
            assert [summarize_event(next(events)) for _ in range(2)] == ["ADDED a", "ADDED b"]
            bookmark = next(events)
            assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
            writer.post(configmaps_path, json=configmap("c"))
            assert summarize_event(next(events)) == "ADDED c"
        listed = writer.get(configmaps_path).json()
    assert get_version(bookmark) < int(listed["metadata"]["resourceVersion"])


def test_a_watch_continues_at_the_version_of_a_list(server: Server, configmaps_path: str) -> None:
    with server.client() as client, server.client() as writer:
        writer.post(configmaps_path, json=configmap("before"))
        version = client.get(configmaps_path).json()["metadata"]["resourceVersion"]
        writer.post(configmaps_path, json=configmap("between"))
        with open_watch(client, configmaps_path, resourceVersion=version) as events:
            assert summarize_event(next(events)) == "ADDED between"
            writer.post(configmaps_path, json=configmap("after"))
            assert summarize_event(next(events)) == "ADDED after"


def test_a_watch_from_an_expired_version_gets_410(server: Server, configmaps_path: str) -> None:
    with server.client() as client, open_watch(client, configmaps_path, resourceVersion="1") as events:
        (event,) = events
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


def test_many_watches_get_all_events_in_order(server: Server, configmaps_path: str) -> None:
    with server.client(http2=True) as client, server.client() as writer:
        open_watches = [open_watch(client, configmaps_path) for _ in range(20)]
        streams = [watch.__enter__() for watch in open_watches]
        for number in range(20):
            writer.post(configmaps_path, json=configmap(f"n{number}"))
        received = [[next(events) for _ in range(20)] for events in streams]
        for watch in open_watches:
            watch.__exit__(None, None, None)
    for events in received:
        assert [summarize_event(event) for event in events] == [f"ADDED n{number}" for number in range(20)]
        versions = [get_version(event) for event in events]
        assert versions == sorted(set(versions))


@VERSIONS
def test_closed_watches_leave_no_open_connections(server: Server, configmaps_path: str, http2: bool) -> None:
    counts = [server.count_descriptors()]
    while len(counts) < SETTLED_COUNTS or len(set(counts[-SETTLED_COUNTS:])) > 1:  # earlier tests may still be closing
        time.sleep(0.3)
        counts.append(server.count_descriptors())
    before = counts[-1]
    clients = [server.client(http2=http2) for _ in range(20)]
    streams = [
        client.send(client.build_request("GET", configmaps_path, params={"watch": "1"}), stream=True)
        for client in clients
    ]
    assert all(stream.status_code == 200 for stream in streams)
    assert server.count_descriptors() > before + 10, "too few connections are open"
    for client in clients:
        client.close()
    wait_until(lambda: server.count_descriptors() <= before)


def test_a_reset_http2_stream_ends_its_watch_while_the_connection_stays(tmp_path: Path) -> None:
    """Checked with the limit of open watches per user: reset ones do not count."""
    with running_server(tmp_path / "data", watches_per_user=3) as server, server.client() as other:
        client = Http2Client(server)
        watches = [client.request("GET", f"{CONFIGMAPS}?watch=1") for _ in range(3)]
        assert client.read(lambda: client.statuses.keys() >= set(watches))
        response = other.get(CONFIGMAPS, params={"watch": "1", "timeoutSeconds": "1"})
        assert response.status_code == 429
        for watch in watches:
            client.reset_stream(watch)
        params = {"watch": "1", "timeoutSeconds": "1"}
        wait_until(lambda: other.get(CONFIGMAPS, params=params).status_code == 200)
        client.close()


def test_a_watch_is_resumed_after_a_restart_without_gap_or_repetition(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as server, server.client() as client:
        for number in range(10):
            client.post(CONFIGMAPS, json=configmap(f"n{number}"))
        client.delete(f"{CONFIGMAPS}/n0")
        with open_watch(client, CONFIGMAPS, timeoutSeconds="1", allowWatchBookmarks="true") as events:
            *_, bookmark = events
        with open_watch(
            client, CONFIGMAPS, resourceVersion=bookmark["object"]["metadata"]["resourceVersion"]
        ) as events:
            writer = server.client()
            for number in range(10, 15):
                writer.post(CONFIGMAPS, json=configmap(f"n{number}"))
            writer.close()
            received = [next(events) for _ in range(3)]
        assert [summarize_event(event) for event in received] == ["ADDED n10", "ADDED n11", "ADDED n12"]
        assert server.stop() == 0
    with running_server(tmp_path / "data") as server, server.client() as client, server.client() as writer:
        with open_watch(client, CONFIGMAPS, resourceVersion=str(get_version(received[-1]))) as events:
            writer.post(CONFIGMAPS, json=configmap("n15"))
            writer.delete(f"{CONFIGMAPS}/n1")
            remaining = [next(events) for _ in range(4)]
        assert [summarize_event(event) for event in remaining] == ["ADDED n13", "ADDED n14", "ADDED n15", "DELETED n1"]
        with open_watch(client, CONFIGMAPS, resourceVersion=str(get_version(bookmark))) as events:
            repeated = [summarize_event(next(events)) for _ in range(7)]
        assert repeated == [f"ADDED n{number}" for number in range(10, 16)] + ["DELETED n1"]
