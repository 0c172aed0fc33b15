"""registry/schema.py: the CustomResourceDefinitions obey kube-apiserver's rules for structural schemas."""

from collections.abc import Iterator
from typing import Any

import pytest

from fairlead.kinds import KINDS
from fairlead.kinds.clusters.app import APP
from fairlead.kinds.clusters.cluster import CLUSTER
from fairlead.kinds.instances.workspace import WORKSPACE
from fairlead.registry.crds import build_crd, build_crds
from fairlead.registry.kind import MANAGEMENT_GROUP, Kind, Sensitivity
from fairlead.registry.schema import NO_EFFECT, array_map, obj, string

CRDS = build_crds(KINDS, MANAGEMENT_GROUP)
ALLOWED_KEYWORDS = {
    "type", "description", "properties", "required", "items",
    "maxLength", "maxItems", "maxProperties", "additionalProperties", "format", "enum", "minimum",
    "maximum", "nullable", "default", "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type",
    "x-kubernetes-preserve-unknown-fields",
}  # fmt: skip


def only_version(crd: dict[str, Any]) -> dict[str, Any]:
    (only,) = crd["spec"]["versions"]
    return dict(only)


def iter_schemas(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, each in schema.get("properties", {}).items():
        yield from iter_schemas(each, f"{path}.{name}")
    for inner in ("items", "additionalProperties"):
        if isinstance(schema.get(inner), dict):
            yield from iter_schemas(schema[inner], f"{path}[]")


@pytest.mark.parametrize("crd", CRDS, ids=lambda each: each["metadata"]["name"])
def test_schemas_are_structural(crd: dict[str, Any]) -> None:
    for path, schema in iter_schemas(only_version(crd)["schema"]["openAPIV3Schema"]):
        assert set(schema) <= ALLOWED_KEYWORDS, path
        assert "type" in schema or schema.get("x-kubernetes-preserve-unknown-fields"), path
        assert not ("properties" in schema and "additionalProperties" in schema), path
        assert set(schema.get("x-kubernetes-list-map-keys", ())) <= set(schema.get("items", {}).get("required", ()))


def test_a_crd_exists_for_exactly_the_stored_management_kinds() -> None:
    stored = {f"{kind.plural}.{kind.group}" for kind in KINDS if kind.group == MANAGEMENT_GROUP and kind.persisted}
    assert {each["metadata"]["name"] for each in CRDS} == stored


def test_our_own_keyword_is_left_out() -> None:
    """A kube-apiserver warns about keywords that it does not know."""
    assert NO_EFFECT in str(CLUSTER.schema())
    assert NO_EFFECT not in str(build_crds(KINDS, MANAGEMENT_GROUP))


def test_the_schema_does_not_describe_metadata() -> None:
    assert only_version(build_crd(APP))["schema"]["openAPIV3Schema"]["properties"]["metadata"] == {"type": "object"}


def test_computed_columns_are_left_out_and_age_comes_last() -> None:
    columns = only_version(build_crd(APP))["additionalPrinterColumns"]
    assert [column["name"] for column in columns] == ["Display Name", "Chart", "Version", "Repository", "Age"]
    assert columns[3]["priority"] == 1
    assert columns[1]["jsonPath"] == ".spec.config.chart.name"


def test_selectable_fields_are_listed() -> None:
    assert {"jsonPath": ".spec.owner.user"} in only_version(build_crd(APP))["selectableFields"]


def test_the_status_subresource_and_short_names_are_listed() -> None:
    assert only_version(build_crd(CLUSTER)).get("subresources", {}) == (
        {"status": {}} if CLUSTER.status_subresource else {}
    )
    names = build_crd(WORKSPACE)["spec"]["names"]
    assert (names["shortNames"], names["categories"]) == (["ws"], ["fairlead", "all"])
    assert build_crd(WORKSPACE)["spec"]["scope"] == "Namespaced"


def test_selectable_fields_must_be_in_the_schema_and_list_map_keys_become_required() -> None:
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
    version = only_version(build_crd(kind))
    assert "selectableFields" not in version
    assert version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["entries"]["items"]["required"] == [
        "name"
    ]
    assert "required" not in entries["items"]
