"""Instances and their templates: what is resolved when, and what the status says about it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.controllers.instances.status import SPACE_CONDITIONS, VC_CONDITIONS
from fairlead.controllers.instances.templates import InstanceTemplateController
from fairlead.core.objects import Object, get_path
from fairlead.core.user import CONTROLLER_USER
from fairlead.registry.conditions import conditions_of, find_condition
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.write_options import WriteOptions
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.registry import RegistryFixture, open_registry
from tests.harness.remote import INSTANCE_CONFIG, PROJECT, condition_status

SPACE = "SpaceInstance"
RENDERED = {
    "SpaceInstance": ("SpaceTemplate", "space"),
    "VirtualClusterInstance": ("VirtualClusterTemplate", "virtualCluster"),
    "DevPodWorkspaceInstance": ("DevPodWorkspaceTemplate", "instance"),
}
every_kind = pytest.mark.parametrize("kind", RENDERED)


@pytest.fixture
async def working(api: RegistryFixture) -> AsyncIterator[RegistryFixture]:
    await api.create("Project", PROJECT, spec={})
    async with running_controllers(api, InstanceTemplateController(api.registry, INSTANCE_CONFIG)):
        yield api


def definition(text: str) -> Object:
    return {"instanceTemplate": {"metadata": {"labels": {"text": text}}}}


def text(api: RegistryFixture, kind: str = SPACE) -> Any:
    return get_path(api.see(kind, "one"), f"status.{RENDERED[kind][1]}.instanceTemplate.metadata.labels.text")


def status(api: RegistryFixture, kind: str = SPACE) -> Object:
    return (api.see(kind, "one") or {}).get("status") or {}


def condition_of(api: RegistryFixture, type: str, kind: str = SPACE) -> tuple[Any, Any]:
    return condition_status(api, kind, type)


async def template(api: RegistryFixture, kind: str = SPACE, **spec: Any) -> None:
    await api.create(RENDERED[kind][0], "t", spec=spec)


async def retemplate(api: RegistryFixture, kind: str = SPACE, **spec: Any) -> None:
    await api.patch(RENDERED[kind][0], "t", lambda obj: obj["spec"].update(spec))


async def instance(api: RegistryFixture, kind: str = SPACE, parameters: str = "", **ref: Any) -> None:
    await api.create(kind, "one", spec={"templateRef": {"name": "t", **ref}, "parameters": parameters})


async def reconfigure(api: RegistryFixture, kind: str = SPACE, **spec: Any) -> None:
    await api.patch(kind, "one", lambda obj: obj["spec"].update(spec))


async def report(api: RegistryFixture, kind: str = SPACE, **fields: Any) -> None:
    """Writes to the status, as a cluster's agent does."""
    writing = WriteOptions(CONTROLLER_USER, "agent", subresource="status")
    await api.patch(kind, "one", lambda obj: obj["status"].update(fields), writing)


@every_kind
async def test_a_template_is_resolved_and_rendered(working: RegistryFixture, kind: str) -> None:
    await template(working, kind, template=definition("a-{{ parameters.x }}"), parameters=[{"variable": "x"}])
    await instance(working, kind, "x: b")
    await eventually(lambda: text(working, kind) == "a-b")
    assert condition_of(working, "TemplateResolved", kind) == ("True", "Resolved")
    assert condition_of(working, "TemplateSynced", kind) == ("True", "Synced")
    assert all(each["observedGeneration"] == 1 for each in conditions_of(status(working, kind)))


async def test_of_a_workspace_only_what_is_about_its_template_is_written(working: RegistryFixture) -> None:
    kind = "DevPodWorkspaceInstance"
    await template(working, kind, template=definition("a"))
    await instance(working, kind)
    await eventually(lambda: text(working, kind) == "a")
    assert status(working, kind).keys() == {"conditions", "instance", "templateHash"}
    assert [each["type"] for each in conditions_of(status(working, kind))] == ["TemplateResolved", "TemplateSynced"]


async def test_a_workspace_without_a_template_is_left_alone(working: RegistryFixture) -> None:
    await working.create("DevPodWorkspaceInstance", "one", spec={})
    await asyncio.sleep(1)
    assert "status" not in (working.see("DevPodWorkspaceInstance", "one") or {})


@pytest.mark.parametrize("first", ["Runner", "DevPodWorkspaceTemplate"])
async def test_workspaces_are_left_alone_until_there_is_a_runner_or_template(
    working: RegistryFixture, first: str
) -> None:
    kind = "DevPodWorkspaceInstance"
    await instance(working, kind)
    await asyncio.sleep(1)
    assert status(working, kind) == {}
    await working.create(first, "another", spec={})
    await eventually(lambda: condition_of(working, "TemplateResolved", kind) == ("False", "TemplateNotFound"))


@pytest.mark.parametrize(
    ("spec", "parameters", "version", "reason"),
    [
        (None, "", "", "TemplateNotFound"),
        ({"template": {}}, "", "1.x", "VersionError"),
        ({"versions": [{"version": "1.0.0"}]}, "", "2.x.x", "VersionNotFound"),
        ({"parameters": [{"variable": "x", "required": True}]}, "", "", "ErrorSyncingParameters"),
        ({"template": definition("{{ parameters.x }}")}, "", "", "ErrorRenderingTemplate"),
    ],
)
@every_kind
async def test_what_cannot_be_resolved_says_why(
    working: RegistryFixture, kind: str, spec: Object | None, parameters: str, version: str, reason: str
) -> None:
    await working.create(RENDERED[kind][0], "other", spec={})
    if spec is not None:
        await template(working, kind, **spec)
    await instance(working, kind, parameters, version=version)
    await eventually(lambda: condition_of(working, "TemplateResolved", kind) == ("False", reason))
    if kind != "DevPodWorkspaceInstance":
        assert condition_of(working, "Ready", kind) == ("False", reason)
        assert condition_of(working, "Stalled", kind) == ("True", reason)
        assert find_condition(status(working, kind), "Reconciling") is None
        assert (status(working, kind)["phase"], status(working, kind)["reason"]) == ("Failed", reason)


async def test_a_template_that_comes_later_heals(working: RegistryFixture) -> None:
    await instance(working)
    await eventually(lambda: condition_of(working, "TemplateResolved") == ("False", "TemplateNotFound"))
    await template(working, template=definition("a"))
    await eventually(lambda: text(working) == "a")
    assert find_condition(status(working), "Stalled") is None


@every_kind
async def test_a_pattern_follows_the_newest_version(working: RegistryFixture, kind: str) -> None:
    versions = [{"version": "1.0.0", "template": definition("one")}]
    await template(working, kind, versions=versions)
    await instance(working, kind, version="1.x.x")
    await eventually(lambda: text(working, kind) == "one")
    versions.append({"version": "1.1.0", "template": definition("one-one")})
    await retemplate(working, kind, versions=versions)
    await eventually(lambda: text(working, kind) == "one-one")
    versions.append({"version": "2.0.0", "template": definition("two")})
    await retemplate(working, kind, versions=versions)
    await eventually(lambda: condition_of(working, "TemplateSynced", kind) == ("False", "NewTemplateVersionAvailable"))
    assert text(working, kind) == "one-one"
    assert condition_of(working, "TemplateResolved", kind) == ("True", "Resolved")


@every_kind
async def test_changes_of_an_unversioned_template_wait_to_be_asked_for(working: RegistryFixture, kind: str) -> None:
    await template(working, kind, template=definition("before"))
    await instance(working, kind)
    await eventually(lambda: text(working, kind) == "before")
    await retemplate(working, kind, template=definition("after"))
    await eventually(lambda: condition_of(working, "TemplateSynced", kind) == ("False", "TemplateChangesAvailable"))
    await reconfigure(working, kind, displayName="something else")
    await asyncio.sleep(1)
    assert text(working, kind) == "before"
    await reconfigure(working, kind, templateRef={"name": "t", "syncOnce": True})
    await eventually(lambda: get_path(working.see(kind, "one"), "spec.templateRef.syncOnce") is False)
    assert text(working, kind) == "after"
    await eventually(lambda: condition_of(working, "TemplateSynced", kind) == ("True", "Synced"))


async def test_a_change_that_is_taken_back_needs_no_sync(working: RegistryFixture) -> None:
    await template(working, template=definition("before"))
    await instance(working)
    await eventually(lambda: text(working) == "before")
    await retemplate(working, template=definition("after"))
    await eventually(lambda: condition_of(working, "TemplateSynced") == ("False", "TemplateChangesAvailable"))
    await retemplate(working, template=definition("before"))
    await eventually(lambda: condition_of(working, "TemplateSynced") == ("True", "Synced"))


async def test_always_the_newest_follows_an_unversioned_template(working: RegistryFixture) -> None:
    await template(working, template=definition("before"))
    await instance(working, version="x.x.x")
    await eventually(lambda: text(working) == "before")
    await retemplate(working, template=definition("after"))
    await eventually(lambda: text(working) == "after")


async def test_a_sync_that_fails_is_still_wanted(working: RegistryFixture) -> None:
    await template(working, template=definition("a"))
    await instance(working)
    await eventually(lambda: text(working) == "a")
    await retemplate(working, template=definition("{{ parameters.missing }}"))
    await reconfigure(working, templateRef={"name": "t", "syncOnce": True})
    await eventually(lambda: condition_of(working, "TemplateResolved") == ("False", "ErrorRenderingTemplate"))
    assert get_path(working.see(SPACE, "one"), "spec.templateRef.syncOnce") is True
    assert text(working) == "a"
    await retemplate(working, template=definition("b"))
    await eventually(lambda: get_path(working.see(SPACE, "one"), "spec.templateRef.syncOnce") is False)
    assert text(working) == "b"


async def test_other_values_take_effect_at_once(working: RegistryFixture) -> None:
    await template(working, template=definition("{{ parameters.x }}"), parameters=[{"variable": "x"}])
    await instance(working, parameters="x: a")
    await eventually(lambda: text(working) == "a")
    await reconfigure(working, parameters="x: b")
    await eventually(lambda: text(working) == "b")


async def test_another_template_takes_effect_at_once(working: RegistryFixture) -> None:
    await template(working, template=definition("a"))
    await working.create("SpaceTemplate", "other", spec={"template": definition("b")})
    await instance(working)
    await eventually(lambda: text(working) == "a")
    await reconfigure(working, templateRef={"name": "other"})
    await eventually(lambda: text(working) == "b")
    await working.patch("SpaceTemplate", "other", lambda obj: obj["spec"].update(template=definition("c")))
    await eventually(lambda: condition_of(working, "TemplateSynced") == ("False", "TemplateChangesAvailable"))


async def test_what_is_written_in_place_is_rendered(working: RegistryFixture) -> None:
    await working.create(SPACE, "one", spec={"template": definition("{{ parameters.x }}"), "parameters": "x: a"})
    await eventually(lambda: text(working) == "a")


async def test_passwords_reach_the_rendered_template_and_nobody_else(working: RegistryFixture) -> None:
    await template(working, template={"charts": [{"name": "c", "password": "hunter2"}]})
    await instance(working)
    await eventually(lambda: get_path(status(working), "space"))
    assert status(working)["space"]["charts"] == [{"name": "c", "password": "hunter2"}]
    entry = working.of(SPACE).get_cached("demo", "one")
    assert entry is not None
    assert b"hunter2" not in entry.body


async def test_an_instance_is_pending_until_its_cluster_is_known_and_exists(working: RegistryFixture) -> None:
    await template(working, template=definition("a"))
    await instance(working)
    await eventually(lambda: condition_of(working, "Scheduled") == ("False", "NoClusterChosen"))
    assert status(working)["phase"] == "Pending"
    assert condition_of(working, "Reconciling") == ("True", "NoClusterChosen")
    await reconfigure(working, clusterRef={"cluster": "berlin"})
    await eventually(lambda: condition_of(working, "Scheduled") == ("True", "ClusterChosen"))
    assert condition_of(working, "TemplateSynced") == ("False", "ClusterNotReady")
    assert status(working)["phase"] == "Pending"
    await working.create("Cluster", "berlin", spec={})
    await eventually(lambda: condition_of(working, "Ready") == ("False", "ClusterNotConnected"))
    assert status(working)["phase"] == "Pending"
    await working.patch("Cluster", "berlin", lambda obj: obj.update(spec={"networkPeer": True}))
    await eventually(lambda: condition_of(working, "Ready") == ("Unknown", "Progressing"))
    await report(working, conditions=[*status(working)["conditions"], *made_by_agent(SPACE)])
    await eventually(lambda: status(working)["phase"] == "Ready")
    assert condition_of(working, "Ready") == ("True", "Usable")
    assert status(working)["observedGeneration"] == 2
    assert {each["type"] for each in conditions_of(status(working))}.isdisjoint({"Reconciling", "Stalled"})


def made_by_agent(kind: str) -> list[Object]:
    """What the agent of a cluster reports when an instance is there."""
    types = SPACE_CONDITIONS if kind == SPACE else VC_CONDITIONS
    return [{"type": type, "status": "True", "reason": "Made", "observedGeneration": 100} for type in types]


async def ready(api: RegistryFixture, kind: str = SPACE) -> None:
    await api.create("Cluster", "berlin", spec={"networkPeer": True})
    await template(api, kind, template=definition("a"))
    await api.create(kind, "one", spec={"templateRef": {"name": "t"}, "clusterRef": {"cluster": "berlin"}})
    await eventually(lambda: condition_of(api, "TemplateResolved", kind) == ("True", "Resolved"))
    await report(api, kind, conditions=[*status(api, kind)["conditions"], *made_by_agent(kind)])
    await eventually(lambda: status(api, kind).get("phase") == "Ready")


@pytest.mark.parametrize(
    ("severity", "phase", "sign"), [("Error", "Failed", "Stalled"), ("", "Pending", "Reconciling")]
)
async def test_what_the_agent_reports_counts(working: RegistryFixture, severity: str, phase: str, sign: str) -> None:
    await ready(working)
    bad = {"type": "SpaceReady", "status": "False", "severity": severity, "reason": "Broken", "message": "it broke"}
    others = [each for each in status(working)["conditions"] if each["type"] != "SpaceReady"]
    await report(working, conditions=[*others, bad])
    await eventually(lambda: status(working)["phase"] == phase)
    assert condition_of(working, sign) == ("True", "Broken")
    assert condition_of(working, "Ready") == ("False", "Broken")
    others = [each for each in status(working)["conditions"] if each["type"] != "SpaceReady"]
    await report(working, conditions=[*others, {**bad, "status": "True", "severity": ""}])
    await eventually(lambda: status(working)["phase"] == "Ready")


async def test_who_sleeps_is_left_asleep(working: RegistryFixture) -> None:
    await ready(working)
    await report(working, phase="Sleeping")
    await reconfigure(working, displayName="x")
    await eventually(lambda: status(working)["observedGeneration"] == 2)
    assert status(working)["phase"] == "Sleeping"
    assert condition_of(working, "Ready") == ("False", "Sleeping")
    assert find_condition(status(working), "Stalled") is None


async def test_an_external_virtual_cluster_is_ready_when_it_is_reported_to_be_online(working: RegistryFixture) -> None:
    kind = "VirtualClusterInstance"
    await working.create(kind, "one", spec={"external": True})
    await eventually(lambda: condition_of(working, "Ready", kind) == ("Unknown", "NotReported"))
    assert "spec.config" in status(working, kind)["message"]
    online = {"type": "VirtualClusterOnline", "status": "True", "reason": "Reached"}
    await report(working, kind, conditions=[*status(working, kind)["conditions"], online])
    await eventually(lambda: status(working, kind).get("phase") == "Ready")


async def test_an_instance_outside_of_projects_says_so(api: RegistryFixture) -> None:
    await api.create("Cluster", "berlin", spec={"networkPeer": True})
    await api.create(SPACE, "one", spec={"clusterRef": {"cluster": "berlin"}})
    async with running_controllers(api, InstanceTemplateController(api.registry, INSTANCE_CONFIG)):
        await eventually(lambda: condition_of(api, "Ready") == ("False", "NoProject"))
        assert status(api)["phase"] == "Failed"
        await api.create("Project", PROJECT, spec={})
        await eventually(lambda: condition_of(api, "Ready") == ("Unknown", "Progressing"))


async def test_a_virtual_cluster_gets_an_identity_that_stays(working: RegistryFixture) -> None:
    kind = "VirtualClusterInstance"
    await ready(working, kind)
    uid = (working.see(kind, "one") or {})["metadata"]["uid"]
    assert status(working, kind)["serviceUID"] == uid


async def test_a_failed_cluster_makes_its_instances_wait(working: RegistryFixture) -> None:
    await ready(working)
    writing = WriteOptions(CONTROLLER_USER, "clusters", subresource="status")
    await working.patch("Cluster", "berlin", lambda obj: obj.update(status={"phase": "Failed"}), writing)
    await eventually(lambda: condition_of(working, "TemplateSynced") == ("False", "ClusterNotReady"))
    assert status(working)["phase"] == "Pending"


async def test_an_instance_in_migration_is_left_alone(working: RegistryFixture) -> None:
    await ready(working)
    await report(working, ignoreReconciliation=True)
    before = status(working)
    await retemplate(working, template=definition("b"))
    await reconfigure(working, templateRef={"name": "t", "syncOnce": True})
    await asyncio.sleep(1)
    assert status(working) == before


async def test_an_instance_that_is_being_deleted_is_left_alone(working: RegistryFixture) -> None:
    await ready(working)
    await working.patch(SPACE, "one", lambda obj: obj["metadata"].update(finalizers=["example.com/hold"]))
    await working.delete(SPACE, "one")
    before = status(working)
    await retemplate(working, template=definition("b"))
    await asyncio.sleep(1)
    assert status(working) == before


async def test_an_instance_at_rest_is_not_written_again(working: RegistryFixture) -> None:
    await ready(working)
    await asyncio.sleep(1)
    revision = await working.store.revision()
    await asyncio.sleep(3_000)
    assert await working.store.revision() == revision


async def test_a_restart_writes_nothing(api: RegistryFixture) -> None:
    await api.create("Project", PROJECT, spec={})
    async with running_controllers(api, InstanceTemplateController(api.registry, INSTANCE_CONFIG)):
        await ready(api)
        await asyncio.sleep(1)
        revision = await api.store.revision()
    async with (
        open_registry(api.store.inner) as restarted,
        running_controllers(restarted, InstanceTemplateController(restarted.registry, INSTANCE_CONFIG)),
    ):
        await asyncio.sleep(60)
        assert await restarted.store.revision() == revision


async def test_a_change_of_phase_is_an_event(working: RegistryFixture) -> None:
    await ready(working)
    await eventually(lambda: len(working.names("Event")) == 1)


async def test_a_template_concerns_those_that_name_it_and_no_others(working: RegistryFixture) -> None:
    controller = InstanceTemplateController(working.registry, INSTANCE_CONFIG)
    await ready(working)
    await working.create(SPACE, "two", spec={"templateRef": {"name": "other"}})
    for entry in working.view.entries(GROUP, "spaceinstances"):
        controller.keys_for(entry.key, entry)
    one = (GROUP, "spaceinstances", "demo", "one")
    assert set(controller.keys_for((GROUP, "spacetemplates", "", "t"), None)) == {one}
    assert set(controller.keys_for((GROUP, "clusters", "", "berlin"), None)) == {one}
    controller.keys_for(one, None)
    assert set(controller.keys_for((GROUP, "spacetemplates", "", "t"), None)) == set()
