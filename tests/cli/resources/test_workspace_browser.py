"""The shares that `fairlead workspace share` writes."""

import json

import pytest

from fairlead.cli.resources.workspace_browser import parse_partner, remaining_shares
from fairlead.cli.ui.session import UsageError

ADA = {"port": 8080, "user": "ada"}
ALL = {"port": 8080, "project": True}


def test_a_new_share_takes_the_place_of_the_same_one_and_of_those_that_are_over() -> None:
    over = {"port": 1, "user": "ada", "until": 50}
    other = {**ALL, "until": 200}
    text = json.dumps([over, {**ADA, "uid": "of-ada", "by": "bob", "byUID": "of-bob", "until": 200}, other])
    assert remaining_shares(text, ADA, 100) == [other]


@pytest.mark.parametrize("text", ["", "{", "{}", "[1]", '[{"port": 1}]'])
def test_what_is_no_list_of_shares_is_replaced(text: str) -> None:
    assert remaining_shares(text, ADA, 100) == []


def test_a_port_is_shared_with_the_project_or_a_user() -> None:
    assert parse_partner("project") == {"project": True}
    assert parse_partner("User:ada") == {"user": "ada"}
    for text in ("ada", "User:", "Team:x", ""):
        with pytest.raises(UsageError, match="must be `project`"):
            parse_partner(text)
