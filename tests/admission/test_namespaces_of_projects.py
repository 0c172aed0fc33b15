"""A project and its namespace are created in one commit and deleted together."""

import pytest

from fairlead.admission.namespaces import PROJECT_FINALIZER, PROJECT_LABEL
from fairlead.core.errors import AlreadyExists, Forbidden, Invalid
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.registry import object_metadata
from fairlead.registry.write_options import WriteOptions
from tests.harness.registry import RegistryFixture, write_options


async def create_namespace_as_server(api: RegistryFixture, name: str) -> None:
    """Creates a namespace as the server: nobody else may create those of projects."""
    await api.submit("Namespace", api.build_object("Namespace", name), WriteOptions(CONTROLLER_USER, "fairlead"))


async def test_a_project_and_its_namespace_are_created_in_one_commit(api: RegistryFixture) -> None:
    before = await api.store.revision()
    created = await api.create("Project", "demo", spec={"displayName": "Demo"})
    namespace = api.get("Namespace", "service-p-demo")
    assert namespace is not None
    assert await api.store.revision() == before + 1
    assert namespace["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"] == str(before + 1)
    assert namespace["metadata"]["labels"] == {
        PROJECT_LABEL: "demo",
        "kubernetes.io/metadata.name": "service-p-demo",
    }
    assert (namespace["spec"], namespace["status"]) == ({"finalizers": ["kubernetes"]}, {"phase": "Active"})
    assert namespace["metadata"]["uid"] != created["metadata"]["uid"]
    assert created["metadata"]["finalizers"] == [PROJECT_FINALIZER]
    await api.create("ConfigMap", "c", "service-p-demo")


async def test_a_project_keeps_its_own_finalizers(api: RegistryFixture) -> None:
    created = await api.create("Project", "demo", metadata={"finalizers": ["x.io/a"]})
    assert created["metadata"]["finalizers"] == ["x.io/a", PROJECT_FINALIZER]


async def test_a_project_whose_namespace_exists_is_not_created(api: RegistryFixture) -> None:
    await create_namespace_as_server(api, "service-p-demo")
    with pytest.raises(AlreadyExists, match='namespaces "service-p-demo" already exists'):
        await api.create("Project", "demo")
    assert api.list_names("Project") == []


async def test_a_duplicate_project_is_reported_and_its_namespace_unchanged(api: RegistryFixture) -> None:
    await api.create("Project", "demo")
    before = api.get("Namespace", "service-p-demo")
    with pytest.raises(AlreadyExists, match=r'projects\.management\.service\.sh "demo" already exists'):
        await api.create("Project", "demo")
    assert api.get("Namespace", "service-p-demo") == before


async def test_a_generated_name_is_used_for_the_namespace_too(
    api: RegistryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    generated = iter(["p-a", "p-a", "p-b"])
    monkeypatch.setattr(object_metadata, "generate_name", lambda prefix: next(generated))
    await api.create("Project", metadata={"generateName": "p-"})
    await api.create("Project", metadata={"generateName": "p-"})
    assert api.list_names("Project") == ["p-a", "p-b"]
    assert {"service-p-p-a", "service-p-p-b"} <= set(api.list_names("Namespace"))


async def test_a_generated_name_whose_namespace_exists_is_generated_again(
    api: RegistryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create_namespace_as_server(api, "service-p-p-a")
    generated = iter(["p-a", "p-b"])
    monkeypatch.setattr(object_metadata, "generate_name", lambda prefix: next(generated))
    created = await api.create("Project", metadata={"generateName": "p-"})
    assert created["metadata"]["name"] == "p-b"


@pytest.mark.parametrize("name", ["Bad_Name", "a.b", "x" * 54])
async def test_an_invalid_name_is_reported_for_the_project(api: RegistryFixture, name: str) -> None:
    """Users of projects need not know about namespaces."""
    with pytest.raises(Invalid) as error:
        await api.create("Project", name)
    assert (error.value.details.kind, error.value.details.name) == ("Project", name)
    assert {problem.field for problem in error.value.details.problems} == {"metadata.name"}
    assert api.list_names("Project") == []


async def test_all_errors_of_a_project_are_reported(api: RegistryFixture) -> None:
    with pytest.raises(Invalid) as error:
        await api.create("Project", "Bad_Name", spec={"owner": {"user": "a", "team": "b"}})
    assert [problem.field for problem in error.value.details.problems] == ["metadata.name", "spec.owner.team"]


async def test_a_project_without_a_name_is_invalid(api: RegistryFixture) -> None:
    with pytest.raises(Invalid) as error:
        await api.create("Project")
    assert [problem.field for problem in error.value.details.problems] == ["metadata.name"]


async def test_a_dry_run_creates_no_namespace(api: RegistryFixture) -> None:
    before = await api.store.revision()
    created = await api.submit("Project", api.build_object("Project", "demo"), write_options(dry_run=True))
    assert created["metadata"]["finalizers"] == [PROJECT_FINALIZER]
    assert await api.store.revision() == before
    assert "service-p-demo" not in api.list_names("Namespace")


async def test_a_dry_run_reports_that_the_namespace_exists(api: RegistryFixture) -> None:
    await create_namespace_as_server(api, "service-p-demo")
    with pytest.raises(AlreadyExists):
        await api.submit("Project", api.build_object("Project", "demo"), write_options(dry_run=True))


async def test_users_neither_create_nor_delete_the_namespace_of_a_project(api: RegistryFixture) -> None:
    await api.create("Project", "demo")
    with pytest.raises(Forbidden, match='it belongs to project "demo"; delete the project instead'):
        await api.delete("Namespace", "service-p-demo")
    with pytest.raises(Forbidden, match='it belongs to project "new"; create the project instead'):
        await api.create("Namespace", "service-p-new")
    namespace = api.get("Namespace", "service-p-demo")
    assert namespace is not None
    assert "deletionTimestamp" not in namespace["metadata"]


async def test_a_user_with_the_name_of_the_server_is_not_the_server(api: RegistryFixture) -> None:
    await api.create("Project", "demo")
    for user in (User(CONTROLLER_USER.name), User(CONTROLLER_USER.name, ("system:masters", "system:authenticated"))):
        with pytest.raises(Forbidden):
            await api.delete("Namespace", "service-p-demo", user=user)


async def test_a_generated_namespace_name_cannot_have_the_project_prefix(api: RegistryFixture) -> None:
    with pytest.raises(Forbidden):
        await api.create("Namespace", metadata={"generateName": "service-p-"})


async def test_the_namespace_of_a_project_can_be_labelled(api: RegistryFixture) -> None:
    await api.create("Project", "demo")
    updated = await api.patch("Namespace", "service-p-demo", lambda obj: obj["metadata"]["labels"].update(x="y"))
    assert updated["metadata"]["labels"]["x"] == "y"


async def test_other_namespaces_can_be_created_and_deleted(api: RegistryFixture) -> None:
    await api.create("Namespace", "service-px")
    assert not (await api.delete("Namespace", "service-px")).is_removed
    namespace = api.get("Namespace", "service-px")
    assert namespace is not None
    assert namespace["status"]["phase"] == "Terminating"


async def test_an_update_without_finalizers_keeps_the_finalizer_of_the_namespace(
    api: RegistryFixture,
) -> None:
    """Users keep manifests without finalizers and replace objects with them."""
    created = await api.create("Project", "demo")
    body = api.build_object("Project", "demo", metadata={"resourceVersion": created["metadata"]["resourceVersion"]})
    await api.replace("Project", body)
    deleted = await api.delete("Project", "demo")
    assert not deleted.is_removed, "the namespace still exists, and nobody could delete it any more"


async def test_the_finalizer_can_be_removed_while_the_project_terminates(api: RegistryFixture) -> None:
    await api.create("Project", "demo")
    await api.delete("Project", "demo")
    options = WriteOptions(CONTROLLER_USER, "fairlead")
    await api.patch("Project", "demo", lambda obj: obj["metadata"].update(finalizers=[]), options)
    assert api.list_names("Project") == []
