"""Runners: silent until they report, failed without their cluster, and never ended."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.controllers.workspaces.runners import RunnerController
from fairlead.core.objects import Object
from fairlead.registry.kind import MANAGEMENT_GROUP
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.registry import RegistryFixture, as_ada


@pytest.fixture
async def working(api: RegistryFixture) -> AsyncIterator[RegistryFixture]:
    async with running_controllers(api, RunnerController(api.registry, MANAGEMENT_GROUP)):
        yield api


def status(api: RegistryFixture) -> Object:
    found = api.see("Runner", "r")
    assert found is not None
    return found.get("status") or {}


def state(api: RegistryFixture, type: str) -> tuple[str, str]:
    found = status(api).get("conditions") or ()
    return next(((each["status"], each["reason"]) for each in found if each["type"] == type), ("", ""))


async def report(api: RegistryFixture, **fields: Any) -> None:
    def edit(obj: Object) -> None:
        obj["status"] = {**(obj.get("status") or {}), **fields}

    await api.patch("Runner", "r", edit, as_ada(subresource="status"))


async def test_a_new_runner_is_waited_for_and_says_how_to_start_it(working: RegistryFixture) -> None:
    await working.create("Runner", "r")
    await eventually(lambda: state(working, "Ready") == ("False", "NotReported"))
    assert status(working)["phase"] == ""
    assert "fairlead runner key r" in status(working)["message"]
    assert state(working, "Deployed") == ("False", "NotReported")
    assert state(working, "Reconciling")[0] == "True"
    assert status(working)["observedGeneration"] == 1


async def test_a_runner_that_has_reported_is_ready(working: RegistryFixture) -> None:
    await working.create("Runner", "r")
    await eventually(lambda: state(working, "Ready")[0])
    await report(working, phase="Initialized")
    await eventually(lambda: state(working, "Ready") == ("True", "Reported"))
    assert (status(working)["phase"], status(working)["reason"]) == ("Initialized", "")
    assert state(working, "Deployed") == ("True", "Reported")
    assert state(working, "Reconciling") == ("", "")


async def test_a_runner_says_itself_that_it_has_failed(working: RegistryFixture) -> None:
    await working.create("Runner", "r")
    await report(working, phase="Failed", reason="NoDisk", message="the disk is full")
    await eventually(lambda: state(working, "Stalled") == ("True", "NoDisk"))
    await asyncio.sleep(60)
    assert (status(working)["phase"], status(working)["reason"]) == ("Failed", "NoDisk")


async def test_a_runner_fails_without_its_cluster_until_that_is_connected(working: RegistryFixture) -> None:
    await working.create("Runner", "r", spec={"clusterRef": {"cluster": "berlin"}})
    await eventually(lambda: status(working).get("phase") == "Failed")
    assert state(working, "Deployed") == ("False", "ClusterNotFound")
    await working.create("Cluster", "berlin")
    await eventually(lambda: state(working, "Ready") == ("False", "NotReported"))
    assert status(working)["phase"] == ""


async def test_a_runner_that_is_up_stays_up_when_its_cluster_is_taken_away(working: RegistryFixture) -> None:
    await working.create("Cluster", "berlin")
    await working.create("Runner", "r", spec={"clusterRef": {"cluster": "berlin"}})
    await report(working, phase="Initialized")
    await eventually(lambda: state(working, "Ready")[0] == "True")
    await working.delete("Cluster", "berlin")
    await eventually(lambda: state(working, "Deployed") == ("False", "ClusterNotFound"))
    assert status(working)["phase"] == "Initialized"


async def test_a_runner_at_rest_is_not_written_again(working: RegistryFixture) -> None:
    await working.create("Runner", "r")
    await eventually(lambda: state(working, "Ready")[0])
    revision = await working.store.revision()
    await asyncio.sleep(3_000)
    assert await working.store.revision() == revision
