"""Tests of `fairlead.domain.quotas`: sleeping instances, owners of instances, usage and limits."""

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
    quota_keys,
    quota_limits,
    quota_owner,
)

SPACES = "spaceinstances"


def build_instance(phase: str = "", user: str = "", team: str = "", **annotations: str) -> Object:
    owner = {name: value for name, value in (("user", user), ("team", team)) if value}
    annotations_by_key = {
        {"force": FORCE_ANNOTATION, "last": LAST_ACTIVITY_ANNOTATION, "since": SLEEPING_SINCE_ANNOTATION}[key]: text
        for key, text in annotations.items()
    }
    return {"metadata": {"annotations": annotations_by_key}, "spec": {"owner": owner}, "status": {"phase": phase}}


@pytest.mark.parametrize(
    ("text", "number"),
    [("10", 10), ("0", 0), ("1.5", 1), ("500m", 0), ("2000m", 2), ("2k", 2000), ("1Ki", 1024), ("1M", 10**6)],
)
def test_limits_are_quantities_rounded_down_to_whole_numbers(text: str, number: int) -> None:
    assert parse_limit(text) == number


@pytest.mark.parametrize("text", ["", "ten", "-1", "1e3", "10 "])
def test_an_invalid_limit_allows_nothing(text: str) -> None:
    assert parse_limit(text) == 0


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        (build_instance(), False),
        (build_instance("Ready"), False),
        (build_instance("Sleeping"), True),
        (build_instance("Ready", force="true"), False),
        (build_instance("Ready", force="false"), False),
        (build_instance("Ready", since="100"), False),
        (build_instance(force="true", since="100"), False),
        (build_instance("Sleeping", since="100", last="99"), True),
        (build_instance("Sleeping", since="100", last="101"), False),
        (build_instance("Sleeping", since="100", last="101", force="true"), True),
        (build_instance("Sleeping", since="soon", last="never"), True),
        ({"metadata": {"annotations": 7}}, False),
    ],
)
def test_an_instance_sleeps_until_it_is_woken_up(obj: Object, expected: bool) -> None:
    assert is_sleeping(obj) is expected


def test_an_instance_that_has_failed_counts_until_it_is_asleep() -> None:
    assert quota_keys(SPACES, build_instance("Failed")) == {SPACES, f"{SPACES}.active"}
    assert quota_keys(SPACES, build_instance("Failed", force="true")) == {SPACES, f"{SPACES}.active"}
    assert quota_keys(SPACES, build_instance("Sleeping", force="true")) == {SPACES}


def test_an_owner_is_a_user_or_a_team() -> None:
    assert quota_owner(build_instance(user="ada")) == ("user", "ada")
    assert quota_owner(build_instance(team="core")) == ("team", "core")
    assert quota_owner(build_instance()) is None
    assert quota_owner({"spec": {"owner": "ada"}}) is None


def test_instances_of_a_team_do_not_count_for_its_members() -> None:
    objects = [
        build_instance(user="ada"),
        build_instance("Sleeping", user="ada"),
        build_instance(team="core"),
        build_instance(),
    ]
    usage = count_usage((SPACES, obj) for obj in objects)
    assert dict(usage.total) == {SPACES: 4, f"{SPACES}.active": 3}
    assert dict(usage.by_owner["user", "ada"]) == {SPACES: 2, f"{SPACES}.active": 1}
    assert dict(usage.by_owner["team", "core"]) == {SPACES: 1, f"{SPACES}.active": 1}


def test_limits_of_other_resources_are_ignored() -> None:
    quotas: dict[str, Any] = {"project": {SPACES: "1", f"{SPACES}.active": "2", "limits.cpu": "4", "count/pods": "9"}}
    limits = quota_limits({"spec": {"quotas": quotas}}, "project", (SPACES,))
    assert limits == {SPACES: "1", f"{SPACES}.active": "2"}
    assert quota_limits({"spec": {}}, "user", (SPACES,)) == {}
