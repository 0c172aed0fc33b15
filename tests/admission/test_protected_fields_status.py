"""The status that controllers act on: only the server and administrators write it."""

import pytest

from fairlead.admission.protected_fields import protect_status
from fairlead.core.errors import Forbidden
from fairlead.core.objects import Object, deep_copy
from fairlead.core.scope import Scope
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.registry.kind import MANAGEMENT_GROUP
from fairlead.registry.write_options import WriteOptions
from tests.harness.registry import NAMESPACE, RegistryFixture

KINDS = ["Cluster", "SpaceInstance", "VirtualClusterInstance"]
OWNER = User("ada", ("system:authenticated", "service:user:ada"))
ADMIN = User("root", ("system:masters",))


@pytest.fixture
def api_with_rule(api: RegistryFixture) -> RegistryFixture:
    return api.with_rules(protect_status(MANAGEMENT_GROUP))


def namespace_of(kind: str) -> str:
    return "" if kind == "Cluster" else NAMESPACE


def with_failed_phase(obj: Object) -> Object:
    return {**deep_copy(obj), "status": {"phase": "Failed"}}


def with_description(obj: Object) -> Object:
    return {**deep_copy(obj), "spec": {"description": "x"}}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("user", [OWNER, User("root", ("system:masters",), scope=Scope(projects=("p",)))])
async def test_t7_users_cannot_write_the_status_that_controllers_act_on(
    api_with_rule: RegistryFixture, kind: str, user: User
) -> None:
    await api_with_rule.create(kind, "one", spec={})
    with pytest.raises(Forbidden, match="change its spec instead"):
        await api_with_rule.resource(kind).modify(
            namespace_of(kind), "one", with_failed_phase, WriteOptions(user, subresource="status")
        )
    await api_with_rule.resource(kind).modify(
        namespace_of(kind), "one", deep_copy, WriteOptions(user, subresource="status")
    )
    await api_with_rule.resource(kind).modify(namespace_of(kind), "one", with_description, WriteOptions(user))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("user", [ADMIN, CONTROLLER_USER])
async def test_the_server_and_administrators_write_the_status(
    api_with_rule: RegistryFixture, kind: str, user: User
) -> None:
    await api_with_rule.create(kind, "one", spec={})
    await api_with_rule.resource(kind).modify(
        namespace_of(kind), "one", with_failed_phase, WriteOptions(user, subresource="status")
    )


async def test_the_status_of_workspaces_is_writable(api_with_rule: RegistryFixture) -> None:
    await api_with_rule.create("DevPodWorkspaceInstance", "one", spec={})
    options = WriteOptions(OWNER, subresource="status")
    await api_with_rule.resource("DevPodWorkspaceInstance").modify(NAMESPACE, "one", with_failed_phase, options)


def with_sleeping_phase(obj: Object) -> Object:
    return {**deep_copy(obj), "status": {"phase": "Sleeping"}}


async def test_only_its_runner_reports_that_a_workspace_sleeps(api_with_rule: RegistryFixture) -> None:
    """A sleeping workspace does not count towards the quota of active ones."""
    created = await api_with_rule.create("DevPodWorkspaceInstance", "one", spec={}, status={"phase": "Sleeping"})
    assert (created.get("status") or {}).get("phase") != "Sleeping"
    workspaces = api_with_rule.resource("DevPodWorkspaceInstance")
    with pytest.raises(Forbidden, match="only its runner may report"):
        await workspaces.modify(NAMESPACE, "one", with_sleeping_phase, WriteOptions(OWNER, subresource="status"))
    await workspaces.modify(NAMESPACE, "one", with_failed_phase, WriteOptions(OWNER, subresource="status"))
    runner = User("runner", ("service:runners",))
    await workspaces.modify(NAMESPACE, "one", with_sleeping_phase, WriteOptions(runner, subresource="status"))
    await workspaces.modify(NAMESPACE, "one", with_sleeping_phase, WriteOptions(OWNER, subresource="status"))
