"""registry/conditions.py: adds, replaces and removes status conditions."""

import copy

import pytest

from fairlead.registry.conditions import (
    condition,
    conditions_of,
    find_condition,
    is_true,
    with_condition,
    with_conditions,
    without_conditions,
)

EARLY, LATE = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def test_a_new_condition_is_appended_with_the_current_transition_time():
    status = with_condition({"phase": "Pending"}, condition("Ready", "False", "Waiting", "for a cluster"), EARLY)
    status = with_condition(status, condition("Scheduled", "True", "Chosen"), LATE)
    assert status == {
        "phase": "Pending",
        "conditions": [
            {
                "type": "Ready",
                "status": "False",
                "reason": "Waiting",
                "message": "for a cluster",
                "lastTransitionTime": EARLY,
            },
            {"type": "Scheduled", "status": "True", "reason": "Chosen", "message": "", "lastTransitionTime": LATE},
        ],
    }


def test_an_unchanged_status_keeps_its_transition_time_and_position():
    status = with_conditions(
        None, (condition("Ready", "False", "Waiting"), condition("Scheduled", "True", "Chosen")), EARLY
    )
    status = with_condition(status, condition("Ready", "False", "StillWaiting"), LATE)
    assert [each["type"] for each in status["conditions"]] == ["Ready", "Scheduled"]
    ready = find_condition(status, "Ready")
    assert ready is not None
    assert (ready["reason"], ready["lastTransitionTime"]) == ("StillWaiting", EARLY)


def test_a_changed_status_gets_a_new_transition_time():
    status = with_condition({}, condition("Ready", "False", "Waiting", severity="Error"), EARLY)
    status = with_condition(status, condition("Ready", "True", "Done"), LATE)
    ready = find_condition(status, "Ready")
    assert ready is not None
    assert ready["lastTransitionTime"] == LATE
    assert "severity" not in ready


def test_a_condition_records_the_observed_generation():
    status = with_condition({}, condition("Ready", "True", "Done"), EARLY, generation=3)
    assert status["conditions"][0]["observedGeneration"] == 3


def test_setting_the_same_conditions_again_returns_an_equal_status():
    conditions = (condition("Ready", "True", "Done", "all there"),)
    status = with_conditions({"phase": "Ready"}, conditions, EARLY, generation=2)
    assert with_conditions(status, conditions, LATE, generation=2) == status


def test_the_status_passed_in_is_not_modified():
    status = with_condition({}, condition("Ready", "False", "Waiting"), EARLY)
    before = copy.deepcopy(status)
    with_condition(status, condition("Ready", "True", "Done"), LATE)
    without_conditions(status, "Ready")
    assert status == before


def test_conditions_can_be_removed():
    status = with_conditions({}, (condition("Stalled", "True", "Broken"), condition("Ready", "False", "Broken")), EARLY)
    assert [each["type"] for each in without_conditions(status, "Stalled", "Missing")["conditions"]] == ["Ready"]
    assert without_conditions({"phase": "Ready"}, "Stalled") == {"phase": "Ready"}
    assert without_conditions(None, "Stalled") == {}


@pytest.mark.parametrize("status", [None, {}, {"conditions": None}, {"conditions": "none"}, {"conditions": [1]}])
def test_a_status_without_conditions_has_none(status):
    assert conditions_of(status) == []
    assert find_condition(status, "Ready") is None
    assert not is_true(status, "Ready")


def test_is_true_needs_status_true():
    status = with_conditions({}, (condition("A", "True", "X"), condition("B", "Unknown", "X")), EARLY)
    assert is_true(status, "A")
    assert not is_true(status, "B")
