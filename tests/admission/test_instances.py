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
from tests.harness.registry import World, new_world

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
async def web(**spec: Any) -> AsyncIterator[World]:
    async with new_world(rules=(default_instance_owner(may, GROUP, NAMESPACE_PREFIX),)) as world:
        await world.submit("Project", world.body("Project", "web", spec=spec), WriteOptions(CONTROLLER_USER))
        yield world


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with web() as made:
        yield made


async def make(world: World, kind: str, by: User = ADA, **spec: Any) -> Object:
    return await world.submit(kind, world.body(kind, "one", NAMESPACE, spec=spec), WriteOptions(by))


async def change(world: World, kind: str, by: User = ADA, **spec: Any) -> Object:
    resource = world.of(kind)

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
    world: World, kind: str, user: User, sent: Object, owner: Object
) -> None:
    made = await make(world, kind, user, templateRef={"name": "t"}, **sent)
    assert made["spec"]["owner"] == owner


async def test_a_workspace_of_nobody_stays_so(world: World) -> None:
    assert "owner" not in (await make(world, "DevPodWorkspaceInstance", templateRef={"name": "t"}))["spec"]


@pytest.mark.parametrize("kind", INSTANCES[:2])
async def test_an_update_without_an_owner_keeps_it(world: World, kind: str) -> None:
    await make(world, kind, templateRef={"name": "t"})
    assert (await change(world, kind, FREE, owner=None, displayName="x"))["spec"]["owner"] == {"user": "ada"}


async def test_an_owner_of_the_wrong_type_is_left_to_the_schema(world: World) -> None:
    with pytest.raises(Invalid):
        await make(world, "SpaceInstance", owner="ada", templateRef={"name": "t"})


@every_kind
async def test_with_a_template_no_further_right_is_needed(world: World, kind: str) -> None:
    asked.clear()
    await make(world, kind, templateRef={"name": "t"})
    await change(world, kind, templateRef={"name": "other"})
    assert asked == []


@every_kind
@pytest.mark.parametrize("written", [True, False])
async def test_without_one_it_takes_the_right_to_create_restricted(world: World, kind: str, written: bool) -> None:
    asked.clear()
    spec = inline(kind) if written else {}
    with pytest.raises(Forbidden, match="/restricted"):
        await make(world, kind, **spec)
    assert {(each.verb, each.subresource, each.namespace, each.name) for each in asked} == {
        ("create", "restricted", NAMESPACE, "")
    }
    await make(world, kind, FREE, **spec)


@every_kind
async def test_what_was_made_so_may_stay_and_not_be_changed(world: World, kind: str) -> None:
    await make(world, kind, FREE, **inline(kind), parameters="a: b")
    await change(world, kind, displayName="still mine")
    with pytest.raises(Forbidden):
        await change(world, kind, parameters="a: c")
    with pytest.raises(Forbidden):
        await change(world, kind, template=None)
    await change(world, kind, template=None, templateRef={"name": "t"})


@every_kind
async def test_a_template_is_not_left_without_the_right(world: World, kind: str) -> None:
    await make(world, kind, templateRef={"name": "t"})
    with pytest.raises(Forbidden):
        await change(world, kind, templateRef=None)
    with pytest.raises(Forbidden):
        await change(world, kind, templateRef=None, **inline(kind))


@every_kind
async def test_a_project_that_requires_none_lets_everybody(kind: str) -> None:
    async with web(requireTemplate={"disabled": True}) as world:
        await make(world, kind, **inline(kind))


async def test_outside_of_projects_a_template_is_required_too(world: World) -> None:
    with pytest.raises(Forbidden):
        await world.submit("SpaceInstance", world.body("SpaceInstance", "one", spec={}), WriteOptions(ADA))


async def test_the_server_itself_is_not_asked(world: World) -> None:
    await make(world, "SpaceInstance", CONTROLLER_USER)
