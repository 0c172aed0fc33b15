"""fairlead.cli.ui.resource_commands: `list`, `show` and `delete`, the same for every resource that has them."""

import json
from typing import Any

import pytest
from typer.core import TyperGroup

from fairlead.cli import COMMANDS, load_command
from tests.harness.cli import CliFixture
from tests.harness.fake_server import M, build_object, failure_status, list_response
from tests.harness.watch_responses import END, build_watch_response

CLUSTER_SCOPED = {
    "app": "apps",
    "cluster": "clusters",
    "project": "projects",
    "runner": "runners",
    "team": "teams",
    "user": "users",
}
PROJECT_SCOPED = {
    "space": "spaceinstances",
    "vcluster": "virtualclusterinstances",
    "workspace": "devpodworkspaceinstances",
}
PATHS = {command: f"{M}/{plural}" for command, plural in CLUSTER_SCOPED.items()} | {
    command: f"{M}/namespaces/service-p-demo/{plural}" for command, plural in PROJECT_SCOPED.items()
}
SPEC = {"displayName": "The first", "description": "To try things"}
NO_WORKSPACES = (200, {"kind": "DevPodWorkspaceInstanceList", "metadata": {}, "items": []})


def build_project_flags(command: str) -> tuple[str, ...]:
    return ("--project", "demo") if command in PROJECT_SCOPED else ()


def build_command_object(command: str, **fields: Any) -> dict[str, Any]:
    found = build_object("one", kind="Thing", spec=SPEC, **fields)
    found["metadata"] |= {"uid": "1"} | ({"namespace": "service-p-demo"} if command in PROJECT_SCOPED else {})
    return found


@pytest.mark.parametrize("command", PATHS)
def test_one_object_is_shown_in_every_format(user: CliFixture, command: str) -> None:
    user.fake.on("GET", f"{PATHS[command]}/one", (200, build_command_object(command)))
    rows = dict(
        line.split("   ", 1)
        for line in user.run(command, "show", "one", *build_project_flags(command)).out.splitlines()
    )
    shown = {label.strip(): value.strip() for label, value in rows.items()}
    assert shown["name"] == "one"
    assert shown["display name"] == "The first"
    assert shown["description"] == "To try things"
    assert user.run(command, "show", "one", *build_project_flags(command), "-o", "name").out == "thing/one\n"
    assert json.loads(user.run(command, "show", "one", *build_project_flags(command), "-o", "json").out)["spec"] == SPEC


@pytest.mark.parametrize("command", [each for each in PATHS if each != "project"])
def test_fields_that_are_not_set_are_not_shown(user: CliFixture, command: str) -> None:
    user.fake.on("GET", f"{PATHS[command]}/one", (200, build_command_object(command)))
    lines = user.run(command, "show", "one", *build_project_flags(command)).out.splitlines()
    assert [line for line in lines if line.endswith(" -")] == []


@pytest.mark.parametrize("command", PROJECT_SCOPED)
def test_an_instance_is_shown_with_its_project_and_why_it_is_not_ready(user: CliFixture, command: str) -> None:
    status = {"phase": "Failed", "reason": "NoSuchTemplate", "message": "the template is missing"}
    user.fake.on("GET", f"{PATHS[command]}/one", (200, build_command_object(command, status=status)))
    out = user.run(command, "show", "one", "--project", "demo").out
    labels = ("project", "status" if command == "workspace" else "phase", "reason")
    assert [line.split()[1:] for line in out.splitlines() if line.startswith(labels)] == [
        ["demo"],
        ["Failed"],
        ["NoSuchTemplate"],
    ]
    assert "the template is missing" in out


@pytest.mark.parametrize("command", PATHS)
def test_an_object_that_does_not_exist_is_an_error(user: CliFixture, command: str) -> None:
    user.fake.on("GET", f"{PATHS[command]}/one", (404, failure_status(404, "NotFound", "there is no such object")))
    user.fake.on("GET", f"{M}/projects/demo", (200, build_object("demo")))
    result = user.run(command, "show", "one", *build_project_flags(command))
    assert (result.code, result.out) == (1, "")
    assert "there is no such object" in result.err


@pytest.mark.parametrize("command", [each for each in PATHS if each != "cluster"])
def test_delete_waits_unless_no_wait_is_set(user: CliFixture, command: str) -> None:
    path = PATHS[command]
    user.fake.on("GET", f"{M}/devpodworkspaceinstances", NO_WORKSPACES)
    user.fake.on("GET", f"{path}/one", (200, build_command_object(command)))
    user.fake.on("DELETE", f"{path}/one", (200, build_command_object(command)))
    user.fake.on(
        "GET",
        path,
        build_watch_response(
            {"type": "ADDED", "object": build_command_object(command)},
            END,
            {"type": "DELETED", "object": build_command_object(command)},
        ),
    )
    result = user.run(command, "delete", "one", *build_project_flags(command), "--yes", "-v")
    assert result.code == 0
    assert result.err.startswith("waiting for one to be deleted\n")
    assert " one is deleted" in result.err.splitlines()[-1]
    watches = len(user.fake.requests_to("GET", path))
    result = user.run(command, "delete", "one", *build_project_flags(command), "--yes", "--no-wait")
    assert "is being deleted" in result.err
    assert len(user.fake.requests_to("GET", path)) == watches
    assert len(user.fake.requests_to("DELETE", f"{path}/one")) == 2


@pytest.mark.parametrize("command", [each for each in PATHS if each != "cluster"])
def test_nothing_is_deleted_without_a_confirmation(user: CliFixture, command: str) -> None:
    user.fake.on("GET", f"{M}/devpodworkspaceinstances", NO_WORKSPACES)
    user.fake.on("GET", f"{PATHS[command]}/one", (200, build_command_object(command)))
    assert user.run(command, "delete", "one", *build_project_flags(command)).code == 2
    user.use_terminal()
    result = user.run(command, "delete", "one", *build_project_flags(command), stdin="n\n")
    assert result.code == 2
    assert f"Delete the {'virtual cluster' if command == 'vcluster' else command} one" in result.err
    assert user.fake.requests_to("DELETE", f"{PATHS[command]}/one") == []


@pytest.mark.parametrize("command", PROJECT_SCOPED)
def test_instances_are_listed_in_one_project_or_in_all(user: CliFixture, command: str) -> None:
    user.fake.on("GET", PATHS[command], list_response())
    user.fake.on("GET", f"{M}/projects/demo", (200, build_object("demo")))
    user.fake.on("GET", f"{M}/{PROJECT_SCOPED[command]}", list_response(build_command_object(command)))
    noun = "virtual cluster" if command == "vcluster" else command
    assert user.run(command, "list", "--project", "demo").err.startswith(f"no {noun}s in demo; create")
    header, row = (line.split() for line in user.run(command, "list").out.splitlines())
    state = "STATUS" if command == "workspace" else "PHASE"
    assert (header[:3], row[:3]) == (["NAME", "PROJECT", state], ["one", "demo", "Pending"])


def test_every_command_group_with_list_has_show() -> None:
    commands = {each.name: load_command(each.name) for each in COMMANDS}
    groups = {name: each for name, each in commands.items() if isinstance(each, TyperGroup)}
    list_groups = {
        name for name, each in groups.items() if "list" in each.commands and name not in ("context", "trust")
    }
    assert list_groups == {*PATHS, "key"}
    assert [name for name in sorted(list_groups) if "show" not in groups[name].commands] == []
