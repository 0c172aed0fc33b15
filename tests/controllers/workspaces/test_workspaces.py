"""Tests of `fairlead.controllers.workspaces.workspaces`: scheduling to runners, status, and deletion."""

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
from tests.harness.registry import RegistryFixture, write_options

NAMESPACE = f"{NAMESPACE_PREFIX}p"
KIND = "DevPodWorkspaceInstance"


@pytest.fixture
async def server(api: RegistryFixture) -> AsyncIterator[RegistryFixture]:
    await api.create("Project", "p")
    controllers = (
        WorkspaceController(api.registry, MANAGEMENT_GROUP, NAMESPACE_PREFIX),
        RunnerController(api.registry, MANAGEMENT_GROUP),
    )
    async with running_controllers(api, *controllers):
        yield api


def get_workspace(api: RegistryFixture, name: str = "w") -> Object:
    entry = api.resource(KIND).get_cached(NAMESPACE, name)
    assert entry is not None, f"{name} does not exist"
    return decode(entry)


def is_deleted(api: RegistryFixture, name: str = "w") -> bool:
    return api.resource(KIND).get_cached(NAMESPACE, name) is None


def condition_status(api: RegistryFixture, type: str = "Scheduled", name: str = "w") -> tuple[str, str]:
    """The status and reason of a condition."""
    conditions = get_path(get_workspace(api, name), "status.conditions") or ()
    return next(
        ((condition["status"], condition["reason"]) for condition in conditions if condition["type"] == type), ("", "")
    )


def phase_and_reason(api: RegistryFixture, name: str = "w") -> tuple[str, str]:
    status = get_workspace(api, name).get("status") or {}
    return status.get("phase") or "", status.get("reason") or ""


def runner_of(api: RegistryFixture, name: str = "w") -> str:
    return get_path(get_workspace(api, name), "spec.runnerRef.runner") or ""


async def create_workspace(api: RegistryFixture, name: str = "w", **spec: Any) -> None:
    await api.create(KIND, name, NAMESPACE, spec={"displayName": name, **spec})


async def merge_into_workspace(api: RegistryFixture, name: str = "w", subresource: str = "", **parts: Any) -> None:
    """Merges parts into the object, one level deep."""

    def edit(old: Object) -> Object:
        merged = {part: {**(old.get(part) or {}), **fields} for part, fields in parts.items()}
        return {**old, **merged}

    await api.resource(KIND).modify(NAMESPACE, name, edit, write_options(subresource=subresource))


async def report_status(api: RegistryFixture, name: str = "w", **status: Any) -> None:
    """Writes the status of a workspace, like its runner."""
    await merge_into_workspace(api, name, "status", status=status)


async def delete_workspace(api: RegistryFixture, name: str = "w") -> bool:
    deleted = await api.resource(KIND).delete(NAMESPACE, name, DeleteOptions(), write_options())
    return deleted.is_removed


async def test_a_workspace_is_scheduled_to_the_runner_that_it_names(server: RegistryFixture) -> None:
    await server.create("Runner", "b", spec={"endpoint": "b.example.com"})
    await create_workspace(server, runnerRef={"runner": "b"})
    await eventually(lambda: condition_status(server) == ("True", "Scheduled"))
    assert get_workspace(server)["metadata"]["annotations"][ENDPOINT_ANNOTATION] == "b.example.com"
    assert phase_and_reason(server) == ("Pending", "RunnerNotStarted")
    assert condition_status(server, "Ready") == ("False", "RunnerNotStarted")
    assert condition_status(server, "Reconciling") == ("True", "RunnerNotStarted")
    assert (
        get_path(get_workspace(server), "status.observedGeneration") == get_workspace(server)["metadata"]["generation"]
    )


async def test_without_a_name_the_runner_with_the_fewest_workspaces_is_selected(server: RegistryFixture) -> None:
    for name in ("b", "a", "full"):
        await server.create("Runner", name)
    await create_workspace(server, "first", runnerRef={"runner": "full"})
    await create_workspace(server, "second", runnerRef={"runner": "b"})
    await create_workspace(server, "third")
    await eventually(lambda: runner_of(server, "third"))
    await create_workspace(server, "fourth")
    await eventually(lambda: runner_of(server, "fourth"))
    assert (runner_of(server, "third"), runner_of(server, "fourth")) == ("a", "a")


async def test_concurrent_workspaces_are_spread_evenly(server: RegistryFixture) -> None:
    for name in ("a", "b", "c"):
        await server.create("Runner", name)
    names = [f"w{number}" for number in range(12)]
    await asyncio.gather(*(create_workspace(server, name) for name in names))
    await eventually(lambda: all(condition_status(server, name=name)[0] == "True" for name in names))
    runners = [runner_of(server, name) for name in names]
    assert [runners.count(runner) for runner in ("a", "b", "c")] == [4, 4, 4]


@pytest.mark.parametrize(
    ("allowed", "expected"), [([{"name": "b"}], "b"), ([{"name": "*"}], "a"), ([{"name": "gone"}], ""), ([], "")]
)
async def test_only_runners_that_the_project_allows_are_selected(
    server: RegistryFixture, allowed: list[Object], expected: str
) -> None:
    await server.patch("Project", "p", lambda obj: obj.setdefault("spec", {}).update(allowedRunners=allowed))
    for name in ("a", "b"):
        await server.create("Runner", name)
    await create_workspace(server)
    await eventually(lambda: condition_status(server)[0])
    assert runner_of(server) == expected
    reason = "Scheduled" if expected else "NoRunnerUsable" if allowed else "NoRunnerAllowed"
    assert condition_status(server)[1] == reason


async def test_unusable_runners_are_not_selected_and_keep_their_workspaces(server: RegistryFixture) -> None:
    await server.create("Runner", "a")
    await create_workspace(server, "old")
    await eventually(lambda: condition_status(server, name="old")[0] == "True")
    await server.patch("Runner", "a", lambda obj: obj.update(spec={"unusable": True}))
    await create_workspace(server, "new")
    await create_workspace(server, "named", runnerRef={"runner": "a"})
    await eventually(lambda: condition_status(server, name="new")[0] and condition_status(server, name="named")[0])
    assert condition_status(server, name="new") == ("False", "NoRunnerUsable")
    assert condition_status(server, name="named") == ("False", "RunnerUnusable")
    await asyncio.sleep(60)
    assert condition_status(server, name="old") == ("True", "Scheduled")


async def test_a_runner_that_is_being_deleted_gets_no_workspaces(server: RegistryFixture) -> None:
    await server.create("Runner", "a", metadata={"finalizers": ["example.com/held"]})
    await server.delete("Runner", "a")
    await create_workspace(server, "new")
    await create_workspace(server, "named", runnerRef={"runner": "a"})
    await eventually(lambda: condition_status(server, name="new")[0] and condition_status(server, name="named")[0])
    assert condition_status(server, name="new") == ("False", "NoRunnerUsable")
    assert condition_status(server, name="named") == ("False", "RunnerUnusable")


async def test_a_pending_workspace_is_scheduled_when_a_runner_is_created(server: RegistryFixture) -> None:
    await server.create("Runner", "unusable", spec={"unusable": True})
    await create_workspace(server)
    await eventually(lambda: condition_status(server) == ("False", "NoRunnerUsable"))
    assert phase_and_reason(server) == ("Pending", "NoRunnerUsable")
    assert condition_status(server, "Stalled")[0] == "True"
    await server.create("Runner", "a")
    await eventually(lambda: condition_status(server) == ("True", "Scheduled"))
    assert (runner_of(server), condition_status(server, "Stalled")) == ("a", ("", ""))
    events = {decode(entry)["reason"] for entry in server.view.entries("", "events")}
    assert events == {"NoRunnerUsable", "Scheduled"}


async def test_a_pending_workspace_is_scheduled_when_the_project_allows_its_runner(server: RegistryFixture) -> None:
    await server.patch("Project", "p", lambda obj: obj.update(spec={"allowedRunners": []}))
    await server.create("Runner", "a")
    await create_workspace(server, "named", runnerRef={"runner": "a"})
    await eventually(lambda: condition_status(server, name="named") == ("False", "RunnerNotAllowed"))
    await server.patch("Project", "p", lambda obj: obj.update(spec={"allowedRunners": [{"name": "a"}]}))
    await eventually(lambda: condition_status(server, name="named") == ("True", "Scheduled"))


async def test_a_project_cannot_detect_runners_that_it_does_not_allow(server: RegistryFixture) -> None:
    await server.patch("Project", "p", lambda obj: obj.update(spec={"allowedRunners": [{"name": "mine"}]}))
    await server.create("Runner", "other", spec={"unusable": True})
    await create_workspace(server, "existing", runnerRef={"runner": "other"})
    await create_workspace(server, "missing", runnerRef={"runner": "missing"})
    await eventually(
        lambda: condition_status(server, name="existing")[0] and condition_status(server, name="missing")[0]
    )
    assert (
        condition_status(server, name="existing")
        == condition_status(server, name="missing")
        == ("False", "RunnerNotAllowed")
    )


async def test_a_missing_runner_is_reported_until_it_is_created(server: RegistryFixture) -> None:
    await create_workspace(server, runnerRef={"runner": "later"})
    await eventually(lambda: condition_status(server) == ("False", "RunnerNotFound"))
    await server.create("Runner", "later")
    await eventually(lambda: condition_status(server) == ("True", "Scheduled"))


async def test_a_target_instead_of_a_runner_is_not_supported(server: RegistryFixture) -> None:
    await server.create("Runner", "a")
    await create_workspace(server, target={"cluster": {"name": "berlin"}})
    await eventually(lambda: condition_status(server) == ("False", "TargetNotSupported"))
    assert runner_of(server) == ""


async def test_the_phase_is_the_one_that_the_runner_reports(server: RegistryFixture) -> None:
    await server.create("Runner", "a")
    await create_workspace(server)
    await eventually(lambda: condition_status(server)[0] == "True")
    await report_status(server, phase="Ready", lastWorkspaceStatus="Running")
    await eventually(lambda: condition_status(server, "Ready")[0] == "True")
    assert phase_and_reason(server) == ("Ready", "")
    assert condition_status(server, "Reconciling") == ("", "")
    await report_status(server, phase="Sleeping", lastWorkspaceStatus="Stopped", reason="Inactive")
    await eventually(lambda: condition_status(server, "Ready") == ("False", "Inactive"))
    await report_status(server, phase="Failed", reason="NoDisk", message="the disk is full")
    await eventually(lambda: condition_status(server, "Stalled") == ("True", "NoDisk"))
    await asyncio.sleep(60)
    assert phase_and_reason(server) == ("Failed", "NoDisk")


async def test_a_template_that_is_not_resolved_is_reported(server: RegistryFixture) -> None:
    await server.create("Runner", "a")
    await create_workspace(server)
    await eventually(lambda: condition_status(server)[0] == "True")
    not_resolved = {
        "type": "TemplateResolved",
        "status": "False",
        "reason": "TemplateNotFound",
        "message": "no such template",
    }
    conditions = [*get_workspace(server)["status"]["conditions"], not_resolved]
    await report_status(server, conditions=conditions)
    await eventually(lambda: phase_and_reason(server) == ("Pending", "TemplateNotResolved"))
    assert condition_status(server, "Stalled")[0] == "True"
    assert condition_status(server, "TemplateResolved") == ("False", "TemplateNotFound")
    other_conditions = [
        condition
        for condition in get_workspace(server)["status"]["conditions"]
        if condition["type"] != "TemplateResolved"
    ]
    await report_status(server, conditions=other_conditions)
    await eventually(lambda: phase_and_reason(server) == ("Pending", "RunnerNotStarted"))


async def test_a_workspace_whose_runner_is_deleted_fails_until_it_is_created_again(server: RegistryFixture) -> None:
    await server.create("Runner", "a", spec={"endpoint": "a.example.com"})
    await create_workspace(server)
    await eventually(lambda: condition_status(server)[0] == "True")
    await report_status(server, phase="Ready", lastWorkspaceStatus="Running")
    await eventually(lambda: condition_status(server, "Ready")[0] == "True")
    await server.delete("Runner", "a")
    await eventually(lambda: phase_and_reason(server) == ("Failed", "RunnerNotFound"))
    assert ENDPOINT_ANNOTATION not in (get_workspace(server)["metadata"].get("annotations") or {})
    assert FINALIZER not in get_workspace(server)["metadata"].get("finalizers", ())
    message = get_workspace(server)["status"]["message"]
    assert message.startswith('runner "a" was deleted, and what it has of this workspace stays on its machine')
    await server.create("Runner", "a")
    await eventually(lambda: phase_and_reason(server) == ("Pending", "RunnerNotStarted"))
    await report_status(server, phase="Ready", reason="", message="")
    await eventually(lambda: condition_status(server, "Ready")[0] == "True")


async def test_the_endpoint_annotation_always_follows_the_runner(server: RegistryFixture) -> None:
    await server.create("Runner", "a", spec={"endpoint": "one.example.com"})
    await create_workspace(server)
    await eventually(lambda: get_path(get_workspace(server), "metadata.annotations"))
    await merge_into_workspace(server, metadata={"annotations": {ENDPOINT_ANNOTATION: "evil.example.com", "mine": "x"}})
    await eventually(
        lambda: (
            get_workspace(server)["metadata"]["annotations"] == {ENDPOINT_ANNOTATION: "one.example.com", "mine": "x"}
        )
    )
    await server.patch("Runner", "a", lambda obj: obj["spec"].update(endpoint="two.example.com"))
    await eventually(lambda: get_workspace(server)["metadata"]["annotations"][ENDPOINT_ANNOTATION] == "two.example.com")
    await server.patch("Runner", "a", lambda obj: obj["spec"].pop("endpoint"))
    await eventually(lambda: get_workspace(server)["metadata"]["annotations"] == {"mine": "x"})


@pytest.mark.parametrize("container_status", ["Running", "Busy", "Stopped"])
async def test_deletion_waits_for_a_runner_that_has_a_container(server: RegistryFixture, container_status: str) -> None:
    await server.create("Runner", "a")
    await create_workspace(server)
    await eventually(lambda: condition_status(server)[0] == "True")
    await report_status(server, phase="Ready", lastWorkspaceStatus=container_status)
    await eventually(lambda: FINALIZER in get_workspace(server)["metadata"].get("finalizers", ()))
    assert not await delete_workspace(server)
    await asyncio.sleep(600)
    assert condition_status(server, "Ready") == ("False", "Deleting")
    await report_status(server, lastWorkspaceStatus="NotFound")
    await eventually(lambda: is_deleted(server))


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"phase": "Pending", "reason": "Pulling"},
        {"phase": "Failed", "lastWorkspaceStatus": "NotFound"},
        {"phase": "Ready"},
    ],
)
async def test_deletion_does_not_wait_if_the_runner_has_nothing_of_it(server: RegistryFixture, status: Object) -> None:
    await server.create("Runner", "a")
    await create_workspace(server)
    await eventually(lambda: condition_status(server)[0] == "True")
    if status:
        await report_status(server, **status)
    await asyncio.sleep(1)
    assert await delete_workspace(server)


async def test_a_workspace_without_a_runner_can_be_deleted(server: RegistryFixture) -> None:
    await create_workspace(server, runnerRef={"runner": "missing"})
    await eventually(lambda: condition_status(server)[0])
    assert await delete_workspace(server)


async def create_deleting_workspace(api: RegistryFixture) -> None:
    """Creates a workspace, and deletes it so that it waits for its runner."""
    await api.create("Runner", "a")
    await create_workspace(api)
    await eventually(lambda: condition_status(api)[0] == "True")
    await report_status(api, phase="Ready", lastWorkspaceStatus="Running")
    await eventually(lambda: FINALIZER in get_workspace(api)["metadata"].get("finalizers", ()))
    assert not await delete_workspace(api)


async def test_deletion_does_not_wait_for_a_deleted_runner(server: RegistryFixture) -> None:
    await create_deleting_workspace(server)
    await server.delete("Runner", "a")
    await eventually(lambda: is_deleted(server))


async def test_deletion_does_not_wait_for_a_failed_runner(server: RegistryFixture) -> None:
    await create_deleting_workspace(server)
    failed_status = {"phase": "Failed", "reason": "Broken"}
    await server.patch("Runner", "a", lambda obj: obj.update(status=failed_status), write_options(subresource="status"))
    await eventually(lambda: is_deleted(server))


async def test_other_finalizers_are_kept(server: RegistryFixture) -> None:
    await create_deleting_workspace(server)
    await server.create("Runner", "b")
    entry = get_workspace(server)
    assert entry["metadata"]["finalizers"] == [FINALIZER]
    await create_workspace(server, "held", runnerRef={"runner": "b"})
    await merge_into_workspace(server, "held", metadata={"finalizers": ["x.io/mine"]})
    await report_status(server, "held", lastWorkspaceStatus="Running")
    await eventually(lambda: FINALIZER in get_workspace(server, "held")["metadata"]["finalizers"])
    await delete_workspace(server, "held")
    await report_status(server, "held", lastWorkspaceStatus="NotFound")
    await eventually(lambda: get_workspace(server, "held")["metadata"]["finalizers"] == ["x.io/mine"])


async def test_an_unchanged_workspace_is_not_written_again(server: RegistryFixture) -> None:
    await server.create("Runner", "a", spec={"endpoint": "a.example.com"})
    await create_workspace(server)
    await create_workspace(server, "lost", runnerRef={"runner": "missing"})
    await eventually(lambda: condition_status(server)[0] and condition_status(server, name="lost")[0])
    await report_status(server, phase="Ready", lastWorkspaceStatus="Running")
    await asyncio.sleep(5)
    revision = await server.store.revision()
    await asyncio.sleep(3_000)
    assert await server.store.revision() == revision


async def test_workspaces_with_ignore_reconciliation_are_not_changed(server: RegistryFixture) -> None:
    await server.create("Runner", "a")
    await create_workspace(server)
    await eventually(lambda: condition_status(server)[0] == "True")
    await report_status(server, ignoreReconciliation=True, phase="")
    await asyncio.sleep(60)
    assert phase_and_reason(server)[0] == ""
