"""Objects are only made in namespaces that exist and are not about to go."""

import pytest

from fairlead.core.errors import Forbidden, NotFound
from fairlead.storage.contract import Precondition
from tests.harness.registry import RegistryFixture


async def test_a_namespace_must_exist(api: RegistryFixture) -> None:
    with pytest.raises(NotFound, match='namespaces "nowhere" not found') as caught:
        await api.create("ConfigMap", "c", "nowhere")
    assert (caught.value.details.kind, caught.value.details.name) == ("namespaces", "nowhere")


async def test_a_namespace_that_is_ending_takes_nothing_new(api: RegistryFixture) -> None:
    await api.delete("Namespace", "demo")
    with pytest.raises(Forbidden) as caught:
        await api.create("DevPodWorkspaceInstance", "w")
    assert caught.value.message == (
        'devpodworkspaceinstances.management.service.sh "w" is forbidden: '
        "unable to create new content in namespace demo because it is being terminated"
    )
    assert [problem.reason for problem in caught.value.details.problems] == ["NamespaceTerminating"]


async def test_what_is_in_an_ending_namespace_can_still_be_changed_and_deleted(api: RegistryFixture) -> None:
    await api.create("ConfigMap", "c", metadata={"finalizers": ["x.io/a"]})
    await api.delete("Namespace", "demo")
    await api.patch("ConfigMap", "c", lambda obj: obj.update(data={"a": "1"}))
    assert not (await api.delete("ConfigMap", "c")).is_removed
    await api.patch("ConfigMap", "c", lambda obj: obj["metadata"].update(finalizers=[]))
    assert api.names("ConfigMap") == []


async def test_a_note_that_mentions_deletion_does_not_end_a_namespace(api: RegistryFixture) -> None:
    note = {"annotations": {"note": '"deletionTimestamp":"2026-01-01T00:00:00Z"'}}
    await api.patch("Namespace", "demo", lambda obj: obj["metadata"].update(note))
    await api.create("ConfigMap", "c")
    assert api.names("ConfigMap") == ["c"]


async def test_the_commit_depends_on_the_namespace_as_it_was_seen(api: RegistryFixture) -> None:
    namespace = api.of("Namespace").get_cached("", "demo")
    assert namespace is not None
    await api.create("ConfigMap", "c")
    assert list(api.store.commits[-1][1]) == [Precondition(namespace.key, namespace.revision)]


async def test_objects_without_a_namespace_need_none(api: RegistryFixture) -> None:
    await api.create("Gadget", "g")
    assert list(api.store.commits[-1][1]) == []
