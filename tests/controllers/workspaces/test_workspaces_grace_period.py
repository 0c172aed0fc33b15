"""What a new workspace needs, and does not exist, is reported after a grace period: runner, project, template."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from fairlead.controllers.instances.prerequisites import MISSING_GRACE_SECONDS, InstanceConfig
from fairlead.controllers.instances.templates import InstanceTemplateController
from fairlead.controllers.workspaces.workspaces import WorkspaceController
from fairlead.core.objects import Object, get_path
from fairlead.domain.cluster_identity import ClusterIdentityMapper
from fairlead.kinds.projects.project import NAMESPACE_PREFIX
from fairlead.registry.codec import decode
from fairlead.registry.conditions import find_condition
from fairlead.registry.kind import MANAGEMENT_GROUP
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.registry import RegistryFixture

NAMESPACE = f"{NAMESPACE_PREFIX}p"
KIND = "DevPodWorkspaceInstance"
IN_GRACE_SECONDS = MISSING_GRACE_SECONDS - 1.5
"""A time within the grace period: timestamps have a precision of seconds."""


@pytest.fixture
async def server(api: RegistryFixture) -> AsyncIterator[RegistryFixture]:
    await api.create("Project", "p")
    config = InstanceConfig(MANAGEMENT_GROUP, NAMESPACE_PREFIX, ClusterIdentityMapper("fairlead:"))
    controllers = (
        WorkspaceController(api.registry, MANAGEMENT_GROUP, NAMESPACE_PREFIX),
        InstanceTemplateController(api.registry, config),
    )
    async with running_controllers(api, *controllers):
        yield api


def get_workspace(api: RegistryFixture, namespace: str = NAMESPACE) -> Object:
    entry = api.resource(KIND).get_cached(namespace, "w")
    assert entry is not None
    return decode(entry)


def condition_status(api: RegistryFixture, type: str, namespace: str = NAMESPACE) -> tuple[str, str]:
    """The status and reason of a condition."""
    found = find_condition(get_workspace(api, namespace).get("status"), type) or {}
    return found.get("status") or "", found.get("reason") or ""


async def test_a_missing_runner_is_reported_with_what_to_do(server: RegistryFixture) -> None:
    await server.create(KIND, "w", NAMESPACE, spec={})
    await eventually(lambda: condition_status(server, "Scheduled") == ("False", "NoRunner"))
    status = get_workspace(server)["status"]
    assert (status["phase"], status["reason"]) == ("Pending", "NoRunner")
    assert "fairlead runner create" in status["message"]
    assert condition_status(server, "Ready") == ("False", "NoRunner")
    assert condition_status(server, "Stalled") == ("True", "NoRunner")
    await server.create("Runner", "a")
    await eventually(lambda: condition_status(server, "Scheduled") == ("True", "Scheduled"))
    await server.delete("Runner", "a")
    await eventually(lambda: condition_status(server, "Scheduled") == ("False", "RunnerNotFound"))


@pytest.mark.parametrize("namespace", [NAMESPACE, "default"])
async def test_a_new_workspace_stays_as_it_was_created_for_the_grace_period(
    server: RegistryFixture, namespace: str
) -> None:
    before = await server.create(KIND, "w", namespace, spec={"templateRef": {"name": "missing"}})
    await asyncio.sleep(IN_GRACE_SECONDS)
    assert get_workspace(server, namespace) == before


async def test_a_runner_that_is_created_in_the_grace_period_is_used_at_once(server: RegistryFixture) -> None:
    await server.create(KIND, "w", NAMESPACE, spec={})
    await server.create("Runner", "a")
    await eventually(lambda: condition_status(server, "Scheduled") == ("True", "Scheduled"), seconds=1)
    assert [decode(entry)["reason"] for entry in server.view.entries("", "events")] == ["Scheduled"]


async def test_a_missing_template_is_reported(server: RegistryFixture) -> None:
    await server.create(KIND, "w", NAMESPACE, spec={"templateRef": {"name": "t"}})
    await eventually(lambda: condition_status(server, "TemplateResolved") == ("False", "TemplateNotFound"))


async def test_a_template_that_is_created_in_the_grace_period_is_used_at_once(server: RegistryFixture) -> None:
    await server.create(KIND, "w", NAMESPACE, spec={"templateRef": {"name": "t"}})
    await server.create("DevPodWorkspaceTemplate", "t", spec={"template": {"provider": {"name": "docker"}}})
    await eventually(lambda: condition_status(server, "TemplateResolved") == ("True", "Resolved"), seconds=1)


async def test_a_workspace_outside_of_projects_is_pending(server: RegistryFixture) -> None:
    await server.create("Runner", "a")
    await server.create(KIND, "w", spec={})
    await eventually(lambda: get_path(server.get(KIND, "w"), "status.reason") == "NoProject")
    assert get_path(server.get(KIND, "w"), "status.phase") == "Pending"
    assert get_path(server.get(KIND, "w"), "spec.runnerRef.runner") is None


async def test_a_workspace_outside_of_projects_that_names_its_runner_is_not_changed(server: RegistryFixture) -> None:
    await server.create("Runner", "a")
    before = await server.create(KIND, "w", spec={"runnerRef": {"runner": "a"}})
    await asyncio.sleep(60)
    assert server.get(KIND, "w") == before
