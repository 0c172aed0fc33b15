"""Aggregated ClusterRoles have the rules of those that they choose, and lose them again."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fairlead.controllers.core.role_aggregation import RoleAggregationController, RoleSnapshot
from fairlead.core.objects import Object
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.registry import RegistryFixture


def rule(*resources: str) -> Object:
    return {"apiGroups": [""], "resources": list(resources), "verbs": ["get"]}


def expression(key: str, operator: str, *values: str) -> Object:
    return {"matchExpressions": [{"key": key, "operator": operator, **({"values": list(values)} if values else {})}]}


def aggregating(*selectors: Object) -> Object:
    return {"aggregationRule": {"clusterRoleSelectors": list(selectors)}}


async def create(api: RegistryFixture, name: str, labels: dict[str, str] | None = None, **fields: Any) -> Object:
    return await api.create("ClusterRole", name, metadata={"labels": labels or {}}, **fields)


def resources(api: RegistryFixture, name: str) -> list[str]:
    """The resources in the rules of a role, as a short way to tell the rules apart."""
    role = api.see("ClusterRole", name) or {}
    return [resource for each in role.get("rules") or () for resource in each["resources"]]


def has(api: RegistryFixture, name: str, *expected: str) -> Callable[[], bool]:
    return lambda: resources(api, name) == list(expected)


async def test_rules_are_gathered_in_order_of_names_each_once(api: RegistryFixture) -> None:
    await create(api, "b", {"pick": "me"}, rules=[rule("two"), rule("one")])
    await create(api, "a", {"pick": "me"}, rules=[rule("one"), rule("three")])
    await create(api, "c", {"pick": "not"}, rules=[rule("four")])
    await create(api, "all", **aggregating({"matchLabels": {"pick": "me"}}))
    async with running_controllers(api, RoleAggregationController(api.registry)):
        await eventually(has(api, "all", "one", "three", "two"))


async def test_rules_follow_their_sources(api: RegistryFixture) -> None:
    async with running_controllers(api, RoleAggregationController(api.registry)):
        await create(api, "all", rules=[rule("stale")], **aggregating({"matchLabels": {"pick": "me"}}))
        await eventually(has(api, "all"))
        await create(api, "a", {"pick": "me"}, rules=[rule("one")])
        await eventually(has(api, "all", "one"))
        await create(api, "b", rules=[rule("two")])
        await api.patch("ClusterRole", "b", lambda obj: obj["metadata"].update(labels={"pick": "me"}))
        await eventually(has(api, "all", "one", "two"))
        await api.patch("ClusterRole", "a", lambda obj: obj.update(rules=[rule("uno")]))
        await eventually(has(api, "all", "uno", "two"))
        await api.delete("ClusterRole", "a")
        await eventually(has(api, "all", "two"))
        await api.patch("ClusterRole", "b", lambda obj: obj["metadata"].pop("labels"))
        await eventually(has(api, "all"))
    assert (api.see("ClusterRole", "all") or {})["rules"] is None


async def test_the_selectors_of_a_role_can_change_and_go(api: RegistryFixture) -> None:
    await create(api, "a", {"pick": "me"}, rules=[rule("one")])
    await create(api, "b", {"pick": "you"}, rules=[rule("two")])
    async with running_controllers(api, RoleAggregationController(api.registry)):
        await create(api, "all", **aggregating({"matchLabels": {"pick": "me"}}))
        await eventually(has(api, "all", "one"))
        await api.patch("ClusterRole", "all", lambda obj: obj.update(aggregating({"matchLabels": {"pick": "you"}})))
        await eventually(has(api, "all", "two"))
        await api.patch("ClusterRole", "all", lambda obj: obj.pop("aggregationRule"))
        await api.patch("ClusterRole", "all", lambda obj: obj.update(rules=[rule("own")]))
        await api.delete("ClusterRole", "b")
        await create(api, "other", **aggregating({"matchLabels": {"pick": "me"}}))
        await eventually(has(api, "other", "one"))
        assert resources(api, "all") == ["own"]


async def test_whoever_takes_the_selectors_away_meanwhile_keeps_the_rules_that_they_wrote(api: RegistryFixture) -> None:
    def own(role: Object) -> None:
        role.pop("aggregationRule")
        role["rules"] = [rule("own")]

    await create(api, "a", {"pick": "me"}, rules=[rule("one")])
    await create(api, "all", **aggregating({"matchLabels": {"pick": "me"}}))
    api.store.before = [lambda: api.patch("ClusterRole", "all", own)]
    controller = RoleAggregationController(api.registry)
    await controller.reconcile(api.of("ClusterRole").kind.key("", "all"))
    assert api.store.before == []
    assert resources(api, "all") == ["own"]


async def test_aggregated_roles_can_be_aggregated(api: RegistryFixture) -> None:
    async with running_controllers(api, RoleAggregationController(api.registry)):
        await create(api, "admin", **aggregating({"matchLabels": {"to": "admin"}}))
        await create(api, "edit", {"to": "admin"}, **aggregating({"matchLabels": {"to": "edit"}}))
        await create(api, "view", {"to": "edit"}, **aggregating({"matchLabels": {"to": "view"}}))
        await create(api, "x", {"to": "view"}, rules=[rule("one")])
        await eventually(has(api, "admin", "one"))
        await api.delete("ClusterRole", "x")
        await eventually(has(api, "admin"))
        await eventually(has(api, "view"))


async def test_roles_that_choose_each_other_come_to_rest(api: RegistryFixture) -> None:
    for name, chosen in (("a", "b"), ("b", "c"), ("c", "a")):
        await create(api, name, {"is": name}, rules=[rule(name)], **aggregating({"matchLabels": {"is": chosen}}))
    await create(api, "x", {"is": "a"}, rules=[rule("one")])
    async with running_controllers(api, RoleAggregationController(api.registry)):
        for name in "abc":
            await eventually(has(api, name, "one"))
        await api.delete("ClusterRole", "x")
        for name in "abc":
            await eventually(has(api, name))


async def test_a_role_that_is_as_it_should_be_is_not_written(api: RegistryFixture) -> None:
    await create(api, "a", {"pick": "me"}, rules=[rule("one")])
    await create(api, "all", rules=[rule("one")], **aggregating({"matchLabels": {"pick": "me"}}))
    revision = api.view.revision
    controller = RoleAggregationController(api.registry)
    for name in ("all", "a", "gone"):
        await controller.reconcile(api.of("ClusterRole").kind.key("", name))
    assert api.view.revision == revision


async def test_the_server_is_told_to_own_the_rules(api: RegistryFixture) -> None:
    await create(api, "a", {"pick": "me"}, rules=[rule("one")])
    await create(api, "all", **aggregating({"matchLabels": {"pick": "me"}}))
    async with running_controllers(api, RoleAggregationController(api.registry)):
        await eventually(has(api, "all", "one"))
    owners = (api.see("ClusterRole", "all") or {})["metadata"]["managedFields"]
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
