"""Tests of `fairlead.runner.decisions`: the server and the runner, which share no code, mean the same."""

import pytest

from fairlead.domain import sleep_mode
from fairlead.runner import decisions

NAMES = ("FORCE", "FORCE_DURATION", "SLEEP_TYPE", "SLEEPING_SINCE", "INACTIVITY_SLEEP", "FORCED_SLEEP")
STATES = ("FORCED_DURATION_SLEEP", "ACTIVE", "IDLE", "UNKNOWN")


@pytest.mark.parametrize("name", [*NAMES, *STATES])
def test_the_words_are_those_of_the_server(name: str) -> None:
    assert getattr(decisions, name) == getattr(sleep_mode, name)


@pytest.mark.parametrize(
    "annotations",
    [
        {},
        {sleep_mode.FORCE: "true"},
        {sleep_mode.FORCE: "false"},
        {sleep_mode.FORCE: "true", sleep_mode.FORCE_DURATION: "0"},
        {sleep_mode.FORCE: "true", sleep_mode.FORCE_DURATION: "60"},
        {sleep_mode.SLEEP_TYPE: "inactivitySleep"},
        {sleep_mode.SLEEP_TYPE: "scheduledSleep"},
        {sleep_mode.SLEEP_TYPE: "forcedSleep"},
        {sleep_mode.SLEEP_TYPE: "nap"},
    ],
)
def test_both_read_the_same_from_annotations(annotations: dict[str, str]) -> None:
    workspace = {"metadata": {"annotations": annotations}}
    assert decisions.sleep_type_of(workspace) == sleep_mode.sleep_type_of(workspace)
