"""AppInstances: who may deploy which App where, and with which parameters."""

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from fairlead.admission.apps import check_app_instances
from fairlead.admission.instance_owners import default_instance_owner
from fairlead.admission.instances import check_abandon
from fairlead.admission.objects_in_use import prevent_deletion_while_used
from fairlead.admission.templates import mark_trusted_templates
from fairlead.core.call import Decision, RequestInfo
from fairlead.core.errors import Conflict, Forbidden, Invalid
from fairlead.core.objects import Object, get_path
from fairlead.core.scope import Scope
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.kinds.projects.project import NAMESPACE_PREFIX
from fairlead.registry.codec import decode
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.write_options import WriteOptions
from tests.harness.registry import RegistryFixture, open_registry

ADA, ADMIN = User("ada"), User("root", ("system:masters",))
NAMESPACE = f"{NAMESPACE_PREFIX}web"
APP = "AppInstance"
SPACE_TARGET = {"spaceInstance": {"name": "dev"}}
CLUSTER_TARGET = {"cluster": {"name": "berlin", "namespace": "tools"}}
RIGHTS = {
    ("use", "apps", "", "nginx"),
    ("update", "spaceinstances", NAMESPACE, "dev"),
    ("update", "virtualclusterinstances", NAMESPACE, "v"),
    ("update", "clusters", "", "berlin"),
}
PARAMETERS = [
    {"variable": "size", "type": "number", "min": 1, "max": 9},
    {"variable": "tier", "options": ["gold", "silver"], "validation": "^$"},
    {"variable": "token", "type": "password"},
]


class Rights:
    """What the user ada may do."""

    def __init__(self) -> None:
        self.granted = set(RIGHTS)

    def __call__(self, user: User, target: RequestInfo) -> Decision:
        if user.scope is not None and target.resource == "apps":
            return Decision(False)
        right = target.verb, target.resource, target.namespace, target.name
        return Decision(user.is_admin or right in self.granted)


@pytest.fixture
def rights() -> Rights:
    return Rights()


@pytest.fixture
async def api(rights: Rights) -> AsyncIterator[RegistryFixture]:
    rules = (
        check_abandon(rights, GROUP),
        default_instance_owner(GROUP),
        check_app_instances(rights, GROUP),
        mark_trusted_templates(GROUP),
        prevent_deletion_while_used(rights, GROUP),
    )
    async with open_registry(rules=rules) as api:
        await api.submit("Project", api.build_object("Project", "web", spec={}), WriteOptions(CONTROLLER_USER))
        spec = {"config": {"manifests": "size: {{ parameters.size }}\n"}, "parameters": PARAMETERS}
        await api.submit("App", api.build_object("App", "nginx", spec=spec), WriteOptions(ADMIN))
        yield api


async def create(api: RegistryFixture, user: User = ADA, **spec: Any) -> Object:
    body = api.build_object(APP, "one", NAMESPACE, spec={"appRef": {"name": "nginx"}, "target": SPACE_TARGET, **spec})
    return await api.submit(APP, body, WriteOptions(user))


async def update(api: RegistryFixture, user: User = ADA, **spec: Any) -> Object:
    def merge(old: Object) -> Object:
        return {**old, "spec": {**old["spec"], **spec}}

    updated: Object = orjson.loads(await api.resource(APP).modify(NAMESPACE, "one", merge, WriteOptions(user)))
    return updated


async def test_the_requester_owns_a_new_instance(api: RegistryFixture) -> None:
    assert get_path(await create(api), "spec.owner") == {"user": "ada"}


@pytest.mark.parametrize(
    ("missing", "target"),
    [
        (("use", "apps", "", "nginx"), SPACE_TARGET),
        (("update", "spaceinstances", NAMESPACE, "dev"), SPACE_TARGET),
        (("update", "virtualclusterinstances", NAMESPACE, "v"), {"virtualClusterInstance": {"name": "v"}}),
        (("update", "clusters", "", "berlin"), CLUSTER_TARGET),
    ],
)
async def test_deploying_needs_rights_on_the_app_and_on_the_target(
    api: RegistryFixture, rights: Rights, missing: tuple[str, str, str, str], target: Object
) -> None:
    rights.granted -= {missing}
    with pytest.raises(Forbidden, match=f'may not {missing[0]} the .*"{missing[3]}"'):
        await create(api, target=target)
    rights.granted |= {missing}
    await create(api, target=target)


async def test_rights_are_checked_again_for_each_user_who_changes_what_is_deployed(
    api: RegistryFixture, rights: Rights
) -> None:
    await create(api)
    eve = User("eve")
    rights.granted.clear()
    await update(api, eve, description="harmless")
    with pytest.raises(Forbidden):
        await update(api, eve, parameters="size: 2\n")
    await update(api, CONTROLLER_USER, parameters="size: 2\n")


async def test_a_key_for_a_project_can_deploy_apps(api: RegistryFixture) -> None:
    await create(api, User("ada", scope=Scope()))


@pytest.mark.parametrize(
    "target", [{"spaceInstance": {"name": "foreign"}}, {"cluster": {"name": "paris", "namespace": "x"}}]
)
async def test_a_target_of_others_is_out_of_reach(api: RegistryFixture, target: Object) -> None:
    with pytest.raises(Forbidden):
        await create(api, target=target)


async def test_an_app_is_only_for_its_clusters(api: RegistryFixture) -> None:
    await api.patch("App", "nginx", lambda each: each["spec"].update(clusters=["paris"]))
    with pytest.raises(Forbidden, match="only for the clusters paris"):
        await create(api, target=CLUSTER_TARGET)
    space = api.build_object("SpaceInstance", "dev", NAMESPACE, spec={"clusterRef": {"cluster": "berlin"}})
    await api.submit("SpaceInstance", space, WriteOptions(CONTROLLER_USER))
    with pytest.raises(Forbidden, match="only for the clusters paris"):
        await create(api)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ("size: 10\n", "size"),
        ("size: many\n", "size"),
        ("tier: bronze\n", "tier"),
        ("sise: 1\n", "is not a parameter of the app; its parameters are size, tier, token"),
        ("token: <hidden>\n", "stands for a stored value"),
        ("- 1\n", "name: value"),
    ],
)
async def test_parameters_are_those_of_the_app(api: RegistryFixture, parameters: str, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        await create(api, parameters=parameters)


async def test_passwords_are_hidden_and_kept(api: RegistryFixture) -> None:
    created = await create(api, parameters="size: 1\ntoken: very-secret\n")
    assert get_path(created, "spec.parameters") == "size: 1\ntoken: <hidden>\n"
    await update(api, parameters="size: 2\ntoken: <hidden>\n")
    stored = api.resource(APP).get_cached(NAMESPACE, "one")
    assert stored is not None
    assert get_path(decode(stored), "spec.parameterSecrets") == {"token": "very-secret"}


@pytest.mark.parametrize(
    ("target", "namespace"),
    [
        ({"cluster": {"name": "berlin"}}, "ingress"),
        ({"cluster": {"name": "berlin", "namespace": "mine"}}, "mine"),
        ({"virtualClusterInstance": {"name": "v"}}, "ingress"),
    ],
)
async def test_the_app_has_a_default_namespace(api: RegistryFixture, target: Object, namespace: str) -> None:
    await api.patch("App", "nginx", lambda each: each["spec"].update(defaultNamespace="ingress"))
    created = await create(api, target=target)
    assert [place["namespace"] for place in created["spec"]["target"].values()] == [namespace]
    updated = await update(api, target=target, parameters="size: 2\n")
    assert updated["spec"]["target"] == created["spec"]["target"]


async def test_without_a_default_a_cluster_needs_a_namespace(api: RegistryFixture) -> None:
    with pytest.raises(Invalid, match=r"spec.target.cluster.namespace: Required value"):
        await create(api, target={"cluster": {"name": "berlin"}})
    created = await create(api, target={"virtualClusterInstance": {"name": "v"}})
    assert get_path(created, "spec.target.virtualClusterInstance.namespace") == "default"


async def test_an_app_in_use_is_not_deleted(api: RegistryFixture) -> None:
    await create(api)
    with pytest.raises(Conflict, match=r"the appinstance \S+ is using it; delete it first"):
        await api.delete("App", "nginx", user=ADMIN)


async def test_an_app_that_another_user_has_written_is_marked(api: RegistryFixture) -> None:
    def mark(name: str) -> Any:
        return get_path(api.get("App", name), "metadata.annotations")

    assert mark("nginx") is None
    await api.submit("App", api.build_object("App", "mine", spec={}), WriteOptions(ADA))
    assert mark("mine") == {"service.sh/trusted": "false"}

    async def change(**fields: Any) -> None:
        def edit(old: Object) -> Object:
            return {**old, "spec": {**old["spec"], **fields}}

        await api.resource("App").modify("", "nginx", edit, WriteOptions(ADA))

    await change(description="x")
    assert mark("nginx") is None
    await change(config={"manifests": "kind: Secret\n"})
    assert mark("nginx") == {"service.sh/trusted": "false"}


@pytest.mark.parametrize(("target", "is_allowed"), [(CLUSTER_TARGET, False), (SPACE_TARGET, True)])
async def test_abandoning_a_release_in_a_cluster_needs_the_cluster(
    api: RegistryFixture, rights: Rights, target: Object, is_allowed: bool
) -> None:
    await create(api, target=target)
    rights.granted.clear()

    def abandon(old: Object) -> Object:
        return {**old, "metadata": {**old["metadata"], "annotations": {"service.sh/abandon": "true"}}}

    if is_allowed:
        await api.resource(APP).modify(NAMESPACE, "one", abandon, WriteOptions(ADA))
        return
    with pytest.raises(Forbidden, match="may not update the cluster"):
        await api.resource(APP).modify(NAMESPACE, "one", abandon, WriteOptions(ADA))
