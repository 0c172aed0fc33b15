"""`fairlead who-can` of fairlead.cli.access.permissions: users and teams with the permission, and the reason."""

import json
from typing import Any

import pytest

from tests.harness.cli import CliFixture
from tests.harness.fake_server import M, Request, build_object, failure_status, list_response

REVIEWS = f"{M}/subjectaccessreviews"
WHO_CAN = f"{M}/resourceaccessreviews"


@pytest.fixture
def cli_with_users(user: CliFixture) -> CliFixture:
    """The users alice, bob (disabled) and cy, and the team ops; alice and ops have the permission."""
    user.fake.on("GET", "/kubernetes/management/api", (403, failure_status(403, "Forbidden", "no discovery")))
    users = (build_object("alice", spec={}), build_object("bob", spec={"disabled": True}), build_object("cy", spec={}))
    user.fake.on("GET", f"{M}/users", list_response(*users))
    user.fake.on("GET", f"{M}/teams", list_response(build_object("ops", spec={"users": ["alice"]})))

    def review(request: Request) -> tuple[int, Any]:
        user_name = request.body["spec"]["user"]
        reason = {"alice": "owner of the object", "service:team:ops": "ClusterRole edit"}.get(user_name, "")
        return 201, {"status": {"allowed": bool(reason), "reason": reason}}

    user.fake.on("POST", REVIEWS, review)
    return user


def test_users_and_teams_with_the_permission_are_listed_with_the_reason(cli_with_users: CliFixture) -> None:
    result = cli_with_users.run("who-can", "delete", "apps", "x")
    assert (result.code, result.err) == (0, "")
    assert [line.split(maxsplit=2) for line in result.out.splitlines()] == [
        ["KIND", "NAME", "REASON"],
        ["user", "alice", "owner of the object"],
        ["team", "ops", "ClusterRole edit"],
    ]
    listed = json.loads(cli_with_users.run("who-can", "delete", "apps", "x", "-o", "json").out)
    assert listed["items"][0] == {"kind": "User", "name": "alice", "reason": "owner of the object"}


def test_reviews_of_users_have_no_groups_and_reviews_of_teams_have_the_team_group(cli_with_users: CliFixture) -> None:
    cli_with_users.run("who-can", "get", "apps", "--project", "demo")
    reviews = [each.body["spec"] for each in cli_with_users.fake.requests_to("POST", REVIEWS)]
    attributes = {"verb": "get", "group": "management.service.sh", "resource": "apps", "namespace": "service-p-demo"}
    groups = ["service:team:ops", "system:authenticated", "service:authenticated"]
    assert reviews == [
        {"user": "alice", "resourceAttributes": attributes},
        {"user": "cy", "resourceAttributes": attributes},
        {"user": "service:team:ops", "groups": groups, "resourceAttributes": attributes},
    ]


def test_a_non_resource_path_can_be_reviewed(cli_with_users: CliFixture) -> None:
    assert cli_with_users.run("who-can", "get", "/metrics").code == 0
    spec = cli_with_users.fake.requests_to("POST", REVIEWS)[0].body["spec"]
    assert spec["nonResourceAttributes"] == {"path": "/metrics", "verb": "get"}


def test_no_user_with_the_permission_is_reported_on_stderr(cli_with_users: CliFixture) -> None:
    cli_with_users.fake.on("POST", REVIEWS, (201, {"status": {"allowed": False}}))
    result = cli_with_users.run("who-can", "delete", "apps", "x", "-n", "ns")
    assert (result.code, result.out) == (0, "")
    assert "no user or team may delete apps.management.service.sh x in ns" in result.err


def test_without_permission_for_reviews_the_command_fails(cli_with_users: CliFixture) -> None:
    cli_with_users.fake.on("POST", REVIEWS, (403, failure_status(403, "Forbidden", "you may not review access")))
    result = cli_with_users.run("who-can", "get", "apps")
    assert result.code == 1
    assert result.err.startswith("fairlead: you may not review access\n")


def test_the_server_lists_who_may_if_it_can(cli_with_users: CliFixture) -> None:
    subjects = {
        "users": [{"name": "alice", "via": "owner", "reason": "owner of the object"}],
        "groups": [{"name": "system:masters", "via": "administrators"}],
        "teams": [{"name": "ops", "via": "rbac", "reason": "ClusterRole edit"}],
        "truncated": True,
    }
    cli_with_users.fake.on("POST", WHO_CAN, (201, {"status": subjects}))
    result = cli_with_users.run("who-can", "delete", "apps", "x")
    assert result.code == 0
    assert [line.split()[:2] for line in result.out.splitlines()[1:]] == [
        ["user", "alice"],
        ["group", "system:masters"],
        ["team", "ops"],
    ]
    assert "there are more subjects" in result.err
    assert not cli_with_users.fake.requests_to("POST", REVIEWS)
