"""Workspaces from first to last: which runner takes them, what their status says, and when they may go."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.controllers.workspaces.runners import RunnerController
from fairlead.controllers.workspaces.workspaces import ENDPOINT_ANNOTATION, FINALIZER, WorkspaceController
from fairlead.core.objects import Object, get_path
from fairlead.kinds.projects.project import NAMESPACE_PREFIX
from fairlead.registry.codec import decode
from fairlead.registry.kind import MANAGEMENT_GROUP
from fairlead.registry.write_options import DeleteOptions
from tests.harness.controllers import at_work, until
from tests.harness.registry import World, as_ada

HOME = f"{NAMESPACE_PREFIX}p"
KIND = "DevPodWorkspaceInstance"


@pytest.fixture
async def working(world: World) -> AsyncIterator[World]:
    await world.create("Project", "p")
    controllers = (
        WorkspaceController(world.registry, MANAGEMENT_GROUP, NAMESPACE_PREFIX),
        RunnerController(world.registry, MANAGEMENT_GROUP),
    )
    async with at_work(world, *controllers):
        yield world


def see(world: World, name: str = "w") -> Object:
    entry = world.of(KIND).get_cached(HOME, name)
    assert entry is not None, f"{name} is gone"
    return decode(entry)


def is_gone(world: World, name: str = "w") -> bool:
    return world.of(KIND).get_cached(HOME, name) is None


def state(world: World, type: str = "Scheduled", name: str = "w") -> tuple[str, str]:
    """The status and reason of a condition."""
    found = get_path(see(world, name), "status.conditions") or ()
    return next(((each["status"], each["reason"]) for each in found if each["type"] == type), ("", ""))


def phase(world: World, name: str = "w") -> tuple[str, str]:
    status = see(world, name).get("status") or {}
    return status.get("phase") or "", status.get("reason") or ""


def runner_of(world: World, name: str = "w") -> str:
    return get_path(see(world, name), "spec.runnerRef.runner") or ""


async def make(world: World, name: str = "w", **spec: Any) -> None:
    await world.create(KIND, name, HOME, spec={"displayName": name, **spec})


async def change(world: World, name: str = "w", subresource: str = "", **parts: Any) -> None:
    """Merges parts into the object, one level deep."""

    def edit(old: Object) -> Object:
        merged = {part: {**(old.get(part) or {}), **fields} for part, fields in parts.items()}
        return {**old, **merged}

    await world.of(KIND).modify(HOME, name, edit, as_ada(subresource=subresource))


async def report(world: World, name: str = "w", **status: Any) -> None:
    """What a runner says about a workspace."""
    await change(world, name, "status", status=status)


async def delete(world: World, name: str = "w") -> bool:
    deleted = await world.of(KIND).delete(HOME, name, DeleteOptions(), as_ada())
    return deleted.is_removed


async def test_a_workspace_goes_to_the_runner_that_it_names(working: World) -> None:
    await working.create("Runner", "b", spec={"endpoint": "b.example.com"})
    await make(working, runnerRef={"runner": "b"})
    await until(lambda: state(working) == ("True", "Scheduled"))
    assert see(working)["metadata"]["annotations"][ENDPOINT_ANNOTATION] == "b.example.com"
    assert phase(working) == ("Pending", "WaitingForRunner")
    assert state(working, "Ready") == ("False", "WaitingForRunner")
    assert state(working, "Reconciling") == ("True", "WaitingForRunner")
    assert get_path(see(working), "status.observedGeneration") == see(working)["metadata"]["generation"]


async def test_without_a_name_the_runner_with_the_fewest_workspaces_is_picked(working: World) -> None:
    for name in ("b", "a", "full"):
        await working.create("Runner", name)
    await make(working, "first", runnerRef={"runner": "full"})
    await make(working, "second", runnerRef={"runner": "b"})
    await make(working, "third")
    await until(lambda: runner_of(working, "third"))
    await make(working, "fourth")
    await until(lambda: runner_of(working, "fourth"))
    assert (runner_of(working, "third"), runner_of(working, "fourth")) == ("a", "a")


async def test_many_at_once_are_spread_evenly(working: World) -> None:
    for name in ("a", "b", "c"):
        await working.create("Runner", name)
    names = [f"w{number}" for number in range(12)]
    await asyncio.gather(*(make(working, name) for name in names))
    await until(lambda: all(state(working, name=name)[0] == "True" for name in names))
    taken = [runner_of(working, name) for name in names]
    assert [taken.count(runner) for runner in ("a", "b", "c")] == [4, 4, 4]


@pytest.mark.parametrize(
    ("allowed", "picked"), [([{"name": "b"}], "b"), ([{"name": "*"}], "a"), ([{"name": "gone"}], ""), ([], "")]
)
async def test_only_those_are_picked_that_the_project_allows(
    working: World, allowed: list[Object], picked: str
) -> None:
    await working.patch("Project", "p", lambda obj: obj.setdefault("spec", {}).update(allowedRunners=allowed))
    for name in ("a", "b"):
        await working.create("Runner", name)
    await make(working)
    await until(lambda: state(working)[0])
    assert runner_of(working) == picked
    reason = "Scheduled" if picked else "NoRunnerUsable" if allowed else "NoRunnerAllowed"
    assert state(working)[1] == reason


async def test_unusable_runners_are_not_picked_and_keep_what_they_have(working: World) -> None:
    await working.create("Runner", "a")
    await make(working, "old")
    await until(lambda: state(working, name="old")[0] == "True")
    await working.patch("Runner", "a", lambda obj: obj.update(spec={"unusable": True}))
    await make(working, "new")
    await make(working, "named", runnerRef={"runner": "a"})
    await until(lambda: state(working, name="new")[0] and state(working, name="named")[0])
    assert state(working, name="new") == ("False", "NoRunnerUsable")
    assert state(working, name="named") == ("False", "RunnerUnusable")
    await asyncio.sleep(60)
    assert state(working, name="old") == ("True", "Scheduled")


async def test_a_workspace_that_waits_is_scheduled_when_a_runner_comes(working: World) -> None:
    await working.create("Runner", "unusable", spec={"unusable": True})
    await make(working)
    await until(lambda: state(working) == ("False", "NoRunnerUsable"))
    assert phase(working) == ("Pending", "NoRunnerUsable")
    assert state(working, "Stalled")[0] == "True"
    await working.create("Runner", "a")
    await until(lambda: state(working) == ("True", "Scheduled"))
    assert (runner_of(working), state(working, "Stalled")) == ("a", ("", ""))
    events = {decode(entry)["reason"] for entry in working.view.entries("", "events")}
    assert events == {"NoRunnerUsable", "Scheduled"}


async def test_a_workspace_that_waits_is_scheduled_when_the_project_allows_it(working: World) -> None:
    await working.patch("Project", "p", lambda obj: obj.update(spec={"allowedRunners": []}))
    await working.create("Runner", "a")
    await make(working, "named", runnerRef={"runner": "a"})
    await until(lambda: state(working, name="named") == ("False", "RunnerNotAllowed"))
    await working.patch("Project", "p", lambda obj: obj.update(spec={"allowedRunners": [{"name": "a"}]}))
    await until(lambda: state(working, name="named") == ("True", "Scheduled"))


async def test_a_project_learns_nothing_of_runners_that_are_not_for_it(working: World) -> None:
    await working.patch("Project", "p", lambda obj: obj.update(spec={"allowedRunners": [{"name": "mine"}]}))
    await working.create("Runner", "other", spec={"unusable": True})
    await make(working, "there", runnerRef={"runner": "other"})
    await make(working, "missing", runnerRef={"runner": "missing"})
    await until(lambda: state(working, name="there")[0] and state(working, name="missing")[0])
    assert state(working, name="there") == state(working, name="missing") == ("False", "RunnerNotAllowed")


async def test_a_runner_that_does_not_exist_is_told_and_waited_for(working: World) -> None:
    await make(working, runnerRef={"runner": "later"})
    await until(lambda: state(working) == ("False", "RunnerNotFound"))
    await working.create("Runner", "later")
    await until(lambda: state(working) == ("True", "Scheduled"))


async def test_a_target_in_place_of_a_runner_is_not_served(working: World) -> None:
    await working.create("Runner", "a")
    await make(working, target={"cluster": {"name": "berlin"}})
    await until(lambda: state(working) == ("False", "TargetNotSupported"))
    assert runner_of(working) == ""


async def test_the_phase_is_what_the_runner_says(working: World) -> None:
    await working.create("Runner", "a")
    await make(working)
    await until(lambda: state(working)[0] == "True")
    await report(working, phase="Ready", lastWorkspaceStatus="Running")
    await until(lambda: state(working, "Ready")[0] == "True")
    assert phase(working) == ("Ready", "")
    assert state(working, "Reconciling") == ("", "")
    await report(working, phase="Sleeping", lastWorkspaceStatus="Stopped", reason="Inactive")
    await until(lambda: state(working, "Ready") == ("False", "Inactive"))
    await report(working, phase="Failed", reason="NoDisk", message="the disk is full")
    await until(lambda: state(working, "Stalled") == ("True", "NoDisk"))
    await asyncio.sleep(60)
    assert phase(working) == ("Failed", "NoDisk")


async def test_a_template_that_is_not_resolved_is_told(working: World) -> None:
    await working.create("Runner", "a")
    await make(working)
    await until(lambda: state(working)[0] == "True")
    bad = {"type": "TemplateResolved", "status": "False", "reason": "TemplateNotFound", "message": "no such template"}
    conditions = [*see(working)["status"]["conditions"], bad]
    await report(working, conditions=conditions)
    await until(lambda: phase(working) == ("Pending", "TemplateNotResolved"))
    assert state(working, "Stalled")[0] == "True"
    assert state(working, "TemplateResolved") == ("False", "TemplateNotFound")
    good = [each for each in see(working)["status"]["conditions"] if each["type"] != "TemplateResolved"]
    await report(working, conditions=good)
    await until(lambda: phase(working) == ("Pending", "WaitingForRunner"))


async def test_a_workspace_whose_runner_is_gone_has_failed_until_it_is_back(working: World) -> None:
    await working.create("Runner", "a", spec={"endpoint": "a.example.com"})
    await make(working)
    await until(lambda: state(working)[0] == "True")
    await report(working, phase="Ready", lastWorkspaceStatus="Running")
    await until(lambda: state(working, "Ready")[0] == "True")
    await working.delete("Runner", "a")
    await until(lambda: phase(working) == ("Failed", "RunnerNotFound"))
    assert ENDPOINT_ANNOTATION not in (see(working)["metadata"].get("annotations") or {})
    assert FINALIZER not in see(working)["metadata"].get("finalizers", ())
    await working.create("Runner", "a")
    await until(lambda: phase(working) == ("Pending", "WaitingForRunner"))
    await report(working, phase="Ready", reason="", message="")
    await until(lambda: state(working, "Ready")[0] == "True")


async def test_the_address_follows_the_runner_and_nobody_else(working: World) -> None:
    await working.create("Runner", "a", spec={"endpoint": "one.example.com"})
    await make(working)
    await until(lambda: get_path(see(working), "metadata.annotations"))
    await change(working, metadata={"annotations": {ENDPOINT_ANNOTATION: "evil.example.com", "mine": "x"}})
    await until(
        lambda: see(working)["metadata"]["annotations"] == {ENDPOINT_ANNOTATION: "one.example.com", "mine": "x"}
    )
    await working.patch("Runner", "a", lambda obj: obj["spec"].update(endpoint="two.example.com"))
    await until(lambda: see(working)["metadata"]["annotations"][ENDPOINT_ANNOTATION] == "two.example.com")
    await working.patch("Runner", "a", lambda obj: obj["spec"].pop("endpoint"))
    await until(lambda: see(working)["metadata"]["annotations"] == {"mine": "x"})


@pytest.mark.parametrize("said", ["Running", "Busy"])
async def test_a_deletion_waits_while_a_live_runner_has_work_to_do(working: World, said: str) -> None:
    await working.create("Runner", "a")
    await make(working)
    await until(lambda: state(working)[0] == "True")
    await report(working, phase="Ready", lastWorkspaceStatus=said)
    await until(lambda: FINALIZER in see(working)["metadata"].get("finalizers", ()))
    assert not await delete(working)
    await asyncio.sleep(600)
    assert state(working, "Ready") == ("False", "Deleting")
    await report(working, lastWorkspaceStatus="NotFound")
    await until(lambda: is_gone(working))


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"phase": "Pending", "reason": "Pulling"},
        {"phase": "Sleeping", "lastWorkspaceStatus": "Stopped"},
        {"phase": "Failed", "lastWorkspaceStatus": "NotFound"},
        {"phase": "Ready"},
    ],
)
async def test_a_deletion_waits_for_nothing_where_no_runner_is_at_work(working: World, status: Object) -> None:
    await working.create("Runner", "a")
    await make(working)
    await until(lambda: state(working)[0] == "True")
    if status:
        await report(working, **status)
    await asyncio.sleep(1)
    assert await delete(working)


async def test_a_workspace_without_a_runner_can_be_deleted(working: World) -> None:
    await make(working, runnerRef={"runner": "missing"})
    await until(lambda: state(working)[0])
    assert await delete(working)


async def holding(world: World) -> None:
    """A workspace that is deleted and waits for its runner."""
    await world.create("Runner", "a")
    await make(world)
    await until(lambda: state(world)[0] == "True")
    await report(world, phase="Ready", lastWorkspaceStatus="Running")
    await until(lambda: FINALIZER in see(world)["metadata"].get("finalizers", ()))
    assert not await delete(world)


async def test_a_deletion_does_not_wait_for_a_runner_that_is_gone(working: World) -> None:
    await holding(working)
    await working.delete("Runner", "a")
    await until(lambda: is_gone(working))


async def test_a_deletion_does_not_wait_for_a_runner_that_has_failed(working: World) -> None:
    await holding(working)
    failed = {"phase": "Failed", "reason": "Broken"}
    await working.patch("Runner", "a", lambda obj: obj.update(status=failed), as_ada(subresource="status"))
    await until(lambda: is_gone(working))


async def test_other_finalizers_stay(working: World) -> None:
    await holding(working)
    await working.create("Runner", "b")
    entry = see(working)
    assert entry["metadata"]["finalizers"] == [FINALIZER]
    await make(working, "held", runnerRef={"runner": "b"})
    await change(working, "held", metadata={"finalizers": ["x.io/mine"]})
    await report(working, "held", lastWorkspaceStatus="Running")
    await until(lambda: FINALIZER in see(working, "held")["metadata"]["finalizers"])
    await delete(working, "held")
    await report(working, "held", lastWorkspaceStatus="Stopped")
    await until(lambda: see(working, "held")["metadata"]["finalizers"] == ["x.io/mine"])


async def test_a_workspace_at_rest_is_not_written_again(working: World) -> None:
    await working.create("Runner", "a", spec={"endpoint": "a.example.com"})
    await make(working)
    await make(working, "lost", runnerRef={"runner": "missing"})
    await until(lambda: state(working)[0] and state(working, name="lost")[0])
    await report(working, phase="Ready", lastWorkspaceStatus="Running")
    await asyncio.sleep(5)
    revision = await working.store.revision()
    await asyncio.sleep(3_000)
    assert await working.store.revision() == revision


async def test_where_nobody_runs_workspaces_they_are_only_kept(working: World) -> None:
    await make(working)
    before = see(working)
    await asyncio.sleep(60)
    assert see(working) == before
    await working.create("Runner", "a")
    await until(lambda: state(working) == ("True", "Scheduled"))
    await working.delete("Runner", "a")
    await until(lambda: state(working) == ("False", "RunnerNotFound"))


async def test_workspaces_outside_of_projects_are_left_alone(working: World) -> None:
    await working.create("Runner", "a")
    before = await working.create(KIND, "w", spec={})
    await asyncio.sleep(60)
    assert working.see(KIND, "w") == before


async def test_what_is_to_be_ignored_is_left_alone(working: World) -> None:
    await working.create("Runner", "a")
    await make(working)
    await until(lambda: state(working)[0] == "True")
    await report(working, ignoreReconciliation=True, phase="")
    await asyncio.sleep(60)
    assert phase(working)[0] == ""
