"""kinds/access/users.py: usernames and token generations of users."""

from typing import Any

import pytest

from fairlead.core.objects import Object, get_path
from fairlead.kinds.access.users import PROFILE, USER
from fairlead.registry.validate import Validator
from tests.harness.kind_examples import apply_defaults, build_example, computed_cells, find_problems, problem_reasons


def build_user(**spec: Any) -> Object:
    return build_example("User", metadata={"name": "ada"}, spec=spec)


@pytest.mark.parametrize("sent", [{}, {"username": ""}])
def test_the_username_defaults_to_the_name(sent: Object) -> None:
    assert apply_defaults(build_user(**sent))["spec"]["username"] == "ada"
    assert apply_defaults(build_user(username="ada@example.com"))["spec"]["username"] == "ada@example.com"


def test_a_user_without_a_spec_has_a_username() -> None:
    assert apply_defaults(build_example("User", metadata={"name": "ada"}, spec=None))["spec"] == {"username": "ada"}


def test_an_update_without_the_username_keeps_it() -> None:
    old = build_user(username="chosen")
    assert apply_defaults(build_user(email="a@b.c"), old)["spec"]["username"] == "chosen"


def test_the_username_is_immutable() -> None:
    assert "spec.username" in USER.immutable


@pytest.mark.parametrize("username", ["ada lovelace", "a\nb", "a\x00b", "x" * 254])
def test_a_username_with_spaces_or_control_characters_or_too_long_is_rejected(username: str) -> None:
    assert [field for field, _ in problem_reasons(build_user(username=username))] == ["spec.username"]


def test_the_token_generation_cannot_decrease() -> None:
    old = build_user(tokenGeneration=3)
    assert find_problems(build_user(tokenGeneration=4), old) == []
    assert find_problems(build_user(tokenGeneration=3), old) == []
    for sent in ({"tokenGeneration": 2}, {}):
        [problem] = find_problems(build_user(**sent), old)
        assert problem.field == "spec.tokenGeneration" and "would become valid again" in problem.message


def test_a_user_has_at_most_one_owner() -> None:
    assert problem_reasons(build_user(owner={"user": "a", "team": "b"})) == [("spec.owner.team", "FieldValueForbidden")]


def test_the_table_shows_disabled_users() -> None:
    assert computed_cells(USER, build_user())["Disabled"] is False
    assert computed_cells(USER, build_user(disabled=True))["Disabled"] is True


def test_users_have_access_keys_and_profile_subresources() -> None:
    assert {(action.name, action.verbs) for action in USER.actions} == {
        ("accesskeys", ("get",)),
        ("profile", ("create", "get")),
    }


def test_a_profile_never_shows_passwords() -> None:
    assert set(PROFILE.write_only) == {"password", "currentPassword"}
    body = {"displayName": "Ada", "password": "p", "currentPassword": "q", "custom": {"theme": "dark"}}
    assert Validator(PROFILE.schema()).validate(body).problems == []
    assert get_path(PROFILE.fields, "password.format") == "password"
