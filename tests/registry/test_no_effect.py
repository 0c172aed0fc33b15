"""Warnings about fields without effect, in each write of an object that sets one."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from fairlead.core.objects import Object
from fairlead.core.user import CONTROLLER_USER
from fairlead.registry.kind import MANAGEMENT_GROUP, Change, Kind, Sensitivity
from fairlead.registry.no_effect import add_warnings, find_ineffective_fields, is_set
from fairlead.registry.schema import array, boolean, integer, obj, open_object, string, without_effect
from fairlead.registry.write_options import WriteOptions
from tests.harness.registry import ADA, RegistryFixture, write_options

LAMP = Kind(
    name="Lamp",
    plural="lamps",
    namespaced=False,
    fields={
        "spec": obj(
            color=string(),
            cost=without_effect(open_object("What it costs."), "has no effect; use spec.price"),
            bulbs=array(obj(watts=integer(), brand=without_effect(string("Who made it.")))),
        ),
        "status": obj(cost=without_effect(string("What it cost."))),
    },
    description="A lamp.",
    sensitivity=Sensitivity.NORMAL,
)
COST = "spec.cost has no effect; use spec.price"
OPENCOST = "spec.opencost has no effect"


def find_warnings(**spec: object) -> list[str]:
    change = Change("create", LAMP, ADA, None, {"spec": spec}, warnings=[])
    add_warnings(change, find_ineffective_fields(LAMP))
    return change.warnings


def test_a_warning_names_the_field_and_what_to_use_instead() -> None:
    assert find_warnings(color="red", cost={"amount": 3}) == [COST]


def test_an_object_without_such_a_field_causes_no_warning() -> None:
    assert find_warnings(color="red", bulbs=[{"watts": 40}]) == []


def test_of_several_entries_of_a_list_the_first_is_named() -> None:
    bulbs = [{"watts": 40}, {"brand": "a"}, {"brand": "b"}]
    assert find_warnings(bulbs=bulbs) == ["spec.bulbs[1].brand has no effect"]


@pytest.mark.parametrize("value", [None, "", 0, False, {}, [], {"a": {"b": [""]}}])
def test_an_empty_value_requests_nothing(value: object) -> None:
    assert not is_set(value)
    assert find_warnings(cost={"amount": value}) == []


def test_the_status_is_not_checked() -> None:
    change = Change("create", LAMP, ADA, None, {"status": {"cost": "3"}}, warnings=[])
    add_warnings(change, find_ineffective_fields(LAMP))
    assert change.warnings == []


def test_a_kind_without_such_fields_costs_nothing() -> None:
    plain = replace(LAMP, fields={"spec": obj(on=boolean())})
    assert find_ineffective_fields(plain) is None


# --- through the registry, with a field of a real kind ---

Write = Callable[[RegistryFixture, WriteOptions], Awaitable[object]]


async def create(api: RegistryFixture, options: WriteOptions) -> object:
    return await api.submit("Cluster", api.build_object("Cluster", "new", spec={"opencost": {"on": True}}), options)


async def update(api: RegistryFixture, options: WriteOptions) -> object:
    return await api.replace("Cluster", {**(api.get("Cluster", "old") or {}), "spec": {"opencost": {"on": 1}}}, options)


async def patch_another_field(api: RegistryFixture, options: WriteOptions) -> object:
    return await api.patch("Cluster", "old", lambda each: each["metadata"].update(labels={"a": "b"}), options)


async def apply_to_existing(api: RegistryFixture, options: WriteOptions) -> object:
    options.is_apply = options.is_patch = True
    config = api.build_object("Cluster", "old", spec={"opencost": {"on": 2}})
    options.force = True
    return await api.resource("Cluster").apply(config, "", "old", options)


async def apply_to_nothing(api: RegistryFixture, options: WriteOptions) -> object:
    options.is_apply = options.is_patch = True
    config = api.build_object("Cluster", "new", spec={"opencost": {"on": 2}})
    return await api.resource("Cluster").apply(config, "", "new", options)


each_write = pytest.mark.parametrize(
    "write",
    [create, update, patch_another_field, apply_to_existing, apply_to_nothing],
    ids=lambda write: write.__name__,
)


@pytest.fixture
async def with_cluster(api: RegistryFixture) -> RegistryFixture:
    await api.create("Cluster", "old", spec={"opencost": {"on": True}})
    return api


@each_write
@pytest.mark.parametrize("dry_run", [False, True])
async def test_each_write_of_an_object_that_contains_one_is_answered_with_a_warning(
    with_cluster: RegistryFixture, write: Write, dry_run: bool
) -> None:
    options = write_options(dry_run=dry_run, warnings=[])
    await write(with_cluster, options)
    assert options.warnings == [OPENCOST]


@each_write
async def test_the_server_is_not_warned(with_cluster: RegistryFixture, write: Write) -> None:
    options = WriteOptions(CONTROLLER_USER, "fairlead", warnings=[])
    await write(with_cluster, options)
    assert options.warnings == []


async def test_a_write_of_the_status_is_not_answered_with_a_warning(with_cluster: RegistryFixture) -> None:
    options = write_options(subresource="status", warnings=[])

    def report(cluster: Object) -> None:
        cluster["status"] = {"phase": "Initialized"}

    await with_cluster.patch("Cluster", "old", report, options)
    assert options.warnings == []


async def test_a_write_that_removes_the_field_is_not_answered_with_a_warning(with_cluster: RegistryFixture) -> None:
    options = write_options(warnings=[])
    await with_cluster.patch("Cluster", "old", lambda each: each["spec"].pop("opencost"), options)
    assert options.warnings == []


def test_the_fields_are_found_once_for_each_kind() -> None:
    assert LAMP.derive(find_ineffective_fields) is LAMP.derive(find_ineffective_fields)
    assert LAMP.group == MANAGEMENT_GROUP
