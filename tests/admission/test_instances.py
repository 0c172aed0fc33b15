"""Instances: their default owner, and the permission to create them without a template."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from fairlead.admission.instance_owners import default_instance_owner
from fairlead.admission.instances import check_import_source, require_chart, require_template, warn_outside_of_projects
from fairlead.core.call import Decision, RequestInfo
from fairlead.core.errors import Forbidden, Invalid
from fairlead.core.objects import Object
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.kinds.projects.project import NAMESPACE_PREFIX
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.write_options import DeleteOptions, WriteOptions
from tests.harness.registry import RegistryFixture, open_registry

ADA, TEAM = User("ada", ("service:user:ada",)), User("service:team:core", ("service:team:core",))
ADMIN = User("root", ("system:masters",))
INSTANCES = ["SpaceInstance", "VirtualClusterInstance", "DevPodWorkspaceInstance"]
every_kind = pytest.mark.parametrize("kind", INSTANCES)
NAMESPACE = f"{NAMESPACE_PREFIX}web"
INLINE = {"template": {"instanceTemplate": {"metadata": {"labels": {"a": "b"}}}}}
WORKSPACE_INLINE = {"template": {"provider": {"name": "docker"}}}


def inline_template(kind: str) -> Object:
    return WORKSPACE_INLINE if kind == "DevPodWorkspaceInstance" else INLINE


requests: list[RequestInfo] = []


def authorize(user: User, target: RequestInfo) -> Decision:
    requests.append(target)
    return Decision(user.is_admin)


@asynccontextmanager
async def open_project(**spec: Any) -> AsyncIterator[RegistryFixture]:
    rules = (default_instance_owner(GROUP), require_template(authorize, GROUP, NAMESPACE_PREFIX))
    async with open_registry(rules=rules) as api:
        await api.submit("Project", api.build_object("Project", "web", spec=spec), WriteOptions(CONTROLLER_USER))
        yield api


@pytest.fixture
async def api() -> AsyncIterator[RegistryFixture]:
    async with open_project() as fixture:
        yield fixture


async def create_instance(api: RegistryFixture, kind: str, user: User = ADA, **spec: Any) -> Object:
    return await api.submit(kind, api.build_object(kind, "one", NAMESPACE, spec=spec), WriteOptions(user))


async def update_instance(api: RegistryFixture, kind: str, user: User = ADA, **spec: Any) -> Object:
    resource = api.resource(kind)

    def merge_spec(old: Object) -> Object:
        return {**old, "spec": {name: value for name, value in {**old["spec"], **spec}.items() if value is not None}}

    updated: Object = orjson.loads(await resource.modify(NAMESPACE, "one", merge_spec, WriteOptions(user)))
    return updated


@pytest.mark.parametrize("kind", INSTANCES[:2])
@pytest.mark.parametrize(
    ("user", "spec", "owner"),
    [
        (ADA, {}, {"user": "ada"}),
        (ADA, {"owner": {}}, {"user": "ada"}),
        (ADA, {"owner": {"user": ""}}, {"user": "ada"}),
        (ADA, {"owner": {"user": "bob"}}, {"user": "bob"}),
        (ADA, {"owner": {"team": "core"}}, {"team": "core"}),
        (TEAM, {}, {"team": "core"}),
        (ADMIN, {}, {"user": "root"}),
    ],
)
async def test_an_instance_belongs_to_its_creator_by_default(
    api: RegistryFixture, kind: str, user: User, spec: Object, owner: Object
) -> None:
    created = await create_instance(api, kind, user, templateRef={"name": "t"}, **spec)
    assert created["spec"]["owner"] == owner


async def test_only_a_workspace_of_an_administrator_gets_no_default_owner(api: RegistryFixture) -> None:
    created = await create_instance(api, "DevPodWorkspaceInstance", ADMIN, templateRef={"name": "t"})
    assert "owner" not in created["spec"]
    await api.resource("DevPodWorkspaceInstance").delete(NAMESPACE, "one", DeleteOptions(), WriteOptions(ADMIN))
    created = await create_instance(api, "DevPodWorkspaceInstance", templateRef={"name": "t"})
    assert created["spec"]["owner"] == {"user": "ada"}, "without an owner, it would count for no quota"


@pytest.mark.parametrize("kind", INSTANCES[:2])
async def test_an_update_without_an_owner_keeps_it(api: RegistryFixture, kind: str) -> None:
    await create_instance(api, kind, templateRef={"name": "t"})
    assert (await update_instance(api, kind, ADMIN, owner=None, displayName="x"))["spec"]["owner"] == {"user": "ada"}


async def test_only_administrators_remove_the_owner_of_a_workspace(api: RegistryFixture) -> None:
    kind = "DevPodWorkspaceInstance"
    await create_instance(api, kind, templateRef={"name": "t"})
    for left_out in (None, {}, {"user": ""}):
        assert (await update_instance(api, kind, owner=left_out))["spec"]["owner"] == {"user": "ada"}
    assert "owner" not in (await update_instance(api, kind, ADMIN, owner=None))["spec"]
    assert "owner" not in (await update_instance(api, kind, owner=None))["spec"]


async def test_an_owner_of_the_wrong_type_is_left_to_the_schema(api: RegistryFixture) -> None:
    with pytest.raises(Invalid):
        await create_instance(api, "SpaceInstance", owner="ada", templateRef={"name": "t"})


@every_kind
async def test_an_instance_with_a_template_needs_no_further_permission(api: RegistryFixture, kind: str) -> None:
    requests.clear()
    await create_instance(api, kind, templateRef={"name": "t"})
    await update_instance(api, kind, templateRef={"name": "other"})
    assert requests == []


@every_kind
@pytest.mark.parametrize("with_inline_template", [True, False])
async def test_an_instance_without_a_template_requires_create_on_restricted(
    api: RegistryFixture, kind: str, with_inline_template: bool
) -> None:
    requests.clear()
    spec = inline_template(kind) if with_inline_template else {}
    with pytest.raises(Forbidden, match="/restricted") as error:
        await create_instance(api, kind, **spec)
    assert error.value.refused_by == "admission/require-template"
    assert ("leave spec.template out" in error.value.message) is with_inline_template
    assert {(each.verb, each.subresource, each.namespace, each.name) for each in requests} == {
        ("create", "restricted", NAMESPACE, "")
    }
    await create_instance(api, kind, ADMIN, **spec)


@every_kind
async def test_an_inline_template_may_stay_but_not_change(api: RegistryFixture, kind: str) -> None:
    await create_instance(api, kind, ADMIN, **inline_template(kind), parameters="a: b")
    await update_instance(api, kind, displayName="still mine")
    with pytest.raises(Forbidden):
        await update_instance(api, kind, parameters="a: c")
    with pytest.raises(Forbidden):
        await update_instance(api, kind, template=None)
    await update_instance(api, kind, template=None, templateRef={"name": "t"})


@every_kind
async def test_removing_the_template_reference_requires_the_permission(api: RegistryFixture, kind: str) -> None:
    await create_instance(api, kind, templateRef={"name": "t"})
    with pytest.raises(Forbidden):
        await update_instance(api, kind, templateRef=None)
    with pytest.raises(Forbidden):
        await update_instance(api, kind, templateRef=None, **inline_template(kind))


@every_kind
async def test_a_project_can_disable_the_requirement(kind: str) -> None:
    async with open_project(requireTemplate={"disabled": True}) as api:
        await create_instance(api, kind, **inline_template(kind))


async def test_outside_of_projects_a_template_is_required_too(api: RegistryFixture) -> None:
    with pytest.raises(Forbidden):
        await api.submit("SpaceInstance", api.build_object("SpaceInstance", "one", spec={}), WriteOptions(ADA))


async def test_the_server_is_not_checked(api: RegistryFixture) -> None:
    await create_instance(api, "SpaceInstance", CONTROLLER_USER)


@every_kind
async def test_an_instance_outside_of_projects_causes_a_warning(api: RegistryFixture, kind: str) -> None:
    server = api.with_rules(warn_outside_of_projects(GROUP, NAMESPACE_PREFIX))
    for namespace, expected in (("default", 1), (NAMESPACE, 0)):
        options = WriteOptions(ADMIN)
        await server.submit(kind, server.build_object(kind, "one", namespace, spec={}), options)
        assert [each.startswith(f'namespace "{namespace}" belongs to no project') for each in options.warnings] == [
            True
        ] * expected


async def test_a_workspace_outside_of_projects_may_name_its_runner(api: RegistryFixture) -> None:
    server, kind = api.with_rules(warn_outside_of_projects(GROUP, NAMESPACE_PREFIX)), "DevPodWorkspaceInstance"
    options = WriteOptions(ADMIN)
    await server.submit(kind, server.build_object(kind, "one", "default", spec={"runnerRef": {"runner": "a"}}), options)
    assert options.warnings == []


CHART = {"helmRelease": {"chart": {"name": "vc", "repo": "https://charts.example"}}}
CONNECTED = {"config": {"secretName": "kubeconfig"}}


@asynccontextmanager
async def open_with_clusters() -> AsyncIterator[RegistryFixture]:
    async with open_registry(rules=(require_chart(GROUP),)) as api:
        controller = WriteOptions(CONTROLLER_USER)
        await api.submit("Project", api.build_object("Project", "web", spec={}), controller)
        await api.submit("Cluster", api.build_object("Cluster", "c", spec=CONNECTED), controller)
        await api.submit("Cluster", api.build_object("Cluster", "local", spec={"local": True}), controller)
        versions = [{"version": "1.0.0", "template": CHART}, {"version": "2.0.0", "template": {}}]
        specs = {"empty": {"template": {}}, "charted": {"template": CHART}, "versioned": {"versions": versions}}
        for name, spec in specs.items():
            template = api.build_object("VirtualClusterTemplate", name, spec=spec)
            await api.submit("VirtualClusterTemplate", template, controller)
        yield api


IN_CLUSTER: Object = {"clusterRef": {"cluster": "c"}}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({}, "no template is named, so there is nothing to deploy"),
        ({"template": {"helmRelease": {"values": "a: b"}}}, "no template is named"),
        ({"templateRef": {"name": "versioned", "version": "2.x.x"}}, "versioned.*this template names no chart"),
        ({"templateRef": {"name": "empty"}}, "empty.*this template names no chart in helmRelease.chart.*import"),
    ],
)
async def test_a_virtual_cluster_without_a_chart_is_rejected(spec: Object, message: str) -> None:
    async with open_with_clusters() as api:
        with pytest.raises(Invalid, match=f"(?s)spec.templateRef.name.*{message}"):
            await create_instance(api, "VirtualClusterInstance", **{**IN_CLUSTER, **spec})
        # Also if an update would make it so.
        await create_instance(api, "VirtualClusterInstance", **IN_CLUSTER, templateRef={"name": "charted"})
        with pytest.raises(Invalid, match="nothing to deploy"):
            await update_instance(api, "VirtualClusterInstance", **{"templateRef": None, **spec})


@pytest.mark.parametrize(
    "spec",
    [
        {**IN_CLUSTER, "templateRef": {"name": "charted"}},
        {**IN_CLUSTER, "templateRef": {"name": "versioned", "version": "1.x.x"}},
        {**IN_CLUSTER, "template": CHART},
        {**IN_CLUSTER, "config": {"secretName": "s"}},
        {**IN_CLUSTER, "external": True},
        {**IN_CLUSTER, "networkPeer": True},
        {**IN_CLUSTER, "templateRef": {"name": "missing"}},
        {"clusterRef": {"cluster": "local"}},
        {"clusterRef": {"cluster": "missing"}},
        {"templateRef": {"name": "empty"}},
    ],
)
async def test_a_virtual_cluster_with_a_chart_or_that_is_not_deployed_is_accepted(spec: Object) -> None:
    async with open_with_clusters() as api:
        await create_instance(api, "VirtualClusterInstance", **spec)


async def test_a_stored_virtual_cluster_without_a_chart_can_be_changed_otherwise() -> None:
    async with open_with_clusters() as api:
        stored = api.build_object("VirtualClusterInstance", "one", NAMESPACE, spec=IN_CLUSTER)
        await api.submit("VirtualClusterInstance", stored, WriteOptions(CONTROLLER_USER))
        await update_instance(api, "VirtualClusterInstance", **IN_CLUSTER, displayName="Another")


@pytest.mark.parametrize(
    ("user", "source", "spec", "error"),
    [
        (ADMIN, "c/ns/vc", {"config": {"secretName": "s"}}, None),
        (ADA, "c/ns/vc", {"config": {"secretName": "s"}}, Forbidden),
        (ADMIN, "c/ns/vc", {}, Invalid),
        (ADMIN, "c/ns", {"config": {"secretName": "s"}}, Invalid),
        (ADMIN, "c/NS/vc", {"config": {"secretName": "s"}}, Invalid),
        (ADMIN, "c/ns/vc/../x", {"config": {"secretName": "s"}}, Invalid),
    ],
)
async def test_the_source_of_an_import_needs_its_form_and_the_use_of_the_cluster(
    user: User, source: str, spec: Object, error: type[Exception] | None
) -> None:
    async with open_registry(rules=(check_import_source(authorize, GROUP),)) as api:
        await api.submit("Project", api.build_object("Project", "web", spec={}), WriteOptions(CONTROLLER_USER))
        body = api.build_object("VirtualClusterInstance", "one", NAMESPACE, spec=spec)
        body["metadata"]["annotations"] = {"service.sh/import-source": source}
        requests.clear()
        if error is None:
            await api.submit("VirtualClusterInstance", body, WriteOptions(user))
            await update_instance(api, "VirtualClusterInstance", ADA, displayName="the source stays")
        else:
            with pytest.raises(error):
                await api.submit("VirtualClusterInstance", body, WriteOptions(user))
        if error is not Invalid:
            assert [(each.verb, each.resource, each.name) for each in requests] == [("use", "clusters", "c")]


async def test_the_user_who_has_set_the_source_of_an_import_is_recorded() -> None:
    source = "service.sh/import-source"
    writer = "service.sh/import-source-writer"

    def allow(user: User, target: RequestInfo) -> Decision:
        return Decision(True)

    async with open_registry(rules=(check_import_source(allow, GROUP),)) as api:
        await api.submit("Project", api.build_object("Project", "web", spec={}), WriteOptions(CONTROLLER_USER))
        resource = api.resource("VirtualClusterInstance")

        async def annotate(user: User, annotations: Object) -> Any:
            def edit(old: Object) -> Object:
                return {**old, "metadata": {**old["metadata"], "annotations": annotations}}

            updated = orjson.loads(await resource.modify(NAMESPACE, "one", edit, WriteOptions(user)))
            return updated["metadata"].get("annotations") or {}

        body = api.build_object("VirtualClusterInstance", "one", NAMESPACE, spec={"config": {"secretName": "s"}})
        body["metadata"]["annotations"] = {source: "c/ns/vc", writer: "system:masters"}
        created = await api.submit("VirtualClusterInstance", body, WriteOptions(ADA))
        assert created["metadata"]["annotations"] == {source: "c/ns/vc", writer: "ada"}
        forged = {source: "c/ns/vc", writer: TEAM.name}
        assert await annotate(TEAM, forged) == {source: "c/ns/vc", writer: "ada"}
        assert await annotate(TEAM, {source: "c/ns/vc"}) == {source: "c/ns/vc", writer: "ada"}
        assert await annotate(TEAM, {source: "d/ns/vc"}) == {source: "d/ns/vc", writer: TEAM.name}
        assert await annotate(ADMIN, {source: "c/ns/vc"}) == {source: "c/ns/vc", writer: "system:masters"}
        assert await annotate(ADA, {writer: "system:masters"}) == {}
