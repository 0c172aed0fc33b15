"""`fairlead workspace`: workspaces made from templates, waited for and deleted."""

from typing import Any

import pytest

from tests.client.test_watch import END, lines
from tests.harness.cli import CliFixture, parse_yaml
from tests.harness.fake_server import M, named

PLACE = f"{M}/namespaces/service-p-demo/devpodworkspaceinstances"
CREATE = ("workspace", "create", "desk", "--project", "demo", "--template")


def workspace(**status: Any) -> dict[str, Any]:
    made = named("desk", kind="DevPodWorkspaceInstance", spec={"runnerRef": {"runner": "dock"}}, status=status)
    made["metadata"] |= {"uid": "1", "namespace": "service-p-demo"}
    return made


def changed(**status: Any) -> dict[str, Any]:
    return {"type": "MODIFIED", "object": workspace(**status)}


@pytest.fixture
def ada(user: CliFixture) -> CliFixture:
    user.fake.on("POST", PLACE, (201, workspace()))
    user.fake.on("GET", f"{PLACE}/desk", (200, workspace()))
    user.fake.on("DELETE", f"{PLACE}/desk", (200, workspace()))
    return user


def test_a_workspace_is_made_from_a_version_with_parameters(ada: CliFixture) -> None:
    flags = ("--parameter", "size=3", "--parameter", "url=a=b", "--runner", "dock", "--display-name", "CliFixture")
    assert ada.type(*CREATE, "python@1.2.x", *flags, "-o", "name").out == "devpodworkspaceinstance/desk\n"
    assert ada.type(*CREATE, "python").code == 0
    first, second = (each.body["spec"] for each in ada.fake.asked("POST", PLACE))
    assert parse_yaml(first.pop("parameters")) == {"size": "3", "url": "a=b"}
    assert first == {
        "displayName": "CliFixture",
        "templateRef": {"name": "python", "version": "1.2.x"},
        "runnerRef": {"runner": "dock"},
    }
    assert second == {"templateRef": {"name": "python"}}


@pytest.mark.parametrize("given", [("size",), ("=3",), ("size=1", "size=2")])
def test_a_parameter_without_a_value_makes_no_workspace(ada: CliFixture, given: tuple[str, ...]) -> None:
    flags = [part for each in given for part in ("--parameter", each)]
    ended = ada.type(*CREATE, "python", *flags)
    assert ended.code == 2
    assert ended.err.startswith("fairlead: ")
    assert ada.fake.asked("POST", PLACE) == []


def test_waiting_tells_each_phase_and_ends_with_the_last(ada: CliFixture) -> None:
    there = {"type": "ADDED", "object": workspace()}
    pending = changed(phase="Pending", reason="Scheduling", message="looking for a runner")
    ada.fake.on("GET", PLACE, lines(there, END, pending, changed(phase="Ready")))
    ended = ada.type(*CREATE, "python", "--wait")
    assert ended.code == 0
    assert ended.err.splitlines() == [
        "created the workspace desk in the project demo",
        "waiting for desk",
        "desk is Pending",
        "desk is Pending (Scheduling: looking for a runner)",
        "the workspace desk is Ready",
    ]


@pytest.mark.parametrize(
    "status",
    [{"phase": "Failed"}, {"phase": "Pending", "conditions": [{"type": "Stalled", "status": "True"}]}],
)
def test_what_cannot_come_up_is_a_failure_with_its_reason(ada: CliFixture, status: dict[str, Any]) -> None:
    ada.fake.on("GET", PLACE, lines(changed(**status, reason="VersionError", message="no such version"), END))
    ended = ada.type(*CREATE, "python", "--wait")
    assert ended.code == 1
    assert "VersionError: no such version" in ended.err


def test_a_workspace_that_is_deleted_meanwhile_is_told(ada: CliFixture) -> None:
    ada.fake.on("GET", PLACE, lines(END))
    ended = ada.type(*CREATE, "python", "--wait")
    assert ended.code == 1
    assert "was deleted while waiting" in ended.err


def test_a_deletion_waits_for_the_runner(ada: CliFixture) -> None:
    ada.fake.on("GET", PLACE, lines(changed(), END, {"type": "DELETED", "object": workspace()}))
    ended = ada.type("workspace", "delete", "desk", "--project", "demo")
    assert "waiting for the runner dock" in ended.err
    assert ended.err.endswith("the workspace desk is deleted\n")
    assert "being deleted" in ada.type("workspace", "delete", "desk", "--project", "demo", "--no-wait").err
