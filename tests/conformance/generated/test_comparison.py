"""Normalization and comparison: what differs between runs does not count, and what differs in behaviour does."""

from typing import Any

import pytest

from tests.conformance.generated.comparison import ABSENT, Rule, allowed_rules, compare, find_difference
from tests.conformance.generated.normalization import Normalizer

Json = Any
FIRST, SECOND = "0b6ab4c1-8b53-4b0b-9d5c-7f3a4d1f7a10", "1c7bc5d2-9c64-4c1c-8e6d-8a4b5e2a8b21"


def build_object(run: str, uid: str, version: str, **fields: Any) -> Json:
    metadata = {"name": f"a-{run}", "uid": uid, "resourceVersion": version, "creationTimestamp": "2026-11-16T09:00:00Z"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **fields}


def test_names_uids_versions_and_times_of_two_runs_are_equal() -> None:
    one, other = Normalizer("r1"), Normalizer("r2", "/prefix")
    left = [one.value(build_object("r1", FIRST, version)) for version in ("100", "101", "100")]
    right = [other.value(build_object("r2", SECOND, version)) for version in ("7000", "7007", "7000")]
    assert left == right
    assert left[0] != left[1]


def test_a_version_that_changes_on_one_side_only_is_a_difference() -> None:
    one, other = Normalizer("r1"), Normalizer("r2")
    left = [one.value(build_object("r1", FIRST, version)) for version in ("100", "101")]
    right = [other.value(build_object("r2", FIRST, version)) for version in ("100", "100")]
    assert left != right


def test_times_that_a_request_contains_are_compared() -> None:
    normalizer = Normalizer("r1")
    assert normalizer.text("2020-01-01T00:00:00Z") == "2020-01-01T00:00:00Z"
    assert normalizer.text("2026-11-16T09:00:00Z") == "<time>"


def test_messages_do_not_count_but_reasons_and_causes_do() -> None:
    def build_status(message: str, *causes: tuple[str, str]) -> Json:
        listed = [{"field": field, "reason": reason, "message": message} for field, reason in causes]
        details = {"name": "a", "kind": "apps", "causes": listed, "retryAfterSeconds": 1}
        return {"kind": "Status", "apiVersion": "v1", "code": 422, "message": message, "details": details}

    value = Normalizer("r1").value
    one = value(build_status("x", ("spec", "FieldValueInvalid"), ("kind", "FieldValueRequired")))
    assert one == value(build_status("y", ("kind", "FieldValueRequired"), ("spec", "FieldValueInvalid")))
    assert one != value(build_status("x", ("spec", "FieldValueInvalid")))


def test_managed_fields_are_compared_as_paths_without_times() -> None:
    entry = {
        "manager": "m",
        "operation": "Apply",
        "time": "2026-11-16T09:00:00Z",
        "fieldsV1": {"f:data": {".": {}, "f:k": {}}},
    }
    found = Normalizer("r1").value({"metadata": {"managedFields": [entry]}})["metadata"]["managedFields"]
    assert found == [{"manager": "m", "operation": "Apply", "fields": ["f:data/.", "f:data/f:k"]}]


@pytest.mark.parametrize(
    ("expected", "got", "path"),
    [
        ({"status": 200}, {"status": 404, "body": {"reason": "NotFound"}}, "status"),
        ({"status": 200, "body": {"a": 1}}, {"status": 200, "body": {"a": 2}}, "body.a"),
        ({"status": 200, "body": {"a": 1}}, {"status": 200, "body": {"a": 1.0}}, "body.a"),
        ({"status": 200, "body": {"a": None}}, {"status": 200, "body": {}}, "body.a"),
        ({"status": 200, "body": {"a": [1, {"b": 1}]}}, {"status": 200, "body": {"a": [1, {"b": 2}]}}, "body.a[1].b"),
        ({"status": 200, "body": {"a": [1]}}, {"status": 200, "body": {"a": [1, 2]}}, "body.a"),
        ({"status": 200, "warnings": 1}, {"status": 200}, "warnings"),
        ({"status": 500}, {"status": 200}, "status"),
    ],
)
def test_a_difference_is_found_with_its_path(expected: Json, got: Json, path: str) -> None:
    same = {"status": 200, "body": {}}
    differences = list(compare([same, expected], [same, got]))
    assert [(each.step, each.path) for each in differences] == [(2, path)]


def test_a_rejection_is_as_good_as_an_error_of_the_reference() -> None:
    assert list(compare([{"status": 500, "body": {"a": 1}}], [{"status": 422, "body": {}}])) == []


def test_the_answers_of_either_order_of_a_race_are_right() -> None:
    left, right, neither = ([{"status": status}] for status in (200, 409, 422))
    for got in (left, right):
        assert find_difference("apps", [left, right], got, ()) is None
    assert find_difference("apps", [left, right], neither, ()) is not None


def test_a_rule_allows_only_what_it_describes() -> None:
    rule = Rule("r", "^apps", r"^body\.a$", "absent", "1", "because")
    expected, got = [{"status": 200, "body": {}}], [{"status": 200, "body": {"a": 1}}]
    assert find_difference("apps", [expected], got, [rule]) is None
    assert find_difference("clusters", [expected], got, [rule]) is not None
    assert find_difference("apps", [got], expected, [rule]) is not None
    found = find_difference("apps", [expected], [{"status": 200, "body": {"a": 1, "b": 2}}], [rule])
    assert found is not None and (found.path, found.expected, found.got) == ("body.b", ABSENT, 2)


def test_there_are_at_most_twenty_rules_each_with_its_reason() -> None:
    rules = allowed_rules()
    assert len(rules) <= 20
    assert len({rule.name for rule in rules}) == len(rules)
    assert all(len(rule.why) > 40 for rule in rules)
