"""Tests of `fairlead.controllers.core.garbage_collector`: foreground deletion and orphaning."""

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from fairlead.controllers.core.garbage_collector import (
    MIN_FOREGROUND_SECONDS,
    MIN_SECONDS,
    REQUEUE_SECONDS,
    GarbageCollector,
)
from fairlead.registry.write_options import DeleteOptions
from tests.controllers.core.owners import (
    create_dependent,
    finalizers,
    is_being_deleted,
    owner_names,
    owner_reference,
    remove_finalizers,
    removed_names,
    set_owners,
)
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.registry import RegistryFixture, open_registry

FOREGROUND, ORPHAN, BACKGROUND = (
    DeleteOptions(propagation=policy) for policy in ("Foreground", "Orphan", "Background")
)


@pytest.fixture(autouse=True)
async def collector(api: RegistryFixture) -> AsyncIterator[None]:
    async with running_controllers(api, GarbageCollector(api.registry)):
        yield


@pytest.mark.parametrize(("policy", "minimum"), [(FOREGROUND, MIN_FOREGROUND_SECONDS), (ORPHAN, MIN_SECONDS)])
async def test_without_dependents_an_owner_is_deleted_after_the_minimum_time(
    api: RegistryFixture, policy: DeleteOptions, minimum: float
) -> None:
    await api.create("ConfigMap", "parent")
    await api.delete("ConfigMap", "parent", policy)
    await asyncio.sleep(minimum * 0.9)
    assert is_being_deleted(api, "parent")
    await asyncio.sleep(minimum * 0.2)
    assert api.get("ConfigMap", "parent") is None


async def test_in_the_foreground_an_owner_is_deleted_after_its_blocking_dependents(api: RegistryFixture) -> None:
    parent = await api.create("ConfigMap", "parent")
    await create_dependent(api, "a", parent, blocking=True)
    await create_dependent(api, "b", parent, blocking=True, finalizers=["x.io/hold"])
    await api.delete("ConfigMap", "parent", FOREGROUND)
    await eventually(lambda: is_being_deleted(api, "b"))
    assert finalizers(api, "b") == ["x.io/hold"], "an object without dependents does not wait"
    await asyncio.sleep(1_000)
    assert api.get("ConfigMap", "a") is None
    assert is_being_deleted(api, "parent")
    await remove_finalizers(api, "b")
    await eventually(lambda: api.get("ConfigMap", "parent") is None)
    assert removed_names(api) == ["a", "b", "parent"]


async def test_in_the_foreground_an_owner_does_not_wait_for_dependents_that_do_not_block(api: RegistryFixture) -> None:
    parent = await api.create("ConfigMap", "parent")
    await create_dependent(api, "a", parent)
    await create_dependent(api, "b", parent, finalizers=["x.io/hold"])
    await api.delete("ConfigMap", "parent", FOREGROUND)
    await eventually(lambda: api.list_names("ConfigMap") == ["b"])
    assert is_being_deleted(api, "b")


async def test_in_the_foreground_the_last_generation_is_deleted_first(api: RegistryFixture) -> None:
    parent = await api.create("ConfigMap", "g0")
    for generation in range(1, 6):
        parent = await create_dependent(api, f"g{generation}", parent, blocking=True)
    await api.delete("ConfigMap", "g0", FOREGROUND)
    await eventually(lambda: api.list_names("ConfigMap") == [])
    assert removed_names(api) == ["g5", "g4", "g3", "g2", "g1", "g0"]


async def test_in_the_foreground_a_dependent_with_another_owner_is_kept(api: RegistryFixture) -> None:
    parent, other = await api.create("ConfigMap", "parent"), await api.create("ConfigMap", "other")
    await create_dependent(api, "a", parent, other, blocking=True)
    await api.delete("ConfigMap", "parent", FOREGROUND)
    await eventually(lambda: api.get("ConfigMap", "parent") is None)
    assert owner_names(api, "a") == ["other"]
    assert not is_being_deleted(api, "a")


async def test_an_owner_does_not_wait_for_a_dependent_that_no_longer_blocks_it(api: RegistryFixture) -> None:
    parent = await api.create("ConfigMap", "parent")
    await create_dependent(api, "a", parent, blocking=True, finalizers=["x.io/hold"])
    await api.delete("ConfigMap", "parent", FOREGROUND)
    await eventually(lambda: is_being_deleted(api, "a"))
    await set_owners(api, "a", parent, blocking=False)
    await eventually(lambda: api.list_names("ConfigMap") == ["a"], seconds=REQUEUE_SECONDS / 2)


async def test_an_owner_does_not_wait_for_a_dependent_whose_deletion_the_watch_missed(api: RegistryFixture) -> None:
    """The collector is busy, and its watchers overflow: they lose the deletion of the dependent."""
    parent, other_parent = await api.create("Gadget", "parent"), await api.create("Secret", "other-parent")
    await create_dependent(api, "a", parent, blocking=True, finalizers=["x.io/hold"])
    await create_dependent(api, "b", other_parent, kind="Secret")
    await api.delete("Gadget", "parent", FOREGROUND)
    await eventually(lambda: is_being_deleted(api, "a"))
    await api.delete("Secret", "other-parent")
    api.store.before.append(lambda: asyncio.sleep(100))
    await asyncio.sleep(1)
    assert not api.store.before
    api.view._collection("", "configmaps").watchers.overflow()
    await remove_finalizers(api, "a")
    assert api.list_names("Gadget") == ["parent"]
    await eventually(lambda: api.list_names("Gadget") == [])


async def test_an_owner_that_is_recreated_concurrently_keeps_its_finalizer(api: RegistryFixture) -> None:
    async def recreate() -> None:
        await remove_finalizers(api, "parent")
        parent = await api.create("ConfigMap", "parent")
        await create_dependent(api, "a", parent, blocking=True, finalizers=["x.io/hold"])
        await api.delete("ConfigMap", "parent", FOREGROUND)

    await api.create("ConfigMap", "parent")
    await api.delete("ConfigMap", "parent", FOREGROUND)
    api.store.before.append(recreate)
    await asyncio.sleep(1_000)
    assert not api.store.before
    assert is_being_deleted(api, "parent")


async def test_a_foreground_deletion_is_continued_after_a_restart(api: RegistryFixture) -> None:
    parent = await api.create("ConfigMap", "parent")
    await create_dependent(api, "a", parent, blocking=True, finalizers=["x.io/hold"])
    await api.delete("ConfigMap", "parent", FOREGROUND)
    await eventually(lambda: is_being_deleted(api, "a"))
    async with (
        open_registry(api.store.inner) as restarted,
        running_controllers(restarted, GarbageCollector(restarted.registry)),
    ):
        await asyncio.sleep(1)
        assert is_being_deleted(restarted, "parent")
        await remove_finalizers(restarted, "a")
        await eventually(lambda: restarted.list_names("ConfigMap") == [])


async def test_the_policy_of_the_last_delete_request_is_used(api: RegistryFixture) -> None:
    parent = await api.create("ConfigMap", "parent", metadata={"finalizers": ["x.io/hold"]})
    await create_dependent(api, "a", parent, blocking=True, finalizers=["x.io/hold"])
    await api.delete("ConfigMap", "parent", FOREGROUND)
    await eventually(lambda: is_being_deleted(api, "a"))
    await api.delete("ConfigMap", "parent", BACKGROUND)
    await remove_finalizers(api, "parent")
    assert api.list_names("ConfigMap") == ["a"]


async def test_orphans_are_kept_and_lose_only_that_owner(api: RegistryFixture) -> None:
    parent, other = await api.create("ConfigMap", "parent"), await api.create("ConfigMap", "other")
    await create_dependent(api, "a", parent)
    await create_dependent(api, "b", parent, other, blocking=True)
    await api.delete("ConfigMap", "parent", ORPHAN)
    await eventually(lambda: api.get("ConfigMap", "parent") is None)
    assert (owner_names(api, "a"), owner_names(api, "b")) == ([], ["other"])
    await asyncio.sleep(1_000)
    assert not is_being_deleted(api, "a")
    assert not is_being_deleted(api, "b")


async def test_an_orphan_that_is_being_deleted_loses_its_owner(api: RegistryFixture) -> None:
    parent = await api.create("ConfigMap", "parent")
    await create_dependent(api, "a", parent, finalizers=["x.io/hold"])
    await api.delete("ConfigMap", "a")
    await api.delete("ConfigMap", "parent", ORPHAN)
    await eventually(lambda: api.get("ConfigMap", "parent") is None)
    assert owner_names(api, "a") == []


@pytest.mark.parametrize("policy", [FOREGROUND, ORPHAN])
async def test_a_dependent_created_during_the_deletion_of_its_owner_is_handled(
    api: RegistryFixture, policy: DeleteOptions
) -> None:
    parent = await api.create("ConfigMap", "parent")
    await api.delete("ConfigMap", "parent", policy)
    await asyncio.sleep(MIN_SECONDS / 2)
    await create_dependent(api, "a", parent)
    await eventually(lambda: api.get("ConfigMap", "parent") is None)
    await asyncio.sleep(1)
    assert api.list_names("ConfigMap") == ([] if policy is FOREGROUND else ["a"])


async def test_an_object_with_the_orphan_finalizer_orphans_its_dependents_when_collected(api: RegistryFixture) -> None:
    parent = await api.create("ConfigMap", "parent")
    middle = await create_dependent(api, "middle", parent, finalizers=["orphan"])
    await create_dependent(api, "a", middle)
    await api.delete("ConfigMap", "parent")
    await eventually(lambda: api.list_names("ConfigMap") == ["a"])
    assert owner_names(api, "a") == []


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("blocking", [True, False])
async def test_a_cycle_is_deleted_in_the_foreground(api: RegistryFixture, size: int, blocking: bool) -> None:
    names = [f"c{number}" for number in range(size)]
    created = [await api.create("ConfigMap", name) for name in names]
    for number, name in enumerate(names):
        await set_owners(api, name, created[number - 1], blocking=blocking)
    await api.delete("ConfigMap", "c0", FOREGROUND)
    await eventually(lambda: api.list_names("ConfigMap") == [])


async def test_a_cycle_is_deleted_if_all_its_objects_are_deleted_concurrently(api: RegistryFixture) -> None:
    a, b = await api.create("ConfigMap", "a"), await api.create("ConfigMap", "b")
    await set_owners(api, "a", b, blocking=True)
    await set_owners(api, "b", a, blocking=True)
    await asyncio.gather(api.delete("ConfigMap", "a", FOREGROUND), api.delete("ConfigMap", "b", FOREGROUND))
    await eventually(lambda: api.list_names("ConfigMap") == [])


async def test_the_owner_of_a_cycle_is_deleted_after_it(api: RegistryFixture) -> None:
    parent = await api.create("ConfigMap", "parent")
    a = await create_dependent(api, "a", parent, blocking=True)
    b = await create_dependent(api, "b", a, blocking=True)
    await set_owners(api, "a", parent, b, blocking=True)
    await api.delete("ConfigMap", "b", FOREGROUND)
    await eventually(lambda: api.get("ConfigMap", "b") is None)
    assert owner_names(api, "a") == ["parent"], "an owner outside of the cycle keeps it"
    b = await create_dependent(api, "b", a, blocking=True)
    await set_owners(api, "a", parent, b, blocking=True)
    await api.delete("ConfigMap", "parent", FOREGROUND)
    await api.delete("ConfigMap", "b", FOREGROUND)
    await eventually(lambda: api.list_names("ConfigMap") == [])
    assert removed_names(api)[-1] == "parent"


async def test_a_cycle_waits_for_a_dependent_with_a_finalizer(api: RegistryFixture) -> None:
    a, b = await api.create("ConfigMap", "a"), await api.create("ConfigMap", "b")
    await set_owners(api, "a", b, blocking=True)
    await set_owners(api, "b", a, blocking=True)
    await create_dependent(api, "held", a, blocking=True, finalizers=["x.io/hold"])
    await api.delete("ConfigMap", "a", FOREGROUND)
    await asyncio.sleep(1_000)
    assert is_being_deleted(api, "a")
    await remove_finalizers(api, "held")
    await eventually(lambda: api.list_names("ConfigMap") == [])
    assert removed_names(api)[0] == "held"


async def test_a_cycle_waits_for_its_own_objects_with_finalizers(api: RegistryFixture) -> None:
    a = await api.create("ConfigMap", "a")
    b = await create_dependent(api, "b", a, blocking=True, finalizers=["x.io/hold"])
    await set_owners(api, "a", b, blocking=True)
    await api.delete("ConfigMap", "b", BACKGROUND)
    await api.delete("ConfigMap", "a", FOREGROUND)
    await asyncio.sleep(1_000)
    assert is_being_deleted(api, "a")
    await remove_finalizers(api, "b")
    await eventually(lambda: api.list_names("ConfigMap") == [])


async def test_a_cycle_waits_for_a_dependent_whose_foreground_finalizer_is_not_processed_yet(
    api: RegistryFixture,
) -> None:
    a, b = await api.create("ConfigMap", "a"), await api.create("ConfigMap", "b")
    await set_owners(api, "a", b, blocking=True)
    await set_owners(api, "b", a, blocking=True)
    await create_dependent(api, "c", a, blocking=True, finalizers=["x.io/hold"])
    await api.delete("ConfigMap", "a", FOREGROUND)
    await asyncio.sleep(MIN_FOREGROUND_SECONDS * 0.9)
    await api.delete("ConfigMap", "c", FOREGROUND)
    await api.patch("ConfigMap", "a", lambda obj: obj.update(data={"trigger": "now"}))
    await asyncio.sleep(1_000)
    assert is_being_deleted(api, "a")
    await remove_finalizers(api, "c")
    await eventually(lambda: api.list_names("ConfigMap") == [])


@pytest.mark.parametrize("seed", range(20))
async def test_after_deletions_in_a_random_graph_no_object_waits_or_lacks_an_owner(
    api: RegistryFixture, seed: int
) -> None:
    """Random graphs with cycles, and random policies."""
    rng = random.Random(seed)
    names = [f"c{number}" for number in range(8)]
    created = {name: await api.create("ConfigMap", name) for name in names}
    roots = set(rng.sample(names, 3))
    for name in sorted(set(names) - roots):
        references = [
            owner_reference(created[owner_name], blocking=rng.random() < 0.7)
            for owner_name in rng.sample(names, rng.randint(1, 3))
        ]
        created[name]["metadata"].update(ownerReferences=references)
        created[name] = await api.replace("ConfigMap", created[name])
    deleted = rng.sample(names, 3)
    for name in deleted:
        if api.get("ConfigMap", name) is not None:
            await api.delete("ConfigMap", name, rng.choice([FOREGROUND, FOREGROUND, ORPHAN, BACKGROUND]))
    await asyncio.sleep(REQUEUE_SECONDS / 2)
    remaining = api.list_names("ConfigMap")
    assert not [name for name in remaining if is_being_deleted(api, name)]
    assert not [name for name in remaining if not set(owner_names(api, name)) <= set(remaining)]
    assert roots - set(deleted) <= set(remaining), "objects without owners are not collected"
