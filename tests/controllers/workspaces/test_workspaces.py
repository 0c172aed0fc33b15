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
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.registry import RegistryFixture, as_ada

HOME = f"{NAMESPACE_PREFIX}p"
KIND = "DevPodWorkspaceInstance"


@pytest.fixture
async def working(api: RegistryFixture) -> AsyncIterator[RegistryFixture]:
    await api.create("Project", "p")
    controllers = (
        WorkspaceController(api.registry, MANAGEMENT_GROUP, NAMESPACE_PREFIX),
        RunnerController(api.registry, MANAGEMENT_GROUP),
    )
    async with running_controllers(api, *controllers):
        yield api


def see(api: RegistryFixture, name: str = "w") -> Object:
    entry = api.of(KIND).get_cached(HOME, name)
    assert entry is not None, f"{name} is gone"
    return decode(entry)


def is_gone(api: RegistryFixture, name: str = "w") -> bool:
    return api.of(KIND).get_cached(HOME, name) is None


def state(api: RegistryFixture, type: str = "Scheduled", name: str = "w") -> tuple[str, str]:
    """The status and reason of a condition."""
    found = get_path(see(api, name), "status.conditions") or ()
    return next(((each["status"], each["reason"]) for each in found if each["type"] == type), ("", ""))


def phase(api: RegistryFixture, name: str = "w") -> tuple[str, str]:
    status = see(api, name).get("status") or {}
    return status.get("phase") or "", status.get("reason") or ""


def runner_of(api: RegistryFixture, name: str = "w") -> str:
    return get_path(see(api, name), "spec.runnerRef.runner") or ""


async def make(api: RegistryFixture, name: str = "w", **spec: Any) -> None:
    await api.create(KIND, name, HOME, spec={"displayName": name, **spec})


async def change(api: RegistryFixture, name: str = "w", subresource: str = "", **parts: Any) -> None:
    """Merges parts into the object, one level deep."""

    def edit(old: Object) -> Object:
        merged = {part: {**(old.get(part) or {}), **fields} for part, fields in parts.items()}
        return {**old, **merged}

    await api.of(KIND).modify(HOME, name, edit, as_ada(subresource=subresource))


async def report(api: RegistryFixture, name: str = "w", **status: Any) -> None:
    """What a runner says about a workspace."""
    await change(api, name, "status", status=status)


async def delete(api: RegistryFixture, name: str = "w") -> bool:
    deleted = await api.of(KIND).delete(HOME, name, DeleteOptions(), as_ada())
    return deleted.is_removed


async def test_a_workspace_goes_to_the_runner_that_it_names(working: RegistryFixture) -> None:
    await working.create("Runner", "b", spec={"endpoint": "b.example.com"})
    await make(working, runnerRef={"runner": "b"})
    await eventually(lambda: state(working) == ("True", "Scheduled"))
    assert see(working)["metadata"]["annotations"][ENDPOINT_ANNOTATION] == "b.example.com"
    assert phase(working) == ("Pending", "WaitingForRunner")
    assert state(working, "Ready") == ("False", "WaitingForRunner")
    assert state(working, "Reconciling") == ("True", "WaitingForRunner")
    assert get_path(see(working), "status.observedGeneration") == see(working)["metadata"]["generation"]


async def test_without_a_name_the_runner_with_the_fewest_workspaces_is_picked(working: RegistryFixture) -> None:
    for name in ("b", "a", "full"):
        await working.create("Runner", name)
    await make(working, "first", runnerRef={"runner": "full"})
    await make(working, "second", runnerRef={"runner": "b"})
    await make(working, "third")
    await eventually(lambda: runner_of(working, "third"))
    await make(working, "fourth")
    await eventually(lambda: runner_of(working, "fourth"))
    assert (runner_of(working, "third"), runner_of(working, "fourth")) == ("a", "a")


async def test_many_at_once_are_spread_evenly(working: RegistryFixture) -> None:
    for name in ("a", "b", "c"):
        await working.create("Runner", name)
    names = [f"w{number}" for number in range(12)]
    await asyncio.gather(*(make(working, name) for name in names))
    await eventually(lambda: all(state(working, name=name)[0] == "True" for name in names))
    taken = [runner_of(working, name) for name in names]
    assert [taken.count(runner) for runner in ("a", "b", "c")] == [4, 4, 4]


@pytest.mark.parametrize(
    ("allowed", "picked"), [([{"name": "b"}], "b"), ([{"name": "*"}], "a"), ([{"name": "gone"}], ""), ([], "")]
)
async def test_only_those_are_picked_that_the_project_allows(
    working: RegistryFixture, allowed: list[Object], picked: str
) -> None:
    await working.patch("Project", "p", lambda obj: obj.setdefault("spec", {}).update(allowedRunners=allowed))
    for name in ("a", "b"):
        await working.create("Runner", name)
    await make(working)
    await eventually(lambda: state(working)[0])
    assert runner_of(working) == picked
    reason = "Scheduled" if picked else "NoRunnerUsable" if allowed else "NoRunnerAllowed"
    assert state(working)[1] == reason


async def test_unusable_runners_are_not_picked_and_keep_what_they_have(working: RegistryFixture) -> None:
    await working.create("Runner", "a")
    await make(working, "old")
    await eventually(lambda: state(working, name="old")[0] == "True")
    await working.patch("Runner", "a", lambda obj: obj.update(spec={"unusable": True}))
    await make(working, "new")
    await make(working, "named", runnerRef={"runner": "a"})
    await eventually(lambda: state(working, name="new")[0] and state(working, name="named")[0])
    assert state(working, name="new") == ("False", "NoRunnerUsable")
    assert state(working, name="named") == ("False", "RunnerUnusable")
    await asyncio.sleep(60)
    assert state(working, name="old") == ("True", "Scheduled")


async def test_a_workspace_that_waits_is_scheduled_when_a_runner_comes(working: RegistryFixture) -> None:
    await working.create("Runner", "unusable", spec={"unusable": True})
    await make(working)
    await eventually(lambda: state(working) == ("False", "NoRunnerUsable"))
    assert phase(working) == ("Pending", "NoRunnerUsable")
    assert state(working, "Stalled")[0] == "True"
    await working.create("Runner", "a")
    await eventually(lambda: state(working) == ("True", "Scheduled"))
    assert (runner_of(working), state(working, "Stalled")) == ("a", ("", ""))
    events = {decode(entry)["reason"] for entry in working.view.entries("", "events")}
    assert events == {"NoRunnerUsable", "Scheduled"}


async def test_a_workspace_that_waits_is_scheduled_when_the_project_allows_it(working: RegistryFixture) -> None:
    await working.patch("Project", "p", lambda obj: obj.update(spec={"allowedRunners": []}))
    await working.create("Runner", "a")
    await make(working, "named", runnerRef={"runner": "a"})
    await eventually(lambda: state(working, name="named") == ("False", "RunnerNotAllowed"))
    await working.patch("Project", "p", lambda obj: obj.update(spec={"allowedRunners": [{"name": "a"}]}))
    await eventually(lambda: state(working, name="named") == ("True", "Scheduled"))


async def test_a_project_learns_nothing_of_runners_that_are_not_for_it(working: RegistryFixture) -> None:
    await working.patch("Project", "p", lambda obj: obj.update(spec={"allowedRunners": [{"name": "mine"}]}))
    await working.create("Runner", "other", spec={"unusable": True})
    await make(working, "there", runnerRef={"runner": "other"})
    await make(working, "missing", runnerRef={"runner": "missing"})
    await eventually(lambda: state(working, name="there")[0] and state(working, name="missing")[0])
    assert state(working, name="there") == state(working, name="missing") == ("False", "RunnerNotAllowed")


async def test_a_runner_that_does_not_exist_is_told_and_waited_for(working: RegistryFixture) -> None:
    await make(working, runnerRef={"runner": "later"})
    await eventually(lambda: state(working) == ("False", "RunnerNotFound"))
    await working.create("Runner", "later")
    await eventually(lambda: state(working) == ("True", "Scheduled"))


async def test_a_target_in_place_of_a_runner_is_not_served(working: RegistryFixture) -> None:
    await working.create("Runner", "a")
    await make(working, target={"cluster": {"name": "berlin"}})
    await eventually(lambda: state(working) == ("False", "TargetNotSupported"))
    assert runner_of(working) == ""


async def test_the_phase_is_what_the_runner_says(working: RegistryFixture) -> None:
    await working.create("Runner", "a")
    await make(working)
    await eventually(lambda: state(working)[0] == "True")
    await report(working, phase="Ready", lastWorkspaceStatus="Running")
    await eventually(lambda: state(working, "Ready")[0] == "True")
    assert phase(working) == ("Ready", "")
    assert state(working, "Reconciling") == ("", "")
    await report(working, phase="Sleeping", lastWorkspaceStatus="Stopped", reason="Inactive")
    await eventually(lambda: state(working, "Ready") == ("False", "Inactive"))
    await report(working, phase="Failed", reason="NoDisk", message="the disk is full")
    await eventually(lambda: state(working, "Stalled") == ("True", "NoDisk"))
    await asyncio.sleep(60)
    assert phase(working) == ("Failed", "NoDisk")


async def test_a_template_that_is_not_resolved_is_told(working: RegistryFixture) -> None:
    await working.create("Runner", "a")
    await make(working)
    await eventually(lambda: state(working)[0] == "True")
    bad = {"type": "TemplateResolved", "status": "False", "reason": "TemplateNotFound", "message": "no such template"}
    conditions = [*see(working)["status"]["conditions"], bad]
    await report(working, conditions=conditions)
    await eventually(lambda: phase(working) == ("Pending", "TemplateNotResolved"))
    assert state(working, "Stalled")[0] == "True"
    assert state(working, "TemplateResolved") == ("False", "TemplateNotFound")
    good = [each for each in see(working)["status"]["conditions"] if each["type"] != "TemplateResolved"]
    await report(working, conditions=good)
    await eventually(lambda: phase(working) == ("Pending", "WaitingForRunner"))


async def test_a_workspace_whose_runner_is_gone_has_failed_until_it_is_back(working: RegistryFixture) -> None:
    await working.create("Runner", "a", spec={"endpoint": "a.example.com"})
    await make(working)
    await eventually(lambda: state(working)[0] == "True")
    await report(working, phase="Ready", lastWorkspaceStatus="Running")
    await eventually(lambda: state(working, "Ready")[0] == "True")
    await working.delete("Runner", "a")
    await eventually(lambda: phase(working) == ("Failed", "RunnerNotFound"))
    assert ENDPOINT_ANNOTATION not in (see(working)["metadata"].get("annotations") or {})
    assert FINALIZER not in see(working)["metadata"].get("finalizers", ())
    await working.create("Runner", "a")
    await eventually(lambda: phase(working) == ("Pending", "WaitingForRunner"))
    await report(working, phase="Ready", reason="", message="")
    await eventually(lambda: state(working, "Ready")[0] == "True")


async def test_the_address_follows_the_runner_and_nobody_else(working: RegistryFixture) -> None:
    await working.create("Runner", "a", spec={"endpoint": "one.example.com"})
    await make(working)
    await eventually(lambda: get_path(see(working), "metadata.annotations"))
    await change(working, metadata={"annotations": {ENDPOINT_ANNOTATION: "evil.example.com", "mine": "x"}})
    await eventually(
        lambda: see(working)["metadata"]["annotations"] == {ENDPOINT_ANNOTATION: "one.example.com", "mine": "x"}
    )
    await working.patch("Runner", "a", lambda obj: obj["spec"].update(endpoint="two.example.com"))
    await eventually(lambda: see(working)["metadata"]["annotations"][ENDPOINT_ANNOTATION] == "two.example.com")
    await working.patch("Runner", "a", lambda obj: obj["spec"].pop("endpoint"))
    await eventually(lambda: see(working)["metadata"]["annotations"] == {"mine": "x"})


@pytest.mark.parametrize("said", ["Running", "Busy"])
async def test_a_deletion_waits_while_a_live_runner_has_work_to_do(working: RegistryFixture, said: str) -> None:
    await working.create("Runner", "a")
    await make(working)
    await eventually(lambda: state(working)[0] == "True")
    await report(working, phase="Ready", lastWorkspaceStatus=said)
    await eventually(lambda: FINALIZER in see(working)["metadata"].get("finalizers", ()))
    assert not await delete(working)
    await asyncio.sleep(600)
    assert state(working, "Ready") == ("False", "Deleting")
    await report(working, lastWorkspaceStatus="NotFound")
    await eventually(lambda: is_gone(working))


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
async def test_a_deletion_waits_for_nothing_where_no_runner_is_at_work(
    working: RegistryFixture, status: Object
) -> None:
    await working.create("Runner", "a")
    await make(working)
    await eventually(lambda: state(working)[0] == "True")
    if status:
        await report(working, **status)
    await asyncio.sleep(1)
    assert await delete(working)


async def test_a_workspace_without_a_runner_can_be_deleted(working: RegistryFixture) -> None:
    await make(working, runnerRef={"runner": "missing"})
    await eventually(lambda: state(working)[0])
    assert await delete(working)


async def holding(api: RegistryFixture) -> None:
    """A workspace that is deleted and waits for its runner."""
    await api.create("Runner", "a")
    await make(api)
    await eventually(lambda: state(api)[0] == "True")
    await report(api, phase="Ready", lastWorkspaceStatus="Running")
    await eventually(lambda: FINALIZER in see(api)["metadata"].get("finalizers", ()))
    assert not await delete(api)


async def test_a_deletion_does_not_wait_for_a_runner_that_is_gone(working: RegistryFixture) -> None:
    await holding(working)
    await working.delete("Runner", "a")
    await eventually(lambda: is_gone(working))


async def test_a_deletion_does_not_wait_for_a_runner_that_has_failed(working: RegistryFixture) -> None:
    await holding(working)
    failed = {"phase": "Failed", "reason": "Broken"}
    await working.patch("Runner", "a", lambda obj: obj.update(status=failed), as_ada(subresource="status"))
    await eventually(lambda: is_gone(working))


async def test_other_finalizers_stay(working: RegistryFixture) -> None:
    await holding(working)
    await working.create("Runner", "b")
    entry = see(working)
    assert entry["metadata"]["finalizers"] == [FINALIZER]
    await make(working, "held", runnerRef={"runner": "b"})
    await change(working, "held", metadata={"finalizers": ["x.io/mine"]})
    await report(working, "held", lastWorkspaceStatus="Running")
    await eventually(lambda: FINALIZER in see(working, "held")["metadata"]["finalizers"])
    await delete(working, "held")
    await report(working, "held", lastWorkspaceStatus="Stopped")
    await eventually(lambda: see(working, "held")["metadata"]["finalizers"] == ["x.io/mine"])


async def test_a_workspace_at_rest_is_not_written_again(working: RegistryFixture) -> None:
    await working.create("Runner", "a", spec={"endpoint": "a.example.com"})
    await make(working)
    await make(working, "lost", runnerRef={"runner": "missing"})
    await eventually(lambda: state(working)[0] and state(working, name="lost")[0])
    await report(working, phase="Ready", lastWorkspaceStatus="Running")
    await asyncio.sleep(5)
    revision = await working.store.revision()
    await asyncio.sleep(3_000)
    assert await working.store.revision() == revision


async def test_where_nobody_runs_workspaces_they_are_only_kept(working: RegistryFixture) -> None:
    await make(working)
    before = see(working)
    await asyncio.sleep(60)
    assert see(working) == before
    await working.create("Runner", "a")
    await eventually(lambda: state(working) == ("True", "Scheduled"))
    await working.delete("Runner", "a")
    await eventually(lambda: state(working) == ("False", "RunnerNotFound"))


async def test_workspaces_outside_of_projects_are_left_alone(working: RegistryFixture) -> None:
    await working.create("Runner", "a")
    before = await working.create(KIND, "w", spec={})
    await asyncio.sleep(60)
    assert working.see(KIND, "w") == before


async def test_what_is_to_be_ignored_is_left_alone(working: RegistryFixture) -> None:
    await working.create("Runner", "a")
    await make(working)
    await eventually(lambda: state(working)[0] == "True")
    await report(working, ignoreReconciliation=True, phase="")
    await asyncio.sleep(60)
    assert phase(working)[0] == ""
