"""The controller that cleans up after moves, on virtual time."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.controllers.workspaces.moves import MoveController
from fairlead.core.errors import Unavailable
from fairlead.core.objects import Object, get_path
from fairlead.core.workspaces import MOVED_FROM_ANNOTATION
from fairlead.links.requests import OpenRequest
from fairlead.registry.codec import decode
from fairlead.registry.kind import MANAGEMENT_GROUP
from fairlead.registry.write_options import server_write_options
from tests.harness.controllers import running_controllers
from tests.harness.registry import RegistryFixture

NAMESPACE, KIND = "moves", "DevPodWorkspaceInstance"
RUNS: dict[str, Any] = {"container": {"state": "Running"}, "tasks": [{"type": "up", "status": "Succeeded"}]}
READY = [{"type": "Ready", "status": "True", "reason": "Running"}]


class Runners:
    """What runners respond to the server. Those in `silent` do not."""

    def __init__(self) -> None:
        self.report: dict[str, Any] = RUNS
        self.silent: set[str] = set()
        self.discarded: list[str] = []
        self.retained: list[str] = []

    async def ask(self, request: OpenRequest) -> dict[str, Any]:
        if request.runner in self.silent:
            raise Unavailable(f"{request.runner} is not connected")
        if request.action == "discard":
            self.discarded.append(request.runner)
            return {}
        if request.action == "retain":
            self.retained.append(request.runner)
            return {}
        assert (request.action, request.runner) == ("troubleshoot", "new")
        return self.report


@pytest.fixture
def runners() -> Runners:
    return Runners()


@pytest.fixture
async def server(api: RegistryFixture, runners: Runners) -> AsyncIterator[RegistryFixture]:
    await api.create("Namespace", NAMESPACE)
    for name in ("old", "older"):
        await api.create("Runner", name, spec={})
    async with running_controllers(api, MoveController(api.registry, MANAGEMENT_GROUP, runners.ask)):
        yield api


async def create(api: RegistryFixture, former: str = "old", conditions: list[dict[str, Any]] = READY) -> None:
    spec = {"runnerRef": {"runner": "new"}}
    annotations = {MOVED_FROM_ANNOTATION: former}
    await api.create(KIND, "dev", NAMESPACE, spec=spec, metadata={"annotations": annotations})
    await report(api, conditions)


async def report(api: RegistryFixture, conditions: list[dict[str, Any]]) -> None:
    def edit(workspace: Object) -> Object:
        return {**workspace, "status": {"conditions": conditions}}

    await api.resource(KIND).modify(NAMESPACE, "dev", edit, server_write_options("status"))


def moved_from(api: RegistryFixture) -> str:
    entry = api.resource(KIND).get_cached(NAMESPACE, "dev")
    assert entry is not None
    return str((get_path(decode(entry), "metadata.annotations") or {}).get(MOVED_FROM_ANNOTATION) or "")


async def test_the_former_runners_clean_up_when_it_runs_on_the_new_one(
    server: RegistryFixture, runners: Runners
) -> None:
    await create(server, "old,older")
    await asyncio.sleep(1)
    assert (sorted(runners.discarded), moved_from(server)) == (["old", "older"], "")


async def test_nothing_is_discarded_before_it_is_ready(server: RegistryFixture, runners: Runners) -> None:
    await create(server, conditions=[{**READY[0], "status": "False"}])
    await asyncio.sleep(3600)
    assert (runners.discarded, moved_from(server)) == ([], "old")
    assert len(runners.retained) >= 50
    await report(server, READY)
    await asyncio.sleep(1)
    assert (runners.discarded, moved_from(server)) == (["old"], "")


@pytest.mark.parametrize(
    "said",
    [
        {},
        {**RUNS, "container": None},
        {**RUNS, "container": {"state": "Stopped"}},
        {**RUNS, "tasks": []},
        {**RUNS, "tasks": [*RUNS["tasks"], {"type": "up", "status": "Failed"}]},
        {**RUNS, "tasks": [*RUNS["tasks"], {"type": "up", "status": "Running"}]},
    ],
)
async def test_nothing_is_discarded_unless_the_new_runner_says_that_it_runs(
    server: RegistryFixture, runners: Runners, said: dict[str, Any]
) -> None:
    runners.report = said
    await create(server)
    await asyncio.sleep(100)
    assert (runners.discarded, moved_from(server)) == ([], "old")
    runners.report = RUNS
    await asyncio.sleep(100)
    assert (runners.discarded, moved_from(server)) == (["old"], "")


async def test_a_former_runner_that_does_not_respond_is_requested_until_it_does(
    server: RegistryFixture, runners: Runners
) -> None:
    runners.silent = {"old"}
    await create(server, "old,older")
    await asyncio.sleep(3600)
    assert (runners.discarded, moved_from(server)) == (["older"], "old")
    runners.silent = set()
    await asyncio.sleep(100)
    assert (runners.discarded, moved_from(server)) == (["older", "old"], "")


async def test_a_former_runner_that_does_not_exist_is_forgotten(server: RegistryFixture, runners: Runners) -> None:
    runners.silent = {"gone"}
    await create(server, "gone")
    await asyncio.sleep(1)
    assert (runners.discarded, moved_from(server)) == ([], "")
