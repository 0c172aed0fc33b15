"""Aggregated ClusterRoles have the rules of those that they choose, and lose them again."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fairlead.controllers.core.role_aggregation import RoleAggregationController, RoleSnapshot
from fairlead.core.objects import Object
from tests.harness.controllers import at_work, until
from tests.harness.registry import World


def rule(*resources: str) -> Object:
    return {"apiGroups": [""], "resources": list(resources), "verbs": ["get"]}


def expression(key: str, operator: str, *values: str) -> Object:
    return {"matchExpressions": [{"key": key, "operator": operator, **({"values": list(values)} if values else {})}]}


def aggregating(*selectors: Object) -> Object:
    return {"aggregationRule": {"clusterRoleSelectors": list(selectors)}}


async def create(world: World, name: str, labels: dict[str, str] | None = None, **fields: Any) -> Object:
    return await world.create("ClusterRole", name, metadata={"labels": labels or {}}, **fields)


def resources(world: World, name: str) -> list[str]:
    """The resources in the rules of a role, as a short way to tell the rules apart."""
    role = world.see("ClusterRole", name) or {}
    return [resource for each in role.get("rules") or () for resource in each["resources"]]


def has(world: World, name: str, *expected: str) -> Callable[[], bool]:
    return lambda: resources(world, name) == list(expected)


async def test_rules_are_gathered_in_order_of_names_each_once(world: World) -> None:
    await create(world, "b", {"pick": "me"}, rules=[rule("two"), rule("one")])
    await create(world, "a", {"pick": "me"}, rules=[rule("one"), rule("three")])
    await create(world, "c", {"pick": "not"}, rules=[rule("four")])
    await create(world, "all", **aggregating({"matchLabels": {"pick": "me"}}))
    async with at_work(world, RoleAggregationController(world.registry)):
        await until(has(world, "all", "one", "three", "two"))


async def test_rules_follow_their_sources(world: World) -> None:
    async with at_work(world, RoleAggregationController(world.registry)):
        await create(world, "all", rules=[rule("stale")], **aggregating({"matchLabels": {"pick": "me"}}))
        await until(has(world, "all"))
        await create(world, "a", {"pick": "me"}, rules=[rule("one")])
        await until(has(world, "all", "one"))
        await create(world, "b", rules=[rule("two")])
        await world.patch("ClusterRole", "b", lambda obj: obj["metadata"].update(labels={"pick": "me"}))
        await until(has(world, "all", "one", "two"))
        await world.patch("ClusterRole", "a", lambda obj: obj.update(rules=[rule("uno")]))
        await until(has(world, "all", "uno", "two"))
        await world.delete("ClusterRole", "a")
        await until(has(world, "all", "two"))
        await world.patch("ClusterRole", "b", lambda obj: obj["metadata"].pop("labels"))
        await until(has(world, "all"))
    assert (world.see("ClusterRole", "all") or {})["rules"] is None


async def test_the_selectors_of_a_role_can_change_and_go(world: World) -> None:
    await create(world, "a", {"pick": "me"}, rules=[rule("one")])
    await create(world, "b", {"pick": "you"}, rules=[rule("two")])
    async with at_work(world, RoleAggregationController(world.registry)):
        await create(world, "all", **aggregating({"matchLabels": {"pick": "me"}}))
        await until(has(world, "all", "one"))
        await world.patch("ClusterRole", "all", lambda obj: obj.update(aggregating({"matchLabels": {"pick": "you"}})))
        await until(has(world, "all", "two"))
        await world.patch("ClusterRole", "all", lambda obj: obj.pop("aggregationRule"))
        await world.patch("ClusterRole", "all", lambda obj: obj.update(rules=[rule("own")]))
        await world.delete("ClusterRole", "b")
        await create(world, "other", **aggregating({"matchLabels": {"pick": "me"}}))
        await until(has(world, "other", "one"))
        assert resources(world, "all") == ["own"]


async def test_whoever_takes_the_selectors_away_meanwhile_keeps_the_rules_that_they_wrote(world: World) -> None:
    def own(role: Object) -> None:
        role.pop("aggregationRule")
        role["rules"] = [rule("own")]

    await create(world, "a", {"pick": "me"}, rules=[rule("one")])
    await create(world, "all", **aggregating({"matchLabels": {"pick": "me"}}))
    world.store.before = [lambda: world.patch("ClusterRole", "all", own)]
    controller = RoleAggregationController(world.registry)
    await controller.reconcile(world.of("ClusterRole").kind.key("", "all"))
    assert world.store.before == []
    assert resources(world, "all") == ["own"]


async def test_aggregated_roles_can_be_aggregated(world: World) -> None:
    async with at_work(world, RoleAggregationController(world.registry)):
        await create(world, "admin", **aggregating({"matchLabels": {"to": "admin"}}))
        await create(world, "edit", {"to": "admin"}, **aggregating({"matchLabels": {"to": "edit"}}))
        await create(world, "view", {"to": "edit"}, **aggregating({"matchLabels": {"to": "view"}}))
        await create(world, "x", {"to": "view"}, rules=[rule("one")])
        await until(has(world, "admin", "one"))
        await world.delete("ClusterRole", "x")
        await until(has(world, "admin"))
        await until(has(world, "view"))


async def test_roles_that_choose_each_other_come_to_rest(world: World) -> None:
    for name, chosen in (("a", "b"), ("b", "c"), ("c", "a")):
        await create(world, name, {"is": name}, rules=[rule(name)], **aggregating({"matchLabels": {"is": chosen}}))
    await create(world, "x", {"is": "a"}, rules=[rule("one")])
    async with at_work(world, RoleAggregationController(world.registry)):
        for name in "abc":
            await until(has(world, name, "one"))
        await world.delete("ClusterRole", "x")
        for name in "abc":
            await until(has(world, name))


async def test_a_role_that_is_as_it_should_be_is_not_written(world: World) -> None:
    await create(world, "a", {"pick": "me"}, rules=[rule("one")])
    await create(world, "all", rules=[rule("one")], **aggregating({"matchLabels": {"pick": "me"}}))
    revision = world.view.revision
    controller = RoleAggregationController(world.registry)
    for name in ("all", "a", "gone"):
        await controller.reconcile(world.of("ClusterRole").kind.key("", name))
    assert world.view.revision == revision


async def test_the_server_is_told_to_own_the_rules(world: World) -> None:
    await create(world, "a", {"pick": "me"}, rules=[rule("one")])
    await create(world, "all", **aggregating({"matchLabels": {"pick": "me"}}))
    async with at_work(world, RoleAggregationController(world.registry)):
        await until(has(world, "all", "one"))
    owners = (world.see("ClusterRole", "all") or {})["metadata"]["managedFields"]
    assert [each["manager"] for each in owners if "f:rules" in each["fieldsV1"]] == ["fairlead"]


LABELS: dict[str, dict[str, str]] = {"a": {"x": "1"}, "b": {"x": "2", "y": ""}, "c": {}, "d": {"y": "1"}}


def chosen_by(*selectors: Object) -> Iterator[str]:
    roles = {
        name: {"metadata": {"name": name, "labels": labels}, "rules": [rule(name)]} for name, labels in LABELS.items()
    }
    all_of_them = RoleSnapshot({**roles, "all": {"metadata": {"name": "all"}, **aggregating(*selectors)}})
    return (resource for each in all_of_them.aggregate_rules("all") for resource in each["resources"])


@pytest.mark.parametrize(
    ("selectors", "expected"),
    [
        ([{}], "abcd"),
        ([{"matchLabels": {"x": "1"}}], "a"),
        ([{"matchLabels": {"x": "2", "y": ""}}], "b"),
        ([{"matchLabels": {"x": "1", "y": "1"}}], ""),
        ([expression("x", "In", "1", "2")], "ab"),
        ([expression("x", "NotIn", "1")], "bcd"),
        ([expression("y", "Exists")], "bd"),
        ([expression("y", "DoesNotExist")], "ac"),
        ([{"matchLabels": {"x": "1"}, **expression("y", "DoesNotExist")}], "a"),
        ([{"matchLabels": {"x": "1"}, **expression("y", "Exists")}], ""),
        ([{"matchLabels": {"y": "1"}}, {"matchLabels": {"x": "1"}}], "ad"),
    ],
)
def test_what_selectors_choose(selectors: list[Object], expected: str) -> None:
    assert "".join(chosen_by(*selectors)) == expected
