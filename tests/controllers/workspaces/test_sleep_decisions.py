"""Tests of `fairlead.controllers.workspaces.sleep_decisions`: what is decided, from which facts."""

from typing import Any

import pytest

from fairlead.controllers.workspaces.sleep_decisions import build_sleep_mode, decide
from fairlead.core.objects import Object
from fairlead.domain.sleep_decisions import SleepDecision, format_time
from fairlead.domain.sleep_mode import change_annotations, decode_info

PREFIX = "sleepmode.service.sh/"
CREATED = 1_800_000_000
NOW = CREATED + 100_000
HOUR = 3600
TYPE, SINCE, SCHEDULED = f"{PREFIX}sleep-type", f"{PREFIX}sleeping-since", f"{PREFIX}scheduled-sleep"


def workspace(
    state: str = "Idle",
    idle: int = 0,
    container: str = "Running",
    started: int = 0,
    template: dict[str, str] | None = None,
    **annotations: str,
) -> Object:
    """A workspace whose last activity was `idle` seconds ago. Names of annotations are without their prefix."""
    named = {f"{PREFIX}{name.replace('_', '-')}": value for name, value in annotations.items()}
    activity: dict[str, Any] = {"state": state, "reason": "TerminalInput", "lastActivityTime": format_time(NOW - idle)}
    if started:
        activity["startTime"] = format_time(started)
    rendered = {"instanceTemplate": {"metadata": {"annotations": template or {}}}}
    return {
        "metadata": {"name": "w", "creationTimestamp": format_time(CREATED), "annotations": named},
        "status": {"lastWorkspaceStatus": container, "activity": activity, "instance": rendered},
    }


def apply(found: Object, decision: SleepDecision) -> Object:
    return change_annotations(found, decision.changes)


def reason(decision: SleepDecision) -> str:
    return decision.event[0] if decision.event else ""


def test_without_a_policy_nothing_ever_happens() -> None:
    assert decide(workspace(idle=90_000), False, NOW) == SleepDecision()


def test_an_idle_workspace_falls_asleep_when_its_time_is_over() -> None:
    found = workspace(idle=HOUR, sleep_after="3600")
    decision = decide(found, False, NOW)
    assert reason(decision) == "FellAsleep"
    asleep = apply(found, decision)
    notes = asleep["metadata"]["annotations"]
    assert (notes[TYPE], notes[SINCE]) == ("inactivitySleep", str(NOW))
    assert notes[f"{PREFIX}last-activity"] == str(NOW - HOUR)
    assert decode_info(asleep)["reason"] == "TerminalInput"
    assert decide(asleep, False, NOW + HOUR) == SleepDecision()  # it stays so


@pytest.mark.parametrize("state", ["Active", "Unknown", ""])
def test_only_a_workspace_that_is_reported_as_idle_falls_asleep(state: str) -> None:
    assert decide(workspace(state, idle=50_000, sleep_after="3600"), False, NOW) == SleepDecision()


def test_nothing_is_decided_while_the_runner_is_silent() -> None:
    found = workspace(idle=50_000, sleep_after="3600", max_run="60", delete_after="60", started=CREATED)
    assert decide(found, True, NOW) == SleepDecision()
    asleep = apply(found, decide(found, False, NOW))
    assert decide(asleep, True, NOW + HOUR) == SleepDecision()


def test_ten_minutes_before_there_is_one_warning() -> None:
    found = workspace(idle=HOUR - 601, sleep_after="3600")
    decision = decide(found, False, NOW)
    assert (decision.changes, decision.sleeps_at, decision.recheck_at) == ({}, NOW + 601, NOW + 1)
    decision = decide(found, False, NOW + 1)
    assert reason(decision) == "SleepScheduled"
    warned = apply(found, decision)
    assert warned["metadata"]["annotations"][SCHEDULED] == str(NOW + 601)
    again = decide(warned, False, NOW + 60)
    assert (again.event, apply(warned, again)) == (None, warned)


def test_activity_withdraws_the_warning() -> None:
    found = workspace("Active", sleep_after="3600", scheduled_sleep=str(NOW + 60))
    decision = decide(found, False, NOW)
    assert SCHEDULED not in apply(found, decision)["metadata"]["annotations"]


def test_activity_before_the_stop_withdraws_the_sleep() -> None:
    found = workspace("Active", sleep_type="inactivitySleep", sleeping_since=str(NOW - 10))
    decision = decide(found, False, NOW)
    assert reason(decision) == "SleepCancelled"
    assert TYPE not in apply(found, decision)["metadata"]["annotations"]


def test_a_sleep_for_too_long_a_run_is_not_withdrawn() -> None:
    found = workspace("Active", sleep_type="scheduledSleep", sleeping_since=str(NOW - 10))
    assert decide(found, False, NOW) == SleepDecision()


def test_a_hold_counts_as_activity_until_its_end() -> None:
    found = workspace(idle=20 * HOUR, sleep_after="3600", hold_until=str(NOW + 2 * HOUR))
    assert decide(found, False, NOW).sleeps_at == NOW + 3 * HOUR
    assert reason(decide(found, False, NOW + 3 * HOUR - 1)) == "SleepScheduled"
    assert reason(decide(found, False, NOW + 3 * HOUR)) == "FellAsleep"


def test_a_client_can_note_activity_but_not_in_the_future() -> None:
    found = workspace(idle=20 * HOUR, sleep_after="3600", last_activity=str(NOW))
    assert decide(found, False, NOW).sleeps_at == NOW + HOUR
    found = workspace(idle=20 * HOUR, sleep_after="3600", last_activity=str(NOW + 1000 * HOUR))
    assert reason(decide(found, False, NOW)) == "FellAsleep"


@pytest.mark.parametrize("until", [str(NOW + 26 * HOUR), "9" * 10, "9" * 12])
def test_a_hold_without_an_end_is_ignored(until: str) -> None:
    found = workspace(idle=20 * HOUR, sleep_after="3600", hold_until=until)
    assert reason(decide(found, False, NOW)) == "FellAsleep"
    stopped = workspace(idle=HOUR, container="Stopped", delete_after="7200", hold_until=until)
    assert decide(stopped, False, NOW).deletes_at == NOW + HOUR


@pytest.mark.parametrize("name", ["sleep-after", "max-run", "delete-after", "hold-until", "force-duration"])
@pytest.mark.parametrize("digits", [10, 11, 400])
def test_numbers_that_are_no_dates_break_nothing(name: str, digits: int) -> None:
    found = workspace(idle=HOUR, started=NOW - HOUR, force="true")
    found["metadata"]["annotations"][f"{PREFIX}{name}"] = "9" * digits
    for container in ("Running", "Stopped"):
        found["status"]["lastWorkspaceStatus"] = container
        build_sleep_mode(found, decide(found, False, NOW), NOW)


def test_the_longest_run_ends_a_workspace_in_use_and_despite_a_hold() -> None:
    found = workspace("Active", started=NOW - HOUR, max_run="3600", hold_until=str(NOW + 9 * HOUR))
    assert reason(decide(found, False, NOW - 300)) == "SleepScheduled"
    decision = decide(found, False, NOW)
    assert (reason(decision), decision.changes[TYPE]) == ("FellAsleep", "scheduledSleep")


def test_a_user_can_shorten_the_times_of_the_template_and_not_extend_them() -> None:
    template = {f"{PREFIX}sleep-after": "3600"}
    for own, expected in (("1800", 1800), ("7200", 3600), ("0", 3600), ("never", 3600), ("-5", 3600)):
        found = workspace(idle=0, template=template, sleep_after=own)
        assert decide(found, False, NOW).sleeps_at == NOW + expected


def test_a_forced_sleep_lasts_until_it_is_withdrawn() -> None:
    found = workspace("Active", force="true")
    asleep = apply(found, decide(found, False, NOW))
    assert asleep["metadata"]["annotations"][TYPE] == "forcedSleep"
    assert apply(asleep, decide(asleep, False, NOW + 1000 * HOUR)) == asleep
    del asleep["metadata"]["annotations"][f"{PREFIX}force"]
    decision = decide(asleep, False, NOW + HOUR)
    awake = apply(asleep, decision)["metadata"]["annotations"]
    assert (reason(decision), TYPE in awake, awake[f"{PREFIX}last-activity"]) == ("WokenUp", False, str(NOW + HOUR))


def test_a_forced_sleep_with_a_duration_ends_by_itself() -> None:
    found = workspace("Active", force="true", force_duration="600")
    decision = decide(found, False, NOW)
    assert decision.recheck_at == NOW + 600
    asleep = apply(found, decision)
    assert asleep["metadata"]["annotations"][TYPE] == "forcedDurationSleep"
    decision = decide(asleep, False, NOW + 600)
    assert reason(decision) == "WokenUp"
    assert (
        not {f"{PREFIX}force", f"{PREFIX}force-duration", TYPE}
        & apply(asleep, decision)["metadata"]["annotations"].keys()
    )


def test_setting_the_last_activity_wakes_up() -> None:
    found = workspace(
        container="Stopped", sleep_type="inactivitySleep", sleeping_since=str(NOW - 100), last_activity=str(NOW)
    )
    decision = decide(found, False, NOW)
    assert (reason(decision), decision.changes[TYPE]) == ("WokenUp", None)


@pytest.mark.parametrize("since", [str(CREATED - 1), str(NOW + HOUR), "", "x"])
def test_annotations_of_a_sleep_that_were_copied_or_made_up_are_removed(since: str) -> None:
    found = workspace("Active", sleep_type="inactivitySleep", sleeping_since=since)
    assert TYPE not in apply(found, decide(found, False, NOW))["metadata"]["annotations"]


# --- deletion ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("container", ["Stopped", "NotFound"])
def test_a_workspace_that_does_not_run_is_deleted_when_it_was_not_used_for_long(container: str) -> None:
    found = workspace("", idle=HOUR, container=container, delete_after="7200")
    assert decide(found, False, NOW).deletes_at == NOW + HOUR


def test_a_sleeping_workspace_is_deleted_when_it_was_not_used_for_long() -> None:
    found = workspace("", idle=HOUR, container="Stopped", sleep_type="inactivitySleep", delete_after="7200")
    found["metadata"]["annotations"][SINCE] = str(NOW - 100)
    assert decide(found, False, NOW).deletes_at == NOW + HOUR


def test_a_running_workspace_falls_asleep_before_it_is_deleted() -> None:
    decision = decide(workspace(idle=2 * HOUR, delete_after="7200"), False, NOW)
    assert (reason(decision), decision.deletes_at) == ("FellAsleep", 0)


@pytest.mark.parametrize("container", ["Running", "Busy", ""])
def test_what_runs_or_is_unknown_is_not_deleted(container: str) -> None:
    assert (
        decide(workspace("Active", idle=9 * HOUR, container=container, delete_after="60"), False, NOW).deletes_at == 0
    )


def test_a_workspace_whose_use_was_never_measured_is_not_deleted() -> None:
    found = workspace("", container="Stopped", delete_after="60")
    found["status"]["activity"] = {}
    assert decide(found, False, NOW).deletes_at == CREATED + 60  # it never ran
    found["status"]["conditions"] = [{"type": "TaskSucceeded", "status": "True", "lastTransitionTime": ""}]
    assert decide(found, False, NOW).deletes_at == 0


def test_the_last_task_and_a_hold_delay_the_deletion() -> None:
    found = workspace("", idle=9 * HOUR, container="Stopped", delete_after="3600")
    task = {"type": "TaskSucceeded", "status": "True", "lastTransitionTime": format_time(NOW - 60)}
    found["status"]["conditions"] = [task]
    assert decide(found, False, NOW).deletes_at == NOW - 60 + HOUR
    found["metadata"]["annotations"][f"{PREFIX}hold-until"] = str(NOW + HOUR)
    assert decide(found, False, NOW).deletes_at == NOW + 2 * HOUR


# --- the view ---------------------------------------------------------------------------------------------------------


def test_the_status_says_why_and_when() -> None:
    found = workspace(idle=600, sleep_after="3600", delete_after="86400")
    assert build_sleep_mode(found, decide(found, False, NOW), NOW) == {
        "spec": {"sleepAfter": 3600, "deleteAfter": 86400},
        "status": {
            "lastActivity": NOW - 600,
            "lastActivityInfo": {"reason": "TerminalInput"},
            "scheduledSleep": NOW + 3000,
        },
    }
    found = workspace(idle=HOUR, sleep_after="3600")
    asleep = apply(found, decide(found, False, NOW))
    shown = build_sleep_mode(asleep, decide(asleep, False, NOW), NOW)["status"]
    assert (shown["sleepType"], shown["sleepingSince"]) == ("inactivitySleep", NOW)
    assert shown["lastActivityInfo"]["message"].startswith("no activity since")
    assert build_sleep_mode(workspace(), SleepDecision(), NOW)["status"]["lastActivity"] == NOW
