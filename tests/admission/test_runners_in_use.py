"""Runners with workspaces: they are deleted only if what they have is to be left behind."""

from collections.abc import AsyncIterator

import pytest

from fairlead.admission.runners import prevent_runner_deletion_while_used
from fairlead.core.call import Decision, RequestInfo
from fairlead.core.errors import Conflict
from fairlead.core.objects import Object
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from tests.harness.registry import RegistryFixture, open_registry

WORKSPACE = "DevPodWorkspaceInstance"


def authorize(user: User, target: RequestInfo) -> Decision:
    assert (target.verb, target.resource) == ("get", "devpodworkspaceinstances")
    return Decision(not target.name.startswith("secret"))


@pytest.fixture
async def api() -> AsyncIterator[RegistryFixture]:
    async with open_registry(rules=(prevent_runner_deletion_while_used(authorize, GROUP),)) as fixture:
        for name in ("r", "other"):
            await fixture.create("Runner", name)
        yield fixture


async def create_workspaces(api: RegistryFixture, *names: str, runner: str = "r") -> None:
    for name in names:
        await api.create(WORKSPACE, name, spec={"runnerRef": {"runner": runner}})


def abandon(runner: Object) -> None:
    runner["metadata"]["annotations"] = {"service.sh/abandon": "true"}


async def test_a_runner_with_workspaces_is_not_deleted_and_the_error_names_them_and_the_way_out(
    api: RegistryFixture,
) -> None:
    await create_workspaces(api, "one", "secret-two")
    with pytest.raises(Conflict) as error:
        await api.delete("Runner", "r")
    assert "the devpodworkspaceinstances demo/one and 1 more are on it; delete them first" in error.value.message
    assert "service.sh/abandon=true" in error.value.message
    assert "fairlead runner delete --abandon" in error.value.message
    assert api.get("Runner", "r") is not None


async def test_a_runner_without_workspaces_is_deleted(api: RegistryFixture) -> None:
    await create_workspaces(api, "one", runner="other")
    assert (await api.delete("Runner", "r")).is_removed


async def test_a_runner_is_deleted_after_its_last_workspace(api: RegistryFixture) -> None:
    await create_workspaces(api, "one")
    await api.delete(WORKSPACE, "one")
    assert (await api.delete("Runner", "r")).is_removed


async def test_a_runner_whose_workspaces_are_abandoned_is_deleted(api: RegistryFixture) -> None:
    await create_workspaces(api, "one")
    await api.patch("Runner", "r", abandon)
    assert (await api.delete("Runner", "r")).is_removed
    assert api.get(WORKSPACE, "one") is not None


async def test_the_server_itself_deletes_any_runner(api: RegistryFixture) -> None:
    await create_workspaces(api, "one")
    assert (await api.delete("Runner", "r", user=CONTROLLER_USER)).is_removed
