"""Using a cluster requires the verb `use` on it, unless the project lists it; listing it requires the verb too."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.admission.allow_lists import ClusterUseCheck, check_listed_clusters, unlisted_cluster_policy
from fairlead.admission.projects import enforce_allow_lists
from fairlead.core.call import Decision, RequestInfo
from fairlead.core.errors import Forbidden
from fairlead.core.objects import Object
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.kinds.projects.project import NAMESPACE_PREFIX
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.write_options import WriteOptions
from tests.harness.registry import RegistryFixture, open_registry

ROOT, ADA, BOB = User("root", ("system:masters",)), User("ada"), User("bob")
PROJECT_NAMESPACE, SYSTEM = "service-p-p", "service-system"
KINDS = {
    "SpaceInstance": "clusterRef",
    "VirtualClusterInstance": "clusterRef",
    "DevPodWorkspaceInstance": "target",
}


def authorize(user: User, target: RequestInfo) -> Decision:
    """Ada may use berlin, the administrator everything, and Bob nothing."""
    assert (target.verb, target.resource, target.namespace) == ("use", "clusters", "")
    return Decision(user.is_admin or (user.name, target.name) == ("ada", "berlin"))


def rules(setting: str = "") -> tuple[Any, ...]:
    use_check = ClusterUseCheck(authorize, unlisted_cluster_policy(setting, SYSTEM), GROUP)
    return check_listed_clusters(use_check), enforce_allow_lists(GROUP, NAMESPACE_PREFIX, use_check)


@pytest.fixture
async def api() -> AsyncIterator[RegistryFixture]:
    """An installation that started with this rule."""
    async with open_registry(rules=rules()) as fixture:
        metadata = {"annotations": {"service.sh/unlisted-clusters": "use"}}
        await fixture.submit(
            "Namespace", fixture.build_object("Namespace", SYSTEM, metadata=metadata), WriteOptions(CONTROLLER_USER)
        )
        yield fixture


@pytest.fixture
async def older_api() -> AsyncIterator[RegistryFixture]:
    """An installation from before this rule."""
    async with open_registry(rules=rules()) as fixture:
        await fixture.create("Namespace", SYSTEM)
        yield fixture


async def create_project(api: RegistryFixture, user: User = ROOT, **spec: Any) -> Object:
    return await api.submit("Project", api.build_object("Project", "p", spec=spec), WriteOptions(user))


async def create_instance(api: RegistryFixture, user: User, cluster: str, kind: str = "SpaceInstance") -> list[str]:
    """Creates an instance in the cluster. Returns the warnings."""
    reference: Object = {"cluster": cluster} if KINDS[kind] == "clusterRef" else {"cluster": {"name": cluster}}
    options = WriteOptions(user)
    body = api.build_object(kind, "", PROJECT_NAMESPACE, metadata={"generateName": "x-"}, spec={KINDS[kind]: reference})
    await api.submit(kind, body, options)
    return options.warnings


@pytest.mark.parametrize("kind", KINDS)
async def test_without_a_list_the_verb_use_is_required(api: RegistryFixture, kind: str) -> None:
    await create_project(api)
    await create_instance(api, ADA, "berlin", kind)
    await create_instance(api, ROOT, "oslo", kind)
    for user, cluster in ((ADA, "oslo"), (BOB, "berlin")):
        with pytest.raises(Forbidden) as error:
            await create_instance(api, user, cluster, kind)
        command = (
            f"""kubectl patch project p --type merge -p '{{"spec":{{"allowedClusters":[{{"name":"{cluster}"}}]}}}}'"""
        )
        assert f'User "{user.name}" may not use the cluster "{cluster}"' in error.value.message
        assert error.value.message.endswith(command)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_listed_cluster_is_allowed_for_all_members(api: RegistryFixture, kind: str) -> None:
    await create_project(api, allowedClusters=[{"name": "berlin"}])
    await create_instance(api, BOB, "berlin", kind)
    with pytest.raises(Forbidden, match=r'kubectl patch project p --type json -p .*"value":\{"name":"oslo"\}'):
        await create_instance(api, BOB, "oslo", kind)
    with pytest.raises(Forbidden):
        await create_instance(api, ROOT, "oslo", kind)


@pytest.mark.parametrize("cluster", ["x'; rm -rf ~ #", '"}', "$(id)", "A B"])
async def test_no_command_is_suggested_for_an_invalid_name(api: RegistryFixture, cluster: str) -> None:
    await create_project(api)
    with pytest.raises(Forbidden) as error:
        await create_instance(api, BOB, cluster)
    assert "kubectl" not in error.value.message


async def test_an_older_installation_allows_it_with_a_warning(older_api: RegistryFixture) -> None:
    await create_project(older_api)
    (warning,) = await create_instance(older_api, BOB, "berlin")
    assert "a later version will reject this" in warning and "kubectl patch project p" in warning
    assert await create_instance(older_api, ROOT, "berlin") == []


@pytest.mark.parametrize(("setting", "rejected"), [("use", True), ("all", False)])
async def test_the_setting_chooses_between_rejecting_and_warning(setting: str, rejected: bool) -> None:
    async with open_registry(rules=rules(setting)) as api:
        await create_project(api)
        if rejected:
            with pytest.raises(Forbidden):
                await create_instance(api, BOB, "berlin")
        else:
            assert len(await create_instance(api, BOB, "berlin")) == 1


async def test_listing_a_cluster_requires_the_verb_use(api: RegistryFixture) -> None:
    with pytest.raises(Forbidden, match=r'User "bob" may not use the cluster "berlin"'):
        await create_project(api, BOB, allowedClusters=[{"name": "berlin"}])
    await create_project(api, BOB, allowedClusters=[])

    async def list_clusters(user: User, *names: str) -> None:
        clusters = [{"name": name} for name in names]
        await api.patch("Project", "p", lambda each: each["spec"].update(allowedClusters=clusters), WriteOptions(user))

    await list_clusters(ADA, "berlin")
    for names in (("berlin", "oslo"), ("*",)):
        with pytest.raises(Forbidden, match="may not use"):
            await list_clusters(ADA, *names)
    await list_clusters(ROOT, "berlin", "oslo")
    await list_clusters(BOB, "oslo", "berlin")
    await list_clusters(BOB)
    with pytest.raises(Forbidden):
        await list_clusters(BOB, "oslo")
    await list_clusters(ROOT, "*")
    await list_clusters(BOB, "*", "oslo")


async def test_removing_the_list_requires_use_of_all_clusters_on_an_older_installation(
    older_api: RegistryFixture,
) -> None:
    await create_project(older_api, allowedClusters=[{"name": "berlin"}])
    for edit in (lambda each: each["spec"].pop("allowedClusters"), lambda each: each.pop("spec")):
        with pytest.raises(Forbidden, match="may not use all clusters"):
            await older_api.patch("Project", "p", edit, WriteOptions(ADA))
    await older_api.patch("Project", "p", lambda each: each["spec"].pop("allowedClusters"), WriteOptions(ROOT))


async def test_removing_the_list_grants_nothing(api: RegistryFixture) -> None:
    await create_project(api, allowedClusters=[{"name": "berlin"}])
    await api.patch("Project", "p", lambda each: each["spec"].pop("allowedClusters"), WriteOptions(BOB))
    with pytest.raises(Forbidden):
        await create_instance(api, BOB, "berlin")
