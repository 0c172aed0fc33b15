"""fairlead.client.watch: initial events, changes, and reconnection after the server ends a watch."""

from collections.abc import Iterator
from itertools import islice

import pytest

from fairlead.client import ApiStatusError, Client, ClientError, Event, watch
from tests.harness.fake_server import FakeServer, M, failure_status
from tests.harness.watch_responses import END, build_watch_event, build_watch_response

TEAMS = f"{M}/teams"


@pytest.fixture(autouse=True)
def retry_immediately(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "RETRY_SECONDS", 0.0)


def read_events(events: Iterator[Event], count: int) -> list[tuple[str, str]]:
    return [(each.type, each.object.get("metadata", {}).get("name", "")) for each in islice(events, count)]


def test_existing_objects_come_first_then_changes(client: Client, fake: FakeServer) -> None:
    fake.on(
        "GET",
        TEAMS,
        build_watch_response(
            build_watch_event("ADDED", "a", "3"),
            END,
            build_watch_event("MODIFIED", "a", "8"),
            build_watch_event("DELETED", "a", "9"),
        ),
    )
    events = read_events(client.watch("teams", labels="x=y", fields="metadata.name=a"), 4)
    assert events == [("ADDED", "a"), ("SYNCED", ""), ("MODIFIED", "a"), ("DELETED", "a")]
    (request,) = fake.requests_to("GET", TEAMS)
    assert request.query == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "labelSelector": "x=y",
        "fieldSelector": "metadata.name=a",
    }


def test_a_closed_watch_resumes_at_its_last_resource_version(client: Client, fake: FakeServer) -> None:
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "12"}}}
    fake.on(
        "GET",
        TEAMS,
        build_watch_response(END, bookmark),
        build_watch_response(),
        build_watch_response(build_watch_event("ADDED", "b", "13")),
    )
    assert read_events(client.watch("teams"), 2) == [("SYNCED", ""), ("ADDED", "b")]
    versions = [each.query.get("resourceVersion") for each in fake.requests_to("GET", TEAMS)]
    assert versions == [None, "12", "12"]
    assert "sendInitialEvents" not in fake.requests_to("GET", TEAMS)[1].query


def test_a_watch_that_ends_before_its_initial_events_do_starts_again(client: Client, fake: FakeServer) -> None:
    fake.on(
        "GET",
        TEAMS,
        build_watch_response(build_watch_event("ADDED", "a", "3")),
        build_watch_response(build_watch_event("ADDED", "a", "3"), END),
    )
    assert read_events(client.watch("teams"), 3) == [("ADDED", "a"), ("ADDED", "a"), ("SYNCED", "")]
    assert "resourceVersion" not in fake.requests_to("GET", TEAMS)[1].query


def test_an_error_event_is_raised(client: Client, fake: FakeServer) -> None:
    gone = {"type": "ERROR", "object": failure_status(410, "Expired", "too old resource version")}
    fake.on("GET", TEAMS, build_watch_response(END, gone))
    with pytest.raises(ApiStatusError, match="too old") as raised:
        read_events(client.watch("teams"), 2)
    assert raised.value.code == 410


def test_an_error_response_is_raised(client: Client, fake: FakeServer) -> None:
    fake.on("GET", TEAMS, (403, failure_status(403, "Forbidden", "not for you")))
    with pytest.raises(ApiStatusError, match="not for you"):
        read_events(client.watch("teams"), 1)


def test_a_response_that_is_not_json_is_an_error(client: Client, fake: FakeServer) -> None:
    fake.on("GET", TEAMS, (200, b"<html>\n"))
    with pytest.raises(ClientError, match="not a JSON object"):
        read_events(client.watch("teams"), 1)


def test_lines_end_at_line_feeds_only() -> None:
    chunks = ['{"a":"one\u2028'.encode(), b'two"}\n{"b"', b":1}\n", b"\n", b"rest"]
    assert list(watch.split_lines(chunks, lambda size: None)) == ['{"a":"one\u2028two"}'.encode(), b'{"b":1}', b"rest"]
