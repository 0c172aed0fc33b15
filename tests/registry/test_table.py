"""Tables: which columns, what stands in them, and ages as people say them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fairlead.core.objects import Object
from fairlead.kinds import KINDS
from fairlead.registry import schema as words
from fairlead.registry.kind import Column, Kind, Sensitivity
from fairlead.registry.table import format_age, partial_object_metadata, render_table, table_columns
from fairlead.registry.validate import Validator

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
MINUTE, HOUR, DAY, YEAR = 60, 3_600, 86_400, 365 * 86_400


def kind_with(*columns: Column, **options: Any) -> Kind:
    return Kind("Thing", "things", False, {}, "A thing.", columns=columns, **options, sensitivity=Sensitivity.NORMAL)


def obj(**fields: Any) -> Object:
    return {"metadata": {"name": "a", "creationTimestamp": "2026-01-02T03:03:05Z", "labels": {"x": "y"}}, **fields}


def cells(kind: Kind, **fields: Any) -> list[Any]:
    found = render_table(kind, [obj(**fields)], {}, "None", NOW)
    row: list[Any] = found["rows"][0]["cells"]
    return row


@pytest.mark.parametrize(
    ("seconds", "text"),
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
def test_an_age_is_worded_as_kubectl_words_it(seconds: int, text: str) -> None:
    then = (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert format_age(then, NOW) == text


@pytest.mark.parametrize("moment", [None, "", 5])
def test_the_age_of_what_has_no_date_is_unknown(moment: Any) -> None:
    assert format_age(moment, NOW) == "<unknown>"


def test_a_date_in_another_zone_or_with_fractions_is_the_same_moment() -> None:
    assert format_age("2026-01-02T05:03:05+02:00", NOW) == "60s"
    assert format_age("2026-01-02T03:03:05.999999Z", NOW) == "59s"


@pytest.mark.parametrize(
    "moment",
    [
        *("2016-12-31T23:59:60Z", "0000-01-01T00:00:00Z", "2026-01-02t03:03:05z", "9999-12-31T23:59:59-23:59"),
        *("0001-01-01T00:00:00+23:59", "2026-01-02T03:03:05.123456789Z"),
    ],
)
def test_an_odd_date_is_refused_by_the_schema_or_has_an_age(moment: str) -> None:
    """RFC 3339 knows leap seconds, the year 0 and small letters; one such date must not spoil a whole table."""
    refused = Validator(words.obj("", when=words.timestamp())).validate({"when": moment}).problems
    assert refused or format_age(moment, NOW)


def test_what_lies_in_the_future_has_no_negative_age() -> None:
    assert not format_age("2026-01-02T03:04:06Z", NOW).startswith("-")
    assert not format_age("2027-01-02T03:04:06Z", NOW).startswith("-")


def test_name_comes_first_then_what_matters_then_age_then_what_is_wide() -> None:
    kind = kind_with(Column("Wide", "spec.w", wide=True), Column("Phase", "status.phase"))
    assert [column.name for column in table_columns(kind)] == ["Name", "Phase", "Age", "Wide"]
    definitions = render_table(kind, [], {}, "None", NOW)["columnDefinitions"]
    assert [each["priority"] for each in definitions] == [0, 0, 0, 1]
    assert [each["format"] for each in definitions] == ["name", "", "", ""]
    assert all(each["description"] for each in definitions)


def test_a_kind_may_bring_its_whole_table() -> None:
    kind = kind_with(Column("Only", "spec.x"), explicit_columns=True)
    assert [column.name for column in table_columns(kind)] == ["Only"]


def test_a_cell_is_the_value_at_the_path_or_what_a_function_makes_of_the_object() -> None:
    kind = kind_with(
        Column("Size", "spec.size", type="integer"),
        Column("Loud", lambda each: each["metadata"]["name"].upper()),
        Column("List", "spec.list"),
    )
    assert cells(kind, spec={"size": 3, "list": ["a", "b"]}) == ["a", 3, "A", "a,b", "60s"]


def test_what_is_missing_is_an_empty_text_or_for_other_types_null() -> None:
    kind = kind_with(
        Column("Text", "spec.text"), Column("Number", "spec.n", type="integer"), Column("When", "spec.t", type="date")
    )
    assert cells(kind) == ["a", "", None, "<unknown>", "60s"]


def test_a_boolean_stands_in_a_boolean_column_as_such_and_in_a_text_column_as_text() -> None:
    kind = kind_with(Column("On", "spec.on", type="boolean"), Column("Text", "spec.on"))
    assert cells(kind, spec={"on": True})[1:3] == [True, "true"]
    assert cells(kind, spec={"on": False})[1:3] == [False, "false"]


@pytest.mark.parametrize(
    ("include", "carried"),
    [("None", None), ("Metadata", "PartialObjectMetadata"), ("", "PartialObjectMetadata"), ("Object", "Thing")],
)
def test_a_row_carries_as_much_of_its_object_as_was_asked_for(include: str, carried: str | None) -> None:
    found = render_table(kind_with(), [obj(kind="Thing")], {}, include, NOW)["rows"][0].get("object")
    assert (found or {}).get("kind") == carried


def test_part_of_an_object_is_its_whole_metadata_and_nothing_else() -> None:
    whole = obj(spec={"x": 1})
    assert partial_object_metadata(whole) == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": whole["metadata"],
    }


def test_a_table_has_a_row_for_each_object_and_the_metadata_of_the_list() -> None:
    found = render_table(kind_with(), [obj(), obj()], {"resourceVersion": "5"}, "None", NOW)
    assert (found["kind"], found["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert found["metadata"] == {"resourceVersion": "5"}
    assert len(found["rows"]) == 2


def test_ages_are_dates_to_custom_kinds_and_text_to_core_kinds() -> None:
    custom = render_table(kind_with(), [], {}, "None", NOW)["columnDefinitions"]
    core = render_table(kind_with(builtin=True), [], {}, "None", NOW)["columnDefinitions"]
    assert (custom[-1]["type"], core[-1]["type"]) == ("date", "string")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_kind_has_a_row_for_an_object_with_nothing_in_it(kind: Kind) -> None:
    found = render_table(kind, [obj(kind=kind.name)], {}, "Object", NOW)
    assert len(found["rows"][0]["cells"]) == len(found["columnDefinitions"]) == len(table_columns(kind))
