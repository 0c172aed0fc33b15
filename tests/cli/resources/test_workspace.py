"""fairlead.cli.resources.workspace: workspaces created from templates, waited for and deleted."""

from typing import Any

import pytest

from tests.harness.cli import CliFixture, parse_yaml
from tests.harness.fake_server import M, build_object
from tests.harness.watch_responses import END, build_watch_response

WORKSPACES = f"{M}/namespaces/service-p-demo/devpodworkspaceinstances"
CREATE = ("workspace", "create", "desk", "--project", "demo", "--template")


def build_workspace(**status: Any) -> dict[str, Any]:
    workspace = build_object(
        "desk", kind="DevPodWorkspaceInstance", spec={"runnerRef": {"runner": "dock"}}, status=status
    )
    workspace["metadata"] |= {"uid": "1", "namespace": "service-p-demo"}
    return workspace


def build_modified_event(**status: Any) -> dict[str, Any]:
    return {"type": "MODIFIED", "object": build_workspace(**status)}


@pytest.fixture
def ada(user: CliFixture) -> CliFixture:
    user.fake.on("POST", WORKSPACES, (201, build_workspace()))
    user.fake.on("GET", f"{WORKSPACES}/desk", (200, build_workspace()))
    user.fake.on("DELETE", f"{WORKSPACES}/desk", (200, build_workspace()))
    return user


def test_create_sends_template_version_and_parameters(ada: CliFixture) -> None:
    flags = ("--parameter", "size=3", "--parameter", "url=a=b", "--runner", "dock", "--display-name", "CliFixture")
    assert ada.run(*CREATE, "python@1.2.x", *flags, "-o", "name").out == "devpodworkspaceinstance/desk\n"
    assert ada.run(*CREATE, "python").code == 0
    first, second = (each.body["spec"] for each in ada.fake.requests_to("POST", WORKSPACES))
    assert parse_yaml(first.pop("parameters")) == {"size": "3", "url": "a=b"}
    assert first == {
        "owner": {"user": "alice"},
        "displayName": "CliFixture",
        "templateRef": {"name": "python", "version": "1.2.x"},
        "runnerRef": {"runner": "dock"},
    }
    assert second == {"owner": {"user": "alice"}, "templateRef": {"name": "python"}}


@pytest.mark.parametrize(
    ("status", "owner"),
    [({"team": {"name": "ops"}}, {"team": "ops"}), ({"subject": "system:serviceaccount:p:ci"}, None)],
)
def test_the_creator_owns_a_workspace_unless_it_is_neither_user_nor_team(
    ada: CliFixture, status: dict[str, Any], owner: dict[str, str] | None
) -> None:
    response = {"status": {"projectNamespacePrefix": "service-p-", **status}}
    ada.fake.on("POST", f"{M}/selves", (201, response))
    assert ada.run(*CREATE, "python").code == 0
    (sent,) = ada.fake.requests_to("POST", WORKSPACES)
    assert sent.body["spec"].get("owner") == owner


def test_create_sends_the_environment_and_show_prints_it(ada: CliFixture) -> None:
    assert ada.run(*CREATE, "python", "--environment", "tools@1.x.x").code == 0
    assert ada.run(*CREATE, "python", "--environment", "tools").code == 0
    first, second = (each.body["spec"]["environmentRef"] for each in ada.fake.requests_to("POST", WORKSPACES))
    assert (first, second) == ({"name": "tools", "version": "1.x.x"}, {"name": "tools"})
    workspace = build_workspace()
    workspace["spec"]["environmentRef"] = first
    ada.fake.on("GET", f"{WORKSPACES}/desk", (200, workspace))
    shown = ada.run("workspace", "show", "desk", "--project", "demo").out
    assert "tools@1.x.x" in next(line for line in shown.splitlines() if line.startswith("environment"))


PRESET = ("workspace", "create", "desk", "--project", "demo", "--preset", "shop@1.x.x", "--no-wait")


def test_create_from_a_preset_sends_what_flags_say_and_brings_it_up(ada: CliFixture) -> None:
    assert ada.run(*PRESET).code == 0
    flags = ("--template", "python", "--environment", "tools", "--parameter", "size=3")
    assert ada.run("workspace", "create", "desk", "https://example.com/a.git", *PRESET[3:], *flags, "--no-up").code == 0
    first, second = (each.body for each in ada.fake.requests_to("POST", WORKSPACES))
    owner = {"owner": {"user": "alice"}}
    assert first["spec"] == owner | {"presetRef": {"name": "shop", "version": "1.x.x"}}
    assert list(first["metadata"]["annotations"]) == ["service.sh/workspace-up"]
    assert second["spec"] == owner | {
        "presetRef": {"name": "shop", "version": "1.x.x"},
        "templateRef": {"name": "python"},
        "environmentRef": {"name": "tools"},
        "parameters": 'size: "3"\n',
    }
    assert second["metadata"]["annotations"] == {"service.sh/workspace-source": "git:https://example.com/a.git"}


def test_a_prebuild_is_created_with_its_schedule(ada: CliFixture) -> None:
    source = ("workspace", "create", "desk", "https://example.com/a.git", *CREATE[3:], "python", "--no-wait")
    assert ada.run(*source, "--prebuild", "--schedule", "0 4 * * *").code == 0
    annotations = ada.fake.requests_to("POST", WORKSPACES)[0].body["metadata"]["annotations"]
    assert annotations.pop("service.sh/workspace-up")
    assert annotations == {
        "service.sh/workspace-source": "git:https://example.com/a.git",
        "service.sh/prebuild": "true",
        "service.sh/prebuild-schedule": "0 4 * * *",
    }
    refused = ada.run(*source, "--schedule", "0 4 * * *")
    assert refused.code == 2 and "--schedule is for --prebuild" in refused.err


def test_errors_about_a_preset_name_the_flag(ada: CliFixture) -> None:
    cause = {"field": "spec.presetRef.name", "reason": "FieldValueInvalid", "message": "there is no preset"}
    message = "spec.presetRef.name: there is no preset"
    status = {"kind": "Status", "code": 422, "reason": "Invalid", "message": message, "details": {"causes": [cause]}}
    ada.fake.on("POST", WORKSPACES, (422, status))
    assert "--preset: there is no preset" in ada.run(*PRESET).err


@pytest.mark.parametrize("parameters", [("size",), ("=3",), ("size=1", "size=2")])
def test_an_invalid_parameter_creates_no_workspace(ada: CliFixture, parameters: tuple[str, ...]) -> None:
    flags = [part for each in parameters for part in ("--parameter", each)]
    result = ada.run(*CREATE, "python", *flags)
    assert result.code == 2
    assert result.err.startswith("fairlead: ")
    assert ada.fake.requests_to("POST", WORKSPACES) == []


def test_create_with_wait_prints_one_line_and_with_verbose_each_phase(ada: CliFixture) -> None:
    added = {"type": "ADDED", "object": build_workspace()}
    pending = build_modified_event(phase="Pending", reason="Scheduling", message="looking for a runner")
    ada.fake.on("GET", WORKSPACES, build_watch_response(added, END, pending, build_modified_event(phase="Ready")))
    result = ada.run(*CREATE, "python", "--wait")
    assert (result.code, result.err.splitlines()) == (0, ["the workspace desk is Ready"])
    result = ada.run(*CREATE, "python", "--wait", "-v")
    assert result.err.splitlines() == [
        "waiting for desk",
        "desk is Pending",
        "desk is Pending (Scheduling: looking for a runner)",
        "the workspace desk is Ready",
    ]


@pytest.mark.parametrize(
    "status",
    [{"phase": "Failed"}, {"phase": "Pending", "conditions": [{"type": "Stalled", "status": "True"}]}],
)
def test_a_failed_or_stalled_workspace_is_an_error_with_its_reason(ada: CliFixture, status: dict[str, Any]) -> None:
    ada.fake.on(
        "GET",
        WORKSPACES,
        build_watch_response(build_modified_event(**status, reason="VersionError", message="no such version"), END),
    )
    result = ada.run(*CREATE, "python", "--wait")
    assert result.code == 1
    assert result.err.count("VersionError: no such version") == 1


def test_a_workspace_that_is_deleted_while_waiting_is_an_error(ada: CliFixture) -> None:
    ada.fake.on("GET", WORKSPACES, build_watch_response(END))
    result = ada.run(*CREATE, "python", "--wait")
    assert result.code == 1
    assert "was deleted while waiting" in result.err


def test_delete_waits_for_the_runner(ada: CliFixture) -> None:
    ada.fake.on(
        "GET",
        WORKSPACES,
        build_watch_response(
            build_modified_event(),
            END,
            build_modified_event(
                conditions=[
                    {"type": "TaskSucceeded", "reason": "DeleteRunning", "message": "Delete", "status": "Unknown"}
                ]
            ),
            {"type": "DELETED", "object": build_workspace()},
        ),
    )
    result = ada.run("workspace", "delete", "desk", "--project", "demo", "--yes", "-v")
    assert "waiting for the runner dock to delete it\nwaiting for the runner dock to delete it: Delete\n" in result.err
    assert result.err.endswith("the workspace desk is deleted\n")
    assert "being deleted" in ada.run("workspace", "delete", "desk", "--project", "demo", "--yes", "--no-wait").err
