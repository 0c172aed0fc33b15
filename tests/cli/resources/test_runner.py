"""`fairlead runner`: runners and their keys."""

import json

import pytest

from tests.harness.cli import CliFixture
from tests.harness.fake_server import M, failure, items, named

RUNNERS = f"{M}/runners"
TOLD = {"kind": "RunnerAccessKey", "accessKey": "fairlead_runner-key"}


@pytest.fixture
def admin(user: CliFixture) -> CliFixture:
    user.fake.on("POST", RUNNERS, lambda request: (201, request.body))
    user.fake.on("GET", f"{RUNNERS}/one/accesskey", (200, TOLD))
    user.fake.on("POST", f"{RUNNERS}/one/rotatekey", (201, TOLD))
    return user


def test_a_runner_is_made_with_what_was_said_and_nothing_else(admin: CliFixture) -> None:
    told = ("--display-name", "One", "--description", "the first", "--endpoint", "one.example.com", "--unusable")
    ended = admin.type("runner", "create", "one", *told)
    assert (ended.code, ended.out) == (0, "")
    assert "`fairlead runner key one` prints its access key" in ended.err
    assert admin.type("runner", "create", "two").code == 0
    assert [each.body for each in admin.fake.asked("POST", RUNNERS)] == [
        {
            "apiVersion": "management.service.sh/v1",
            "kind": "Runner",
            "metadata": {"name": "one"},
            "spec": {
                "displayName": "One",
                "description": "the first",
                "endpoint": "one.example.com",
                "unusable": True,
            },
        },
        {"apiVersion": "management.service.sh/v1", "kind": "Runner", "metadata": {"name": "two"}, "spec": {}},
    ]


def test_runners_are_listed(admin: CliFixture) -> None:
    two = named("two", spec={"endpoint": "two.example.com", "unusable": True}, status={"phase": "Initialized"})
    admin.fake.on("GET", RUNNERS, items(named("one"), two))
    header, *lines = (line.split() for line in admin.type("runner", "list").out.splitlines())
    assert header == ["NAME", "PHASE", "ENDPOINT", "UNUSABLE", "AGE"]
    assert [line[:4] for line in lines] == [
        ["one", "-", "-", "false"],
        ["two", "Initialized", "two.example.com", "true"],
    ]
    assert len(json.loads(admin.type("runner", "list", "-o", "json").out)["items"]) == 2


def test_without_runners_the_list_says_what_to_do(admin: CliFixture) -> None:
    admin.fake.on("GET", RUNNERS, items())
    assert "`fairlead runner create`" in "".join((admin.type("runner", "list").out, admin.type("runner", "list").err))


def test_a_key_stands_alone_on_stdout(admin: CliFixture) -> None:
    assert admin.type("runner", "key", "one").out == "fairlead_runner-key\n"
    assert json.loads(admin.type("runner", "key", "one", "-o", "json").out) == TOLD


def test_who_may_not_read_a_key_is_told(admin: CliFixture) -> None:
    admin.fake.on("GET", f"{RUNNERS}/one/accesskey", (403, failure(403, "Forbidden", "not for you")))
    ended = admin.type("runner", "key", "one")
    assert (ended.code, ended.out) == (1, "")
    assert "not for you" in ended.err


def test_an_answer_without_a_key_is_no_key(admin: CliFixture) -> None:
    admin.fake.on("GET", f"{RUNNERS}/one/accesskey", (200, {}))
    ended = admin.type("runner", "key", "one")
    assert (ended.code, ended.out) == (1, "")
    assert "did not return a key" in ended.err


def test_a_key_is_rotated_at_once_or_with_an_overlap(admin: CliFixture) -> None:
    ended = admin.type("runner", "rotate-key", "one")
    assert ended.out == "fairlead_runner-key\n"
    assert "the old key is revoked" in ended.err
    ended = admin.type("runner", "rotate-key", "one", "--overlap", "1h")
    assert "the old key stays valid for 1h" in ended.err
    assert [each.body for each in admin.fake.asked("POST", f"{RUNNERS}/one/rotatekey")] == [
        {"spec": {}},
        {"spec": {"overlapSeconds": 3600}},
    ]
