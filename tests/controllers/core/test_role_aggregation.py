"""Tests of `fairlead.controllers.core.role_aggregation`: aggregated ClusterRoles have the rules of selected ones."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fairlead.controllers.core.role_aggregation import RoleAggregationController, RoleSnapshot
from fairlead.core.objects import Object
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.registry import RegistryFixture


def build_rule(*resources: str) -> Object:
    return {"apiGroups": [""], "resources": list(resources), "verbs": ["get"]}


def match_expression(key: str, operator: str, *values: str) -> Object:
    return {"matchExpressions": [{"key": key, "operator": operator, **({"values": list(values)} if values else {})}]}


def aggregation_rule(*selectors: Object) -> Object:
    return {"aggregationRule": {"clusterRoleSelectors": list(selectors)}}


async def create_role(api: RegistryFixture, name: str, labels: dict[str, str] | None = None, **fields: Any) -> Object:
    return await api.create("ClusterRole", name, metadata={"labels": labels or {}}, **fields)


def rule_resources(api: RegistryFixture, name: str) -> list[str]:
    """The resources in the rules of a role, which identify the rules in these tests."""
    role = api.get("ClusterRole", name) or {}
    return [resource for rule in role.get("rules") or () for resource in rule["resources"]]


def has_rules(api: RegistryFixture, name: str, *expected: str) -> Callable[[], bool]:
    return lambda: rule_resources(api, name) == list(expected)


async def test_rules_are_collected_in_order_of_role_names_without_duplicates(api: RegistryFixture) -> None:
    await create_role(api, "b", {"pick": "me"}, rules=[build_rule("two"), build_rule("one")])
    await create_role(api, "a", {"pick": "me"}, rules=[build_rule("one"), build_rule("three")])
    await create_role(api, "c", {"pick": "not"}, rules=[build_rule("four")])
    await create_role(api, "all", **aggregation_rule({"matchLabels": {"pick": "me"}}))
    async with running_controllers(api, RoleAggregationController(api.registry)):
        await eventually(has_rules(api, "all", "one", "three", "two"))


async def test_rules_follow_changes_of_the_selected_roles(api: RegistryFixture) -> None:
    async with running_controllers(api, RoleAggregationController(api.registry)):
        await create_role(api, "all", rules=[build_rule("stale")], **aggregation_rule({"matchLabels": {"pick": "me"}}))
        await eventually(has_rules(api, "all"))
        await create_role(api, "a", {"pick": "me"}, rules=[build_rule("one")])
        await eventually(has_rules(api, "all", "one"))
        await create_role(api, "b", rules=[build_rule("two")])
        await api.patch("ClusterRole", "b", lambda obj: obj["metadata"].update(labels={"pick": "me"}))
        await eventually(has_rules(api, "all", "one", "two"))
        await api.patch("ClusterRole", "a", lambda obj: obj.update(rules=[build_rule("uno")]))
        await eventually(has_rules(api, "all", "uno", "two"))
        await api.delete("ClusterRole", "a")
        await eventually(has_rules(api, "all", "two"))
        await api.patch("ClusterRole", "b", lambda obj: obj["metadata"].pop("labels"))
        await eventually(has_rules(api, "all"))
    assert (api.get("ClusterRole", "all") or {})["rules"] is None


async def test_the_selectors_of_a_role_can_be_changed_and_removed(api: RegistryFixture) -> None:
    await create_role(api, "a", {"pick": "me"}, rules=[build_rule("one")])
    await create_role(api, "b", {"pick": "you"}, rules=[build_rule("two")])
    async with running_controllers(api, RoleAggregationController(api.registry)):
        await create_role(api, "all", **aggregation_rule({"matchLabels": {"pick": "me"}}))
        await eventually(has_rules(api, "all", "one"))
        await api.patch(
            "ClusterRole", "all", lambda obj: obj.update(aggregation_rule({"matchLabels": {"pick": "you"}}))
        )
        await eventually(has_rules(api, "all", "two"))
        await api.patch("ClusterRole", "all", lambda obj: obj.pop("aggregationRule"))
        await api.patch("ClusterRole", "all", lambda obj: obj.update(rules=[build_rule("own")]))
        await api.delete("ClusterRole", "b")
        await create_role(api, "other", **aggregation_rule({"matchLabels": {"pick": "me"}}))
        await eventually(has_rules(api, "other", "one"))
        assert rule_resources(api, "all") == ["own"]


async def test_rules_written_with_a_concurrent_removal_of_the_selectors_are_kept(api: RegistryFixture) -> None:
    def replace_rules(role: Object) -> None:
        role.pop("aggregationRule")
        role["rules"] = [build_rule("own")]

    await create_role(api, "a", {"pick": "me"}, rules=[build_rule("one")])
    await create_role(api, "all", **aggregation_rule({"matchLabels": {"pick": "me"}}))
    api.store.before = [lambda: api.patch("ClusterRole", "all", replace_rules)]
    controller = RoleAggregationController(api.registry)
    await controller.reconcile(api.resource("ClusterRole").kind.key("", "all"))
    assert api.store.before == []
    assert rule_resources(api, "all") == ["own"]


async def test_aggregated_roles_can_be_aggregated(api: RegistryFixture) -> None:
    async with running_controllers(api, RoleAggregationController(api.registry)):
        await create_role(api, "admin", **aggregation_rule({"matchLabels": {"to": "admin"}}))
        await create_role(api, "edit", {"to": "admin"}, **aggregation_rule({"matchLabels": {"to": "edit"}}))
        await create_role(api, "view", {"to": "edit"}, **aggregation_rule({"matchLabels": {"to": "view"}}))
        await create_role(api, "x", {"to": "view"}, rules=[build_rule("one")])
        await eventually(has_rules(api, "admin", "one"))
        await api.delete("ClusterRole", "x")
        await eventually(has_rules(api, "admin"))
        await eventually(has_rules(api, "view"))


async def test_roles_that_select_each_other_become_stable(api: RegistryFixture) -> None:
    for name, selected in (("a", "b"), ("b", "c"), ("c", "a")):
        await create_role(
            api, name, {"is": name}, rules=[build_rule(name)], **aggregation_rule({"matchLabels": {"is": selected}})
        )
    await create_role(api, "x", {"is": "a"}, rules=[build_rule("one")])
    async with running_controllers(api, RoleAggregationController(api.registry)):
        for name in "abc":
            await eventually(has_rules(api, name, "one"))
        await api.delete("ClusterRole", "x")
        for name in "abc":
            await eventually(has_rules(api, name))


async def test_an_unchanged_role_is_not_written(api: RegistryFixture) -> None:
    await create_role(api, "a", {"pick": "me"}, rules=[build_rule("one")])
    await create_role(api, "all", rules=[build_rule("one")], **aggregation_rule({"matchLabels": {"pick": "me"}}))
    revision = api.view.revision
    controller = RoleAggregationController(api.registry)
    for name in ("all", "a", "gone"):
        await controller.reconcile(api.resource("ClusterRole").kind.key("", name))
    assert api.view.revision == revision


async def test_the_server_is_the_field_manager_of_the_rules(api: RegistryFixture) -> None:
    await create_role(api, "a", {"pick": "me"}, rules=[build_rule("one")])
    await create_role(api, "all", **aggregation_rule({"matchLabels": {"pick": "me"}}))
    async with running_controllers(api, RoleAggregationController(api.registry)):
        await eventually(has_rules(api, "all", "one"))
    managers = (api.get("ClusterRole", "all") or {})["metadata"]["managedFields"]
    assert [entry["manager"] for entry in managers if "f:rules" in entry["fieldsV1"]] == ["fairlead"]


LABELS: dict[str, dict[str, str]] = {"a": {"x": "1"}, "b": {"x": "2", "y": ""}, "c": {}, "d": {"y": "1"}}


def select_roles(*selectors: Object) -> Iterator[str]:
    roles = {
        name: {"metadata": {"name": name, "labels": labels}, "rules": [build_rule(name)]}
        for name, labels in LABELS.items()
    }
    snapshot = RoleSnapshot({**roles, "all": {"metadata": {"name": "all"}, **aggregation_rule(*selectors)}})
    return (resource for rule in snapshot.aggregate_rules("all") for resource in rule["resources"])


@pytest.mark.parametrize(
    ("selectors", "expected"),
    [
        ([{}], "abcd"),
        ([{"matchLabels": {"x": "1"}}], "a"),
        ([{"matchLabels": {"x": "2", "y": ""}}], "b"),
        ([{"matchLabels": {"x": "1", "y": "1"}}], ""),
        ([match_expression("x", "In", "1", "2")], "ab"),
        ([match_expression("x", "NotIn", "1")], "bcd"),
        ([match_expression("y", "Exists")], "bd"),
        ([match_expression("y", "DoesNotExist")], "ac"),
        ([{"matchLabels": {"x": "1"}, **match_expression("y", "DoesNotExist")}], "a"),
        ([{"matchLabels": {"x": "1"}, **match_expression("y", "Exists")}], ""),
        ([{"matchLabels": {"y": "1"}}, {"matchLabels": {"x": "1"}}], "ad"),
    ],
)
def test_selectors_match_labels_and_expressions(selectors: list[Object], expected: str) -> None:
    assert "".join(select_roles(*selectors)) == expected
