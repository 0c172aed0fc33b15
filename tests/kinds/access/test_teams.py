"""Teams: names that agree."""

from typing import Any

from fairlead.core.objects import Object
from fairlead.kinds.access.users import TEAM
from tests.harness.kind_examples import cells, complaints, example, prepared


def team(**spec: Any) -> Object:
    return example("Team", metadata={"name": "core"}, spec=spec)


def test_the_username_is_the_name_unless_another_is_chosen() -> None:
    assert prepared(team())["spec"]["username"] == "core"
    assert prepared(team(username="The-Core"))["spec"]["username"] == "The-Core"
    assert prepared(team(), team(username="kept"))["spec"]["username"] == "kept"


def test_a_status_write_leaves_the_name_alone() -> None:
    assert "username" not in prepared(team(), team(), "status")["spec"]


def test_what_is_wrong_with_a_team_is_told() -> None:
    found = complaints(team(username="a b", owner={"user": "a", "team": "b"}))
    assert found == [("spec.owner.team", "FieldValueForbidden"), ("spec.username", "FieldValueInvalid")]


def test_the_table_counts_members() -> None:
    assert cells(TEAM, team(users=["a", "b"]))["Users"] == 2
    assert cells(TEAM, team())["Users"] == 0


def test_keys_of_a_team_are_listed_below_it() -> None:
    assert [(action.name, action.verbs) for action in TEAM.actions] == [("accesskeys", ("get",))]
