"""`fairlead team list`: all members, also those whom rules give."""

import pytest

from tests.harness.cli import CliFixture
from tests.harness.fake_server import M, build_object, list_response


@pytest.mark.parametrize(
    ("users", "members", "shown"),
    [
        (["ada"], ["ada", "bob"], "ada, bob (by rule)"),
        ([], ["bob"], "bob (by rule)"),
        (["ada"], [], "ada"),
        ([], [], "-"),
    ],
)
def test_the_list_has_members_by_name_and_by_rule(
    user: CliFixture, users: list[str], members: list[str], shown: str
) -> None:
    team = build_object("ops", kind="Team", spec={"users": users}, status={"members": members})
    user.fake.on("GET", f"{M}/teams", list_response(team))
    result = user.run("team", "list")
    assert result.code == 0, result.err
    assert result.out.splitlines()[1].endswith(f"   {shown}")
