from collections.abc import AsyncIterator

import pytest

from fairlead.admission.templates import prevent_deletion_while_used
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


def sees(user: User, target: RequestInfo) -> Decision:
    return Decision(not target.name.startswith("secret"))


@pytest.fixture
async def api() -> AsyncIterator[RegistryFixture]:
    async with open_registry(rules=(prevent_deletion_while_used(sees, GROUP),)) as made:
        for kind in KINDS.values():
            await made.create(kind, "t", spec={})
        yield made


async def use(api: RegistryFixture, kind: str, *names: str, template: str = "t") -> None:
    for name in names:
        await api.create(kind, name, spec={"templateRef": {"name": template}})


@every_kind
async def test_a_template_in_use_stays_and_says_who_uses_it(api: RegistryFixture, kind: str) -> None:
    await use(api, kind, "one", "two")
    with pytest.raises(Conflict) as caught:
        await api.delete(KINDS[kind], "t")
    assert "demo/one, demo/two are using it" in caught.value.message
    assert api.see(KINDS[kind], "t") is not None


@every_kind
async def test_a_template_that_nobody_uses_goes(api: RegistryFixture, kind: str) -> None:
    await use(api, kind, "one", template="other")
    await use(api, next(each for each in KINDS if each != kind), "one")
    assert (await api.delete(KINDS[kind], "t")).is_removed


async def test_ten_are_named_and_the_rest_counted(api: RegistryFixture) -> None:
    await use(api, "SpaceInstance", *(f"s{number:02}" for number in range(13)))
    with pytest.raises(Conflict) as caught:
        await api.delete("SpaceTemplate", "t")
    assert "demo/s09 and 3 more are" in caught.value.message
    assert "s10" not in caught.value.message


async def test_those_whom_the_asker_may_not_see_are_only_counted(api: RegistryFixture) -> None:
    await use(api, "SpaceInstance", "secret-one")
    with pytest.raises(Conflict) as caught:
        await api.delete("SpaceTemplate", "t")
    assert "1 of the spaceinstances is using it" in caught.value.message
    assert "secret-one" not in caught.value.message


async def test_with_its_last_user_gone_it_can_go(api: RegistryFixture) -> None:
    await use(api, "SpaceInstance", "one")
    await api.delete("SpaceInstance", "one")
    assert (await api.delete("SpaceTemplate", "t")).is_removed
