"""Several at once on the same objects, and what comes between a look and a commit: nothing is lost or told wrong."""

import asyncio
from typing import Any

import pytest

from fairlead.core.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound
from fairlead.core.objects import Object
from fairlead.registry import object_metadata as meta_module
from fairlead.registry.write_options import DeleteOptions
from fairlead.storage import contract
from tests.harness.registry import RegistryFixture, as_ada


def bump(obj: Object) -> None:
    obj["spec"]["size"] += 1


async def size(api: RegistryFixture, name: str = "a") -> int:
    await api.view.wait_current()
    found = api.see("Gadget", name)
    assert found is not None
    number: int = found["spec"]["size"]
    return number


@pytest.mark.parametrize("writers", [2, 8, 40])
async def test_writers_of_one_object_do_not_undo_each_other(api: RegistryFixture, writers: int) -> None:
    """Each asks for a change of whatever is there, so that there is nothing for any of them to be refused for."""
    await api.create("Gadget", "a", spec={"size": 0})
    await asyncio.gather(*(api.patch("Gadget", "a", bump) for _ in range(writers)))
    assert await size(api) == writers


async def test_of_many_who_name_the_version_they_read_exactly_one_writes(api: RegistryFixture) -> None:
    made = await api.create("Gadget", "a", spec={"size": 0})
    bodies = [{**made, "spec": {"size": number}} for number in range(1, 9)]
    answers = await asyncio.gather(*(api.put("Gadget", body) for body in bodies), return_exceptions=True)
    winners = [answer for answer in answers if isinstance(answer, dict)]
    assert len(winners) == 1
    assert all(isinstance(answer, Conflict) for answer in answers if not isinstance(answer, dict))
    assert winners[0] == api.see("Gadget", "a")


async def test_of_many_who_create_a_name_exactly_one_does(api: RegistryFixture) -> None:
    answers = await asyncio.gather(
        *(api.create("Gadget", "a", spec={"size": number}) for number in range(8)), return_exceptions=True
    )
    winners = [answer for answer in answers if isinstance(answer, dict)]
    assert len(winners) == 1
    assert sum(isinstance(answer, AlreadyExists) for answer in answers) == 7
    assert winners[0] == api.see("Gadget", "a")


async def test_many_who_leave_the_name_to_the_server_all_get_one_of_their_own(
    api: RegistryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = iter(f"job-{number // 2}" for number in range(100))
    monkeypatch.setattr(meta_module, "generate_name", lambda prefix: next(drawn))
    made = await asyncio.gather(*(api.create("Gadget", metadata={"generateName": "job-"}) for _ in range(10)))
    assert len({each["metadata"]["name"] for each in made}) == 10
    assert len({each["metadata"]["uid"] for each in made}) == 10


async def test_of_many_who_delete_an_object_exactly_one_does(api: RegistryFixture) -> None:
    await api.create("Gadget", "a")
    answers = await asyncio.gather(*(api.delete("Gadget", "a") for _ in range(8)), return_exceptions=True)
    assert sum(isinstance(answer, NotFound) for answer in answers) == 7


async def test_a_write_that_lost_a_race_is_made_again_on_what_won(api: RegistryFixture) -> None:
    await api.create("Gadget", "a", spec={"size": 0})
    api.store.before = [lambda: api.patch("Gadget", "a", lambda obj: obj["spec"].update(on=True))]
    changed = await api.patch("Gadget", "a", bump)
    assert (changed["spec"]["size"], changed["spec"]["on"]) == (1, True)
    assert changed["metadata"]["generation"] == 3


async def test_a_write_to_an_object_that_went_meanwhile_is_not_found(api: RegistryFixture) -> None:
    await api.create("Gadget", "a", spec={"size": 0})
    api.store.before = [lambda: api.delete("Gadget", "a")]
    with pytest.raises(NotFound):
        await api.patch("Gadget", "a", bump)
    assert api.names("Gadget") == []


async def test_a_delete_with_conditions_that_no_longer_hold_after_a_race_is_refused(api: RegistryFixture) -> None:
    async def replace() -> None:
        await api.delete("Gadget", "a")
        await api.create("Gadget", "a")

    await api.create("Gadget", "a")
    for condition, field in (("resource_version", "resourceVersion"), ("uid", "uid")):
        found = api.see("Gadget", "a")
        assert found is not None
        api.store.before = [replace]
        with pytest.raises(Conflict):
            await api.delete("Gadget", "a", DeleteOptions(**{condition: found["metadata"][field]}))


async def test_a_delete_that_lost_a_race_heeds_the_finalizer_that_won(api: RegistryFixture) -> None:
    await api.create("Gadget", "a")
    api.store.before = [
        lambda: api.patch("Gadget", "a", lambda obj: obj["metadata"].update(finalizers=["x.io/a"])),
    ]
    assert not (await api.delete("Gadget", "a")).is_removed
    found = api.see("Gadget", "a")
    assert found is not None
    assert "deletionTimestamp" in found["metadata"]


async def test_what_a_writer_is_warned_of_is_said_once_however_often_it_was_tried(api: RegistryFixture) -> None:
    await api.create("Gadget", "a", spec={"size": 0})
    api.store.before = [lambda: api.patch("Gadget", "a", bump), lambda: api.patch("Gadget", "a", bump)]
    writing = as_ada()
    await api.patch("Gadget", "a", lambda obj: obj["spec"].update(size=200, sise=1), writing)
    assert sorted(writing.warnings) == ["spec.size is large", 'unknown field "spec.sise"']


async def test_what_a_creator_is_warned_of_is_said_once_however_often_a_name_was_drawn(
    api: RegistryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = iter(["job-a", "job-a", "job-b"])
    monkeypatch.setattr(meta_module, "generate_name", lambda prefix: next(drawn))
    await api.create("Gadget", metadata={"generateName": "job-"})
    writing = as_ada()
    body = api.body("Gadget", metadata={"generateName": "job-"}, spec={"size": 200})
    await api.submit("Gadget", body, writing)
    assert writing.warnings == ["spec.size is large"]


async def end_namespace(api: RegistryFixture) -> None:
    await api.delete("Namespace", "demo")


async def remove_namespace(api: RegistryFixture) -> None:
    """Ends the namespace and lets it go at once, as the controller does with an empty one."""
    await api.delete("Namespace", "demo")
    finalize = as_ada(subresource="finalize")
    await api.patch("Namespace", "demo", lambda obj: obj["spec"].update(finalizers=[]), finalize)


@pytest.mark.parametrize(("act", "error"), [(end_namespace, Forbidden), (remove_namespace, NotFound)])
async def test_nothing_is_created_in_a_namespace_that_ends_between_look_and_commit(
    api: RegistryFixture, act: Any, error: type[ApiError]
) -> None:
    api.store.before = [lambda: act(api)]
    with pytest.raises(error):
        await api.create("ConfigMap", "c")
    assert api.names("ConfigMap") == []


async def test_a_namespace_that_merely_changes_between_look_and_commit_does_not_matter(api: RegistryFixture) -> None:
    def label(obj: Object) -> None:
        labels = obj["metadata"]["labels"]
        labels["n"] = str(int(labels.get("n", 0)) + 1)

    api.store.before = [lambda: api.patch("Namespace", "demo", label)] * 5
    await api.create("ConfigMap", "c")
    assert api.names("ConfigMap") == ["c"]


async def test_whoever_loses_to_a_busy_namespace_every_time_is_not_told_that_the_name_is_taken(
    api: RegistryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(changes: Any, checks: Any) -> int:
        raise contract.RevisionConflict(checks[0].key, checks[0].expected_revision, checks[0].expected_revision + 1)

    monkeypatch.setattr(api.store, "commit", refuse)
    with pytest.raises(Conflict):
        await api.create("ConfigMap", "c")


async def test_a_writer_who_is_cancelled_leaves_the_others_working(api: RegistryFixture) -> None:
    await api.create("Gadget", "a", spec={"size": 0})
    for steps in range(12):
        task = asyncio.create_task(api.patch("Gadget", "a", bump))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        before = await size(api)
        await api.patch("Gadget", "a", bump)
        assert await size(api) == before + 1


async def test_a_dry_run_answers_as_if_and_leaves_nothing_behind(api: RegistryFixture) -> None:
    dry = as_ada(dry_run=True)
    made = await api.create("Gadget", "a", spec={"size": 1})
    revision = await api.store.revision()
    watcher = api.view.watch("management.service.sh", "gadgets", "", revision, 10)
    draft = await api.submit("Gadget", api.body("Gadget", "b", spec={"size": 2}), dry)
    changed = await api.patch("Gadget", "a", bump, dry)
    deleted = await api.of("Gadget").delete("", "a", DeleteOptions(), dry)
    marked = await api.of("Gadget").delete("", "a", DeleteOptions(propagation="Foreground"), dry)
    assert (draft["spec"]["size"], changed["spec"]["size"]) == (2, 2)
    assert changed["metadata"]["generation"] == 2
    assert "resourceVersion" not in draft["metadata"]
    assert changed["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    assert (deleted.is_removed, marked.is_removed) == (True, False)
    assert (await api.store.revision(), watcher.has_pending) == (revision, False)
    assert api.see("Gadget", "a") == made


async def test_a_dry_run_is_refused_where_the_real_one_would_be(api: RegistryFixture) -> None:
    dry = as_ada(dry_run=True)
    made = await api.create("Gadget", "a", spec={"size": 1})
    attempts: list[tuple[Any, type[ApiError]]] = [
        (api.submit("Gadget", api.body("Gadget", "a"), dry), AlreadyExists),
        (api.submit("ConfigMap", api.body("ConfigMap", "c", "nowhere"), dry), NotFound),
        (api.put("Gadget", {**made, "metadata": {**made["metadata"], "resourceVersion": "1"}}, dry), Conflict),
        (api.of("Gadget").delete("", "a", DeleteOptions(uid="another"), dry), Conflict),
        (api.of("Gadget").delete("", "none", DeleteOptions(), dry), NotFound),
    ]
    for attempt, error in attempts:
        with pytest.raises(error):
            await attempt
    assert api.see("Gadget", "a") == made
