"""Whose instances are, and who may make them without a template."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from fairlead.admission.instances import default_instance_owner
from fairlead.core.call import Decision, RequestInfo
from fairlead.core.errors import Forbidden, Invalid
from fairlead.core.objects import Object
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.kinds.projects.project import NAMESPACE_PREFIX
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.write_options import WriteOptions
from tests.harness.registry import RegistryFixture, open_registry

ADA, TEAM = User("ada", ("service:user:ada",)), User("service:team:core", ("service:team:core",))
FREE = User("root", ("system:masters",))
INSTANCES = ["SpaceInstance", "VirtualClusterInstance", "DevPodWorkspaceInstance"]
every_kind = pytest.mark.parametrize("kind", INSTANCES)
NAMESPACE = f"{NAMESPACE_PREFIX}web"
INLINE = {"template": {"instanceTemplate": {"metadata": {"labels": {"a": "b"}}}}}
WORKSPACE_INLINE = {"template": {"provider": {"name": "docker"}}}


def inline(kind: str) -> Object:
    return WORKSPACE_INLINE if kind == "DevPodWorkspaceInstance" else INLINE


asked: list[RequestInfo] = []


def may(user: User, target: RequestInfo) -> Decision:
    asked.append(target)
    return Decision(user.is_admin)


@asynccontextmanager
async def web(**spec: Any) -> AsyncIterator[RegistryFixture]:
    async with open_registry(rules=(default_instance_owner(may, GROUP, NAMESPACE_PREFIX),)) as api:
        await api.submit("Project", api.body("Project", "web", spec=spec), WriteOptions(CONTROLLER_USER))
        yield api


@pytest.fixture
async def api() -> AsyncIterator[RegistryFixture]:
    async with web() as made:
        yield made


async def make(api: RegistryFixture, kind: str, by: User = ADA, **spec: Any) -> Object:
    return await api.submit(kind, api.body(kind, "one", NAMESPACE, spec=spec), WriteOptions(by))


async def change(api: RegistryFixture, kind: str, by: User = ADA, **spec: Any) -> Object:
    resource = api.of(kind)

    def edit(old: Object) -> Object:
        return {**old, "spec": {name: value for name, value in {**old["spec"], **spec}.items() if value is not None}}

    changed: Object = orjson.loads(await resource.modify(NAMESPACE, "one", edit, WriteOptions(by)))
    return changed


@pytest.mark.parametrize("kind", INSTANCES[:2])
@pytest.mark.parametrize(
    ("user", "sent", "owner"),
    [
        (ADA, {}, {"user": "ada"}),
        (ADA, {"owner": {}}, {"user": "ada"}),
        (ADA, {"owner": {"user": ""}}, {"user": "ada"}),
        (ADA, {"owner": {"user": "bob"}}, {"user": "bob"}),
        (ADA, {"owner": {"team": "core"}}, {"team": "core"}),
        (TEAM, {}, {"team": "core"}),
        (FREE, {}, {"user": "root"}),
    ],
)
async def test_an_instance_belongs_to_whoever_makes_it(
    api: RegistryFixture, kind: str, user: User, sent: Object, owner: Object
) -> None:
    made = await make(api, kind, user, templateRef={"name": "t"}, **sent)
    assert made["spec"]["owner"] == owner


async def test_a_workspace_of_nobody_stays_so(api: RegistryFixture) -> None:
    assert "owner" not in (await make(api, "DevPodWorkspaceInstance", templateRef={"name": "t"}))["spec"]


@pytest.mark.parametrize("kind", INSTANCES[:2])
async def test_an_update_without_an_owner_keeps_it(api: RegistryFixture, kind: str) -> None:
    await make(api, kind, templateRef={"name": "t"})
    assert (await change(api, kind, FREE, owner=None, displayName="x"))["spec"]["owner"] == {"user": "ada"}


async def test_an_owner_of_the_wrong_type_is_left_to_the_schema(api: RegistryFixture) -> None:
    with pytest.raises(Invalid):
        await make(api, "SpaceInstance", owner="ada", templateRef={"name": "t"})


@every_kind
async def test_with_a_template_no_further_right_is_needed(api: RegistryFixture, kind: str) -> None:
    asked.clear()
    await make(api, kind, templateRef={"name": "t"})
    await change(api, kind, templateRef={"name": "other"})
    assert asked == []


@every_kind
@pytest.mark.parametrize("written", [True, False])
async def test_without_one_it_takes_the_right_to_create_restricted(
    api: RegistryFixture, kind: str, written: bool
) -> None:
    asked.clear()
    spec = inline(kind) if written else {}
    with pytest.raises(Forbidden, match="/restricted"):
        await make(api, kind, **spec)
    assert {(each.verb, each.subresource, each.namespace, each.name) for each in asked} == {
        ("create", "restricted", NAMESPACE, "")
    }
    await make(api, kind, FREE, **spec)


@every_kind
async def test_what_was_made_so_may_stay_and_not_be_changed(api: RegistryFixture, kind: str) -> None:
    await make(api, kind, FREE, **inline(kind), parameters="a: b")
    await change(api, kind, displayName="still mine")
    with pytest.raises(Forbidden):
        await change(api, kind, parameters="a: c")
    with pytest.raises(Forbidden):
        await change(api, kind, template=None)
    await change(api, kind, template=None, templateRef={"name": "t"})


@every_kind
async def test_a_template_is_not_left_without_the_right(api: RegistryFixture, kind: str) -> None:
    await make(api, kind, templateRef={"name": "t"})
    with pytest.raises(Forbidden):
        await change(api, kind, templateRef=None)
    with pytest.raises(Forbidden):
        await change(api, kind, templateRef=None, **inline(kind))


@every_kind
async def test_a_project_that_requires_none_lets_everybody(kind: str) -> None:
    async with web(requireTemplate={"disabled": True}) as api:
        await make(api, kind, **inline(kind))


async def test_outside_of_projects_a_template_is_required_too(api: RegistryFixture) -> None:
    with pytest.raises(Forbidden):
        await api.submit("SpaceInstance", api.body("SpaceInstance", "one", spec={}), WriteOptions(ADA))


async def test_the_server_itself_is_not_asked(api: RegistryFixture) -> None:
    await make(api, "SpaceInstance", CONTROLLER_USER)
