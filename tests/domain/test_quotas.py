"""What quotas count: which instances are asleep, whose they are, and how limits are read."""

from typing import Any

import pytest

from fairlead.core.objects import Object
from fairlead.domain.quotas import (
    FORCE_ANNOTATION,
    LAST_ACTIVITY_ANNOTATION,
    SLEEPING_SINCE_ANNOTATION,
    count_usage,
    is_sleeping,
    parse_limit,
    quota_limits,
    quota_owner,
)

SPACES = "spaceinstances"


def instance(phase: str = "", user: str = "", team: str = "", **annotations: str) -> Object:
    owner = {name: value for name, value in (("user", user), ("team", team)) if value}
    noted = {
        {"force": FORCE_ANNOTATION, "last": LAST_ACTIVITY_ANNOTATION, "since": SLEEPING_SINCE_ANNOTATION}[key]: text
        for key, text in annotations.items()
    }
    return {"metadata": {"annotations": noted}, "spec": {"owner": owner}, "status": {"phase": phase}}


@pytest.mark.parametrize(
    ("text", "number"),
    [("10", 10), ("0", 0), ("1.5", 1), ("500m", 0), ("2000m", 2), ("2k", 2000), ("1Ki", 1024), ("1M", 10**6)],
)
def test_limits_are_quantities_cut_to_whole_numbers(text: str, number: int) -> None:
    assert parse_limit(text) == number


@pytest.mark.parametrize("text", ["", "ten", "-1", "1e3", "10 "])
def test_a_limit_that_cannot_be_read_allows_nothing(text: str) -> None:
    assert parse_limit(text) == 0


@pytest.mark.parametrize(
    ("obj", "sleeps"),
    [
        (instance(), False),
        (instance("Ready"), False),
        (instance("Sleeping"), True),
        (instance("Ready", force="true"), False),
        (instance("Ready", force="false"), False),
        (instance("Ready", since="100"), False),
        (instance(force="true", since="100"), False),
        (instance("Sleeping", since="100", last="99"), True),
        (instance("Sleeping", since="100", last="101"), False),
        (instance("Sleeping", since="100", last="101", force="true"), True),
        (instance("Sleeping", since="soon", last="never"), True),
        ({"metadata": {"annotations": 7}}, False),
    ],
)
def test_an_instance_is_asleep_until_somebody_wakes_it(obj: Object, sleeps: bool) -> None:
    assert is_sleeping(obj) is sleeps


def test_an_owner_is_a_user_or_a_team() -> None:
    assert quota_owner(instance(user="ada")) == ("user", "ada")
    assert quota_owner(instance(team="core")) == ("team", "core")
    assert quota_owner(instance()) is None
    assert quota_owner({"spec": {"owner": "ada"}}) is None


def test_what_a_team_has_is_not_counted_for_its_members() -> None:
    objects = [instance(user="ada"), instance("Sleeping", user="ada"), instance(team="core"), instance()]
    counted = count_usage((SPACES, each) for each in objects)
    assert dict(counted.total) == {SPACES: 4, f"{SPACES}.active": 3}
    assert dict(counted.by_owner["user", "ada"]) == {SPACES: 2, f"{SPACES}.active": 1}
    assert dict(counted.by_owner["team", "core"]) == {SPACES: 1, f"{SPACES}.active": 1}


def test_limits_of_other_things_are_not_ours_to_count() -> None:
    quotas: dict[str, Any] = {"project": {SPACES: "1", f"{SPACES}.active": "2", "limits.cpu": "4", "count/pods": "9"}}
    found = quota_limits({"spec": {"quotas": quotas}}, "project", (SPACES,))
    assert found == {SPACES: "1", f"{SPACES}.active": "2"}
    assert quota_limits({"spec": {}}, "user", (SPACES,)) == {}
