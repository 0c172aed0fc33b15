"""Owner references and finalizers of protected objects, and the permissions that changing them requires."""

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
MISSING_OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "dead"}
SERVER = WriteOptions(CONTROLLER_USER)
NAMES = ("service-p-x", "service-system", "default")


def authorize(user: User, target: RequestInfo) -> Decision:
    """Allows Bob to delete everything, and Ada nothing."""
    assert target.verb == "delete"
    return Decision(user.name == "bob")


@pytest.fixture
async def api() -> AsyncIterator[RegistryFixture]:
    protected = ProtectedObjects("service-p-", ("default", "service-system"), "service-system")
    async with open_registry(rules=(protect_metadata(authorize, protected),)) as fixture:
        for name in NAMES[:2]:
            await fixture.submit("Namespace", fixture.build_object("Namespace", name), SERVER)
        yield fixture


def set_metadata(field: str, value: Any) -> Callable[[Object], object]:
    return lambda each: each["metadata"].update({field: value})


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("user", [ADA, BOB, SCOPED, ROOT])
async def test_a_protected_namespace_gets_no_owner(api: RegistryFixture, name: str, user: User) -> None:
    with pytest.raises(Forbidden, match="leave its ownerReferences out"):
        await api.patch("Namespace", name, set_metadata("ownerReferences", [MISSING_OWNER]), WriteOptions(user))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("user", [ADA, BOB, SCOPED])
@pytest.mark.parametrize("subresource", ["", "finalize"])
async def test_only_the_server_changes_finalizers_of_a_protected_namespace(
    api: RegistryFixture, name: str, user: User, subresource: str
) -> None:
    def set_finalizers(each: Object) -> None:
        each["metadata"]["finalizers"] = ["example.com/x"]
        each["spec"] = {"finalizers": []}

    with pytest.raises(Forbidden, match="finalizers are managed by the server"):
        await api.patch("Namespace", name, set_finalizers, WriteOptions(user, subresource=subresource))


async def test_a_status_update_ignores_metadata(api: RegistryFixture) -> None:
    for field, value in (("finalizers", ["example.com/x"]), ("ownerReferences", [MISSING_OWNER])):
        await api.patch("Namespace", "service-p-x", set_metadata(field, value), WriteOptions(ADA, subresource="status"))
        after = api.get("Namespace", "service-p-x")
        assert after is not None
        assert field not in after["metadata"]


async def test_other_namespaces_can_have_finalizers_and_owners(api: RegistryFixture) -> None:
    await api.create("Namespace", "free")
    await api.patch("Namespace", "free", set_metadata("finalizers", ["example.com/x"]))
    await api.patch("Namespace", "free", set_metadata("ownerReferences", [MISSING_OWNER]), WriteOptions(BOB))


@pytest.mark.parametrize("kind", ["Secret", "ConfigMap"])
async def test_only_administrators_set_owners_in_the_system_namespace(api: RegistryFixture, kind: str) -> None:
    body = api.build_object(kind, "a", "service-system", metadata={"ownerReferences": [MISSING_OWNER]})
    for user in (ADA, BOB):
        with pytest.raises(Forbidden):
            await api.submit(kind, body, WriteOptions(user))
    await api.submit(kind, body, WriteOptions(ROOT))


async def test_a_default_role_gets_no_owner(api: RegistryFixture) -> None:
    metadata = {"labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}}
    await api.submit("ClusterRole", api.build_object("ClusterRole", "admin", metadata=metadata, rules=[]), SERVER)
    for field, value in (("ownerReferences", [MISSING_OWNER]), ("finalizers", ["example.com/x"])):
        with pytest.raises(Forbidden):
            await api.patch("ClusterRole", "admin", set_metadata(field, value), WriteOptions(BOB))


@pytest.mark.parametrize("references", [[MISSING_OWNER], [{**MISSING_OWNER, "uid": "other"}], []])
async def test_changing_owners_requires_permission_to_delete(api: RegistryFixture, references: list[Object]) -> None:
    await api.create("ConfigMap", "a", metadata={"ownerReferences": [{**MISSING_OWNER, "uid": "first"}]})
    with pytest.raises(Forbidden, match="may not delete it"):
        await api.patch("ConfigMap", "a", set_metadata("ownerReferences", references))
    await api.patch("ConfigMap", "a", set_metadata("labels", {"a": "b"}))
    await api.patch("ConfigMap", "a", set_metadata("ownerReferences", references), WriteOptions(BOB))


@pytest.mark.parametrize("user", [ADA, BOB, SCOPED])
async def test_only_the_server_sets_and_removes_its_finalizers(api: RegistryFixture, user: User) -> None:
    await api.create("Project", "x-y", spec={})
    own, others = "service.sh/space", ["example.com/one", "example.com/two"]
    body = api.build_object("SpaceInstance", "a", "demo", metadata={"finalizers": [own, *others[:1]]}, spec={})
    options = WriteOptions(user)
    assert (await api.submit("SpaceInstance", body, options))["metadata"]["finalizers"] == others[:1]
    assert any("only the server sets and removes" in each for each in options.warnings)
    await api.patch("SpaceInstance", "a", set_metadata("finalizers", [own, *others]), SERVER)
    for sent in ([], others, None, ["service.sh/other", others[0]]):
        after = await api.patch("SpaceInstance", "a", set_metadata("finalizers", sent), WriteOptions(user))
        assert after["metadata"]["finalizers"] == [each for each in others if each in (sent or ())] + [own]
        await api.patch("SpaceInstance", "a", set_metadata("finalizers", [own, *others]), SERVER)
    after = await api.patch("SpaceInstance", "a", set_metadata("finalizers", []), WriteOptions(ROOT))
    assert "finalizers" not in after["metadata"]


async def test_the_owner_cannot_remove_the_finalizer_of_a_terminating_instance(api: RegistryFixture) -> None:
    body = api.build_object("SpaceInstance", "a", "demo", metadata={"finalizers": ["service.sh/space"]}, spec={})
    await api.submit("SpaceInstance", body, SERVER)
    await api.delete("SpaceInstance", "a")
    await api.patch("SpaceInstance", "a", set_metadata("finalizers", []))
    assert api.get("SpaceInstance", "a") is not None
    await api.patch("SpaceInstance", "a", set_metadata("finalizers", []), SERVER)
    assert api.get("SpaceInstance", "a") is None
