"""kinds/access/users.py: usernames, columns and subresources of teams."""

from typing import Any

from fairlead.core.objects import Object
from fairlead.kinds.access.users import TEAM
from tests.harness.kind_examples import apply_defaults, build_example, computed_cells, problem_reasons


def build_team(**spec: Any) -> Object:
    return build_example("Team", metadata={"name": "core"}, spec=spec)


def test_the_username_defaults_to_the_name() -> None:
    assert apply_defaults(build_team())["spec"]["username"] == "core"
    assert apply_defaults(build_team(username="The-Core"))["spec"]["username"] == "The-Core"
    assert apply_defaults(build_team(), build_team(username="kept"))["spec"]["username"] == "kept"


def test_a_status_write_does_not_change_the_username() -> None:
    assert "username" not in apply_defaults(build_team(), build_team(), "status")["spec"]


def test_problems_of_a_team_are_reported() -> None:
    found = problem_reasons(build_team(username="a b", owner={"user": "a", "team": "b"}))
    assert found == [("spec.owner.team", "FieldValueForbidden"), ("spec.username", "FieldValueInvalid")]


def test_the_table_counts_members() -> None:
    team = build_team(users=["a", "b"])
    assert computed_cells(TEAM, team | {"status": {}})["Users"] == 2
    assert computed_cells(TEAM, team | {"status": {"members": ["b", "c"]}})["Users"] == 3, "c is one by a rule"
    assert computed_cells(TEAM, build_team() | {"status": {}})["Users"] == 0


def test_the_access_keys_of_a_team_are_a_subresource() -> None:
    assert [(action.name, action.verbs) for action in TEAM.actions] == [("accesskeys", ("get",))]
