"""fairlead.cli.workspaces: create, up, start and stop show the steps, and say what is wrong."""

import json
from typing import Any

import pytest

from fairlead.cli.workspaces import running
from tests.cli.workspaces.log_responses import (
    DEV,
    FLAGS,
    TASK,
    WORKSPACES,
    build_condition,
    build_log,
    build_task,
    build_workspace,
)
from tests.harness.cli import CliFixture
from tests.harness.fake_server import M, build_object, failure_status, list_response

CREATE = ("workspace", "create", "dev", "https://example.com/shop.git", "--project", "demo")
TEMPLATES = f"{M}/projects/demo/templates"


@pytest.fixture
def creator(ada: CliFixture) -> CliFixture:
    ada.fake.on("POST", WORKSPACES, lambda request: (201, request.body))
    ada.fake.on("GET", TEMPLATES, (200, {"devPodWorkspaceTemplates": [build_object("default"), build_object("big")]}))
    return ada


def test_create_writes_source_and_request_and_shows_the_steps(creator: CliFixture) -> None:
    result = creator.run(*CREATE, "--branch", "main", "-o", "jsonpath={.status.lastWorkspaceStatus}")
    assert (result.code, result.out) == (0, "Running\n"), result.err
    lines = result.err.splitlines()
    assert lines[0] == "created the workspace dev in the project demo"
    assert [line.split()[0] for line in lines[1:3]] == ["Schedule", "Build"]
    assert lines[2].endswith(" 1.5s")
    assert lines[3].startswith("the workspace dev is running, after ")
    body = creator.fake.requests_to("POST", WORKSPACES)[0].body
    annotations = body["metadata"]["annotations"]
    assert annotations.pop("service.sh/workspace-up")
    assert annotations == {"service.sh/workspace-source": "git:https://example.com/shop.git@main"}
    assert body["spec"] == {"owner": {"user": "alice"}, "templateRef": {"name": "default"}}


def test_the_default_template_of_the_project_comes_first(creator: CliFixture) -> None:
    creator.fake.on("GET", f"{M}/runners", list_response(build_object("local")))
    creator.fake.on("GET", TEMPLATES, (200, {"defaultDevPodWorkspaceTemplate": "big"}))
    assert creator.run(*CREATE, "--no-up").code == 0
    several = [build_object("big"), build_object("small")]
    creator.fake.on("GET", TEMPLATES, (200, {"devPodWorkspaceTemplates": several}))
    result = creator.run(*CREATE)
    assert (result.code, "choose one with --template: one of big, small" in result.err) == (2, True)
    creator.fake.on("GET", TEMPLATES, (200, {}))
    assert "an administrator has to create one" in creator.run(*CREATE).err
    requests = creator.fake.requests_to("POST", WORKSPACES)
    assert [each.body["spec"]["templateRef"] for each in requests] == [{"name": "big"}]
    assert "service.sh/workspace-up" not in requests[0].body["metadata"]["annotations"]


def test_create_without_wait_says_how_to_follow(creator: CliFixture) -> None:
    result = creator.run(*CREATE, "--no-wait")
    assert (result.code, creator.fake.requests_to("GET", f"{DEV}/log")) == (0, [])
    assert "`fairlead workspace logs dev --project demo -f` follows it" in result.err


def test_a_revision_needs_a_repository(creator: CliFixture) -> None:
    result = creator.run("workspace", "create", "dev", "--project", "demo", "--branch", "main")
    assert (result.code, "--branch is for a repository; name one as SOURCE" in result.err) == (2, True)
    assert creator.fake.requests_to("POST", WORKSPACES) == []


@pytest.mark.parametrize(
    ("workspace", "runner", "message"),
    [
        (build_workspace(runner=""), None, "there is no runner; create one with `fairlead runner create local`"),
        (
            build_workspace(
                runner="",
                conditions=[build_condition("Scheduled", "False", "NoRunnerAllowed", "the project allows none")],
            ),
            None,
            "dev does not come up: the project allows none",
        ),
        (
            build_workspace(
                conditions=[build_condition("TemplateResolved", "False", "NotFound", 'template "x" does not exist')]
            ),
            None,
            'template "x" does not exist',
        ),
        (
            build_workspace(),
            {},
            'runner "local" was never started; start it on its machine with `fairlead runner start',
        ),
        (
            build_workspace(),
            {
                "phase": "Initialized",
                "conditions": [build_condition("Ready", "Unknown", "Silent", "not seen since 10:00")],
            },
            "the runner local does not respond: not seen since 10:00; start it on its machine",
        ),
        (
            build_workspace(),
            {"phase": "Failed", "message": "podman: there is none"},
            "the runner local has failed: podman: there is none; `fairlead runner doctor local` on its machine",
        ),
    ],
)
def test_what_keeps_a_new_workspace_from_coming_up_is_said(
    creator: CliFixture, workspace: dict[str, Any], runner: dict[str, Any] | None, message: str
) -> None:
    creator.fake.on("GET", DEV, (200, workspace))
    creator.fake.on("GET", f"{M}/runners", list_response())
    if runner is not None:
        creator.fake.on("GET", f"{M}/runners/local", (200, build_object("local", status=runner)))
    result = creator.run(*CREATE)
    assert result.code == 1
    assert message in result.err
    assert "dev comes up by itself when that is solved; follow it with `fairlead workspace logs" in result.err


@pytest.mark.parametrize("reason", ["RunnerNotStarted", "RunnerFailed", "RunnerSilent"])
def test_a_member_who_may_not_see_runners_gets_what_the_workspace_says(creator: CliFixture, reason: str) -> None:
    waiting = build_workspace(conditions=[build_condition("Ready", "False", reason, "the runner local sleeps")])
    creator.fake.on("GET", DEV, (200, waiting))
    creator.fake.on("GET", f"{M}/runners/local", (403, failure_status(403, "Forbidden", "no")))
    result = creator.run(*CREATE)
    assert (result.code, "dev does not come up: the runner local sleeps" in result.err) == (1, True)


def test_a_wait_asks_seldom_for_a_runner_that_a_member_may_not_see(
    creator: CliFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "GRACE_SECONDS", 0.1)
    creator.fake.on("GET", DEV, (200, build_workspace()))
    creator.fake.on("GET", f"{M}/runners/local", (403, failure_status(403, "Forbidden", "no")))
    creator.run(*CREATE, "--timeout", "2s")
    assert 1 <= len(creator.fake.requests_to("GET", f"{M}/runners/local")) <= 5  # after 0.1 s, 0.2 s and so on


def test_a_member_who_may_not_see_runners_waits_until_the_time_is_up(creator: CliFixture) -> None:
    denied = 403, failure_status(403, "Forbidden", "no")
    creator.fake.on("GET", DEV, (200, build_workspace()))
    creator.fake.on("GET", f"{M}/runners/local", denied)
    result = creator.run(*CREATE, "--timeout", "1s")
    assert result.code == 1
    assert "up of dev has not ended after 1s; it goes on; follow it with" in result.err


def test_up_passes_its_flags_on_and_reset_is_confirmed(ada: CliFixture) -> None:
    assert ada.run("workspace", "up", *FLAGS, "--recreate").code == 0
    assert ada.run("workspace", "up", *FLAGS, "--reset").code == 2
    assert ada.run("workspace", "up", *FLAGS, "--reset", "--yes").code == 0
    assert ada.run("workspace", "up", *FLAGS, "--recreate", "--snapshot").code == 0
    assert ada.run("workspace", "start", *FLAGS, "--no-wait").code == 0
    assert ada.run("workspace", "start", *FLAGS, "--no-wait", "--update").code == 0
    assert ada.run("workspace", "start", *FLAGS, "--no-wait", "--update", "--snapshot").code == 0
    refused = ada.run("workspace", "start", *FLAGS, "--snapshot")
    assert refused.code == 2 and "--snapshot: is for --update, which replaces the container" in refused.err
    sent = [each.body["spec"].get("options") for each in ada.fake.requests_to("POST", f"{DEV}/up")]
    assert [each and json.loads(each) for each in sent] == [
        {"recreate": True},
        {"reset": True},
        {"recreate": True, "snapshot": True},
        {"keepContainer": True},
        None,
        {"snapshot": True},
    ]


def test_stop_shows_its_step_and_how_to_start_again(ada: CliFixture) -> None:
    ada.fake.on("GET", f"{DEV}/log", build_log("step Stop", "step Stop took 0.2 s"))
    result = ada.run("workspace", "stop", *FLAGS)
    assert result.code == 0
    assert "Stop               0.2s" in result.err
    assert "`fairlead workspace start dev --project demo` starts it again" in result.err
    assert "is being stopped" in ada.run("workspace", "stop", *FLAGS, "--no-wait").err


REASONS = {
    "SourceRefused": "`fairlead runner start local --allow-folder DIR`",
    "CloneFailed": "check the URL, the branch and the commit",
    "ConfigurationInvalid": "add or correct .devcontainer/devcontainer.json",
    "PolicyViolation": "the option `allow` of its provider",
    "PlatformMismatch": "another runner (--runner)",
    "BuildFailed": "`fairlead workspace up dev --project demo --recreate`",
    "StartFailed": "fix the image or its settings",
    "LifecycleCommandFailed": "the container is there",
    "StepTimedOut": "see the log for what it waited for",
    "DiskFull": "free some space on the machine of the runner local",
    "WorkspaceDiskFull": "delete files in the workspace if it runs (`fairlead workspace ssh dev --project demo`)",
    "SnapshotFailed": "`fairlead workspace start dev --project demo` goes on with it",
    "EngineUnavailable": "`fairlead runner doctor local` on its machine",
    "RunnerRestarted": "the runner local did not survive this task",
    "Asleep": "removing the annotation sleepmode.service.sh/force",
    "Cancelled": "`fairlead workspace show dev --project demo` has its state",
    "SomethingNew": "then run `fairlead workspace up dev --project demo`",
}


@pytest.mark.parametrize("reason", REASONS)
def test_a_failed_task_shows_its_step_the_end_of_the_log_and_what_to_do(ada: CliFixture, reason: str) -> None:
    lines = [f"line {number}" for number in range(30)]
    hidden = ("    at run (/x/devContainersSpecCLI.js:1:2)", "up failed: step Build: it broke")
    ada.fake.on("GET", f"{DEV}/log", build_log("step Build", *lines, *hidden, code=1))
    failed = build_task("Failed", step="Build", reason=reason, message="step Build: it broke")
    ada.fake.on("GET", f"{DEV}/tasks", (200, {"tasks": [failed]}))
    result = ada.run("workspace", "up", *FLAGS)
    assert result.code == 1
    assert "Build              failed after " in result.err
    assert "    line 29\n" in result.err and "    line 10\n" in result.err and "line 9\n" not in result.err
    assert "devContainersSpecCLI" not in result.err and "up failed" not in result.err
    assert f"fairlead: up of dev has failed in step Build: {reason}: it broke\n" in result.err
    assert REASONS[reason] in result.err
    assert "`fairlead workspace logs dev --project demo` prints the whole log" in result.err


def test_the_log_goes_on_without_a_gap_after_a_lost_connection(ada: CliFixture) -> None:
    part = build_log("step Clone", "step Clone took 0.5 s", "step Build", code=None)
    offset = json.loads(part[1].splitlines()[-1])["offset"]
    broken = 503, failure_status(503, "ServiceUnavailable", "the runner is not connected")
    ada.fake.on("GET", f"{DEV}/log", part, broken, build_log("step Build took 2.0 s", offset=offset))
    result = ada.run("workspace", "up", *FLAGS)
    assert (result.code, result.err.count("Clone")) == (0, 1)
    assert [each.query["offset"] for each in ada.fake.requests_to("GET", f"{DEV}/log")] == [
        "0",
        str(offset),
        str(offset),
    ]
    assert {each.query["taskID"] for each in ada.fake.requests_to("GET", f"{DEV}/log")} == {TASK}


def test_a_lost_right_ends_the_wait(ada: CliFixture) -> None:
    ada.fake.on("GET", f"{DEV}/log", (403, failure_status(403, "Forbidden", "you cannot use it any more")))
    ada.fake.on("GET", f"{M}/projects/demo", (200, build_object("demo")))
    result = ada.run("workspace", "up", *FLAGS)
    assert (result.code, "you cannot use it any more" in result.err) == (1, True)


def test_a_runner_that_is_not_connected_is_named_with_since_when(ada: CliFixture) -> None:
    absent = 'runner "local" is not connected since 2026-01-01T00:00:00Z; check whether it is running'
    ada.fake.on("POST", f"{DEV}/up", (503, failure_status(503, "ServiceUnavailable", absent)))
    ada.fake.on("GET", f"{M}/runners/local", (200, build_object("local", status={})))
    result = ada.run("workspace", "up", *FLAGS)
    assert result.code == 1
    assert absent in result.err
    assert 'runner "local" was never started; start it on its machine with `fairlead runner start local`' in result.err


def test_a_runner_that_was_stopped_a_moment_ago_is_to_be_started(ada: CliFixture) -> None:
    ada.fake.on("POST", f"{DEV}/stop", (503, failure_status(503, "ServiceUnavailable", "it is not connected")))
    result = ada.run("workspace", "stop", *FLAGS)
    assert result.code == 1
    assert "fairlead: it is not connected\n  start it on its machine with `fairlead runner start local`\n" in result.err


def test_a_runner_that_connects_in_a_moment_is_waited_for(ada: CliFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "GRACE_SECONDS", 60.0)
    busy = 503, failure_status(503, "ServiceUnavailable", "the runner has not taken this workspace yet")
    ada.fake.on("POST", f"{DEV}/up", busy, busy, (201, {"status": {"taskId": TASK}}))
    assert ada.run("workspace", "up", *FLAGS).code == 0


def test_a_workspace_or_project_that_does_not_exist_is_named(ada: CliFixture) -> None:
    missing = 404, failure_status(404, "NotFound", 'devpodworkspaceinstances "dev" not found')
    ada.fake.on("POST", f"{DEV}/up", missing)
    ada.fake.on("GET", f"{M}/projects/demo", (200, build_object("demo")))
    assert '"dev" not found; check the name' in ada.run("workspace", "up", *FLAGS).err
    ada.fake.on("GET", f"{M}/projects/demo", (404, failure_status(404, "NotFound", "projects not found")))
    assert "there is no project 'demo'" in ada.run("workspace", "up", *FLAGS).err


def test_the_time_out_says_what_the_task_is_doing(ada: CliFixture) -> None:
    building = build_condition("TaskSucceeded", "Unknown", "UpRunning", "Build")
    ada.fake.on("GET", DEV, (200, build_workspace(conditions=[building])))
    ada.fake.on("GET", f"{DEV}/log", build_log("step Build", code=None))
    result = ada.run("workspace", "up", *FLAGS, "--timeout", "1s")
    assert result.code == 1
    assert (
        "up of dev has not ended after 1s: UpRunning: Build; it goes on; follow it with `fairlead workspace logs"
        in (result.err)
    )


def test_ctrl_c_leaves_the_workspace_coming_up(ada: CliFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "follow_log", interrupt)
    result = ada.run("workspace", "up", *FLAGS)
    assert result.code == 130
    assert (
        "stopped waiting; up of dev goes on; follow it with `fairlead workspace logs dev --project demo -f`"
        in result.err
    )
    assert ada.fake.requests_to("POST", f"{DEV}/stop") == []
