"""Objects are only made in namespaces that exist and are not about to go."""

import pytest

from fairlead.core.errors import Forbidden, NotFound
from fairlead.storage.contract import Precondition
from tests.harness.registry import World


async def test_a_namespace_must_exist(world: World) -> None:
    with pytest.raises(NotFound, match='namespaces "nowhere" not found') as caught:
        await world.create("ConfigMap", "c", "nowhere")
    assert (caught.value.details.kind, caught.value.details.name) == ("namespaces", "nowhere")


async def test_a_namespace_that_is_ending_takes_nothing_new(world: World) -> None:
    await world.delete("Namespace", "demo")
    with pytest.raises(Forbidden) as caught:
        await world.create("DevPodWorkspaceInstance", "w")
    assert caught.value.message == (
        'devpodworkspaceinstances.management.service.sh "w" is forbidden: '
        "unable to create new content in namespace demo because it is being terminated"
    )
    assert [problem.reason for problem in caught.value.details.problems] == ["NamespaceTerminating"]


async def test_what_is_in_an_ending_namespace_can_still_be_changed_and_deleted(world: World) -> None:
    await world.create("ConfigMap", "c", metadata={"finalizers": ["x.io/a"]})
    await world.delete("Namespace", "demo")
    await world.patch("ConfigMap", "c", lambda obj: obj.update(data={"a": "1"}))
    assert not (await world.delete("ConfigMap", "c")).is_removed
    await world.patch("ConfigMap", "c", lambda obj: obj["metadata"].update(finalizers=[]))
    assert world.names("ConfigMap") == []


async def test_a_note_that_mentions_deletion_does_not_end_a_namespace(world: World) -> None:
    note = {"annotations": {"note": '"deletionTimestamp":"2026-01-01T00:00:00Z"'}}
    await world.patch("Namespace", "demo", lambda obj: obj["metadata"].update(note))
    await world.create("ConfigMap", "c")
    assert world.names("ConfigMap") == ["c"]


async def test_the_commit_depends_on_the_namespace_as_it_was_seen(world: World) -> None:
    namespace = world.of("Namespace").get_cached("", "demo")
    assert namespace is not None
    await world.create("ConfigMap", "c")
    assert list(world.store.commits[-1][1]) == [Precondition(namespace.key, namespace.revision)]


async def test_objects_without_a_namespace_need_none(world: World) -> None:
    await world.create("Gadget", "g")
    assert list(world.store.commits[-1][1]) == []
