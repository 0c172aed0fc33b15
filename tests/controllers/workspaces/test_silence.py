"""A runner that does not renew its Lease: the conditions of the runner and its workspaces, scheduling, and deletion."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from fairlead.controllers.workspaces.runners import SILENT_SECONDS, RunnerController
from fairlead.controllers.workspaces.workspaces import FINALIZER, WorkspaceController
from fairlead.core.clock import micro_timestamp
from fairlead.core.objects import Object
from fairlead.kinds.clusters.runner import HEARTBEAT_NAMESPACE, heartbeat_lease
from fairlead.kinds.projects.project import NAMESPACE_PREFIX
from fairlead.registry.codec import decode
from fairlead.registry.conditions import find_condition
from fairlead.registry.kind import MANAGEMENT_GROUP
from fairlead.registry.write_options import DeleteOptions
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.registry import RegistryFixture, write_options

NAMESPACE = f"{NAMESPACE_PREFIX}p"
KIND = "DevPodWorkspaceInstance"


def build_controllers(api: RegistryFixture) -> tuple[WorkspaceController, RunnerController]:
    return (
        WorkspaceController(api.registry, MANAGEMENT_GROUP, NAMESPACE_PREFIX),
        RunnerController(api.registry, MANAGEMENT_GROUP),
    )


@pytest.fixture
async def server(api: RegistryFixture) -> AsyncIterator[RegistryFixture]:
    await api.create("Project", "p")
    async with running_controllers(api, *build_controllers(api)):
        yield api


def find_object(api: RegistryFixture, kind: str, name: str, namespace: str) -> Object | None:
    entry = api.resource(kind).get_cached(namespace, name)
    return decode(entry) if entry is not None else None


async def renew_lease(api: RegistryFixture, runner: str = "a", skew: float = 0.0) -> None:
    """Renews the Lease of a runner whose clock is ahead by `skew` seconds."""
    name, renewed = heartbeat_lease(runner), micro_timestamp(api.clock.now() + timedelta(seconds=skew))
    if find_object(api, "Lease", name, HEARTBEAT_NAMESPACE) is None:
        await api.create("Lease", name, HEARTBEAT_NAMESPACE, spec={"renewTime": renewed})
    else:
        await api.resource("Lease").modify(
            HEARTBEAT_NAMESPACE, name, lambda old: {**old, "spec": {"renewTime": renewed}}, write_options()
        )


async def report(api: RegistryFixture, kind: str, name: str, namespace: str, **status: str) -> None:
    def edit(old: Object) -> Object:
        return {**old, "status": {**(old.get("status") or {}), **status}}

    await api.resource(kind).modify(namespace, name, edit, write_options(subresource="status"))


def ready(api: RegistryFixture, kind: str = KIND, name: str = "w", namespace: str = NAMESPACE) -> tuple[str, str]:
    found = find_object(api, kind, name, namespace)
    condition = find_condition((found or {}).get("status"), "Ready") or {}
    return condition.get("status") or "", condition.get("reason") or ""


def runner_ready(api: RegistryFixture, name: str = "a") -> tuple[str, str]:
    return ready(api, "Runner", name, "")


async def start_workspace(api: RegistryFixture) -> None:
    """Runner `a` with a Lease, and a workspace that runs on it."""
    await api.create("Namespace", HEARTBEAT_NAMESPACE)
    await api.create("Runner", "a")
    await renew_lease(api)
    await report(api, "Runner", "a", "", phase="Initialized")
    await api.create(KIND, "w", NAMESPACE, spec={"runnerRef": {"runner": "a"}})
    await eventually(lambda: ready(api) == ("False", "WaitingForRunner"))
    await report(api, KIND, "w", NAMESPACE, phase="Ready", lastWorkspaceStatus="Running")
    await eventually(lambda: ready(api) == ("True", "Running"))


async def test_a_workspace_of_a_silent_runner_is_unknown_and_keeps_its_phase(server: RegistryFixture) -> None:
    await start_workspace(server)
    await asyncio.sleep(SILENT_SECONDS - 2)
    assert ready(server) == ("True", "Running")
    await asyncio.sleep(3)
    assert runner_ready(server) == ("Unknown", "Silent")
    assert ready(server) == ("Unknown", "RunnerSilent")
    workspace = find_object(server, KIND, "w", NAMESPACE) or {}
    assert (workspace["status"]["phase"], workspace["status"]["lastWorkspaceStatus"]) == ("Ready", "Running")
    assert "has not responded since" in (find_condition(workspace["status"], "Ready") or {})["message"]
    assert (find_object(server, "Runner", "a", "") or {})["status"]["phase"] == "Initialized"


async def test_the_next_heartbeat_ends_the_silence(server: RegistryFixture) -> None:
    await start_workspace(server)
    await eventually(lambda: ready(server) == ("Unknown", "RunnerSilent"))
    await renew_lease(server)
    await eventually(lambda: ready(server) == ("True", "Running"))
    assert runner_ready(server) == ("True", "Reported")


async def test_heartbeats_prevent_the_silence(server: RegistryFixture) -> None:
    await start_workspace(server)
    for _ in range(30):
        await asyncio.sleep(10)
        await renew_lease(server)
        assert ready(server) == ("True", "Running")


@pytest.mark.parametrize("skew", [-7200.0, 7200.0])
async def test_the_clock_of_the_runner_does_not_matter(server: RegistryFixture, skew: float) -> None:
    await start_workspace(server)
    for _ in range(10):
        await asyncio.sleep(10)
        await renew_lease(server, skew=skew)
        await asyncio.sleep(0.1)
        assert ready(server) == ("True", "Running")
    await asyncio.sleep(SILENT_SECONDS + 1)
    assert ready(server) == ("Unknown", "RunnerSilent")


async def test_silence_survives_a_restart_of_the_server(api: RegistryFixture) -> None:
    await api.create("Project", "p")
    async with running_controllers(api, *build_controllers(api)):
        await start_workspace(api)
        await eventually(lambda: ready(api) == ("Unknown", "RunnerSilent"))
    revision = await api.store.revision()
    async with running_controllers(api, *build_controllers(api)):
        await asyncio.sleep(300)
        assert ready(api) == ("Unknown", "RunnerSilent")
        assert await api.store.revision() == revision


async def test_a_runner_without_a_lease_is_never_silent(server: RegistryFixture) -> None:
    await server.create("Runner", "a")
    await report(server, "Runner", "a", "", phase="Initialized")
    await asyncio.sleep(3600)
    assert runner_ready(server) == ("True", "Reported")


async def test_a_silent_or_failed_runner_gets_no_new_workspaces(server: RegistryFixture) -> None:
    await start_workspace(server)
    await eventually(lambda: runner_ready(server) == ("Unknown", "Silent"))
    await server.create(KIND, "new", NAMESPACE, spec={})
    await eventually(lambda: ready(server, name="new") == ("False", "NoRunnerResponding"))
    await server.create("Runner", "b")
    await eventually(lambda: ready(server, name="new") == ("False", "RunnerNotStarted"))
    assert (find_object(server, KIND, "new", NAMESPACE) or {})["spec"]["runnerRef"] == {"runner": "b"}
    await report(server, "Runner", "b", "", phase="Failed", reason="EngineMissing")
    await server.create(KIND, "newer", NAMESPACE, spec={})
    await eventually(lambda: ready(server, name="newer") == ("False", "NoRunnerResponding"))
    await renew_lease(server)
    await eventually(lambda: ready(server, name="newer") == ("False", "WaitingForRunner"))
    assert (find_object(server, KIND, "newer", NAMESPACE) or {})["spec"]["runnerRef"] == {"runner": "a"}


async def test_a_runner_that_has_reported_is_preferred(server: RegistryFixture) -> None:
    await server.create("Runner", "a")
    await server.create("Runner", "z")
    await report(server, "Runner", "z", "", phase="Initialized")
    await server.create(KIND, "w", NAMESPACE, spec={})
    await eventually(lambda: ready(server) == ("False", "WaitingForRunner"))
    assert (find_object(server, KIND, "w", NAMESPACE) or {})["spec"]["runnerRef"] == {"runner": "z"}


async def test_deletion_waits_for_a_live_runner_but_not_for_a_silent_one(server: RegistryFixture) -> None:
    await start_workspace(server)
    await eventually(
        lambda: FINALIZER in (find_object(server, KIND, "w", NAMESPACE) or {})["metadata"].get("finalizers", ())
    )
    await server.resource(KIND).delete(NAMESPACE, "w", DeleteOptions(), write_options())
    await asyncio.sleep(30)
    assert find_object(server, KIND, "w", NAMESPACE) is not None
    await eventually(lambda: find_object(server, KIND, "w", NAMESPACE) is None)
    events = [each for each in await list_events(server) if each["reason"] == "RunnerSilent"]
    assert len(events) == 1 and events[0]["type"] == "Warning"
    assert "when it responds again" in events[0]["message"]


async def list_events(api: RegistryFixture) -> list[Object]:
    return [
        find_object(api, "Event", entry.key[3], entry.key[2]) or {}
        for entry in api.view.entries("", "events", NAMESPACE)
    ]
