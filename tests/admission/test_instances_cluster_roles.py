"""Who may grant cluster roles in a space, and choose the name of its namespace in the cluster."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.admission.instances import restrict_remote_access
from fairlead.core.call import Decision, RequestInfo
from fairlead.core.errors import Forbidden
from fairlead.core.objects import Object
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.write_options import WriteOptions
from tests.harness.registry import NAMESPACE, RegistryFixture, open_registry

ADA, ROOT = User("ada"), User("root", ("system:masters",))
SPACE, VC = "SpaceInstance", "VirtualClusterInstance"
both_kinds = pytest.mark.parametrize("kind", [SPACE, VC])


def authorize(user: User, target: RequestInfo) -> Decision:
    assert (target.verb, target.subresource, target.namespace, target.name) == ("create", "restricted", NAMESPACE, "")
    return Decision(user.is_admin)


@pytest.fixture
async def api() -> AsyncIterator[RegistryFixture]:
    async with open_registry(rules=(restrict_remote_access(authorize, GROUP),)) as fixture:
        yield fixture


def access_rules(*roles: str) -> list[Object]:
    return [{"users": ["eve"], "clusterRole": role} for role in roles]


async def create_instance(api: RegistryFixture, kind: str = SPACE, user: User = ADA, **spec: Any) -> Object:
    return await api.submit(kind, api.build_object(kind, "one", spec=spec), WriteOptions(user))


async def test_a_space_can_grant_the_default_namespace_roles(api: RegistryFixture) -> None:
    await create_instance(api, extraAccessRules=access_rules("view", "edit", "admin"))


@pytest.mark.parametrize("role", ["cluster-admin", "system:node", "Admin"])
async def test_a_space_cannot_grant_other_cluster_roles(api: RegistryFixture, role: str) -> None:
    with pytest.raises(Forbidden, match="extraAccessRules"):
        await create_instance(api, extraAccessRules=access_rules("view", role))
    await create_instance(api, extraAccessRules=access_rules("view"))
    with pytest.raises(Forbidden, match="extraAccessRules"):
        await api.patch(
            SPACE, "one", lambda each: each["spec"].update(extraAccessRules=access_rules(role)), WriteOptions(ADA)
        )


async def test_roles_that_a_space_granted_before_may_stay(api: RegistryFixture) -> None:
    await create_instance(api, user=CONTROLLER_USER, extraAccessRules=access_rules("cluster-admin"))
    await api.patch(SPACE, "one", lambda each: each["spec"].update(displayName="x"), WriteOptions(ADA))


@both_kinds
async def test_ordinary_users_cannot_choose_the_namespace(api: RegistryFixture, kind: str) -> None:
    with pytest.raises(Forbidden, match="leave it out"):
        await create_instance(api, kind, clusterRef={"cluster": "c", "namespace": "kube-system"})
    await create_instance(api, kind, clusterRef={"cluster": "c"})
    with pytest.raises(Forbidden, match="leave it out"):
        await api.patch(kind, "one", lambda each: each["spec"]["clusterRef"].update(namespace="n"), WriteOptions(ADA))


@both_kinds
async def test_a_namespace_chosen_by_the_server_may_be_sent_back(api: RegistryFixture, kind: str) -> None:
    await create_instance(api, kind, clusterRef={"cluster": "c"})
    server_options = WriteOptions(CONTROLLER_USER)
    await api.patch(kind, "one", lambda each: each["spec"]["clusterRef"].update(namespace="n"), server_options)
    await api.patch(kind, "one", lambda each: each["spec"].update(displayName="x"), WriteOptions(ADA))


@both_kinds
async def test_create_on_restricted_allows_choosing_the_namespace(api: RegistryFixture, kind: str) -> None:
    await create_instance(api, kind, ROOT, clusterRef={"cluster": "c", "namespace": "n"})


@pytest.mark.parametrize("user", [ADA, ROOT])
@pytest.mark.parametrize(
    "access", [{"defaultClusterRole": "cluster-admin"}, {"rules": [{"users": ["x"], "clusterRole": "cluster-admin"}]}]
)
async def test_an_inline_template_cannot_grant_other_roles(api: RegistryFixture, user: User, access: Object) -> None:
    """The controller could not tell later who wrote it."""
    with pytest.raises(Forbidden, match="space_roles"):
        await create_instance(api, user=user, template={"access": access})


async def test_a_virtual_cluster_can_grant_any_role(api: RegistryFixture) -> None:
    await create_instance(api, VC, extraAccessRules=access_rules("cluster-admin"))


async def test_the_setting_defines_the_roles_that_can_be_granted() -> None:
    async with open_registry(rules=(restrict_remote_access(authorize, GROUP, {"view", "space-user"}),)) as api:
        with pytest.raises(Forbidden, match="use space-user, view"):
            await create_instance(api, extraAccessRules=access_rules("admin"))
        await create_instance(api, extraAccessRules=access_rules("space-user"))


@both_kinds
async def test_a_status_in_a_create_does_not_allow_choosing_the_namespace(api: RegistryFixture, kind: str) -> None:
    """Only an instance that moves from another project has a status on create."""
    body = api.build_object(kind, "one", spec={"clusterRef": {"cluster": "c", "namespace": "kube-system"}})
    with pytest.raises(Forbidden, match=r"clusterRef\.namespace"):
        await api.submit(kind, {**body, "status": {"serviceUID": "x"}}, WriteOptions(ADA))
