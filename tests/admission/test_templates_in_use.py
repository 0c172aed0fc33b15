"""Deletion of templates: a template that instances use cannot be deleted."""

from collections.abc import AsyncIterator

import pytest

from fairlead.admission.objects_in_use import prevent_deletion_while_used
from fairlead.core.call import Decision, RequestInfo
from fairlead.core.errors import Conflict
from fairlead.core.user import User
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from tests.harness.registry import RegistryFixture, open_registry

KINDS = {
    "SpaceInstance": "SpaceTemplate",
    "VirtualClusterInstance": "VirtualClusterTemplate",
    "DevPodWorkspaceInstance": "DevPodWorkspaceTemplate",
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def authorize(user: User, target: RequestInfo) -> Decision:
    return Decision(not target.name.startswith("secret"))


@pytest.fixture
async def api() -> AsyncIterator[RegistryFixture]:
    async with open_registry(rules=(prevent_deletion_while_used(authorize, GROUP),)) as fixture:
        for kind in KINDS.values():
            await fixture.create(kind, "t", spec={})
        await fixture.create("DevPodEnvironmentTemplate", "e", spec={"template": {"inline": "{}"}})
        yield fixture


async def create_instances(api: RegistryFixture, kind: str, *names: str, template: str = "t") -> None:
    for name in names:
        await api.create(kind, name, spec={"templateRef": {"name": template}})


@every_kind
async def test_a_template_in_use_is_not_deleted_and_the_error_names_its_users(api: RegistryFixture, kind: str) -> None:
    await create_instances(api, kind, "one", "two")
    with pytest.raises(Conflict) as error:
        await api.delete(KINDS[kind], "t")
    assert "demo/one, demo/two are using it" in error.value.message
    assert api.get(KINDS[kind], "t") is not None


@every_kind
async def test_an_unused_template_can_be_deleted(api: RegistryFixture, kind: str) -> None:
    await create_instances(api, kind, "one", template="other")
    await create_instances(api, next(each for each in KINDS if each != kind), "one")
    assert (await api.delete(KINDS[kind], "t")).is_removed


async def test_ten_instances_are_named_and_the_rest_are_counted(api: RegistryFixture) -> None:
    await create_instances(api, "SpaceInstance", *(f"s{number:02}" for number in range(13)))
    with pytest.raises(Conflict) as error:
        await api.delete("SpaceTemplate", "t")
    assert "demo/s09 and 3 more are" in error.value.message
    assert "s10" not in error.value.message


async def test_instances_that_the_requester_may_not_read_are_only_counted(api: RegistryFixture) -> None:
    await create_instances(api, "SpaceInstance", "secret-one")
    with pytest.raises(Conflict) as error:
        await api.delete("SpaceTemplate", "t")
    assert (
        "1 of the spaceinstances is using it; delete it or switch it to another template first" in error.value.message
    )
    assert "secret-one" not in error.value.message


async def test_a_template_can_be_deleted_after_its_last_instance(api: RegistryFixture) -> None:
    await create_instances(api, "SpaceInstance", "one")
    await api.delete("SpaceInstance", "one")
    assert (await api.delete("SpaceTemplate", "t")).is_removed


async def test_an_environment_in_use_is_not_deleted(api: RegistryFixture) -> None:
    await api.create("DevPodWorkspaceInstance", "one", spec={"environmentRef": {"name": "e"}})
    with pytest.raises(Conflict) as error:
        await api.delete("DevPodEnvironmentTemplate", "e")
    assert "demo/one is using it; delete it or switch it to another environment first" in error.value.message
    await api.delete("DevPodWorkspaceInstance", "one")
    assert (await api.delete("DevPodEnvironmentTemplate", "e")).is_removed
