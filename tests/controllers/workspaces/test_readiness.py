"""Whether a workspace is ready: one decision, which kubectl, the command line and the console show."""

from itertools import product

import pytest

from fairlead.controllers.workspaces.scheduling import Placement, next_status
from fairlead.core.objects import Object
from fairlead.core.workspaces import WorkspaceState, current_reason, workspace_status
from fairlead.registry.conditions import FALSE, TRUE, UNKNOWN, condition, find_condition

NOW = "2026-01-02T03:04:05Z"
SCHEDULED = Placement(condition("Scheduled", TRUE, "Scheduled"), "r", runner_phase="Initialized")
SILENT = Placement(condition("Scheduled", TRUE, "Scheduled"), "r", silence="since noon", runner_phase="Initialized")
NOWHERE = Placement(condition("Scheduled", FALSE, "NoRunner", "there is no runner", "Error"))
PLACEMENTS = (SCHEDULED, SILENT, NOWHERE)
PHASES = ("", "Pending", "Ready", "Sleeping", "Failed")
CONTAINERS = ("", "NotFound", "Stopped", "Busy", "Running")
REASONS = ("", "Recovery", "WaitingForRunner", "Inactive")
TASKS = (
    None,
    condition("TaskSucceeded", UNKNOWN, "UpRunning", "Build"),
    condition("TaskSucceeded", UNKNOWN, "StopRunning"),
    condition("TaskSucceeded", UNKNOWN, "DeleteRunning"),
    condition("TaskSucceeded", TRUE, "UpSucceeded"),
    condition("TaskSucceeded", FALSE, "BuildFailed", "no such command"),
)


def build_workspace(status: Object, task: Object | None = None, *, is_deleted: bool = False) -> Object:
    deletion = {"deletionTimestamp": NOW} if is_deleted else {}
    meta = {"name": "w", "namespace": "p-demo", "generation": 1, **deletion}
    return {"metadata": meta, "spec": {}, "status": {**status, "conditions": [task] if task else []}}


def decide(workspace: Object, placement: Placement = SCHEDULED) -> Object:
    """The workspace as the controller leaves it."""
    return {**workspace, "status": next_status(workspace, placement, NOW)}


@pytest.mark.parametrize("placement", PLACEMENTS, ids=["scheduled", "silent", "nowhere"])
@pytest.mark.parametrize("phase", PHASES)
def test_ready_means_that_the_container_runs_in_every_combination(phase: str, placement: Placement) -> None:
    for container, reason, task, is_deleted in product(CONTAINERS, REASONS, TASKS, (False, True)):
        status = {"phase": phase, "lastWorkspaceStatus": container, "reason": reason}
        decided = decide(build_workspace(status, task, is_deleted=is_deleted), placement)
        ready = find_condition(decided["status"], "Ready") or {}
        progress = [each for each in ("Reconciling", "Stalled") if find_condition(decided["status"], each)]
        shown, why = workspace_status(decided), f"{status} {task} {is_deleted}"
        runs = (
            (decided["status"]["phase"], container) == ("Ready", "Running")
            and placement is SCHEDULED
            and (task is None or task["status"] != UNKNOWN)
            and reason != "Recovery"
            and not is_deleted
        )
        assert (ready["status"] == TRUE) == runs, why
        assert (shown == WorkspaceState.RUNNING) == runs, why
        assert shown != "Ready", f"that says nothing of the container: {why}"
        assert len(progress) <= 1, why
        assert not (progress and runs), why
        if is_deleted:
            assert (shown, progress) == ("Terminating", ["Reconciling"]), why
        elif placement is SILENT:
            assert (ready["status"], shown) == (UNKNOWN, "Unknown"), why
        elif shown in ("Starting", "Stopping", "Busy"):
            assert progress == ["Reconciling"], why
        elif shown == "Failed":
            assert progress == ["Stalled"], why
        assert shown in {*WorkspaceState, "Terminating", "Unknown", "Pending", "Sleeping", "Failed"}, why


UP_RUNNING = condition("TaskSucceeded", UNKNOWN, "UpRunning", "Build")
STOP_RUNNING = condition("TaskSucceeded", UNKNOWN, "StopRunning")
UP_FAILED = condition("TaskSucceeded", FALSE, "LifecycleCommandFailed")


@pytest.mark.parametrize(
    ("status", "task", "shown", "reason"),
    [
        ({}, None, "Pending", "WaitingForRunner"),
        ({"phase": "Ready"}, None, "Unknown", ""),
        ({"phase": "Ready", "lastWorkspaceStatus": "Running"}, None, "Running", ""),
        ({"phase": "Ready", "lastWorkspaceStatus": "Running"}, UP_FAILED, "Running", "LifecycleCommandFailed"),
        ({"phase": "Ready", "lastWorkspaceStatus": "Running", "reason": "Recovery"}, None, "Degraded", ""),
        ({"phase": "Ready", "lastWorkspaceStatus": "Stopped"}, None, "Stopped", ""),
        ({"phase": "Ready", "lastWorkspaceStatus": "NotFound"}, None, "NotStarted", ""),
        ({"phase": "Ready", "lastWorkspaceStatus": "Busy"}, UP_RUNNING, "Starting", "UpRunning"),
        ({"phase": "Ready", "lastWorkspaceStatus": "Running"}, UP_RUNNING, "Starting", "UpRunning"),
        ({"phase": "Ready", "lastWorkspaceStatus": "Busy"}, STOP_RUNNING, "Stopping", "StopRunning"),
        ({"phase": "Ready", "lastWorkspaceStatus": "Busy"}, None, "Busy", ""),
        ({"phase": "Sleeping", "lastWorkspaceStatus": "Stopped", "reason": "Inactive"}, None, "Sleeping", "Inactive"),
        ({"phase": "Failed", "lastWorkspaceStatus": "Stopped", "reason": "NoDisk"}, None, "Failed", "NoDisk"),
    ],
)
def test_the_status_is_one_word_and_a_reason(status: Object, task: Object | None, shown: str, reason: str) -> None:
    decided = decide(build_workspace(status, task))
    assert (workspace_status(decided), current_reason(decided)) == (shown, reason)


@pytest.mark.parametrize(
    ("runner_phase", "reason", "message"),
    [
        (
            "",
            "RunnerNotStarted",
            'runner "r" was never started; start it on its machine with `fairlead runner start r`',
        ),
        ("Failed", "RunnerFailed", 'runner "r" has failed; `fairlead runner doctor r` on its machine shows why'),
        ("Initialized", "WaitingForRunner", 'runner "r" has not reported on it yet'),
    ],
)
def test_a_workspace_says_what_its_runner_lacks(runner_phase: str, reason: str, message: str) -> None:
    placement = Placement(condition("Scheduled", TRUE, "Scheduled"), "r", runner_phase=runner_phase)
    for stored in ("", "WaitingForRunner", "RunnerNotStarted", "RunnerFailed"):
        decided = decide(build_workspace({"phase": "Pending", "reason": stored} if stored else {}), placement)
        ready = find_condition(decided["status"], "Ready") or {}
        assert (decided["status"]["reason"], ready["reason"], ready["message"]) == (reason, reason, message)


def test_what_stopped_a_workspace_is_the_message() -> None:
    status = {"phase": "Ready", "lastWorkspaceStatus": "Stopped", "message": "OutOfMemory: it used more than its limit"}
    ready = find_condition(decide(build_workspace(status))["status"], "Ready") or {}
    assert (ready["reason"], ready["message"]) == ("Stopped", "OutOfMemory: it used more than its limit")
