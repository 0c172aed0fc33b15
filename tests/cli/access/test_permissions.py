"""`fairlead who-can`: everybody is asked about, and those who may are listed with the reason."""

import json
from typing import Any

import pytest

from tests.harness.cli import CliFixture
from tests.harness.fake_server import M, Request, failure, items, named

REVIEWS = f"{M}/subjectaccessreviews"


@pytest.fixture
def crowd(user: CliFixture) -> CliFixture:
    """Users alice, bob (disabled) and cy, the team ops; alice and ops may."""
    user.fake.on("GET", "/kubernetes/management/api", (403, failure(403, "Forbidden", "no discovery")))
    people = (named("alice", spec={}), named("bob", spec={"disabled": True}), named("cy", spec={}))
    user.fake.on("GET", f"{M}/users", items(*people))
    user.fake.on("GET", f"{M}/teams", items(named("ops", spec={"users": ["alice"]})))

    def review(request: Request) -> tuple[int, Any]:
        who = request.body["spec"]["user"]
        reason = {"alice": "owner of the object", "service:team:ops": "ClusterRole edit"}.get(who, "")
        return 201, {"status": {"allowed": bool(reason), "reason": reason}}

    user.fake.on("POST", REVIEWS, review)
    return user


def test_those_who_may_are_listed_with_the_reason(crowd: CliFixture) -> None:
    ended = crowd.type("who-can", "delete", "apps", "x")
    assert (ended.code, ended.err) == (0, "")
    assert [line.split(maxsplit=2) for line in ended.out.splitlines()] == [
        ["KIND", "NAME", "REASON"],
        ["user", "alice", "owner of the object"],
        ["team", "ops", "ClusterRole edit"],
    ]
    listed = json.loads(crowd.type("who-can", "delete", "apps", "x", "-o", "json").out)
    assert listed["items"][0] == {"kind": "User", "name": "alice", "reason": "owner of the object"}


def test_the_server_puts_users_into_their_groups_and_teams_are_asked_about_as_themselves(crowd: CliFixture) -> None:
    crowd.type("who-can", "get", "apps", "--project", "demo")
    asked = [each.body["spec"] for each in crowd.fake.asked("POST", REVIEWS)]
    attributes = {"verb": "get", "group": "management.service.sh", "resource": "apps", "namespace": "service-p-demo"}
    groups = ["service:team:ops", "system:authenticated", "service:authenticated"]
    assert asked == [
        {"user": "alice", "resourceAttributes": attributes},
        {"user": "cy", "resourceAttributes": attributes},
        {"user": "service:team:ops", "groups": groups, "resourceAttributes": attributes},
    ]


def test_a_path_can_be_asked_about(crowd: CliFixture) -> None:
    assert crowd.type("who-can", "get", "/metrics").code == 0
    spec = crowd.fake.asked("POST", REVIEWS)[0].body["spec"]
    assert spec["nonResourceAttributes"] == {"path": "/metrics", "verb": "get"}


def test_nobody_is_an_answer_too(crowd: CliFixture) -> None:
    crowd.fake.on("POST", REVIEWS, (201, {"status": {"allowed": False}}))
    ended = crowd.type("who-can", "delete", "apps", "x", "-n", "ns")
    assert (ended.code, ended.out) == (0, "")
    assert "no user or team may delete apps.management.service.sh x in ns" in ended.err


def test_who_may_not_ask_is_told_so(crowd: CliFixture) -> None:
    crowd.fake.on("POST", REVIEWS, (403, failure(403, "Forbidden", "you may not review access")))
    ended = crowd.type("who-can", "get", "apps")
    assert ended.code == 1
    assert ended.err.startswith("fairlead: you may not review access\n")
