"""What the garbage collector and deletions go by is not everybody's to write."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from fairlead.admission.owners_and_finalizers import ProtectedObjects, protect_metadata
from fairlead.core.call import Decision, RequestInfo
from fairlead.core.errors import Forbidden
from fairlead.core.objects import Object
from fairlead.core.scope import Scope
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.registry.write_options import WriteOptions
from tests.harness.registry import ADA, RegistryFixture, open_registry

ROOT = User("root", ("system:masters",))
SCOPED = User("root", ("system:masters",), scope=Scope(projects=("*",)))
BOB = User("bob")
DEAD = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "dead"}
SERVER = WriteOptions(CONTROLLER_USER)
NAMES = ("service-p-x", "service-system", "default")


def may(user: User, target: RequestInfo) -> Decision:
    """Bob may delete what he likes, and Ada nothing."""
    assert target.verb == "delete"
    return Decision(user.name == "bob")


@pytest.fixture
async def api() -> AsyncIterator[RegistryFixture]:
    protected = ProtectedObjects("service-p-", ("default", "service-system"), "service-system")
    async with open_registry(rules=(protect_metadata(may, protected),)) as made:
        for name in NAMES[:2]:
            await made.submit("Namespace", made.body("Namespace", name), SERVER)
        yield made


def giving(field: str, value: Any) -> Callable[[Object], object]:
    return lambda each: each["metadata"].update({field: value})


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("by", [ADA, BOB, SCOPED, ROOT])
async def test_a_namespace_that_the_server_relies_on_gets_no_owner(api: RegistryFixture, name: str, by: User) -> None:
    with pytest.raises(Forbidden, match="leave its ownerReferences out"):
        await api.patch("Namespace", name, giving("ownerReferences", [DEAD]), WriteOptions(by))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("by", [ADA, BOB, SCOPED])
@pytest.mark.parametrize("subresource", ["", "finalize"])
async def test_nobody_else_holds_such_a_namespace_or_lets_it_go(
    api: RegistryFixture, name: str, by: User, subresource: str
) -> None:
    def hold(each: Object) -> None:
        each["metadata"]["finalizers"] = ["example.com/x"]
        each["spec"] = {"finalizers": []}

    with pytest.raises(Forbidden, match="finalizers are managed by the server"):
        await api.patch("Namespace", name, hold, WriteOptions(by, subresource=subresource))


async def test_a_status_brings_nothing_along(api: RegistryFixture) -> None:
    before = api.see("Namespace", "service-p-x")
    for field, value in (("finalizers", ["example.com/x"]), ("ownerReferences", [DEAD])):
        await api.patch("Namespace", "service-p-x", giving(field, value), WriteOptions(ADA, subresource="status"))
    assert api.see("Namespace", "service-p-x") == before


async def test_other_namespaces_are_their_owners_matter(api: RegistryFixture) -> None:
    await api.create("Namespace", "free")
    await api.patch("Namespace", "free", giving("finalizers", ["example.com/x"]))
    await api.patch("Namespace", "free", giving("ownerReferences", [DEAD]), WriteOptions(BOB))


@pytest.mark.parametrize("kind", ["Secret", "ConfigMap"])
async def test_what_is_in_the_servers_namespace_is_its_own(api: RegistryFixture, kind: str) -> None:
    body = api.body(kind, "a", "service-system", metadata={"ownerReferences": [DEAD]})
    for by in (ADA, BOB):
        with pytest.raises(Forbidden):
            await api.submit(kind, body, WriteOptions(by))
    await api.submit(kind, body, WriteOptions(ROOT))


async def test_a_default_role_gets_no_owner(api: RegistryFixture) -> None:
    labelled = {"labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}}
    await api.submit("ClusterRole", api.body("ClusterRole", "admin", metadata=labelled, rules=[]), SERVER)
    for field, value in (("ownerReferences", [DEAD]), ("finalizers", ["example.com/x"])):
        with pytest.raises(Forbidden):
            await api.patch("ClusterRole", "admin", giving(field, value), WriteOptions(BOB))


@pytest.mark.parametrize("references", [[DEAD], [{**DEAD, "uid": "other"}], []])
async def test_changing_owners_takes_the_right_to_delete(api: RegistryFixture, references: list[Object]) -> None:
    await api.create("ConfigMap", "a", metadata={"ownerReferences": [{**DEAD, "uid": "first"}]})
    with pytest.raises(Forbidden, match="may not delete it"):
        await api.patch("ConfigMap", "a", giving("ownerReferences", references))
    await api.patch("ConfigMap", "a", giving("labels", {"a": "b"}))
    await api.patch("ConfigMap", "a", giving("ownerReferences", references), WriteOptions(BOB))


@pytest.mark.parametrize("by", [ADA, BOB, SCOPED])
async def test_finalizers_of_the_server_are_neither_removed_nor_set_by_others(api: RegistryFixture, by: User) -> None:
    await api.create("Project", "x-y", spec={})
    own, others = "service.sh/space", ["example.com/one", "example.com/two"]
    body = api.body("SpaceInstance", "a", "demo", metadata={"finalizers": [own, *others[:1]]}, spec={})
    writing = WriteOptions(by)
    assert (await api.submit("SpaceInstance", body, writing))["metadata"]["finalizers"] == others[:1]
    assert any("only the server sets and removes" in each for each in writing.warnings)
    await api.patch("SpaceInstance", "a", giving("finalizers", [own, *others]), SERVER)
    for asked in ([], others, None, ["service.sh/other", others[0]]):
        after = await api.patch("SpaceInstance", "a", giving("finalizers", asked), WriteOptions(by))
        assert after["metadata"]["finalizers"] == [each for each in others if each in (asked or ())] + [own]
        await api.patch("SpaceInstance", "a", giving("finalizers", [own, *others]), SERVER)
    after = await api.patch("SpaceInstance", "a", giving("finalizers", []), WriteOptions(ROOT))
    assert "finalizers" not in after["metadata"]


async def test_an_instance_that_is_being_deleted_is_not_let_go_by_its_owner(api: RegistryFixture) -> None:
    body = api.body("SpaceInstance", "a", "demo", metadata={"finalizers": ["service.sh/space"]}, spec={})
    await api.submit("SpaceInstance", body, SERVER)
    await api.delete("SpaceInstance", "a")
    await api.patch("SpaceInstance", "a", giving("finalizers", []))
    assert api.see("SpaceInstance", "a") is not None
    await api.patch("SpaceInstance", "a", giving("finalizers", []), SERVER)
    assert api.see("SpaceInstance", "a") is None
