"""Tests of `fairlead.controllers.workspaces.runners`: the status of runners, and their clusters."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.controllers.workspaces.runners import RunnerController
from fairlead.core.objects import Object
from fairlead.registry.codec import decode
from fairlead.registry.kind import MANAGEMENT_GROUP
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.registry import RegistryFixture, write_options


@pytest.fixture
async def server(api: RegistryFixture) -> AsyncIterator[RegistryFixture]:
    async with running_controllers(api, RunnerController(api.registry, MANAGEMENT_GROUP)):
        yield api


def runner_status(api: RegistryFixture) -> Object:
    runner = api.get("Runner", "r")
    assert runner is not None
    return runner.get("status") or {}


def condition_status(api: RegistryFixture, type: str) -> tuple[str, str]:
    conditions = runner_status(api).get("conditions") or ()
    return next(
        ((condition["status"], condition["reason"]) for condition in conditions if condition["type"] == type), ("", "")
    )


async def report_status(api: RegistryFixture, **fields: Any) -> None:
    def edit(obj: Object) -> None:
        obj["status"] = {**(obj.get("status") or {}), **fields}

    await api.patch("Runner", "r", edit, write_options(subresource="status"))


async def test_a_new_runner_is_not_reported_and_its_message_names_the_start_command(server: RegistryFixture) -> None:
    await server.create("Runner", "r")
    await eventually(lambda: condition_status(server, "Ready") == ("False", "NotReported"))
    assert runner_status(server)["phase"] == ""
    assert "fairlead runner start r" in runner_status(server)["message"]
    assert condition_status(server, "Deployed") == ("False", "NotReported")
    assert condition_status(server, "Reconciling")[0] == "True"
    assert runner_status(server)["observedGeneration"] == 1


async def test_a_runner_that_has_reported_is_ready(server: RegistryFixture) -> None:
    await server.create("Runner", "r")
    await eventually(lambda: condition_status(server, "Ready")[0] == "False")
    await report_status(server, phase="Initialized")
    await eventually(lambda: condition_status(server, "Ready") == ("True", "Reported"))
    assert (runner_status(server)["phase"], runner_status(server)["reason"]) == ("Initialized", "")
    assert condition_status(server, "Deployed") == ("True", "Reported")
    assert condition_status(server, "Reconciling") == ("", "")


async def test_a_runner_can_report_a_failure(server: RegistryFixture) -> None:
    await server.create("Runner", "r")
    await report_status(server, phase="Failed", reason="NoDisk", message="the disk is full")
    await eventually(lambda: condition_status(server, "Stalled") == ("True", "NoDisk"))
    await asyncio.sleep(60)
    assert (runner_status(server)["phase"], runner_status(server)["reason"]) == ("Failed", "NoDisk")


async def test_a_runner_without_its_cluster_fails_until_the_cluster_exists(server: RegistryFixture) -> None:
    await server.create("Runner", "r", spec={"clusterRef": {"cluster": "berlin"}})
    await eventually(lambda: runner_status(server).get("phase") == "Failed")
    assert condition_status(server, "Deployed") == ("False", "ClusterNotFound")
    await server.create("Cluster", "berlin")
    await eventually(lambda: condition_status(server, "Ready") == ("False", "NotReported"))
    assert runner_status(server)["phase"] == ""


async def test_a_ready_runner_stays_initialized_when_its_cluster_is_deleted(server: RegistryFixture) -> None:
    await server.create("Cluster", "berlin")
    await server.create("Runner", "r", spec={"clusterRef": {"cluster": "berlin"}})
    await report_status(server, phase="Initialized")
    await eventually(lambda: condition_status(server, "Ready")[0] == "True")
    await server.delete("Cluster", "berlin")
    await eventually(lambda: condition_status(server, "Deployed") == ("False", "ClusterNotFound"))
    assert runner_status(server)["phase"] == "Initialized"


async def test_an_unchanged_runner_is_not_written_again(server: RegistryFixture) -> None:
    await server.create("Runner", "r")
    await eventually(lambda: condition_status(server, "Ready")[0] == "False")
    revision = await server.store.revision()
    await asyncio.sleep(3_000)
    assert await server.store.revision() == revision


async def test_little_and_too_little_disk_are_events_once_each(server: RegistryFixture) -> None:
    await server.create("Runner", "r")
    for status, reason in (("True", "DiskLow"), ("True", "DiskLow"), ("False", "DiskFull"), ("True", "Available")):
        condition = {"type": "DiskAvailable", "status": status, "reason": reason, "message": f"about {reason}"}
        await eventually(lambda: condition_status(server, "Ready")[0] == "False")
        kept = [each for each in runner_status(server)["conditions"] if each["type"] != "DiskAvailable"]
        await report_status(server, conditions=[*kept, condition])
        await asyncio.sleep(5)
        assert condition_status(server, "DiskAvailable") == (status, reason), "the controller must keep it"
    entries = server.registry.view.entries("", "events")
    found = sorted((event["reason"], event["message"]) for event in map(decode, entries))
    assert found == [("DiskFull", "about DiskFull"), ("DiskLow", "about DiskLow")]


async def test_workspaces_that_the_server_does_not_have_are_one_event(server: RegistryFixture) -> None:
    await server.create("Runner", "r")
    await eventually(lambda: condition_status(server, "Ready")[0] == "False")
    for reason, message in (("Orphaned", "one"), ("Orphaned", "one, two"), ("Known", "")):
        status = "False" if reason == "Orphaned" else "True"
        condition = {"type": "WorkspacesKnown", "status": status, "reason": reason, "message": message}
        kept = [each for each in runner_status(server)["conditions"] if each["type"] != "WorkspacesKnown"]
        await report_status(server, conditions=[*kept, condition])
        await asyncio.sleep(5)
        assert condition_status(server, "WorkspacesKnown") == (status, reason), "the controller must keep it"
    entries = server.registry.view.entries("", "events")
    assert [(event["reason"], event["message"]) for event in map(decode, entries)] == [("Orphaned", "one")]
