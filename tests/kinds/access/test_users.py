"""Users: names that agree, and tokens that stay invalid."""

from typing import Any

import pytest

from fairlead.core.objects import Object, get_path
from fairlead.kinds.access.users import PROFILE, USER
from fairlead.registry.validate import Validator
from tests.harness.kind_examples import cells, complaints, example, prepared, problems


def user(**spec: Any) -> Object:
    return example("User", metadata={"name": "ada"}, spec=spec)


@pytest.mark.parametrize("sent", [{}, {"username": ""}])
def test_the_username_is_the_name_unless_another_is_chosen(sent: Object) -> None:
    assert prepared(user(**sent))["spec"]["username"] == "ada"
    assert prepared(user(username="ada@example.com"))["spec"]["username"] == "ada@example.com"


def test_a_user_without_a_spec_has_a_username() -> None:
    assert prepared(example("User", metadata={"name": "ada"}, spec=None))["spec"] == {"username": "ada"}


def test_an_update_that_does_not_mention_the_username_keeps_it() -> None:
    old = user(username="chosen")
    assert prepared(user(email="a@b.c"), old)["spec"]["username"] == "chosen"


def test_the_username_cannot_be_changed() -> None:
    assert "spec.username" in USER.immutable


@pytest.mark.parametrize("username", ["ada lovelace", "a\nb", "a\x00b", "x" * 254])
def test_a_username_that_nobody_could_type_or_read_is_refused(username: str) -> None:
    assert [field for field, _ in complaints(user(username=username))] == ["spec.username"]


def test_the_token_generation_never_falls() -> None:
    old = user(tokenGeneration=3)
    assert problems(user(tokenGeneration=4), old) == []
    assert problems(user(tokenGeneration=3), old) == []
    for sent in ({"tokenGeneration": 2}, {}):
        [problem] = problems(user(**sent), old)
        assert problem.field == "spec.tokenGeneration" and "would become valid again" in problem.message


def test_one_user_has_one_owner() -> None:
    assert complaints(user(owner={"user": "a", "team": "b"})) == [("spec.owner.team", "FieldValueForbidden")]


def test_the_table_shows_who_is_disabled() -> None:
    assert cells(USER, user())["Disabled"] is False
    assert cells(USER, user(disabled=True))["Disabled"] is True


def test_what_users_have_below_them() -> None:
    assert {(action.name, action.verbs) for action in USER.actions} == {
        ("accesskeys", ("get",)),
        ("profile", ("create", "get")),
    }


def test_a_profile_never_shows_a_password() -> None:
    assert set(PROFILE.write_only) == {"password", "currentPassword"}
    body = {"displayName": "Ada", "password": "p", "currentPassword": "q", "custom": {"theme": "dark"}}
    assert Validator(PROFILE.schema()).validate(body).problems == []
    assert get_path(PROFILE.fields, "password.format") == "password"
