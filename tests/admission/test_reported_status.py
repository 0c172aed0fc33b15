"""The status that controllers go by is theirs: nobody else can give them orders through it."""

import pytest

from fairlead.admission import Chain
from fairlead.admission.protected_fields import reported_status
from fairlead.core.errors import Forbidden
from fairlead.core.objects import Object, copied
from fairlead.core.scope import Scope
from fairlead.core.user import CONTROLLER, User
from fairlead.registry.kind import MANAGEMENT_GROUP
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import Writing
from tests.admission.world import NAMESPACE, World

KINDS = ["Cluster", "SpaceInstance", "VirtualClusterInstance"]
OWNER = User("ada", ("system:authenticated", "service:user:ada"))
ADMIN = User("root", ("system:masters",))


@pytest.fixture
def ruled(world: World) -> World:
    chain = Chain((reported_status(MANAGEMENT_GROUP),))
    registry = Registry(world.registry.catalog, world.store, world.view, chain, world.clock)
    chain.look_around_in(registry)
    return World(world.store, world.view, registry, world.clock)


def place(kind: str) -> str:
    return "" if kind == "Cluster" else NAMESPACE


def taken_over(obj: Object) -> Object:
    return {**copied(obj), "status": {"phase": "Failed"}}


def described(obj: Object) -> Object:
    return {**copied(obj), "spec": {"description": "x"}}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("user", [OWNER, User("root", ("system:masters",), scope=Scope(projects=("p",)))])
async def test_t7_nobody_tells_the_controllers_what_they_have_found(ruled: World, kind: str, user: User) -> None:
    await ruled.create(kind, "one", spec={})
    with pytest.raises(Forbidden, match="change its spec instead"):
        await ruled.of(kind).modify(place(kind), "one", taken_over, Writing(user, subresource="status"))
    await ruled.of(kind).modify(place(kind), "one", copied, Writing(user, subresource="status"))
    await ruled.of(kind).modify(place(kind), "one", described, Writing(user))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("user", [ADMIN, CONTROLLER])
async def test_the_server_and_administrators_do(ruled: World, kind: str, user: User) -> None:
    await ruled.create(kind, "one", spec={})
    await ruled.of(kind).modify(place(kind), "one", taken_over, Writing(user, subresource="status"))


async def test_what_runners_report_of_workspaces_is_theirs(ruled: World) -> None:
    await ruled.create("DevPodWorkspaceInstance", "one", spec={})
    writing = Writing(OWNER, subresource="status")
    await ruled.of("DevPodWorkspaceInstance").modify(NAMESPACE, "one", taken_over, writing)


def asleep(obj: Object) -> Object:
    return {**copied(obj), "status": {"phase": "Sleeping"}}


async def test_that_a_workspace_sleeps_is_its_runners_word(ruled: World) -> None:
    """What sleeps needs no room in a quota."""
    made = await ruled.create("DevPodWorkspaceInstance", "one", spec={}, status={"phase": "Sleeping"})
    assert (made.get("status") or {}).get("phase") != "Sleeping"
    workspaces = ruled.of("DevPodWorkspaceInstance")
    with pytest.raises(Forbidden, match="only its runner may report"):
        await workspaces.modify(NAMESPACE, "one", asleep, Writing(OWNER, subresource="status"))
    await workspaces.modify(NAMESPACE, "one", taken_over, Writing(OWNER, subresource="status"))
    runner = User("runner", ("service:runners",))
    await workspaces.modify(NAMESPACE, "one", asleep, Writing(runner, subresource="status"))
    await workspaces.modify(NAMESPACE, "one", asleep, Writing(OWNER, subresource="status"))
