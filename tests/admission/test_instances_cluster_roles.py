"""Who may hand out roles of a cluster in a space, and choose the name of a namespace there."""

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
both = pytest.mark.parametrize("kind", [SPACE, VC])


def may(user: User, target: RequestInfo) -> Decision:
    assert (target.verb, target.subresource, target.namespace, target.name) == ("create", "restricted", NAMESPACE, "")
    return Decision(user.is_admin)


@pytest.fixture
async def api() -> AsyncIterator[RegistryFixture]:
    async with open_registry(rules=(restrict_remote_access(may, GROUP),)) as made:
        yield made


def rules(*roles: str) -> list[Object]:
    return [{"users": ["eve"], "clusterRole": role} for role in roles]


async def make(api: RegistryFixture, kind: str = SPACE, by: User = ADA, **spec: Any) -> Object:
    return await api.submit(kind, api.body(kind, "one", spec=spec), WriteOptions(by))


async def test_a_space_gives_the_ordinary_roles_of_a_namespace(api: RegistryFixture) -> None:
    await make(api, extraAccessRules=rules("view", "edit", "admin"))


@pytest.mark.parametrize("role", ["cluster-admin", "system:node", "Admin"])
async def test_a_space_does_not_give_other_roles_of_the_cluster(api: RegistryFixture, role: str) -> None:
    with pytest.raises(Forbidden, match="extraAccessRules"):
        await make(api, extraAccessRules=rules("view", role))
    await make(api, extraAccessRules=rules("view"))
    with pytest.raises(Forbidden, match="extraAccessRules"):
        await api.patch(SPACE, "one", lambda each: each["spec"].update(extraAccessRules=rules(role)), WriteOptions(ADA))


async def test_roles_that_a_space_gave_before_may_stay(api: RegistryFixture) -> None:
    await make(api, by=CONTROLLER_USER, extraAccessRules=rules("cluster-admin"))
    await api.patch(SPACE, "one", lambda each: each["spec"].update(displayName="x"), WriteOptions(ADA))


@both
async def test_the_name_of_a_namespace_is_not_anybodys_to_choose(api: RegistryFixture, kind: str) -> None:
    with pytest.raises(Forbidden, match="leave it out"):
        await make(api, kind, clusterRef={"cluster": "c", "namespace": "kube-system"})
    await make(api, kind, clusterRef={"cluster": "c"})
    with pytest.raises(Forbidden, match="leave it out"):
        await api.patch(kind, "one", lambda each: each["spec"]["clusterRef"].update(namespace="n"), WriteOptions(ADA))


@both
async def test_what_the_server_has_settled_may_be_sent_back(api: RegistryFixture, kind: str) -> None:
    await make(api, kind, clusterRef={"cluster": "c"})
    settle = WriteOptions(CONTROLLER_USER)
    await api.patch(kind, "one", lambda each: each["spec"]["clusterRef"].update(namespace="n"), settle)
    await api.patch(kind, "one", lambda each: each["spec"].update(displayName="x"), WriteOptions(ADA))


@both
async def test_who_may_make_restricted_ones_may_choose_the_namespace(api: RegistryFixture, kind: str) -> None:
    await make(api, kind, ROOT, clusterRef={"cluster": "c", "namespace": "n"})


@pytest.mark.parametrize("by", [ADA, ROOT])
@pytest.mark.parametrize(
    "access", [{"defaultClusterRole": "cluster-admin"}, {"rules": [{"users": ["x"], "clusterRole": "cluster-admin"}]}]
)
async def test_a_template_in_place_gives_no_other_roles_either(api: RegistryFixture, by: User, access: Object) -> None:
    """The controller could not tell later who has written that."""
    with pytest.raises(Forbidden, match="space_roles"):
        await make(api, by=by, template={"access": access})


async def test_a_virtual_cluster_has_roles_of_its_own(api: RegistryFixture) -> None:
    await make(api, VC, extraAccessRules=rules("cluster-admin"))


async def test_the_setting_says_which_roles_are_given() -> None:
    async with open_registry(rules=(restrict_remote_access(may, GROUP, {"view", "space-user"}),)) as api:
        with pytest.raises(Forbidden, match="use space-user, view"):
            await make(api, extraAccessRules=rules("admin"))
        await make(api, extraAccessRules=rules("space-user"))


@both
async def test_a_status_of_ones_own_is_no_way_to_a_namespace_of_ones_choice(api: RegistryFixture, kind: str) -> None:
    """Only what moves here from another project has one already."""
    body = api.body(kind, "one", spec={"clusterRef": {"cluster": "c", "namespace": "kube-system"}})
    with pytest.raises(Forbidden, match=r"clusterRef\.namespace"):
        await api.submit(kind, {**body, "status": {"serviceUID": "x"}}, WriteOptions(ADA))
