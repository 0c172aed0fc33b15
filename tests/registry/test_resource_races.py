"""registry/resource.py: concurrent writes, and changes between read and commit."""

import asyncio
from typing import Any

import pytest

from fairlead.core.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound
from fairlead.core.objects import Object
from fairlead.registry import object_metadata as meta_module
from fairlead.registry.write_options import DeleteOptions
from fairlead.storage import contract
from tests.harness.registry import RegistryFixture, write_options


def increment_size(obj: Object) -> None:
    obj["spec"]["size"] += 1


async def read_size(api: RegistryFixture, name: str = "a") -> int:
    await api.view.wait_current()
    found = api.get("Gadget", name)
    assert found is not None
    number: int = found["spec"]["size"]
    return number


@pytest.mark.parametrize("writers", [2, 8, 40])
async def test_concurrent_patches_of_one_object_are_all_applied(api: RegistryFixture, writers: int) -> None:
    """A patch applies to the current object, so none of them conflicts."""
    await api.create("Gadget", "a", spec={"size": 0})
    await asyncio.gather(*(api.patch("Gadget", "a", increment_size) for _ in range(writers)))
    assert await read_size(api) == writers


async def test_of_many_updates_with_the_same_resource_version_exactly_one_succeeds(api: RegistryFixture) -> None:
    created = await api.create("Gadget", "a", spec={"size": 0})
    bodies = [{**created, "spec": {"size": number}} for number in range(1, 9)]
    results = await asyncio.gather(*(api.replace("Gadget", body) for body in bodies), return_exceptions=True)
    winners = [result for result in results if isinstance(result, dict)]
    assert len(winners) == 1
    assert all(isinstance(result, Conflict) for result in results if not isinstance(result, dict))
    assert winners[0] == api.get("Gadget", "a")


async def test_of_many_creates_of_one_name_exactly_one_succeeds(api: RegistryFixture) -> None:
    results = await asyncio.gather(
        *(api.create("Gadget", "a", spec={"size": number}) for number in range(8)), return_exceptions=True
    )
    winners = [result for result in results if isinstance(result, dict)]
    assert len(winners) == 1
    assert sum(isinstance(result, AlreadyExists) for result in results) == 7
    assert winners[0] == api.get("Gadget", "a")


async def test_concurrent_creates_with_generate_name_get_distinct_names(
    api: RegistryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = iter(f"job-{number // 2}" for number in range(100))
    monkeypatch.setattr(meta_module, "generate_name", lambda prefix: next(names))
    created = await asyncio.gather(*(api.create("Gadget", metadata={"generateName": "job-"}) for _ in range(10)))
    assert len({each["metadata"]["name"] for each in created}) == 10
    assert len({each["metadata"]["uid"] for each in created}) == 10


async def test_of_many_deletes_of_one_object_exactly_one_succeeds(api: RegistryFixture) -> None:
    await api.create("Gadget", "a")
    results = await asyncio.gather(*(api.delete("Gadget", "a") for _ in range(8)), return_exceptions=True)
    assert sum(isinstance(result, NotFound) for result in results) == 7


async def test_a_patch_that_lost_a_race_is_retried_on_the_new_object(api: RegistryFixture) -> None:
    await api.create("Gadget", "a", spec={"size": 0})
    api.store.before = [lambda: api.patch("Gadget", "a", lambda obj: obj["spec"].update(on=True))]
    changed = await api.patch("Gadget", "a", increment_size)
    assert (changed["spec"]["size"], changed["spec"]["on"]) == (1, True)
    assert changed["metadata"]["generation"] == 3


async def test_a_patch_of_an_object_deleted_meanwhile_gives_not_found(api: RegistryFixture) -> None:
    await api.create("Gadget", "a", spec={"size": 0})
    api.store.before = [lambda: api.delete("Gadget", "a")]
    with pytest.raises(NotFound):
        await api.patch("Gadget", "a", increment_size)
    assert api.list_names("Gadget") == []


async def test_a_delete_whose_preconditions_fail_after_a_race_is_rejected(api: RegistryFixture) -> None:
    async def replace() -> None:
        await api.delete("Gadget", "a")
        await api.create("Gadget", "a")

    await api.create("Gadget", "a")
    for condition, field in (("resource_version", "resourceVersion"), ("uid", "uid")):
        found = api.get("Gadget", "a")
        assert found is not None
        api.store.before = [replace]
        with pytest.raises(Conflict):
            await api.delete("Gadget", "a", DeleteOptions(**{condition: found["metadata"][field]}))


async def test_a_delete_that_lost_a_race_respects_the_new_finalizer(api: RegistryFixture) -> None:
    await api.create("Gadget", "a")
    api.store.before = [
        lambda: api.patch("Gadget", "a", lambda obj: obj["metadata"].update(finalizers=["x.io/a"])),
    ]
    assert not (await api.delete("Gadget", "a")).is_removed
    found = api.get("Gadget", "a")
    assert found is not None
    assert "deletionTimestamp" in found["metadata"]


async def test_warnings_of_a_retried_patch_are_sent_once(api: RegistryFixture) -> None:
    await api.create("Gadget", "a", spec={"size": 0})
    api.store.before = [
        lambda: api.patch("Gadget", "a", increment_size),
        lambda: api.patch("Gadget", "a", increment_size),
    ]
    writing = write_options()
    await api.patch("Gadget", "a", lambda obj: obj["spec"].update(size=200, sise=1), writing)
    assert sorted(writing.warnings) == ["spec.size is large", 'unknown field "spec.sise"']


async def test_warnings_of_a_create_with_retried_names_are_sent_once(
    api: RegistryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = iter(["job-a", "job-a", "job-b"])
    monkeypatch.setattr(meta_module, "generate_name", lambda prefix: next(names))
    await api.create("Gadget", metadata={"generateName": "job-"})
    writing = write_options()
    body = api.build_object("Gadget", metadata={"generateName": "job-"}, spec={"size": 200})
    await api.submit("Gadget", body, writing)
    assert writing.warnings == ["spec.size is large"]


async def terminate_namespace(api: RegistryFixture) -> None:
    await api.delete("Namespace", "demo")


async def remove_namespace(api: RegistryFixture) -> None:
    """Deletes the namespace and removes its finalizer, as the controller does with an empty one."""
    await api.delete("Namespace", "demo")
    finalize = write_options(subresource="finalize")
    await api.patch("Namespace", "demo", lambda obj: obj["spec"].update(finalizers=[]), finalize)


@pytest.mark.parametrize(("change", "error"), [(terminate_namespace, Forbidden), (remove_namespace, NotFound)])
async def test_nothing_is_created_in_a_namespace_deleted_between_read_and_commit(
    api: RegistryFixture, change: Any, error: type[ApiError]
) -> None:
    api.store.before = [lambda: change(api)]
    with pytest.raises(error):
        await api.create("ConfigMap", "c")
    assert api.list_names("ConfigMap") == []


async def test_a_namespace_that_changes_between_read_and_commit_does_not_matter(api: RegistryFixture) -> None:
    def label(obj: Object) -> None:
        labels = obj["metadata"]["labels"]
        labels["n"] = str(int(labels.get("n", 0)) + 1)

    api.store.before = [lambda: api.patch("Namespace", "demo", label)] * 5
    await api.create("ConfigMap", "c")
    assert api.list_names("ConfigMap") == ["c"]


async def test_a_create_that_keeps_losing_to_namespace_changes_gets_a_conflict(
    api: RegistryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def raise_conflict(changes: Any, checks: Any) -> int:
        raise contract.RevisionConflict(checks[0].key, checks[0].expected_revision, checks[0].expected_revision + 1)

    monkeypatch.setattr(api.store, "commit", raise_conflict)
    with pytest.raises(Conflict):
        await api.create("ConfigMap", "c")


async def test_a_cancelled_write_does_not_block_others(api: RegistryFixture) -> None:
    await api.create("Gadget", "a", spec={"size": 0})
    for steps in range(12):
        task = asyncio.create_task(api.patch("Gadget", "a", increment_size))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        before = await read_size(api)
        await api.patch("Gadget", "a", increment_size)
        assert await read_size(api) == before + 1


async def test_a_dry_run_returns_the_result_and_stores_nothing(api: RegistryFixture) -> None:
    dry_run = write_options(dry_run=True)
    created = await api.create("Gadget", "a", spec={"size": 1})
    revision = await api.store.revision()
    watcher = api.view.watch("management.service.sh", "gadgets", "", revision, 10)
    new = await api.submit("Gadget", api.build_object("Gadget", "b", spec={"size": 2}), dry_run)
    changed = await api.patch("Gadget", "a", increment_size, dry_run)
    deleted = await api.resource("Gadget").delete("", "a", DeleteOptions(), dry_run)
    foreground = await api.resource("Gadget").delete("", "a", DeleteOptions(propagation="Foreground"), dry_run)
    assert (new["spec"]["size"], changed["spec"]["size"]) == (2, 2)
    assert changed["metadata"]["generation"] == 2
    assert "resourceVersion" not in new["metadata"]
    assert changed["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]
    assert (deleted.is_removed, foreground.is_removed) == (True, False)
    assert (await api.store.revision(), watcher.has_pending) == (revision, False)
    assert api.get("Gadget", "a") == created


async def test_a_dry_run_is_rejected_like_the_real_request(api: RegistryFixture) -> None:
    dry_run = write_options(dry_run=True)
    created = await api.create("Gadget", "a", spec={"size": 1})
    attempts: list[tuple[Any, type[ApiError]]] = [
        (api.submit("Gadget", api.build_object("Gadget", "a"), dry_run), AlreadyExists),
        (api.submit("ConfigMap", api.build_object("ConfigMap", "c", "nowhere"), dry_run), NotFound),
        (
            api.replace("Gadget", {**created, "metadata": {**created["metadata"], "resourceVersion": "1"}}, dry_run),
            Conflict,
        ),
        (api.resource("Gadget").delete("", "a", DeleteOptions(uid="another"), dry_run), Conflict),
        (api.resource("Gadget").delete("", "none", DeleteOptions(), dry_run), NotFound),
    ]
    for attempt, error in attempts:
        with pytest.raises(error):
            await attempt
    assert api.get("Gadget", "a") == created
