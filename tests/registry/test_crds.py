"""The management kinds as definitions that a kube-apiserver takes: its rules for structural schemas, checked here."""

from collections.abc import Iterator
from typing import Any

import pytest

from fairlead.kinds import KINDS
from fairlead.kinds.clusters.app import APP
from fairlead.kinds.clusters.cluster import CLUSTER
from fairlead.kinds.instances.workspace import WORKSPACE
from fairlead.registry.crds import build_crd, build_crds
from fairlead.registry.kind import MANAGEMENT_GROUP, Kind, Sensitivity
from fairlead.registry.schema import array_map, obj, string

ALL = build_crds(KINDS, MANAGEMENT_GROUP)
KNOWN = {
    "type", "description", "properties", "required", "items",
    "maxLength", "maxItems", "maxProperties", "additionalProperties", "format", "enum", "minimum",
    "maximum", "nullable", "default", "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type",
    "x-kubernetes-preserve-unknown-fields",
}  # fmt: skip


def version(definition: dict[str, Any]) -> dict[str, Any]:
    (only,) = definition["spec"]["versions"]
    return dict(only)


def levels(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, each in schema.get("properties", {}).items():
        yield from levels(each, f"{path}.{name}")
    for inner in ("items", "additionalProperties"):
        if isinstance(schema.get(inner), dict):
            yield from levels(schema[inner], f"{path}[]")


@pytest.mark.parametrize("definition", ALL, ids=lambda each: each["metadata"]["name"])
def test_schemas_are_structural(definition: dict[str, Any]) -> None:
    for path, schema in levels(version(definition)["schema"]["openAPIV3Schema"]):
        assert set(schema) <= KNOWN, path
        assert "type" in schema or schema.get("x-kubernetes-preserve-unknown-fields"), path
        assert not ("properties" in schema and "additionalProperties" in schema), path
        assert set(schema.get("x-kubernetes-list-map-keys", ())) <= set(schema.get("items", {}).get("required", ()))


def test_exactly_the_management_kinds_that_are_stored_are_defined() -> None:
    stored = {f"{kind.plural}.{kind.group}" for kind in KINDS if kind.group == MANAGEMENT_GROUP and kind.persisted}
    assert {each["metadata"]["name"] for each in ALL} == stored


def test_metadata_is_left_to_the_server() -> None:
    assert version(build_crd(APP))["schema"]["openAPIV3Schema"]["properties"]["metadata"] == {"type": "object"}


def test_computed_columns_are_left_out_and_age_comes_last() -> None:
    columns = version(build_crd(APP))["additionalPrinterColumns"]
    assert [column["name"] for column in columns] == ["Display Name", "Chart", "Version", "Repository", "Age"]
    assert columns[3]["priority"] == 1
    assert columns[1]["jsonPath"] == ".spec.config.chart.name"


def test_fields_that_can_be_selected_by_are_told() -> None:
    assert {"jsonPath": ".spec.owner.user"} in version(build_crd(APP))["selectableFields"]


def test_a_status_of_its_own_and_short_names_are_told() -> None:
    assert version(build_crd(CLUSTER)).get("subresources", {}) == ({"status": {}} if CLUSTER.status_subresource else {})
    names = build_crd(WORKSPACE)["spec"]["names"]
    assert (names["shortNames"], names["categories"]) == (["ws"], ["fairlead", "all"])
    assert build_crd(WORKSPACE)["spec"]["scope"] == "Namespaced"


def test_a_field_outside_of_the_schema_cannot_be_selected_by_and_keys_of_lists_become_required() -> None:
    entries = array_map(("name",), obj(name=string(), value=string()))
    kind = Kind(
        "Thing",
        "things",
        False,
        {"spec": obj(entries=entries)},
        "A thing.",
        selectable=("spec.absent",),
        sensitivity=Sensitivity.NORMAL,
    )
    made = version(build_crd(kind))
    assert "selectableFields" not in made
    assert made["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["entries"]["items"]["required"] == [
        "name"
    ]
    assert "required" not in entries["items"]
