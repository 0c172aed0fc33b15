"""Watches over real connections: live, on time, resumed after a restart, and cleaned up when their client goes."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.harness.server_process import CONFIGMAPS, MANAGEMENT, TIMEOUT_SECONDS, Server, configmap, running
from tests.live.http2_client import Http2

VERSIONS = pytest.mark.parametrize("http2", [False, True], ids=["HTTP/1.1", "HTTP/2"])
NAMESPACES = f"{MANAGEMENT}/api/v1/namespaces"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("watch") / "data") as started:
        yield started


@pytest.fixture
def place(server: Server) -> str:
    """The path of the config maps of a namespace that nothing else lives in."""
    with server.client() as client:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "test-"}}
        name = client.post(NAMESPACES, json=body).json()["metadata"]["name"]
    return f"{NAMESPACES}/{name}/configmaps"


@contextmanager
def watching(client: httpx.Client, place: str, **query: str) -> Iterator[Iterator[Any]]:
    with client.stream("GET", place, params={"watch": "1", **query}) as answer:
        assert answer.status_code == 200, answer.read()
        yield map(json.loads, answer.iter_lines())


def told(event: Any) -> str:
    return f"{event['type']} {event['object']['metadata'].get('name', '')}".strip()


def version_of(event: Any) -> int:
    return int(event["object"]["metadata"]["resourceVersion"])


def eventually(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@VERSIONS
def test_what_happens_is_told_while_it_happens(server: Server, place: str, http2: bool) -> None:
    with server.client(http2=http2) as client, server.client() as writer, watching(client, place) as events:
        made = writer.post(place, json=configmap("a")).json()
        event = next(events)
        assert (told(event), event["object"]) == ("ADDED a", made)
        writer.put(f"{place}/a", json=configmap("a", b="1"))
        assert told(next(events)) == "MODIFIED a"
        writer.delete(f"{place}/a")
        last = next(events)
        assert told(last) == "DELETED a"
        assert version_of(last) > int(made["metadata"]["resourceVersion"])


@VERSIONS
def test_a_watch_ends_by_itself_and_properly_when_its_time_is_over(server: Server, place: str, http2: bool) -> None:
    """The client would raise if the stream broke off instead of ending."""
    with server.client(http2=http2) as client:
        client.post(place, json=configmap("a"))
        with watching(client, place, timeoutSeconds="1") as events:
            assert [told(event) for event in events] == ["ADDED a"]
        assert client.get(place).status_code == 200


@VERSIONS
def test_bookmarks_come_to_those_who_asked_and_to_no_one_else(server: Server, place: str, http2: bool) -> None:
    with (
        server.client(http2=http2) as client,
        watching(client, place, timeoutSeconds="1", allowWatchBookmarks="true") as marked,
        watching(client, place, timeoutSeconds="1") as plain,
    ):
        assert [told(event) for event in marked] == ["BOOKMARK"]
        assert [told(event) for event in plain] == []


@VERSIONS
def test_a_list_can_come_as_a_watch(server: Server, place: str, http2: bool) -> None:
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    with server.client(http2=http2) as client, server.client() as writer:
        for name in ("a", "b"):
            writer.post(place, json=configmap(name))
        with watching(client, place, **query) as events:
            assert [told(next(events)) for _ in range(2)] == ["ADDED a", "ADDED b"]
            mark = next(events)
            assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
            writer.post(place, json=configmap("c"))
            assert told(next(events)) == "ADDED c"
        listed = writer.get(place).json()
    assert version_of(mark) < int(listed["metadata"]["resourceVersion"])


def test_a_watch_goes_on_where_a_list_ends(server: Server, place: str) -> None:
    with server.client() as client, server.client() as writer:
        writer.post(place, json=configmap("before"))
        version = client.get(place).json()["metadata"]["resourceVersion"]
        writer.post(place, json=configmap("between"))
        with watching(client, place, resourceVersion=version) as events:
            assert told(next(events)) == "ADDED between"
            writer.post(place, json=configmap("after"))
            assert told(next(events)) == "ADDED after"


def test_a_version_that_is_too_old_is_told_so(server: Server, place: str) -> None:
    with server.client() as client, watching(client, place, resourceVersion="1") as events:
        (event,) = events
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


def test_many_watchers_hear_everything_in_order(server: Server, place: str) -> None:
    with server.client(http2=True) as client, server.client() as writer:
        open_watches = [watching(client, place) for _ in range(20)]
        streams = [watch.__enter__() for watch in open_watches]
        for number in range(20):
            writer.post(place, json=configmap(f"n{number}"))
        heard = [[next(events) for _ in range(20)] for events in streams]
        for watch in open_watches:
            watch.__exit__(None, None, None)
    for events in heard:
        assert [told(event) for event in events] == [f"ADDED n{number}" for number in range(20)]
        versions = [version_of(event) for event in events]
        assert versions == sorted(set(versions))


@VERSIONS
def test_a_watcher_who_goes_away_leaves_nothing_behind(server: Server, place: str, http2: bool) -> None:
    before, now = -1, server.descriptors()
    while now != before or now >= 60:  # connections of earlier tests may still be going
        time.sleep(0.3)
        before, now = now, server.descriptors()
    clients = [server.client(http2=http2) for _ in range(20)]
    streams = [
        client.send(client.build_request("GET", place, params={"watch": "1"}), stream=True) for client in clients
    ]
    assert all(stream.status_code == 200 for stream in streams)
    assert server.descriptors() > before + 10, "most of them are there; others may have gone meanwhile"
    for client in clients:
        client.close()
    assert eventually(lambda: server.descriptors() <= before)


def test_a_stream_that_is_reset_is_let_go_although_its_connection_stays(tmp_path: Path) -> None:
    """Told by the watches that a user may have open: those that were reset do not count any more."""
    with running(tmp_path / "data", watches_per_user=3) as server, server.client() as other:
        client = Http2(server)
        watches = [client.request("GET", f"{CONFIGMAPS}?watch=1") for _ in range(3)]
        assert client.read(lambda: client.statuses.keys() >= set(watches))
        refused = other.get(CONFIGMAPS, params={"watch": "1", "timeoutSeconds": "1"})
        assert refused.status_code == 429
        for watch in watches:
            client.break_off(watch)
        asked = {"watch": "1", "timeoutSeconds": "1"}
        assert eventually(lambda: other.get(CONFIGMAPS, params=asked).status_code == 200)
        client.close()


def test_a_watch_is_resumed_after_a_restart_without_gap_or_repetition(tmp_path: Path) -> None:
    with running(tmp_path / "data") as server, server.client() as client:
        for number in range(10):
            client.post(CONFIGMAPS, json=configmap(f"n{number}"))
        client.delete(f"{CONFIGMAPS}/n0")
        with watching(client, CONFIGMAPS, timeoutSeconds="1", allowWatchBookmarks="true") as events:
            *_, bookmark = events
        with watching(client, CONFIGMAPS, resourceVersion=bookmark["object"]["metadata"]["resourceVersion"]) as events:
            client_too = server.client()
            for number in range(10, 15):
                client_too.post(CONFIGMAPS, json=configmap(f"n{number}"))
            client_too.close()
            seen = [next(events) for _ in range(3)]
        assert [told(event) for event in seen] == ["ADDED n10", "ADDED n11", "ADDED n12"]
        assert server.stop() == 0
    with running(tmp_path / "data") as server, server.client() as client, server.client() as writer:
        with watching(client, CONFIGMAPS, resourceVersion=str(version_of(seen[-1]))) as events:
            writer.post(CONFIGMAPS, json=configmap("n15"))
            writer.delete(f"{CONFIGMAPS}/n1")
            rest = [next(events) for _ in range(4)]
        assert [told(event) for event in rest] == ["ADDED n13", "ADDED n14", "ADDED n15", "DELETED n1"]
        with watching(client, CONFIGMAPS, resourceVersion=str(version_of(bookmark))) as events:
            again = [told(next(events)) for _ in range(7)]
        assert again == [f"ADDED n{number}" for number in range(10, 16)] + ["DELETED n1"]
