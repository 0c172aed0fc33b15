"""Objects are created only in namespaces that exist and are not terminating."""

import pytest

from fairlead.core.errors import Forbidden, NotFound
from fairlead.storage.contract import Precondition
from tests.harness.registry import RegistryFixture


async def test_a_namespace_must_exist(api: RegistryFixture) -> None:
    with pytest.raises(NotFound, match='namespaces "nowhere" not found') as error:
        await api.create("ConfigMap", "c", "nowhere")
    assert (error.value.details.kind, error.value.details.name) == ("namespaces", "nowhere")


async def test_nothing_is_created_in_a_terminating_namespace(api: RegistryFixture) -> None:
    await api.delete("Namespace", "demo")
    with pytest.raises(Forbidden) as error:
        await api.create("DevPodWorkspaceInstance", "w")
    assert error.value.message == (
        'devpodworkspaceinstances.management.service.sh "w" is forbidden: '
        "unable to create new content in namespace demo because it is being terminated"
    )
    assert [problem.reason for problem in error.value.details.problems] == ["NamespaceTerminating"]


async def test_objects_in_a_terminating_namespace_can_be_updated_and_deleted(api: RegistryFixture) -> None:
    await api.create("ConfigMap", "c", metadata={"finalizers": ["x.io/a"]})
    await api.delete("Namespace", "demo")
    await api.patch("ConfigMap", "c", lambda obj: obj.update(data={"a": "1"}))
    assert not (await api.delete("ConfigMap", "c")).is_removed
    await api.patch("ConfigMap", "c", lambda obj: obj["metadata"].update(finalizers=[]))
    assert api.list_names("ConfigMap") == []


async def test_an_annotation_that_mentions_deletion_does_not_terminate_a_namespace(api: RegistryFixture) -> None:
    metadata = {"annotations": {"note": '"deletionTimestamp":"2026-01-01T00:00:00Z"'}}
    await api.patch("Namespace", "demo", lambda obj: obj["metadata"].update(metadata))
    await api.create("ConfigMap", "c")
    assert api.list_names("ConfigMap") == ["c"]


async def test_the_commit_has_a_precondition_on_the_namespace(api: RegistryFixture) -> None:
    namespace = api.resource("Namespace").get_cached("", "demo")
    assert namespace is not None
    await api.create("ConfigMap", "c")
    assert list(api.store.commits[-1][1]) == [Precondition(namespace.key, namespace.revision)]


async def test_cluster_scoped_objects_need_no_namespace(api: RegistryFixture) -> None:
    await api.create("Gadget", "g")
    assert list(api.store.commits[-1][1]) == []
