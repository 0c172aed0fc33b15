"""fairlead.cli.access.user: users and their passwords, which are never arguments."""

import json
from typing import Any

import pytest

from tests.harness.cli import CliFixture
from tests.harness.fake_server import M, build_object, failure_status, list_response

USERS, TEAMS = f"{M}/users", f"{M}/teams"
PASSWORD = "correct horse battery"


@pytest.fixture
def admin(user: CliFixture) -> CliFixture:
    user.fake.on("POST", USERS, lambda request: (201, request.body))
    user.fake.on("POST", f"{USERS}/bob/profile", (201, {}))
    return user


def build_team_response(version: str, *users: str) -> tuple[int, dict[str, Any]]:
    return 200, {"metadata": {"name": "ops", "resourceVersion": version}, "spec": {"users": list(users)}}


def test_a_user_is_created_with_a_password_from_the_terminal(admin: CliFixture) -> None:
    admin.use_terminal(PASSWORD, PASSWORD)
    flags = ("--display-name", "Bob B.", "--email", "bob@example.com", "--admin")
    result = admin.run("user", "create", "bob", *flags)
    assert (result.code, result.out) == (0, "")
    assert "created the user bob; create a key with `fairlead key create --user bob`" in result.err
    assert admin.fake.requests_to("POST", USERS)[0].body == {
        "apiVersion": "management.service.sh/v1",
        "kind": "User",
        "metadata": {"name": "bob"},
        "spec": {"displayName": "Bob B.", "email": "bob@example.com", "groups": ["service:admins"]},
    }
    assert admin.fake.requests_to("POST", f"{USERS}/bob/profile")[0].body == {"password": PASSWORD}


def test_a_password_can_be_piped_or_omitted(admin: CliFixture) -> None:
    assert admin.run("user", "create", "bob", "--password-stdin", stdin=f"{PASSWORD}\n").code == 0
    assert admin.fake.requests_to("POST", f"{USERS}/bob/profile")[0].body == {"password": PASSWORD}
    assert admin.run("user", "create", "bob", "--no-password").code == 0
    assert len(admin.fake.requests_to("POST", f"{USERS}/bob/profile")) == 1


def test_without_a_terminal_and_a_password_flag_no_user_is_created(admin: CliFixture) -> None:
    result = admin.run("user", "create", "bob")
    assert result.code == 2
    assert (
        "cannot prompt for the password: stdin is not a terminal; use --password-stdin, or --no-password" in result.err
    )
    assert admin.run("user", "create", "bob", "--password", PASSWORD).code == 2
    assert not admin.fake.requests_to("POST", USERS)


def test_two_different_passwords_create_no_user(admin: CliFixture) -> None:
    admin.use_terminal(PASSWORD, "another")
    result = admin.run("user", "create", "bob")
    assert result.code == 2
    assert "the two entries do not match" in result.err
    assert not admin.fake.requests_to("POST", USERS)


def test_a_rejected_password_leaves_no_user_behind(admin: CliFixture) -> None:
    admin.fake.on("POST", f"{USERS}/bob/profile", (422, failure_status(422, "Invalid", "password: too short")))
    admin.fake.on("DELETE", f"{USERS}/bob", (200, {}))
    result = admin.run("user", "create", "bob", "--password-stdin", stdin="short\n")
    assert result.code == 1
    assert "no user was created, because the password was not accepted: password: too short" in result.err
    assert len(admin.fake.requests_to("DELETE", f"{USERS}/bob")) == 1


def test_a_user_that_cannot_be_deleted_again_is_reported_with_the_command_to_set_a_password(admin: CliFixture) -> None:
    admin.fake.on("POST", f"{USERS}/bob/profile", (422, failure_status(422, "Invalid", "password: too short")))
    result = admin.run("user", "create", "bob", "--password-stdin", stdin="short\n")
    assert result.code == 1
    assert "created the user bob, but without a password: password: too short; deleting it failed" in result.err
    assert "`fairlead user passwd bob`" in result.err


def test_adding_a_user_to_a_team_is_retried_on_conflict(admin: CliFixture) -> None:
    admin.fake.on(
        "GET",
        f"{TEAMS}/ops",
        build_team_response("1", "ann"),
        build_team_response("1", "ann"),
        build_team_response("2", "ann", "cy"),
    )
    conflict = failure_status(409, "Conflict", "the object has been modified")
    admin.fake.on("PATCH", f"{TEAMS}/ops", (409, conflict), (200, {}))
    assert admin.run("user", "create", "bob", "--no-password", "--team", "ops").code == 0
    assert [each.body for each in admin.fake.requests_to("PATCH", f"{TEAMS}/ops")] == [
        {"metadata": {"resourceVersion": "1"}, "spec": {"users": ["ann", "bob"]}},
        {"metadata": {"resourceVersion": "2"}, "spec": {"users": ["ann", "cy", "bob"]}},
    ]


def test_with_an_unknown_team_no_user_is_created(admin: CliFixture) -> None:
    result = admin.run("user", "create", "bob", "--no-password", "--team", "ops")
    assert result.code == 1
    assert "team 'ops' does not exist; check the name, or create it first" in result.err
    assert not admin.fake.requests_to("POST", USERS)


def test_users_are_listed(admin: CliFixture) -> None:
    bob = build_object("bob", spec={"displayName": "Bob", "disabled": True, "groups": ["g"]}, status={"teams": ["ops"]})
    admin.fake.on("GET", USERS, list_response(build_object("alice", spec={}), bob))
    header, alice, line = (row.split() for row in admin.run("user", "list").out.splitlines())
    assert header == ["NAME", "DISPLAY", "NAME", "EMAIL", "TEAMS", "GROUPS", "STATE", "AGE"]
    assert alice[:6] == ["alice", "-", "-", "-", "-", "active"]
    assert line[:6] == ["bob", "Bob", "-", "ops", "g", "disabled"]
    listed = json.loads(admin.run("user", "list", "-o", "json").out)
    assert [each["metadata"]["name"] for each in listed["items"]] == ["alice", "bob"]


@pytest.mark.parametrize(("command", "disabled"), [("disable", True), ("enable", False)])
def test_users_are_disabled_and_enabled(admin: CliFixture, command: str, disabled: bool) -> None:
    admin.fake.on("PATCH", f"{USERS}/bob", (200, {}))
    assert admin.run("user", command, "bob").code == 0
    assert admin.fake.requests_to("PATCH", f"{USERS}/bob")[0].body == {"spec": {"disabled": disabled}}


@pytest.mark.parametrize("name", [(), ("alice",)])
def test_changing_the_own_password_needs_the_current_one(user: CliFixture, name: tuple[str, ...]) -> None:
    user.fake.on("POST", f"{USERS}/alice/profile", (201, {}))
    user.use_terminal("old password", PASSWORD, PASSWORD)
    result = user.run("user", "passwd", *name)
    assert result.code == 0, result.err
    body = user.fake.requests_to("POST", f"{USERS}/alice/profile")[0].body
    assert body == {"currentPassword": "old password", "password": PASSWORD}
    assert "the password of alice is set" in result.err


def test_without_a_current_password_the_prompt_stays_empty(user: CliFixture) -> None:
    user.fake.on("POST", f"{USERS}/alice/profile", (201, {}))
    user.use_terminal("", PASSWORD, PASSWORD)
    assert user.run("user", "passwd").code == 0
    assert user.run("user", "passwd", "--password-stdin", stdin=f"\n{PASSWORD}\n").code == 0
    assert [each.body for each in user.fake.requests_to("POST", f"{USERS}/alice/profile")] == [
        {"password": PASSWORD}
    ] * 2


def test_passwords_can_be_piped_in_order(user: CliFixture) -> None:
    user.fake.on("POST", f"{USERS}/alice/profile", (201, {}))
    user.fake.on("POST", f"{USERS}/bob/profile", (201, {}))
    assert user.run("user", "passwd", "--password-stdin", stdin=f"old\n{PASSWORD}\n").code == 0
    assert user.fake.requests_to("POST", f"{USERS}/alice/profile")[0].body["currentPassword"] == "old"
    assert user.run("user", "passwd", "bob", "--password-stdin", stdin=f"{PASSWORD}\n").code == 0
    assert user.fake.requests_to("POST", f"{USERS}/bob/profile")[0].body == {"password": PASSWORD}
    empty = user.run("user", "passwd", "bob", "--password-stdin", stdin="")
    assert empty.code == 2
    assert "the new password on stdin is empty" in empty.err


def test_dotfiles_are_shown_set_and_forgotten_beside_the_other_settings(user: CliFixture) -> None:
    url = "https://example.com/alice/dotfiles.git"
    user.fake.on("POST", f"{USERS}/alice/profile", (201, {}))
    custom = [{}, {"theme": "dark"}, {"theme": "dark", "dotfiles": url}, {"theme": "dark", "dotfiles": url}]
    user.fake.on("GET", f"{USERS}/alice/profile", *((200, {"custom": each}) for each in custom))
    assert user.run("user", "dotfiles").out == "none\n"
    assert user.run("user", "dotfiles", url).code == 0
    assert user.run("user", "dotfiles").out == f"{url}\n"
    assert user.run("user", "dotfiles", "--remove").code == 0
    assert [each.body for each in user.fake.requests_to("POST", f"{USERS}/alice/profile")] == [
        {"custom": {"theme": "dark", "dotfiles": url}},
        {"custom": {"theme": "dark"}},
    ]
    assert user.run("user", "dotfiles", url, "--remove").code == 2


def test_a_team_has_no_password(user: CliFixture) -> None:
    user.fake.on("POST", f"{M}/selves", (201, {"status": {"team": {"name": "ops"}}}))
    result = user.run("user", "passwd")
    assert result.code == 2
    assert "you are the team ops, which has no password; set the name of a user" in result.err
