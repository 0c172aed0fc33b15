"""The status that controllers go by is theirs: nobody else can give them orders through it."""

import pytest

from fairlead.admission import AdmissionChain
from fairlead.admission.protected_fields import protect_status
from fairlead.core.errors import Forbidden
from fairlead.core.objects import Object, deep_copy
from fairlead.core.scope import Scope
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.registry.kind import MANAGEMENT_GROUP
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import WriteOptions
from tests.harness.registry import NAMESPACE, RegistryFixture

KINDS = ["Cluster", "SpaceInstance", "VirtualClusterInstance"]
OWNER = User("ada", ("system:authenticated", "service:user:ada"))
ADMIN = User("root", ("system:masters",))


@pytest.fixture
def ruled(api: RegistryFixture) -> RegistryFixture:
    chain = AdmissionChain((protect_status(MANAGEMENT_GROUP),))
    registry = Registry(api.registry.catalog, api.store, api.view, chain, api.clock)
    chain.bind_registry(registry)
    return RegistryFixture(api.store, api.view, registry, api.clock)


def place(kind: str) -> str:
    return "" if kind == "Cluster" else NAMESPACE


def taken_over(obj: Object) -> Object:
    return {**deep_copy(obj), "status": {"phase": "Failed"}}


def described(obj: Object) -> Object:
    return {**deep_copy(obj), "spec": {"description": "x"}}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("user", [OWNER, User("root", ("system:masters",), scope=Scope(projects=("p",)))])
async def test_t7_nobody_tells_the_controllers_what_they_have_found(
    ruled: RegistryFixture, kind: str, user: User
) -> None:
    await ruled.create(kind, "one", spec={})
    with pytest.raises(Forbidden, match="change its spec instead"):
        await ruled.of(kind).modify(place(kind), "one", taken_over, WriteOptions(user, subresource="status"))
    await ruled.of(kind).modify(place(kind), "one", deep_copy, WriteOptions(user, subresource="status"))
    await ruled.of(kind).modify(place(kind), "one", described, WriteOptions(user))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("user", [ADMIN, CONTROLLER_USER])
async def test_the_server_and_administrators_do(ruled: RegistryFixture, kind: str, user: User) -> None:
    await ruled.create(kind, "one", spec={})
    await ruled.of(kind).modify(place(kind), "one", taken_over, WriteOptions(user, subresource="status"))


async def test_what_runners_report_of_workspaces_is_theirs(ruled: RegistryFixture) -> None:
    await ruled.create("DevPodWorkspaceInstance", "one", spec={})
    writing = WriteOptions(OWNER, subresource="status")
    await ruled.of("DevPodWorkspaceInstance").modify(NAMESPACE, "one", taken_over, writing)


def asleep(obj: Object) -> Object:
    return {**deep_copy(obj), "status": {"phase": "Sleeping"}}


async def test_that_a_workspace_sleeps_is_its_runners_word(ruled: RegistryFixture) -> None:
    """What sleeps needs no room in a quota."""
    made = await ruled.create("DevPodWorkspaceInstance", "one", spec={}, status={"phase": "Sleeping"})
    assert (made.get("status") or {}).get("phase") != "Sleeping"
    workspaces = ruled.of("DevPodWorkspaceInstance")
    with pytest.raises(Forbidden, match="only its runner may report"):
        await workspaces.modify(NAMESPACE, "one", asleep, WriteOptions(OWNER, subresource="status"))
    await workspaces.modify(NAMESPACE, "one", taken_over, WriteOptions(OWNER, subresource="status"))
    runner = User("runner", ("service:runners",))
    await workspaces.modify(NAMESPACE, "one", asleep, WriteOptions(runner, subresource="status"))
    await workspaces.modify(NAMESPACE, "one", asleep, WriteOptions(OWNER, subresource="status"))
