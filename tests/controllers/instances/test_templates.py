"""Tests of `fairlead.controllers.instances.templates`: when templates are resolved, and the status of the instances."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.controllers.instances.remote_namespace import distinguish_namespace
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
TEMPLATE_KINDS = {
    "SpaceInstance": ("SpaceTemplate", "space"),
    "VirtualClusterInstance": ("VirtualClusterTemplate", "virtualCluster"),
    "DevPodWorkspaceInstance": ("DevPodWorkspaceTemplate", "instance"),
}
every_kind = pytest.mark.parametrize("kind", TEMPLATE_KINDS)


@pytest.fixture
async def server(api: RegistryFixture) -> AsyncIterator[RegistryFixture]:
    await api.create("Project", PROJECT, spec={})
    async with running_controllers(api, InstanceTemplateController(api.registry, INSTANCE_CONFIG)):
        yield api


def build_template(text: str) -> Object:
    return {"instanceTemplate": {"metadata": {"labels": {"text": text}}}}


def get_text(api: RegistryFixture, kind: str = SPACE) -> Any:
    return get_path(api.get(kind, "one"), f"status.{TEMPLATE_KINDS[kind][1]}.instanceTemplate.metadata.labels.text")


def get_status(api: RegistryFixture, kind: str = SPACE) -> Object:
    return (api.get(kind, "one") or {}).get("status") or {}


def get_condition(api: RegistryFixture, type: str, kind: str = SPACE) -> tuple[Any, Any]:
    return condition_status(api, kind, type)


async def create_template(api: RegistryFixture, kind: str = SPACE, **spec: Any) -> None:
    await api.create(TEMPLATE_KINDS[kind][0], "t", spec=spec)


async def update_template(api: RegistryFixture, kind: str = SPACE, **spec: Any) -> None:
    await api.patch(TEMPLATE_KINDS[kind][0], "t", lambda obj: obj["spec"].update(spec))


async def create_instance(api: RegistryFixture, kind: str = SPACE, parameters: str = "", **ref: Any) -> None:
    await api.create(kind, "one", spec={"templateRef": {"name": "t", **ref}, "parameters": parameters})


async def update_instance(api: RegistryFixture, kind: str = SPACE, **spec: Any) -> None:
    await api.patch(kind, "one", lambda obj: obj["spec"].update(spec))


async def report_status(api: RegistryFixture, kind: str = SPACE, **fields: Any) -> None:
    """Writes to the status, like the agent of a cluster."""
    options = WriteOptions(CONTROLLER_USER, "agent", subresource="status")
    await api.patch(kind, "one", lambda obj: obj["status"].update(fields), options)


@every_kind
async def test_a_template_is_resolved_and_rendered(server: RegistryFixture, kind: str) -> None:
    await create_template(server, kind, template=build_template("a-{{ parameters.x }}"), parameters=[{"variable": "x"}])
    await create_instance(server, kind, "x: b")
    await eventually(lambda: get_text(server, kind) == "a-b")
    assert get_condition(server, "TemplateResolved", kind) == ("True", "Resolved")
    assert get_condition(server, "TemplateSynced", kind) == ("True", "Synced")
    assert all(condition["observedGeneration"] == 1 for condition in conditions_of(get_status(server, kind)))


@pytest.mark.parametrize(
    ("kind", "spec", "expected"),
    [
        (SPACE, {}, "one demo demo-one ada"),
        ("VirtualClusterInstance", {}, "one demo demo-v-one ada"),
        ("VirtualClusterInstance", {"clusterRef": {"cluster": "c", "namespace": "own"}}, "one demo own ada"),
        ("DevPodWorkspaceInstance", {}, "{{ name }} {{ project }} {{ namespace }} {{ owner }}"),
    ],
)
async def test_what_an_instance_has_is_inserted(
    server: RegistryFixture, kind: str, spec: Object, expected: str
) -> None:
    await create_template(server, kind, template=build_template("{{ name }} {{ project }} {{ namespace }} {{ owner }}"))
    await server.create(kind, "one", spec={"templateRef": {"name": "t"}, "owner": {"user": "ada"}, **spec})
    await eventually(lambda: get_text(server, kind) == expected)
    assert get_condition(server, "TemplateResolved", kind) == ("True", "Resolved")


@pytest.mark.parametrize("kind", [SPACE, "VirtualClusterInstance"])
async def test_the_namespace_that_a_moved_instance_has_kept_is_not_inserted(server: RegistryFixture, kind: str) -> None:
    kept = "demo-one" if kind == SPACE else "demo-v-one"
    await server.create(kind, "moved", spec={"clusterRef": {"cluster": "c", "namespace": kept}})
    await create_template(server, kind, template=build_template("{{ namespace }}"))
    spec = {"templateRef": {"name": "t"}, "clusterRef": {"cluster": "c"}}
    made = await server.create(kind, "one", spec=spec)
    await eventually(lambda: bool(get_text(server, kind)))
    assert get_text(server, kind) == distinguish_namespace(kept, made["metadata"]["uid"])


async def test_a_namespace_that_cannot_be_chosen_is_not_inserted(server: RegistryFixture) -> None:
    await server.patch("Project", PROJECT, lambda obj: obj["spec"].update(namespacePattern={"space": "{{ unknown }}"}))
    await create_template(server, template=build_template("{{ namespace }}"))
    await create_instance(server)
    await eventually(lambda: get_condition(server, "TemplateResolved") == ("False", "ErrorRenderingTemplate"))


async def test_for_a_workspace_only_fields_about_its_template_are_written(server: RegistryFixture) -> None:
    kind = "DevPodWorkspaceInstance"
    await create_template(server, kind, template=build_template("a"))
    await create_instance(server, kind)
    await eventually(lambda: get_text(server, kind) == "a")
    assert get_status(server, kind).keys() == {"conditions", "instance", "templateHash", "templateTrust"}
    types = [condition["type"] for condition in conditions_of(get_status(server, kind))]
    assert types == ["TemplateResolved", "TemplateSynced"]


async def test_a_workspace_without_a_template_is_not_changed(server: RegistryFixture) -> None:
    await server.create("DevPodWorkspaceInstance", "one", spec={})
    await asyncio.sleep(1)
    assert "status" not in (server.get("DevPodWorkspaceInstance", "one") or {})


@pytest.mark.parametrize(
    ("spec", "parameters", "version", "reason"),
    [
        (None, "", "", "TemplateNotFound"),
        ({"template": {}}, "", "1.x", "VersionError"),
        ({"versions": [{"version": "1.0.0"}]}, "", "2.x.x", "VersionNotFound"),
        ({"parameters": [{"variable": "x", "required": True}]}, "", "", "ErrorSyncingParameters"),
        ({"template": build_template("{{ parameters.x }}")}, "", "", "ErrorRenderingTemplate"),
    ],
)
@every_kind
async def test_a_template_that_cannot_be_resolved_is_reported_with_a_reason(
    server: RegistryFixture, kind: str, spec: Object | None, parameters: str, version: str, reason: str
) -> None:
    await server.create(TEMPLATE_KINDS[kind][0], "other", spec={})
    if spec is not None:
        await create_template(server, kind, **spec)
    await create_instance(server, kind, parameters, version=version)
    await eventually(lambda: get_condition(server, "TemplateResolved", kind) == ("False", reason))
    if kind != "DevPodWorkspaceInstance":
        assert get_condition(server, "Ready", kind) == ("False", reason)
        assert get_condition(server, "Stalled", kind) == ("True", reason)
        assert find_condition(get_status(server, kind), "Reconciling") is None
        assert (get_status(server, kind)["phase"], get_status(server, kind)["reason"]) == ("Failed", reason)


async def test_an_instance_recovers_when_its_template_is_created(server: RegistryFixture) -> None:
    await create_instance(server)
    await eventually(lambda: get_condition(server, "TemplateResolved") == ("False", "TemplateNotFound"))
    await create_template(server, template=build_template("a"))
    await eventually(lambda: get_text(server) == "a")
    assert find_condition(get_status(server), "Stalled") is None


@every_kind
async def test_a_pattern_follows_the_newest_version(server: RegistryFixture, kind: str) -> None:
    versions = [{"version": "1.0.0", "template": build_template("one")}]
    await create_template(server, kind, versions=versions)
    await create_instance(server, kind, version="1.x.x")
    await eventually(lambda: get_text(server, kind) == "one")
    versions.append({"version": "1.1.0", "template": build_template("one-one")})
    await update_template(server, kind, versions=versions)
    await eventually(lambda: get_text(server, kind) == "one-one")
    versions.append({"version": "2.0.0", "template": build_template("two")})
    await update_template(server, kind, versions=versions)
    await eventually(lambda: get_condition(server, "TemplateSynced", kind) == ("False", "NewTemplateVersionAvailable"))
    assert get_text(server, kind) == "one-one"
    assert get_condition(server, "TemplateResolved", kind) == ("True", "Resolved")


@every_kind
async def test_changes_of_an_unversioned_template_wait_for_sync_once(server: RegistryFixture, kind: str) -> None:
    await create_template(server, kind, template=build_template("before"))
    await create_instance(server, kind)
    await eventually(lambda: get_text(server, kind) == "before")
    await update_template(server, kind, template=build_template("after"))
    await eventually(lambda: get_condition(server, "TemplateSynced", kind) == ("False", "TemplateChangesAvailable"))
    await update_instance(server, kind, displayName="something else")
    await asyncio.sleep(1)
    assert get_text(server, kind) == "before"
    await update_instance(server, kind, templateRef={"name": "t", "syncOnce": True})
    await eventually(lambda: get_path(server.get(kind, "one"), "spec.templateRef.syncOnce") is False)
    assert get_text(server, kind) == "after"
    await eventually(lambda: get_condition(server, "TemplateSynced", kind) == ("True", "Synced"))


async def test_a_reverted_change_needs_no_sync(server: RegistryFixture) -> None:
    await create_template(server, template=build_template("before"))
    await create_instance(server)
    await eventually(lambda: get_text(server) == "before")
    await update_template(server, template=build_template("after"))
    await eventually(lambda: get_condition(server, "TemplateSynced") == ("False", "TemplateChangesAvailable"))
    await update_template(server, template=build_template("before"))
    await eventually(lambda: get_condition(server, "TemplateSynced") == ("True", "Synced"))


async def test_the_pattern_for_any_version_follows_an_unversioned_template(server: RegistryFixture) -> None:
    await create_template(server, template=build_template("before"))
    await create_instance(server, version="x.x.x")
    await eventually(lambda: get_text(server) == "before")
    await update_template(server, template=build_template("after"))
    await eventually(lambda: get_text(server) == "after")


async def test_a_failed_sync_is_retried(server: RegistryFixture) -> None:
    await create_template(server, template=build_template("a"))
    await create_instance(server)
    await eventually(lambda: get_text(server) == "a")
    await update_template(server, template=build_template("{{ parameters.missing }}"))
    await update_instance(server, templateRef={"name": "t", "syncOnce": True})
    await eventually(lambda: get_condition(server, "TemplateResolved") == ("False", "ErrorRenderingTemplate"))
    assert get_path(server.get(SPACE, "one"), "spec.templateRef.syncOnce") is True
    assert get_text(server) == "a"
    await update_template(server, template=build_template("b"))
    await eventually(lambda: get_path(server.get(SPACE, "one"), "spec.templateRef.syncOnce") is False)
    assert get_text(server) == "b"


async def test_changed_parameters_take_effect_at_once(server: RegistryFixture) -> None:
    await create_template(server, template=build_template("{{ parameters.x }}"), parameters=[{"variable": "x"}])
    await create_instance(server, parameters="x: a")
    await eventually(lambda: get_text(server) == "a")
    await update_instance(server, parameters="x: b")
    await eventually(lambda: get_text(server) == "b")


async def test_another_template_takes_effect_at_once(server: RegistryFixture) -> None:
    await create_template(server, template=build_template("a"))
    await server.create("SpaceTemplate", "other", spec={"template": build_template("b")})
    await create_instance(server)
    await eventually(lambda: get_text(server) == "a")
    await update_instance(server, templateRef={"name": "other"})
    await eventually(lambda: get_text(server) == "b")
    await server.patch("SpaceTemplate", "other", lambda obj: obj["spec"].update(template=build_template("c")))
    await eventually(lambda: get_condition(server, "TemplateSynced") == ("False", "TemplateChangesAvailable"))


async def test_an_inline_template_is_rendered(server: RegistryFixture) -> None:
    await server.create(SPACE, "one", spec={"template": build_template("{{ parameters.x }}"), "parameters": "x: a"})
    await eventually(lambda: get_text(server) == "a")


async def test_passwords_are_in_the_rendered_template_and_encrypted_in_the_store(server: RegistryFixture) -> None:
    await create_template(server, template={"charts": [{"name": "c", "password": "hunter2"}]})
    await create_instance(server)
    await eventually(lambda: get_path(get_status(server), "space"))
    assert get_status(server)["space"]["charts"] == [{"name": "c", "password": "hunter2"}]
    entry = server.resource(SPACE).get_cached("demo", "one")
    assert entry is not None
    assert b"hunter2" not in entry.body


async def test_an_instance_is_pending_until_its_cluster_is_set_and_exists(server: RegistryFixture) -> None:
    await create_template(server, template=build_template("a"))
    await create_instance(server)
    await eventually(lambda: get_condition(server, "Scheduled") == ("False", "NoClusterChosen"))
    assert get_status(server)["phase"] == "Pending"
    assert get_condition(server, "Reconciling") == ("True", "NoClusterChosen")
    await update_instance(server, clusterRef={"cluster": "berlin"})
    await eventually(lambda: get_condition(server, "Scheduled") == ("False", "ClusterNotFound"))
    assert get_condition(server, "Ready") == ("False", "ClusterNotFound")
    assert get_condition(server, "TemplateSynced") == ("False", "ClusterNotReady")
    assert get_status(server)["phase"] == "Pending"
    await server.create("Cluster", "berlin", spec={})
    await eventually(lambda: get_condition(server, "Ready") == ("False", "ClusterNotConnected"))
    assert get_condition(server, "Scheduled") == ("True", "ClusterChosen")
    assert get_status(server)["phase"] == "Pending"
    await server.patch("Cluster", "berlin", lambda obj: obj.update(spec={"local": True}))
    await eventually(lambda: get_condition(server, "Ready") == ("Unknown", "Progressing"))
    await report_status(server, conditions=[*get_status(server)["conditions"], *agent_conditions(SPACE)])
    await eventually(lambda: get_status(server)["phase"] == "Ready")
    assert get_condition(server, "Ready") == ("True", "Usable")
    assert get_status(server)["observedGeneration"] == 2
    assert {condition["type"] for condition in conditions_of(get_status(server))}.isdisjoint({"Reconciling", "Stalled"})


def agent_conditions(kind: str) -> list[Object]:
    """The conditions that the agent of a cluster reports for a created instance."""
    types = SPACE_CONDITIONS if kind == SPACE else VC_CONDITIONS
    return [{"type": type, "status": "True", "reason": "Made", "observedGeneration": 100} for type in types]


async def create_ready_instance(api: RegistryFixture, kind: str = SPACE) -> None:
    await api.create("Cluster", "berlin", spec={"local": True})
    await create_template(api, kind, template=build_template("a"))
    await api.create(kind, "one", spec={"templateRef": {"name": "t"}, "clusterRef": {"cluster": "berlin"}})
    await eventually(lambda: get_condition(api, "TemplateResolved", kind) == ("True", "Resolved"))
    await report_status(api, kind, conditions=[*get_status(api, kind)["conditions"], *agent_conditions(kind)])
    await eventually(lambda: get_status(api, kind).get("phase") == "Ready")


@pytest.mark.parametrize(
    ("severity", "phase", "type"), [("Error", "Failed", "Stalled"), ("", "Pending", "Reconciling")]
)
async def test_conditions_of_the_agent_set_the_phase(
    server: RegistryFixture, severity: str, phase: str, type: str
) -> None:
    await create_ready_instance(server)
    failed = {"type": "SpaceReady", "status": "False", "severity": severity, "reason": "Broken", "message": "it broke"}
    others = [condition for condition in get_status(server)["conditions"] if condition["type"] != "SpaceReady"]
    await report_status(server, conditions=[*others, failed])
    await eventually(lambda: get_status(server)["phase"] == phase)
    assert get_condition(server, type) == ("True", "Broken")
    assert get_condition(server, "Ready") == ("False", "Broken")
    others = [condition for condition in get_status(server)["conditions"] if condition["type"] != "SpaceReady"]
    await report_status(server, conditions=[*others, {**failed, "status": "True", "severity": ""}])
    await eventually(lambda: get_status(server)["phase"] == "Ready")


async def test_a_sleeping_instance_stays_asleep(server: RegistryFixture) -> None:
    await create_ready_instance(server)
    await report_status(server, phase="Sleeping")
    await update_instance(server, displayName="x")
    await eventually(lambda: get_status(server)["observedGeneration"] == 2)
    assert get_status(server)["phase"] == "Sleeping"
    assert get_condition(server, "Ready") == ("False", "Sleeping")
    assert find_condition(get_status(server), "Stalled") is None


async def test_an_external_virtual_cluster_is_ready_when_it_is_reported_to_be_online(server: RegistryFixture) -> None:
    kind = "VirtualClusterInstance"
    await server.create(kind, "one", spec={"external": True})
    await eventually(lambda: get_condition(server, "Ready", kind) == ("Unknown", "NotReported"))
    assert "spec.config" in get_status(server, kind)["message"]
    online = {"type": "VirtualClusterOnline", "status": "True", "reason": "Reached"}
    await report_status(server, kind, conditions=[*get_status(server, kind)["conditions"], online])
    await eventually(lambda: get_status(server, kind).get("phase") == "Ready")


async def test_an_instance_outside_of_projects_fails(api: RegistryFixture) -> None:
    await api.create("Cluster", "berlin", spec={"local": True})
    await api.create(SPACE, "one", spec={"clusterRef": {"cluster": "berlin"}})
    async with running_controllers(api, InstanceTemplateController(api.registry, INSTANCE_CONFIG)):
        await eventually(lambda: get_condition(api, "Ready") == ("False", "NoProject"))
        assert get_status(api)["phase"] == "Failed"
        await api.create("Project", PROJECT, spec={})
        await eventually(lambda: get_condition(api, "Ready") == ("Unknown", "Progressing"))


async def test_a_virtual_cluster_gets_a_permanent_service_uid(server: RegistryFixture) -> None:
    kind = "VirtualClusterInstance"
    await create_ready_instance(server, kind)
    uid = (server.get(kind, "one") or {})["metadata"]["uid"]
    assert get_status(server, kind)["serviceUID"] == uid


async def test_instances_of_a_failed_cluster_are_pending(server: RegistryFixture) -> None:
    await create_ready_instance(server)
    options = WriteOptions(CONTROLLER_USER, "clusters", subresource="status")
    await server.patch("Cluster", "berlin", lambda obj: obj.update(status={"phase": "Failed"}), options)
    await eventually(lambda: get_condition(server, "TemplateSynced") == ("False", "ClusterNotReady"))
    assert get_status(server)["phase"] == "Pending"


async def test_an_instance_in_migration_is_not_changed(server: RegistryFixture) -> None:
    await create_ready_instance(server)
    await report_status(server, ignoreReconciliation=True)
    before = get_status(server)
    await update_template(server, template=build_template("b"))
    await update_instance(server, templateRef={"name": "t", "syncOnce": True})
    await asyncio.sleep(1)
    assert get_status(server) == before


async def test_an_instance_that_is_being_deleted_is_not_changed(server: RegistryFixture) -> None:
    await create_ready_instance(server)
    await server.patch(SPACE, "one", lambda obj: obj["metadata"].update(finalizers=["example.com/hold"]))
    await server.delete(SPACE, "one")
    before = get_status(server)
    await update_template(server, template=build_template("b"))
    await asyncio.sleep(1)
    assert get_status(server) == before


async def test_an_unchanged_instance_is_not_written_again(server: RegistryFixture) -> None:
    await create_ready_instance(server)
    await asyncio.sleep(1)
    revision = await server.store.revision()
    await asyncio.sleep(3_000)
    assert await server.store.revision() == revision


async def test_a_restart_writes_nothing(api: RegistryFixture) -> None:
    await api.create("Project", PROJECT, spec={})
    async with running_controllers(api, InstanceTemplateController(api.registry, INSTANCE_CONFIG)):
        await create_ready_instance(api)
        await asyncio.sleep(1)
        revision = await api.store.revision()
    async with (
        open_registry(api.store.inner) as restarted,
        running_controllers(restarted, InstanceTemplateController(restarted.registry, INSTANCE_CONFIG)),
    ):
        await asyncio.sleep(60)
        assert await restarted.store.revision() == revision


async def test_a_change_of_phase_creates_an_event(server: RegistryFixture) -> None:
    await create_ready_instance(server)
    await eventually(lambda: len(server.list_names("Event")) == 1)


async def test_a_template_triggers_only_the_instances_that_reference_it(server: RegistryFixture) -> None:
    controller = InstanceTemplateController(server.registry, INSTANCE_CONFIG)
    await create_ready_instance(server)
    await server.create(SPACE, "two", spec={"templateRef": {"name": "other"}})
    for entry in server.view.entries(GROUP, "spaceinstances"):
        controller.keys_for(entry.key, entry)
    instance_key = (GROUP, "spaceinstances", "demo", "one")
    assert set(controller.keys_for((GROUP, "spacetemplates", "", "t"), None)) == {instance_key}
    assert set(controller.keys_for((GROUP, "clusters", "", "berlin"), None)) == {instance_key}
    controller.keys_for(instance_key, None)
    assert set(controller.keys_for((GROUP, "spacetemplates", "", "t"), None)) == set()
