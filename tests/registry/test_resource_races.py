"""Several at once on the same objects, and what comes between a look and a commit: nothing is lost or told wrong."""

import asyncio
from typing import Any

import pytest

from fairlead.core.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound
from fairlead.core.objects import Object
from fairlead.registry import object_metadata as meta_module
from fairlead.registry.write_options import DeleteOptions
from fairlead.storage import contract
from tests.harness.registry import World, as_ada


def bump(obj: Object) -> None:
    obj["spec"]["size"] += 1


async def size(world: World, name: str = "a") -> int:
    await world.view.wait_current()
    found = world.see("Gadget", name)
    assert found is not None
    number: int = found["spec"]["size"]
    return number


@pytest.mark.parametrize("writers", [2, 8, 40])
async def test_writers_of_one_object_do_not_undo_each_other(world: World, writers: int) -> None:
    """Each asks for a change of whatever is there, so that there is nothing for any of them to be refused for."""
    await world.create("Gadget", "a", spec={"size": 0})
    await asyncio.gather(*(world.patch("Gadget", "a", bump) for _ in range(writers)))
    assert await size(world) == writers


async def test_of_many_who_name_the_version_they_read_exactly_one_writes(world: World) -> None:
    made = await world.create("Gadget", "a", spec={"size": 0})
    bodies = [{**made, "spec": {"size": number}} for number in range(1, 9)]
    answers = await asyncio.gather(*(world.put("Gadget", body) for body in bodies), return_exceptions=True)
    winners = [answer for answer in answers if isinstance(answer, dict)]
    assert len(winners) == 1
    assert all(isinstance(answer, Conflict) for answer in answers if not isinstance(answer, dict))
    assert winners[0] == world.see("Gadget", "a")


async def test_of_many_who_create_a_name_exactly_one_does(world: World) -> None:
    answers = await asyncio.gather(
        *(world.create("Gadget", "a", spec={"size": number}) for number in range(8)), return_exceptions=True
    )
    winners = [answer for answer in answers if isinstance(answer, dict)]
    assert len(winners) == 1
    assert sum(isinstance(answer, AlreadyExists) for answer in answers) == 7
    assert winners[0] == world.see("Gadget", "a")


async def test_many_who_leave_the_name_to_the_server_all_get_one_of_their_own(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = iter(f"job-{number // 2}" for number in range(100))
    monkeypatch.setattr(meta_module, "generate_name", lambda prefix: next(drawn))
    made = await asyncio.gather(*(world.create("Gadget", metadata={"generateName": "job-"}) for _ in range(10)))
    assert len({each["metadata"]["name"] for each in made}) == 10
    assert len({each["metadata"]["uid"] for each in made}) == 10


async def test_of_many_who_delete_an_object_exactly_one_does(world: World) -> None:
    await world.create("Gadget", "a")
    answers = await asyncio.gather(*(world.delete("Gadget", "a") for _ in range(8)), return_exceptions=True)
    assert sum(isinstance(answer, NotFound) for answer in answers) == 7


async def test_a_write_that_lost_a_race_is_made_again_on_what_won(world: World) -> None:
    await world.create("Gadget", "a", spec={"size": 0})
    world.store.before = [lambda: world.patch("Gadget", "a", lambda obj: obj["spec"].update(on=True))]
    changed = await world.patch("Gadget", "a", bump)
    assert (changed["spec"]["size"], changed["spec"]["on"]) == (1, True)
    assert changed["metadata"]["generation"] == 3


async def test_a_write_to_an_object_that_went_meanwhile_is_not_found(world: World) -> None:
    await world.create("Gadget", "a", spec={"size": 0})
    world.store.before = [lambda: world.delete("Gadget", "a")]
    with pytest.raises(NotFound):
        await world.patch("Gadget", "a", bump)
    assert world.names("Gadget") == []


async def test_a_delete_with_conditions_that_no_longer_hold_after_a_race_is_refused(world: World) -> None:
    async def replace() -> None:
        await world.delete("Gadget", "a")
        await world.create("Gadget", "a")

    await world.create("Gadget", "a")
    for condition, field in (("resource_version", "resourceVersion"), ("uid", "uid")):
        found = world.see("Gadget", "a")
        assert found is not None
        world.store.before = [replace]
        with pytest.raises(Conflict):
            await world.delete("Gadget", "a", DeleteOptions(**{condition: found["metadata"][field]}))


async def test_a_delete_that_lost_a_race_heeds_the_finalizer_that_won(world: World) -> None:
    await world.create("Gadget", "a")
    world.store.before = [
        lambda: world.patch("Gadget", "a", lambda obj: obj["metadata"].update(finalizers=["x.io/a"])),
    ]
    assert not (await world.delete("Gadget", "a")).is_removed
    found = world.see("Gadget", "a")
    assert found is not None
    assert "deletionTimestamp" in found["metadata"]


async def test_what_a_writer_is_warned_of_is_said_once_however_often_it_was_tried(world: World) -> None:
    await world.create("Gadget", "a", spec={"size": 0})
    world.store.before = [lambda: world.patch("Gadget", "a", bump), lambda: world.patch("Gadget", "a", bump)]
    writing = as_ada()
    await world.patch("Gadget", "a", lambda obj: obj["spec"].update(size=200, sise=1), writing)
    assert sorted(writing.warnings) == ["spec.size is large", 'unknown field "spec.sise"']


async def test_what_a_creator_is_warned_of_is_said_once_however_often_a_name_was_drawn(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = iter(["job-a", "job-a", "job-b"])
    monkeypatch.setattr(meta_module, "generate_name", lambda prefix: next(drawn))
    await world.create("Gadget", metadata={"generateName": "job-"})
    writing = as_ada()
    body = world.body("Gadget", metadata={"generateName": "job-"}, spec={"size": 200})
    await world.submit("Gadget", body, writing)
    assert writing.warnings == ["spec.size is large"]


async def end_namespace(world: World) -> None:
    await world.delete("Namespace", "demo")


async def remove_namespace(world: World) -> None:
    """Ends the namespace and lets it go at once, as the controller does with an empty one."""
    await world.delete("Namespace", "demo")
    finalize = as_ada(subresource="finalize")
    await world.patch("Namespace", "demo", lambda obj: obj["spec"].update(finalizers=[]), finalize)


@pytest.mark.parametrize(("act", "error"), [(end_namespace, Forbidden), (remove_namespace, NotFound)])
async def test_nothing_is_created_in_a_namespace_that_ends_between_look_and_commit(
    world: World, act: Any, error: type[ApiError]
) -> None:
    world.store.before = [lambda: act(world)]
    with pytest.raises(error):
        await world.create("ConfigMap", "c")
    assert world.names("ConfigMap") == []


async def test_a_namespace_that_merely_changes_between_look_and_commit_does_not_matter(world: World) -> None:
    def label(obj: Object) -> None:
        labels = obj["metadata"]["labels"]
        labels["n"] = str(int(labels.get("n", 0)) + 1)

    world.store.before = [lambda: world.patch("Namespace", "demo", label)] * 5
    await world.create("ConfigMap", "c")
    assert world.names("ConfigMap") == ["c"]


async def test_whoever_loses_to_a_busy_namespace_every_time_is_not_told_that_the_name_is_taken(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(changes: Any, checks: Any) -> int:
        raise contract.RevisionConflict(checks[0].key, checks[0].expected_revision, checks[0].expected_revision + 1)

    monkeypatch.setattr(world.store, "commit", refuse)
    with pytest.raises(Conflict):
        await world.create("ConfigMap", "c")


async def test_a_writer_who_is_cancelled_leaves_the_others_working(world: World) -> None:
    await world.create("Gadget", "a", spec={"size": 0})
    for steps in range(12):
        task = asyncio.create_task(world.patch("Gadget", "a", bump))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        before = await size(world)
        await world.patch("Gadget", "a", bump)
        assert await size(world) == before + 1


async def test_a_dry_run_answers_as_if_and_leaves_nothing_behind(world: World) -> None:
    dry = as_ada(dry_run=True)
    made = await world.create("Gadget", "a", spec={"size": 1})
    revision = await world.store.revision()
    watcher = world.view.watch("management.service.sh", "gadgets", "", revision, 10)
    draft = await world.submit("Gadget", world.body("Gadget", "b", spec={"size": 2}), dry)
    changed = await world.patch("Gadget", "a", bump, dry)
    deleted = await world.of("Gadget").delete("", "a", DeleteOptions(), dry)
    marked = await world.of("Gadget").delete("", "a", DeleteOptions(propagation="Foreground"), dry)
    assert (draft["spec"]["size"], changed["spec"]["size"]) == (2, 2)
    assert changed["metadata"]["generation"] == 2
    assert "resourceVersion" not in draft["metadata"]
    assert changed["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    assert (deleted.is_removed, marked.is_removed) == (True, False)
    assert (await world.store.revision(), watcher.has_pending) == (revision, False)
    assert world.see("Gadget", "a") == made


async def test_a_dry_run_is_refused_where_the_real_one_would_be(world: World) -> None:
    dry = as_ada(dry_run=True)
    made = await world.create("Gadget", "a", spec={"size": 1})
    attempts: list[tuple[Any, type[ApiError]]] = [
        (world.submit("Gadget", world.body("Gadget", "a"), dry), AlreadyExists),
        (world.submit("ConfigMap", world.body("ConfigMap", "c", "nowhere"), dry), NotFound),
        (world.put("Gadget", {**made, "metadata": {**made["metadata"], "resourceVersion": "1"}}, dry), Conflict),
        (world.of("Gadget").delete("", "a", DeleteOptions(uid="another"), dry), Conflict),
        (world.of("Gadget").delete("", "none", DeleteOptions(), dry), NotFound),
    ]
    for attempt, error in attempts:
        with pytest.raises(error):
            await attempt
    assert world.see("Gadget", "a") == made
