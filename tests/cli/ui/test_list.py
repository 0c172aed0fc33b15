"""Lists: the same flags everywhere, and rows that go on."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.client.test_watch import END, event, lines
from tests.harness.cli import CliFixture, parse_yaml
from tests.harness.fake_server import M, Request, failure, items, named

TEAMS = f"{M}/teams"


def until_ctrl_c(*events: Any) -> tuple[Any, Callable[[Request], Any]]:
    """A watch with these events; then somebody presses Ctrl-C."""
    return lines(*events), lambda request: lines()


@pytest.fixture
def impatient(user: CliFixture, monkeypatch: pytest.MonkeyPatch) -> CliFixture:
    """Somebody who presses Ctrl-C as soon as a watch has no more to tell."""

    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fairlead.client.watch.time.sleep", interrupted)
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
def test_every_list_has_every_form_and_can_go_on(impatient: CliFixture, command: str, plural: str, kind: str) -> None:
    impatient.fake.on("GET", f"{M}/{plural}", items(named("one"), named("two")))
    assert impatient.type(command, "list", "-o", "name").out == f"{kind}/one\n{kind}/two\n"
    assert [line.split()[0] for line in impatient.type(command, "list").out.splitlines()] == ["NAME", "one", "two"]
    assert len(json.loads(impatient.type(command, "list", "-o", "json").out)["items"]) == 2
    impatient.fake.on("GET", f"{M}/{plural}", *until_ctrl_c(event("ADDED", "one", "1"), END))
    ended = impatient.type(command, "list", "--watch")
    assert ended.code == 0
    assert [line.split()[:2] for line in ended.out.splitlines()] == [["EVENT", "NAME"], ["ADDED", "one"]]


def test_rows_that_come_later_stand_below_their_headers(impatient: CliFixture) -> None:
    first, later = event("ADDED", "a-long-name", "1"), event("DELETED", "b", "8")
    impatient.fake.on("GET", TEAMS, *until_ctrl_c(first, END, later))
    header, _, row = impatient.type("team", "list", "-w").out.splitlines()
    assert row.index(" b ") + 1 == header.index("NAME")
    assert row.index("active") == header.index("STATE")


def test_a_list_that_is_empty_at_first_gets_its_headers_later(impatient: CliFixture) -> None:
    impatient.fake.on("GET", TEAMS, *until_ctrl_c(END, event("ADDED", "a", "8")))
    ended = impatient.type("team", "list", "-w")
    assert "no teams" in ended.err
    assert [line.split()[0] for line in ended.out.splitlines()] == ["EVENT", "ADDED"]


def test_changes_are_told_to_programs(impatient: CliFixture) -> None:
    answers = until_ctrl_c(event("ADDED", "a", "1"), END, event("DELETED", "a", "8"))
    impatient.fake.on("GET", TEAMS, *answers)
    told = [json.loads(line) for line in impatient.type("team", "list", "-w", "-o", "json").out.splitlines()]
    assert [(each["type"], each["object"]["metadata"]["name"]) for each in told] == [("ADDED", "a"), ("DELETED", "a")]
    impatient.fake.on("GET", TEAMS, *answers)
    _, *documents = impatient.type("team", "list", "-w", "-o", "yaml").out.split("---\n")
    assert [parse_yaml(each)["type"] for each in documents] == ["ADDED", "DELETED"]
    impatient.fake.on("GET", TEAMS, *answers)
    assert impatient.type("team", "list", "-w", "-o", "name").out == "team/a\nteam/a\n"


def test_a_watch_shows_whom_the_list_would_show(impatient: CliFixture) -> None:
    mine, others = event("ADDED", "mine", "1"), event("ADDED", "others", "2")
    mine["object"]["spec"], others["object"]["spec"] = {"user": "alice"}, {"user": "bob"}
    impatient.fake.on("GET", f"{M}/ownedaccesskeys", *until_ctrl_c(mine, others, END))
    assert impatient.type("key", "list", "-w", "-o", "name").out == "ownedaccesskey/mine\n"


def test_a_watch_that_is_refused_fails(impatient: CliFixture) -> None:
    impatient.fake.on("GET", TEAMS, (403, failure(403, "Forbidden", "not for you")))
    ended = impatient.type("team", "list", "--watch")
    assert (ended.code, ended.out) == (1, "")
    assert "not for you" in ended.err
