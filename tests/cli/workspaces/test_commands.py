"""fairlead.cli.workspaces: logs, show and open."""

import json
from base64 import b64encode
from typing import Any

import pytest

from fairlead.cli.workspaces import commands
from tests.cli.workspaces.log_responses import DEV, FLAGS, build_condition, build_log, build_task, build_workspace
from tests.harness.cli import CliFixture
from tests.harness.fake_server import M, build_object, failure_status

LOGS = ("workspace", "logs", *FLAGS)
SHOW = ("workspace", "show", *FLAGS)
OPEN = ("workspace", "open", *FLAGS)


# --- logs -------------------------------------------------------------------------------------------------------------


def test_logs_print_messages_on_stdout(ada: CliFixture) -> None:
    ada.fake.on("GET", f"{DEV}/log", build_log("first", "tab\tand \x1b]0;title\x07", "last"))
    assert ada.run(*LOGS).out == "first\ntab     and \\x1b]0;title\\x07\nlast\n"
    assert ada.run(*LOGS, "--tail", "1").out == "last\n"
    assert ada.run(*LOGS, "--tail", "0").out == ""
    assert ada.run(*LOGS, "--task", "other").code == 0
    assert [each.query["taskID"] for each in ada.fake.requests_to("GET", f"{DEV}/log")] == ["task-1"] * 3 + ["other"]
    assert {each.query.get("follow") for each in ada.fake.requests_to("GET", f"{DEV}/log")} == {None}


def test_the_log_of_a_service_is_printed_as_it_is(ada: CliFixture) -> None:
    lines = b'{"message":"one"}\ntwo\x1b]0;title\x07\n'
    entries = ({"type": 0, "bytes": b64encode(lines).decode(), "offset": 9}, {"type": 6, "exitCode": 0})
    ada.fake.on("GET", f"{DEV}/log", (200, b"".join(json.dumps(each).encode() + b"\n" for each in entries)))
    assert ada.run(*LOGS, "--service", "db").out == '{"message":"one"}\ntwo\\x1b]0;title\\x07\n'
    assert ada.run(*LOGS, "--service", "db", "--tail", "1").out == "two\\x1b]0;title\\x07\n"
    assert [each.query for each in ada.fake.requests_to("GET", f"{DEV}/log")] == [{"service": "db"}] * 2
    result = ada.run(*LOGS, "--service", "db", "-f")
    assert result.code == 2 and "--service: cannot be used together with --task or --follow" in result.err


def test_logs_follow_the_task_and_continue_after_a_lost_connection(ada: CliFixture) -> None:
    before, lost = build_log("first", code=0), build_log("second", code=None, offset=20)
    after = build_log("third", offset=json.loads(lost[1])["offset"])
    ada.fake.on("GET", f"{DEV}/log", before, lost, after)
    result = ada.run(*LOGS, "-f", "--tail", "5")
    assert result.out == "first\nsecond\nthird\n"
    assert result.err == "connection lost (the server has ended the stream); trying again\n"
    offsets = [int(each.query["offset"]) for each in ada.fake.requests_to("GET", f"{DEV}/log")]
    assert offsets == sorted(set(offsets))


@pytest.mark.parametrize("order", [1, -1])
def test_the_newest_task_is_found_in_every_order(ada: CliFixture, order: int) -> None:
    times = {"a": ("10", "11"), "b": ("12", "12"), "c": ("12", "13"), "d": ("12", "")}
    tasks = [
        {
            **build_task("Succeeded" if end else "Running", **({"endedAt": end} if end else {})),
            "id": name,
            "createdAt": start,
        }
        for name, (start, end) in times.items()
    ]
    ada.fake.on("GET", f"{DEV}/tasks", (200, {"tasks": tasks[::order]}))
    assert ada.run(*LOGS).code == 0
    ada.fake.on("GET", f"{DEV}/tasks", (200, {"tasks": tasks[:3][::order]}))
    assert ada.run(*LOGS).code == 0
    assert [each.query["taskID"] for each in ada.fake.requests_to("GET", f"{DEV}/log")] == ["d", "c"]


def test_a_workspace_without_a_task_has_no_log(ada: CliFixture) -> None:
    ada.fake.on("GET", f"{DEV}/tasks", (200, {"tasks": []}))
    result = ada.run(*LOGS)
    assert result.code == 1
    assert "dev has had no task; `fairlead workspace up dev --project demo` brings it up" in result.err


# --- snapshots --------------------------------------------------------------------------------------------------------


def test_snapshots_are_listed_and_restored(ada: CliFixture) -> None:
    listed = {"snapshots": [{"id": "4f1c22ab", "createdAt": "2026-11-19T08:12:30Z", "bytes": 5 << 20}]}
    ada.fake.on("GET", f"{DEV}/snapshots", (200, listed), (200, {"snapshots": []}))
    ada.fake.on("POST", f"{DEV}/restore", (201, {"status": {"taskId": "task-1"}}))
    result = ada.run("workspace", "snapshots", *FLAGS)
    assert [line.split() for line in result.out.splitlines()] == [
        ["ID", "CREATED", "SIZE"],
        ["4f1c22ab", "2026-11-19T08:12:30Z", "5Mi"],
    ]
    assert "`fairlead workspace up --recreate --snapshot` takes one" in ada.run("workspace", "snapshots", *FLAGS).err
    restored = ada.run("workspace", "restore", "dev", "4f1c22ab", "/usr/local", "--project", "demo")
    assert restored.code == 0, restored.err
    assert "/usr/local of the snapshot 4f1c22ab is in the workspace dev again" in restored.err
    (sent,) = ada.fake.requests_to("POST", f"{DEV}/restore")
    assert sent.body["spec"] == {"snapshot": "4f1c22ab", "path": "/usr/local"}
    wrong = ada.run("workspace", "restore", "dev", "4f1c22ab", "usr", "--project", "demo")
    assert wrong.code == 2 and "usr: must be an absolute path" in wrong.err


def test_a_snapshot_is_deleted_after_a_question(ada: CliFixture) -> None:
    ada.fake.on("POST", f"{DEV}/deletesnapshot", (201, {"spec": {"snapshot": "4f1c22ab"}}))
    command = ("workspace", "delete-snapshot", "dev", "4f1c22ab", "--project", "demo")
    unconfirmed = ada.run(*command)
    assert unconfirmed.code == 2 and "--yes" in unconfirmed.err
    assert ada.fake.requests_to("POST", f"{DEV}/deletesnapshot") == []
    result = ada.run(*command, "--yes")
    assert result.code == 0 and "the snapshot 4f1c22ab of the workspace dev is deleted" in result.err
    (sent,) = ada.fake.requests_to("POST", f"{DEV}/deletesnapshot")
    assert sent.body["spec"] == {"snapshot": "4f1c22ab"}


# --- move -------------------------------------------------------------------------------------------------------------


def test_a_move_says_what_is_left_behind_and_follows_the_new_up(ada: CliFixture) -> None:
    moved = {"status": {"runner": "local", "lost": ["stashes: 1"]}}
    ada.fake.on("POST", f"{DEV}/move", (201, moved))
    result = ada.run("workspace", "move", *FLAGS, "--runner", "other", "--discard")
    assert result.code == 0, result.err
    assert "left behind on the runner local: stashes: 1" in result.err and "is running" in result.err
    (sent,) = ada.fake.requests_to("POST", f"{DEV}/move")
    assert sent.body["spec"] == {"runner": "other", "discard": True}
    result = ada.run("workspace", "move", *FLAGS, "--runner", "other", "--no-wait")
    assert "it is coming up on the runner other" in result.err


def test_a_move_that_would_lose_something_says_what_to_do(ada: CliFixture) -> None:
    why = "stashes: 1; push what is to be kept, or discard it (`fairlead workspace move --discard`)"
    ada.fake.on("POST", f"{DEV}/move", (409, failure_status(409, "Conflict", why)))
    result = ada.run("workspace", "move", *FLAGS, "--runner", "other")
    assert result.code == 1 and why in result.err


# --- show -------------------------------------------------------------------------------------------------------------


RUNNING = build_condition("Ready", "True", "Running")


def show(ada: CliFixture) -> dict[str, str]:
    """The rows by their label. Rows without a label continue the one above."""
    result = ada.run(*SHOW)
    assert result.code == 0, result.err
    rows: dict[str, str] = {}
    last = ""
    for line in result.out.splitlines():
        label, _, value = line.partition("  ")
        last, value = label or last, value.strip()
        rows[last] = f"{rows[last]} {value}" if last in rows else value
    return rows


def test_show_explains_a_running_workspace(ada: CliFixture) -> None:
    workspace = build_workspace(phase="Ready", lastWorkspaceStatus="Running", conditions=[RUNNING])
    workspace["metadata"]["annotations"] = {
        "service.sh/workspace-source": "git:https://example.com/shop.git@main",
        "sleepmode.service.sh/hold-until": "4102444800",
    }
    workspace["spec"]["owner"] = {"user": "ada"}
    ada.fake.on("GET", DEV, (200, workspace))
    ada.fake.on("GET", f"{DEV}/ports", (200, {"ports": [{"port": 8080, "process": "node"}, {"port": 22}]}))
    rows = show(ada)
    assert rows["last task"].startswith("up: succeeded, ")
    expected = {"name": "dev", "project": "demo", "status": "Running", "runner": "local"}
    origin = {"source": "https://example.com/shop.git@main", "template": "default", "owner": "ada"}
    assert {name: rows.get(name) for name in expected | origin} == expected | origin
    assert rows["ports"] == "8080 node, 22"
    assert rows["held until"].startswith("2100-01-01T00:00:00Z (in ")
    assert not {"sleeps", "asleep since", "activity"} & set(rows)


def test_show_says_when_a_workspace_sleeps(ada: CliFixture) -> None:
    activity = {"state": "Idle", "reason": "TerminalInput", "lastActivityTime": "2026-01-01T00:00:00Z"}
    planned = {"status": {"scheduledSleep": 4102444800}}
    ada.fake.on("GET", DEV, (200, build_workspace(activity=activity, sleepModeConfig=planned)))
    rows = show(ada)
    assert rows["activity"].startswith("Idle (TerminalInput, ")
    assert rows["sleeps"].startswith("2100-01-01T00:00:00Z (in ")
    asleep = build_workspace(phase="Sleeping")
    asleep["metadata"]["annotations"] = {"sleepmode.service.sh/sleeping-since": "1767225600"}
    ada.fake.on("GET", DEV, (200, asleep))
    assert show(ada)["asleep since"].startswith("2026-01-01T00:00:00Z (")


def test_show_explains_a_failure_and_what_to_do(ada: CliFixture) -> None:
    failed = build_task("Failed", step="Build", reason="BuildFailed", message="no such file")
    ada.fake.on("GET", f"{DEV}/tasks", (200, {"tasks": [failed]}))
    ada.fake.on("GET", DEV, (200, build_workspace(phase="Failed", reason="BuildFailed", message="no such file")))
    rows = show(ada)
    assert (rows["status"], rows["reason"], rows["message"]) == ("Failed", "BuildFailed", "no such file")
    assert rows["last task"].startswith("up: failed in step Build, ")
    assert rows["failure"] == "BuildFailed: no such file"
    assert "--recreate" in rows["what to do"] and "fairlead workspace logs" in rows["what to do"]


def test_show_says_what_to_do_about_a_failure_also_while_the_runner_is_away(ada: CliFixture) -> None:
    ada.fake.on("GET", f"{DEV}/tasks", (503, failure_status(503, "ServiceUnavailable", "not connected")))
    conditions = [build_condition("TaskSucceeded", "False", "ImagePullFailed", "no such image")]
    failed = build_workspace(phase="Failed", reason="ImagePullFailed", message="no such image", conditions=conditions)
    ada.fake.on("GET", DEV, (200, failed))
    rows = show(ada)
    assert rows["what to do"].startswith("check the name of the image") and rows["runner"] == "local not connected"


def test_show_prints_each_message_once(ada: CliFixture) -> None:
    problem = 'runner "local" was never started; start it on its machine with `fairlead runner start local`'
    conditions = [build_condition(type, "False", "RunnerNotStarted", problem) for type in ("Ready", "Scheduled")]
    ada.fake.on("GET", f"{M}/runners/local", (200, build_object("local", status={})))
    ada.fake.on("GET", DEV, (200, build_workspace(phase="Pending", reason="RunnerNotStarted", conditions=conditions)))
    result = ada.run(*SHOW)
    assert result.out.count("was never started") == 1, result.out
    assert "Scheduled is False (RunnerNotStarted)\n" in result.out
    conditions = [build_condition(type, "False", "Unusable", "none is usable") for type in ("Ready", "Scheduled")]
    ada.fake.on("GET", DEV, (200, build_workspace(phase="Pending", message="none is usable", conditions=conditions)))
    assert ada.run(*SHOW).out.count("none is usable") == 1


def test_show_names_the_step_of_a_task_under_way(ada: CliFixture) -> None:
    ada.fake.on("GET", f"{DEV}/tasks", (200, {"tasks": [build_task("Running", step="Clone")]}))
    assert "up: Clone, for " in show(ada)["last task"] and "-f` follows it" in show(ada)["last task"]


def test_show_says_that_the_runner_does_not_respond(ada: CliFixture) -> None:
    silent = {"phase": "Initialized", "conditions": [build_condition("Ready", "Unknown", "Silent", "not since 10:00")]}
    ada.fake.on("GET", f"{M}/runners/local", (200, build_object("local", status=silent)))
    assert "local the runner local does not respond: not since 10:00" in show(ada)["runner"]


def test_show_says_that_the_runner_is_not_connected(ada: CliFixture) -> None:
    ada.fake.on("GET", f"{DEV}/tasks", (503, failure_status(503, "ServiceUnavailable", "not connected since 10:00")))
    assert show(ada)["runner"] == "local not connected since 10:00"


@pytest.mark.parametrize("code", [403, 503])
def test_show_works_without_what_the_runner_says(ada: CliFixture, code: int) -> None:
    refused: tuple[int, Any] = code, failure_status(code, "Refused", "no")
    for path in (f"{DEV}/tasks", f"{DEV}/ports", f"{M}/runners/local"):
        ada.fake.on("GET", path, refused)
    ada.fake.on("GET", DEV, (200, build_workspace(phase="Ready", lastWorkspaceStatus="Running", conditions=[RUNNING])))
    assert show(ada)["status"] == "Running"


# --- open -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def editor_user(ada: CliFixture, monkeypatch: pytest.MonkeyPatch) -> CliFixture:
    report = {"container": {"state": "Running", "user": "dev", "folder": "/workspaces/my shop"}}
    ada.fake.on("GET", f"{DEV}/troubleshoot", (200, {"report": report}))
    monkeypatch.setattr(commands, "has_desktop", lambda: True)
    return ada


@pytest.mark.parametrize(
    ("editor", "address"),
    [
        ("vscode", "vscode://vscode-remote/ssh-remote+dev.demo.fairlead/workspaces/my%20shop"),
        ("vscode-insiders", "vscode-insiders://vscode-remote/ssh-remote+dev.demo.fairlead/workspaces/my%20shop"),
        ("cursor", "cursor://vscode-remote/ssh-remote+dev.demo.fairlead/workspaces/my%20shop"),
        ("windsurf", "windsurf://vscode-remote/ssh-remote+dev.demo.fairlead/workspaces/my%20shop"),
        (
            "jetbrains",
            "jetbrains-gateway://connect#type=ssh&host=dev.demo.fairlead&port=22&user=dev"
            "&projectPath=%2Fworkspaces%2Fmy+shop&deploy=true",
        ),
        ("ssh", "ssh dev.demo.fairlead"),
    ],
)
def test_open_prints_the_address_for_each_editor(editor_user: CliFixture, editor: str, address: str) -> None:
    result = editor_user.run(*OPEN, "--editor", editor, "--print")
    assert (result.code, result.out, result.err) == (0, f"{address}\n", "")


def test_open_starts_the_editor_on_a_desktop(editor_user: CliFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    launched: list[str] = []
    monkeypatch.setattr("typer.launch", launched.append)
    assert editor_user.run(*OPEN).code == 0
    assert launched == ["vscode://vscode-remote/ssh-remote+dev.demo.fairlead/workspaces/my%20shop"]
    monkeypatch.setattr("typer.launch", lambda address: 4)
    assert "install the editor, or use --editor" in editor_user.run(*OPEN).err
    monkeypatch.setattr(commands, "has_desktop", lambda: False)
    assert "this machine has no desktop" in editor_user.run(*OPEN).err


def test_open_needs_a_running_workspace(ada: CliFixture) -> None:
    ada.fake.on("GET", DEV, (200, build_workspace(lastWorkspaceStatus="Stopped")))
    result = ada.run(*OPEN)
    assert (result.code, result.out) == (1, "")
    assert "dev is not running (Stopped); start it with `fairlead workspace up dev --project demo`" in result.err
