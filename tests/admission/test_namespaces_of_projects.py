"""A project and its namespace: one commit, one fate, and nobody takes only one of them away."""

import pytest

from fairlead.admission.namespaces import PROJECT_FINALIZER, PROJECT_LABEL
from fairlead.core.errors import AlreadyExists, Forbidden, Invalid
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.registry import object_metadata as meta_module
from fairlead.registry.write_options import WriteOptions
from tests.harness.registry import RegistryFixture, as_ada


async def make_namespace(api: RegistryFixture, name: str) -> None:
    """As only the server itself may."""
    await api.submit("Namespace", api.body("Namespace", name), WriteOptions(CONTROLLER_USER, "fairlead"))


async def test_a_project_and_its_namespace_come_in_one_commit(api: RegistryFixture) -> None:
    before = await api.store.revision()
    made = await api.create("Project", "demo", spec={"displayName": "Demo"})
    namespace = api.see("Namespace", "service-p-demo")
    assert namespace is not None
    assert await api.store.revision() == before + 1
    assert namespace["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"] == str(before + 1)
    assert namespace["metadata"]["labels"] == {
        PROJECT_LABEL: "demo",
        "kubernetes.io/metadata.name": "service-p-demo",
    }
    assert (namespace["spec"], namespace["status"]) == ({"finalizers": ["kubernetes"]}, {"phase": "Active"})
    assert namespace["metadata"]["uid"] != made["metadata"]["uid"]
    assert made["metadata"]["finalizers"] == [PROJECT_FINALIZER]
    await api.create("ConfigMap", "c", "service-p-demo")


async def test_a_projects_own_finalizers_are_kept_beside_ours(api: RegistryFixture) -> None:
    made = await api.create("Project", "demo", metadata={"finalizers": ["x.io/a"]})
    assert made["metadata"]["finalizers"] == ["x.io/a", PROJECT_FINALIZER]


async def test_a_project_whose_namespace_is_taken_does_not_come_at_all(api: RegistryFixture) -> None:
    await make_namespace(api, "service-p-demo")
    with pytest.raises(AlreadyExists, match='namespaces "service-p-demo" already exists'):
        await api.create("Project", "demo")
    assert api.names("Project") == []


async def test_a_taken_project_is_told_of_the_project_and_leaves_the_namespace_alone(api: RegistryFixture) -> None:
    await api.create("Project", "demo")
    before = api.see("Namespace", "service-p-demo")
    with pytest.raises(AlreadyExists, match=r'projects\.management\.service\.sh "demo" already exists'):
        await api.create("Project", "demo")
    assert api.see("Namespace", "service-p-demo") == before


async def test_a_name_that_the_server_draws_names_the_namespace_too(
    api: RegistryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = iter(["p-a", "p-a", "p-b"])
    monkeypatch.setattr(meta_module, "generate_name", lambda prefix: next(drawn))
    await api.create("Project", metadata={"generateName": "p-"})
    await api.create("Project", metadata={"generateName": "p-"})
    assert api.names("Project") == ["p-a", "p-b"]
    assert {"service-p-p-a", "service-p-p-b"} <= set(api.names("Namespace"))


async def test_a_drawn_name_whose_namespace_is_taken_is_drawn_again(
    api: RegistryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_namespace(api, "service-p-p-a")
    drawn = iter(["p-a", "p-b"])
    monkeypatch.setattr(meta_module, "generate_name", lambda prefix: next(drawn))
    made = await api.create("Project", metadata={"generateName": "p-"})
    assert made["metadata"]["name"] == "p-b"


@pytest.mark.parametrize("name", ["Bad_Name", "a.b", "x" * 54])
async def test_what_is_wrong_with_a_projects_name_is_told_of_the_project(api: RegistryFixture, name: str) -> None:
    """Its user has never heard of a namespace."""
    with pytest.raises(Invalid) as caught:
        await api.create("Project", name)
    assert (caught.value.details.kind, caught.value.details.name) == ("Project", name)
    assert {problem.field for problem in caught.value.details.problems} == {"metadata.name"}
    assert api.names("Project") == []


async def test_a_project_with_several_faults_is_told_of_all_of_them(api: RegistryFixture) -> None:
    with pytest.raises(Invalid) as caught:
        await api.create("Project", "Bad_Name", spec={"owner": {"user": "a", "team": "b"}})
    assert [problem.field for problem in caught.value.details.problems] == ["metadata.name", "spec.owner.team"]


async def test_a_project_without_a_name_is_told_that_it_needs_one(api: RegistryFixture) -> None:
    with pytest.raises(Invalid) as caught:
        await api.create("Project")
    assert [problem.field for problem in caught.value.details.problems] == ["metadata.name"]


async def test_a_dry_run_of_a_project_leaves_no_namespace_behind(api: RegistryFixture) -> None:
    before = await api.store.revision()
    made = await api.submit("Project", api.body("Project", "demo"), as_ada(dry_run=True))
    assert made["metadata"]["finalizers"] == [PROJECT_FINALIZER]
    assert await api.store.revision() == before
    assert "service-p-demo" not in api.names("Namespace")


async def test_a_dry_run_notices_that_the_namespace_is_taken(api: RegistryFixture) -> None:
    await make_namespace(api, "service-p-demo")
    with pytest.raises(AlreadyExists):
        await api.submit("Project", api.body("Project", "demo"), as_ada(dry_run=True))


async def test_a_projects_namespace_is_neither_made_nor_deleted_by_itself(api: RegistryFixture) -> None:
    await api.create("Project", "demo")
    with pytest.raises(Forbidden, match='it belongs to project "demo"; delete the project instead'):
        await api.delete("Namespace", "service-p-demo")
    with pytest.raises(Forbidden, match='it belongs to project "new"; create the project instead'):
        await api.create("Namespace", "service-p-new")
    found = api.see("Namespace", "service-p-demo")
    assert found is not None
    assert "deletionTimestamp" not in found["metadata"]


async def test_nobody_passes_for_the_server_by_taking_its_name(api: RegistryFixture) -> None:
    await api.create("Project", "demo")
    for user in (User(CONTROLLER_USER.name), User(CONTROLLER_USER.name, ("system:masters", "system:authenticated"))):
        with pytest.raises(Forbidden):
            await api.delete("Namespace", "service-p-demo", user=user)


async def test_a_namespace_whose_name_is_drawn_cannot_slip_into_the_projects_names(api: RegistryFixture) -> None:
    with pytest.raises(Forbidden):
        await api.create("Namespace", metadata={"generateName": "service-p-"})


async def test_a_projects_namespace_can_be_labelled_by_those_who_may(api: RegistryFixture) -> None:
    await api.create("Project", "demo")
    changed = await api.patch("Namespace", "service-p-demo", lambda obj: obj["metadata"]["labels"].update(x="y"))
    assert changed["metadata"]["labels"]["x"] == "y"


async def test_other_namespaces_come_and_go_as_in_kubernetes(api: RegistryFixture) -> None:
    await api.create("Namespace", "service-px")
    assert not (await api.delete("Namespace", "service-px")).is_removed
    found = api.see("Namespace", "service-px")
    assert found is not None
    assert found["status"]["phase"] == "Terminating"


async def test_an_update_without_finalizers_does_not_let_a_project_go_without_its_namespace(
    api: RegistryFixture,
) -> None:
    """People keep their files without finalizers and replace what is there with them."""
    made = await api.create("Project", "demo")
    body = api.body("Project", "demo", metadata={"resourceVersion": made["metadata"]["resourceVersion"]})
    await api.put("Project", body)
    deleted = await api.delete("Project", "demo")
    assert not deleted.is_removed, "the namespace is still there, and nobody could delete it any more"


async def test_the_finalizer_can_be_taken_off_once_the_project_is_ending(api: RegistryFixture) -> None:
    await api.create("Project", "demo")
    await api.delete("Project", "demo")
    writing = WriteOptions(CONTROLLER_USER, "fairlead")
    await api.patch("Project", "demo", lambda obj: obj["metadata"].update(finalizers=[]), writing)
    assert api.names("Project") == []
