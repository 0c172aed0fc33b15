"""Using a cluster takes the verb `use` on it, unless the project lists it; and so does listing it."""

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
HOME, SYSTEM = "service-p-p", "service-system"
KINDS = {
    "SpaceInstance": "clusterRef",
    "VirtualClusterInstance": "clusterRef",
    "DevPodWorkspaceInstance": "target",
}


def may(user: User, target: RequestInfo) -> Decision:
    """Ada may use berlin, the administrator everything, and Bob nothing."""
    assert (target.verb, target.resource, target.namespace) == ("use", "clusters", "")
    return Decision(user.is_admin or (user.name, target.name) == ("ada", "berlin"))


def rules(setting: str = "") -> tuple[Any, ...]:
    use = ClusterUseCheck(may, unlisted_cluster_policy(setting, SYSTEM), GROUP)
    return check_listed_clusters(use), enforce_allow_lists(GROUP, NAMESPACE_PREFIX, use)


@pytest.fixture
async def api() -> AsyncIterator[RegistryFixture]:
    """An installation that began with this rule."""
    async with open_registry(rules=rules()) as made:
        noted = {"annotations": {"service.sh/unlisted-clusters": "use"}}
        await made.submit("Namespace", made.body("Namespace", SYSTEM, metadata=noted), WriteOptions(CONTROLLER_USER))
        yield made


@pytest.fixture
async def older() -> AsyncIterator[RegistryFixture]:
    """One from before."""
    async with open_registry(rules=rules()) as made:
        await made.create("Namespace", SYSTEM)
        yield made


async def project(api: RegistryFixture, by: User = ROOT, **spec: Any) -> Object:
    return await api.submit("Project", api.body("Project", "p", spec=spec), WriteOptions(by))


async def make(api: RegistryFixture, by: User, cluster: str, kind: str = "SpaceInstance") -> list[str]:
    """Makes an instance there. Returns the warnings."""
    named: Object = {"cluster": cluster} if KINDS[kind] == "clusterRef" else {"cluster": {"name": cluster}}
    writing = WriteOptions(by)
    body = api.body(kind, "", HOME, metadata={"generateName": "x-"}, spec={KINDS[kind]: named})
    await api.submit(kind, body, writing)
    return writing.warnings


@pytest.mark.parametrize("kind", KINDS)
async def test_without_a_list_it_takes_the_right(api: RegistryFixture, kind: str) -> None:
    await project(api)
    await make(api, ADA, "berlin", kind)
    await make(api, ROOT, "oslo", kind)
    for by, cluster in ((ADA, "oslo"), (BOB, "berlin")):
        with pytest.raises(Forbidden) as caught:
            await make(api, by, cluster, kind)
        command = (
            f"""kubectl patch project p --type merge -p '{{"spec":{{"allowedClusters":[{{"name":"{cluster}"}}]}}}}'"""
        )
        assert f'User "{by.name}" may not use the cluster "{cluster}"' in caught.value.message
        assert caught.value.message.endswith(command)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_list_says_it_for_all_members(api: RegistryFixture, kind: str) -> None:
    await project(api, allowedClusters=[{"name": "berlin"}])
    await make(api, BOB, "berlin", kind)
    with pytest.raises(Forbidden, match=r'kubectl patch project p --type json -p .*"value":\{"name":"oslo"\}'):
        await make(api, BOB, "oslo", kind)
    with pytest.raises(Forbidden):
        await make(api, ROOT, "oslo", kind)


@pytest.mark.parametrize("cluster", ["x'; rm -rf ~ #", '"}', "$(id)", "A B"])
async def test_no_command_is_suggested_for_what_is_no_name(api: RegistryFixture, cluster: str) -> None:
    await project(api)
    with pytest.raises(Forbidden) as caught:
        await make(api, BOB, cluster)
    assert "kubectl" not in caught.value.message


async def test_an_older_installation_goes_on_with_a_warning(older: RegistryFixture) -> None:
    await project(older)
    (warning,) = await make(older, BOB, "berlin")
    assert "a later version will reject this" in warning and "kubectl patch project p" in warning
    assert await make(older, ROOT, "berlin") == []


@pytest.mark.parametrize(("setting", "refused"), [("use", True), ("all", False)])
async def test_the_setting_says_which(setting: str, refused: bool) -> None:
    async with open_registry(rules=rules(setting)) as api:
        await project(api)
        if refused:
            with pytest.raises(Forbidden):
                await make(api, BOB, "berlin")
        else:
            assert len(await make(api, BOB, "berlin")) == 1


async def test_whoever_lists_a_cluster_may_use_it(api: RegistryFixture) -> None:
    with pytest.raises(Forbidden, match=r'User "bob" may not use the cluster "berlin"'):
        await project(api, BOB, allowedClusters=[{"name": "berlin"}])
    await project(api, BOB, allowedClusters=[])

    async def write(by: User, *names: str) -> None:
        wanted = [{"name": name} for name in names]
        await api.patch("Project", "p", lambda each: each["spec"].update(allowedClusters=wanted), WriteOptions(by))

    await write(ADA, "berlin")
    for names in (("berlin", "oslo"), ("*",)):
        with pytest.raises(Forbidden, match="may not use"):
            await write(ADA, *names)
    await write(ROOT, "berlin", "oslo")
    await write(BOB, "oslo", "berlin")
    await write(BOB)
    with pytest.raises(Forbidden):
        await write(BOB, "oslo")
    await write(ROOT, "*")
    await write(BOB, "*", "oslo")


async def test_taking_the_list_away_is_no_way_to_all_clusters(older: RegistryFixture) -> None:
    await project(older, allowedClusters=[{"name": "berlin"}])
    for edit in (lambda each: each["spec"].pop("allowedClusters"), lambda each: each.pop("spec")):
        with pytest.raises(Forbidden, match="may not use all clusters"):
            await older.patch("Project", "p", edit, WriteOptions(ADA))
    await older.patch("Project", "p", lambda each: each["spec"].pop("allowedClusters"), WriteOptions(ROOT))


async def test_taking_the_list_away_gives_nothing_here(api: RegistryFixture) -> None:
    await project(api, allowedClusters=[{"name": "berlin"}])
    await api.patch("Project", "p", lambda each: each["spec"].pop("allowedClusters"), WriteOptions(BOB))
    with pytest.raises(Forbidden):
        await make(api, BOB, "berlin")
