"""registry/table.py: columns, cells and ages of tables."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fairlead.core.objects import Object
from fairlead.kinds import KINDS
from fairlead.registry import schema as schemas
from fairlead.registry.kind import Column, Kind, Sensitivity
from fairlead.registry.table import format_age, partial_object_metadata, render_table, table_columns
from fairlead.registry.validate import Validator

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
MINUTE, HOUR, DAY, YEAR = 60, 3_600, 86_400, 365 * 86_400


def build_kind(*columns: Column, **options: Any) -> Kind:
    return Kind("Thing", "things", False, {}, "A thing.", columns=columns, **options, sensitivity=Sensitivity.NORMAL)


def build_object(**fields: Any) -> Object:
    return {"metadata": {"name": "a", "creationTimestamp": "2026-01-02T03:03:05Z", "labels": {"x": "y"}}, **fields}


def render_cells(kind: Kind, **fields: Any) -> list[Any]:
    table = render_table(kind, [build_object(**fields)], {}, "None", NOW)
    row: list[Any] = table["rows"][0]["cells"]
    return row


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        *((0, "0s"), (1, "1s"), (119, "119s")),
        *((120, "2m"), (121, "2m1s"), (10 * MINUTE - 1, "9m59s")),
        *((10 * MINUTE, "10m"), (10 * MINUTE + 59, "10m"), (3 * HOUR - 1, "179m")),
        *((3 * HOUR, "3h"), (3 * HOUR + MINUTE, "3h1m"), (3 * HOUR + 59, "3h"), (8 * HOUR - 1, "7h59m")),
        *((8 * HOUR, "8h"), (2 * DAY - 1, "47h")),
        *((2 * DAY, "2d"), (2 * DAY + HOUR, "2d1h"), (8 * DAY - 1, "7d23h")),
        *((8 * DAY, "8d"), (2 * YEAR - 1, "729d")),
        *((2 * YEAR, "2y"), (2 * YEAR + DAY, "2y1d"), (8 * YEAR - 1, "7y364d")),
        *((8 * YEAR, "8y"), (30 * YEAR, "30y")),
    ],
)
def test_an_age_is_formatted_as_by_kubectl(seconds: int, expected: str) -> None:
    timestamp = (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert format_age(timestamp, NOW) == expected


@pytest.mark.parametrize("timestamp", [None, "", 5])
def test_the_age_of_a_missing_date_is_unknown(timestamp: Any) -> None:
    assert format_age(timestamp, NOW) == "<unknown>"


def test_dates_with_offsets_or_fractions_have_the_right_age() -> None:
    assert format_age("2026-01-02T05:03:05+02:00", NOW) == "60s"
    assert format_age("2026-01-02T03:03:05.999999Z", NOW) == "59s"


@pytest.mark.parametrize(
    "timestamp",
    [
        *("2016-12-31T23:59:60Z", "0000-01-01T00:00:00Z", "2026-01-02t03:03:05z", "9999-12-31T23:59:59-23:59"),
        *("0001-01-01T00:00:00+23:59", "2026-01-02T03:03:05.123456789Z"),
    ],
)
def test_an_unusual_date_is_rejected_by_the_schema_or_has_an_age(timestamp: str) -> None:
    """RFC 3339 allows leap seconds, the year 0 and lower case; one such date must not break a whole table."""
    problems = Validator(schemas.obj("", when=schemas.timestamp())).validate({"when": timestamp}).problems
    assert problems or format_age(timestamp, NOW)


def test_a_date_in_the_future_has_no_negative_age() -> None:
    assert not format_age("2026-01-02T03:04:06Z", NOW).startswith("-")
    assert not format_age("2027-01-02T03:04:06Z", NOW).startswith("-")


def test_columns_are_name_then_normal_then_age_then_wide() -> None:
    kind = build_kind(Column("Wide", "spec.w", wide=True), Column("Phase", "status.phase"))
    assert [column.name for column in table_columns(kind)] == ["Name", "Phase", "Age", "Wide"]
    definitions = render_table(kind, [], {}, "None", NOW)["columnDefinitions"]
    assert [each["priority"] for each in definitions] == [0, 0, 0, 1]
    assert [each["format"] for each in definitions] == ["name", "", "", ""]
    assert all(each["description"] for each in definitions)


def test_a_kind_can_define_all_columns() -> None:
    kind = build_kind(Column("Only", "spec.x"), explicit_columns=True)
    assert [column.name for column in table_columns(kind)] == ["Only"]


def test_a_cell_is_the_value_at_a_path_or_the_result_of_a_function() -> None:
    kind = build_kind(
        Column("Size", "spec.size", type="integer"),
        Column("Loud", lambda each: each["metadata"]["name"].upper()),
        Column("List", "spec.list"),
    )
    assert render_cells(kind, spec={"size": 3, "list": ["a", "b"]}) == ["a", 3, "A", "a,b", "60s"]


def test_a_missing_value_is_an_empty_string_or_null_for_other_types() -> None:
    kind = build_kind(
        Column("Text", "spec.text"), Column("Number", "spec.n", type="integer"), Column("When", "spec.t", type="date")
    )
    assert render_cells(kind) == ["a", "", None, "<unknown>", "60s"]


def test_a_boolean_is_a_boolean_or_a_string_by_column_type() -> None:
    kind = build_kind(Column("On", "spec.on", type="boolean"), Column("Text", "spec.on"))
    assert render_cells(kind, spec={"on": True})[1:3] == [True, "true"]
    assert render_cells(kind, spec={"on": False})[1:3] == [False, "false"]


@pytest.mark.parametrize(
    ("include", "kind"),
    [("None", None), ("Metadata", "PartialObjectMetadata"), ("", "PartialObjectMetadata"), ("Object", "Thing")],
)
def test_a_row_contains_the_object_as_include_object_says(include: str, kind: str | None) -> None:
    table = render_table(build_kind(), [build_object(kind="Thing")], {}, include, NOW)["rows"][0].get("object")
    assert (table or {}).get("kind") == kind


def test_partial_object_metadata_contains_the_metadata_only() -> None:
    obj = build_object(spec={"x": 1})
    assert partial_object_metadata(obj) == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": obj["metadata"],
    }


def test_a_table_has_a_row_for_each_object_and_the_metadata_of_the_list() -> None:
    table = render_table(build_kind(), [build_object(), build_object()], {"resourceVersion": "5"}, "None", NOW)
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert table["metadata"] == {"resourceVersion": "5"}
    assert len(table["rows"]) == 2


def test_age_is_a_date_for_custom_kinds_and_a_string_for_core_kinds() -> None:
    custom = render_table(build_kind(), [], {}, "None", NOW)["columnDefinitions"]
    core = render_table(build_kind(builtin=True), [], {}, "None", NOW)["columnDefinitions"]
    assert (custom[-1]["type"], core[-1]["type"]) == ("date", "string")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_kind_has_a_row_for_an_empty_object(kind: Kind) -> None:
    table = render_table(kind, [build_object(kind=kind.name)], {}, "Object", NOW)
    assert len(table["rows"][0]["cells"]) == len(table["columnDefinitions"]) == len(table_columns(kind))
