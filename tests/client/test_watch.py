"""Watches: what is there, what changes, and what happens when the server ends one."""

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

from fairlead.client import ApiStatusError, Client, ClientError, Event, watch
from tests.harness.fake_server import FakeServer, M, failure, named

TEAMS = f"{M}/teams"
END = {
    "type": "BOOKMARK",
    "object": {"metadata": {"resourceVersion": "7", "annotations": {watch.INITIAL_EVENTS_END: "true"}}},
}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "RETRY_SECONDS", 0.0)


def lines(*events: Any) -> tuple[int, bytes]:
    return 200, b"".join(json.dumps(each).encode() + b"\n" for each in events)


def event(type: str, name: str, version: str) -> dict[str, Any]:
    made = named(name)
    made["metadata"]["resourceVersion"] = version
    return {"type": type, "object": made}


def told(events: Iterator[Event], count: int) -> list[tuple[str, str]]:
    return [(each.type, each.object.get("metadata", {}).get("name", "")) for each in islice(events, count)]


def test_what_is_there_comes_first_and_then_what_changes(client: Client, fake: FakeServer) -> None:
    fake.on("GET", TEAMS, lines(event("ADDED", "a", "3"), END, event("MODIFIED", "a", "8"), event("DELETED", "a", "9")))
    seen = told(client.watch("teams", labels="x=y", fields="metadata.name=a"), 4)
    assert seen == [("ADDED", "a"), ("SYNCED", ""), ("MODIFIED", "a"), ("DELETED", "a")]
    (request,) = fake.asked("GET", TEAMS)
    assert request.query == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "labelSelector": "x=y",
        "fieldSelector": "metadata.name=a",
    }


def test_a_watch_that_the_server_ends_goes_on_where_it_was(client: Client, fake: FakeServer) -> None:
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "12"}}}
    fake.on("GET", TEAMS, lines(END, bookmark), lines(), lines(event("ADDED", "b", "13")))
    assert told(client.watch("teams"), 2) == [("SYNCED", ""), ("ADDED", "b")]
    versions = [each.query.get("resourceVersion") for each in fake.asked("GET", TEAMS)]
    assert versions == [None, "12", "12"]
    assert "sendInitialEvents" not in fake.asked("GET", TEAMS)[1].query


def test_a_watch_that_ends_before_all_was_told_begins_anew(client: Client, fake: FakeServer) -> None:
    fake.on("GET", TEAMS, lines(event("ADDED", "a", "3")), lines(event("ADDED", "a", "3"), END))
    assert told(client.watch("teams"), 3) == [("ADDED", "a"), ("ADDED", "a"), ("SYNCED", "")]
    assert "resourceVersion" not in fake.asked("GET", TEAMS)[1].query


def test_an_error_in_the_midst_is_raised(client: Client, fake: FakeServer) -> None:
    gone = {"type": "ERROR", "object": failure(410, "Expired", "too old resource version")}
    fake.on("GET", TEAMS, lines(END, gone))
    with pytest.raises(ApiStatusError, match="too old") as raised:
        told(client.watch("teams"), 2)
    assert raised.value.code == 410


def test_a_refusal_is_raised(client: Client, fake: FakeServer) -> None:
    fake.on("GET", TEAMS, (403, failure(403, "Forbidden", "not for you")))
    with pytest.raises(ApiStatusError, match="not for you"):
        told(client.watch("teams"), 1)


def test_an_answer_that_is_no_json_is_raised(client: Client, fake: FakeServer) -> None:
    fake.on("GET", TEAMS, (200, b"<html>\n"))
    with pytest.raises(ClientError, match="not a JSON object"):
        told(client.watch("teams"), 1)


def test_lines_end_at_line_feeds_only() -> None:
    chunks = ['{"a":"one\u2028'.encode(), b'two"}\n{"b"', b":1}\n", b"\n", b"rest"]
    assert list(watch.split_lines(chunks)) == ['{"a":"one\u2028two"}'.encode(), b'{"b":1}', b"rest"]
