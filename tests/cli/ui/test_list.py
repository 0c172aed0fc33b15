"""fairlead.cli.ui.resource_commands: the same flags for every list command, and `--watch`."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.harness.cli import CliFixture, parse_yaml
from tests.harness.fake_server import M, Request, build_object, failure_status, list_response
from tests.harness.watch_responses import END, build_watch_event, build_watch_response

TEAMS = f"{M}/teams"


def build_interrupted_watch(*events: Any) -> tuple[Any, Callable[[Request], Any]]:
    """Responses of a watch with these events; the next one is empty, so that the client waits and is interrupted."""
    return build_watch_response(*events), lambda request: build_watch_response()


@pytest.fixture
def watch_cli(user: CliFixture, monkeypatch: pytest.MonkeyPatch) -> CliFixture:
    """A CLI that is interrupted with Ctrl-C as soon as a watch has no more events."""

    def raise_interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fairlead.client.watch.time.sleep", raise_interrupt)
    return user


@pytest.mark.parametrize(
    ("command", "plural", "kind"),
    [
        ("project", "projects", "project"),
        ("vcluster", "virtualclusterinstances", "virtualclusterinstance"),
        ("space", "spaceinstances", "spaceinstance"),
        ("workspace", "devpodworkspaceinstances", "devpodworkspaceinstance"),
        ("app", "apps", "app"),
        ("team", "teams", "team"),
        ("user", "users", "user"),
        ("runner", "runners", "runner"),
    ],
)
def test_every_list_command_has_all_formats_and_can_watch(
    watch_cli: CliFixture, command: str, plural: str, kind: str
) -> None:
    watch_cli.fake.on("GET", f"{M}/{plural}", list_response(build_object("one"), build_object("two")))
    assert watch_cli.run(command, "list", "-o", "name").out == f"{kind}/one\n{kind}/two\n"
    assert [line.split()[0] for line in watch_cli.run(command, "list").out.splitlines()] == ["NAME", "one", "two"]
    assert len(json.loads(watch_cli.run(command, "list", "-o", "json").out)["items"]) == 2
    watch_cli.fake.on("GET", f"{M}/{plural}", *build_interrupted_watch(build_watch_event("ADDED", "one", "1"), END))
    result = watch_cli.run(command, "list", "--watch")
    assert result.code == 0
    assert [line.split()[:2] for line in result.out.splitlines()] == [["EVENT", "NAME"], ["ADDED", "one"]]


def test_a_wide_list_shows_zero(user: CliFixture) -> None:
    cluster = build_object("berlin", status={"nodes": 0})
    user.fake.on("GET", f"{M}/clusters", list_response(cluster))
    headers, row = user.run("cluster", "list", "-o", "wide").out.splitlines()
    assert row[headers.index("NODES") :].split()[0] == "0"


def test_later_rows_are_aligned_with_their_headers(watch_cli: CliFixture) -> None:
    first, later = build_watch_event("ADDED", "a-long-name", "1"), build_watch_event("DELETED", "b", "8")
    watch_cli.fake.on("GET", TEAMS, *build_interrupted_watch(first, END, later))
    header, _, row = watch_cli.run("team", "list", "-w").out.splitlines()
    assert row.index(" b ") + 1 == header.index("NAME")
    assert row.index("active") == header.index("STATE")


def test_a_watch_of_an_empty_list_prints_headers_with_the_first_row(watch_cli: CliFixture) -> None:
    watch_cli.fake.on("GET", TEAMS, *build_interrupted_watch(END, build_watch_event("ADDED", "a", "8")))
    result = watch_cli.run("team", "list", "-w")
    assert "no teams" in result.err
    assert [line.split()[0] for line in result.out.splitlines()] == ["EVENT", "ADDED"]


def test_events_are_printed_as_json_yaml_and_names(watch_cli: CliFixture) -> None:
    responses = build_interrupted_watch(
        build_watch_event("ADDED", "a", "1"), END, build_watch_event("DELETED", "a", "8")
    )
    watch_cli.fake.on("GET", TEAMS, *responses)
    events = [json.loads(line) for line in watch_cli.run("team", "list", "-w", "-o", "json").out.splitlines()]
    assert [(each["type"], each["object"]["metadata"]["name"]) for each in events] == [("ADDED", "a"), ("DELETED", "a")]
    watch_cli.fake.on("GET", TEAMS, *responses)
    _, *documents = watch_cli.run("team", "list", "-w", "-o", "yaml").out.split("---\n")
    assert [parse_yaml(each)["type"] for each in documents] == ["ADDED", "DELETED"]
    watch_cli.fake.on("GET", TEAMS, *responses)
    assert watch_cli.run("team", "list", "-w", "-o", "name").out == "team/a\nteam/a\n"


def test_a_watch_filters_objects_like_the_list(watch_cli: CliFixture) -> None:
    mine, others = build_watch_event("ADDED", "mine", "1"), build_watch_event("ADDED", "others", "2")
    mine["object"]["spec"], others["object"]["spec"] = {"user": "alice"}, {"user": "bob"}
    watch_cli.fake.on("GET", f"{M}/ownedaccesskeys", *build_interrupted_watch(mine, others, END))
    assert watch_cli.run("key", "list", "-w", "-o", "name").out == "ownedaccesskey/mine\n"


def test_a_forbidden_watch_fails(watch_cli: CliFixture) -> None:
    watch_cli.fake.on("GET", TEAMS, (403, failure_status(403, "Forbidden", "not for you")))
    result = watch_cli.run("team", "list", "--watch")
    assert (result.code, result.out) == (1, "")
    assert "not for you" in result.err
