"""kinds/core/event.py: defaults, validation and columns of core events."""

from typing import Any

import pytest

from fairlead.core.objects import Object
from fairlead.registry.write_options import DeleteOptions
from fairlead.registry.write_rules import mark_deleted
from tests.harness.kind_examples import (
    BY_NAME,
    apply_defaults,
    build_example,
    computed_cells,
    find_problems,
    problem_reasons,
)

KIND = BY_NAME["Event"]
INVOLVED_OBJECT = {"kind": "ConfigMap", "name": "x", "namespace": "demo"}


def build_event(namespace: str = "demo", **fields: Any) -> Object:
    metadata = {"name": "e", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Event", "metadata": metadata, "involvedObject": INVOLVED_OBJECT, **fields}


def build_complete_event(**fields: Any) -> Object:
    defaults = {
        "eventTime": "2026-01-02T03:04:05.000006Z",
        "action": "Doing",
        "reason": "Started",
        "reportingComponent": "example.com/c",
        "reportingInstance": "i-1",
    }
    return build_event(**{**defaults, **fields})


def test_fields_that_clients_expect_are_present_when_empty() -> None:
    new = apply_defaults(build_event())
    assert {field: value for field, value in new.items() if field not in build_event()} == {
        "eventTime": None,
        "firstTimestamp": None,
        "lastTimestamp": None,
        "reportingComponent": "",
        "reportingInstance": "",
        "source": {},
    }


def test_dates_are_normalized_to_utc_with_fixed_digits() -> None:
    new = apply_defaults(
        build_event(
            firstTimestamp="2026-01-02T05:04:05.9+02:00",
            eventTime="2026-01-02T05:04:05.000006+02:00",
            series={"count": 2, "lastObservedTime": "2026-01-02T03:04:05Z"},
        )
    )
    assert new["firstTimestamp"] == "2026-01-02T03:04:05Z"
    assert new["eventTime"] == "2026-01-02T03:04:05.000006Z"
    assert new["series"]["lastObservedTime"] == "2026-01-02T03:04:05.000000Z"


@pytest.mark.parametrize(
    ("namespace", "involved_namespace", "is_valid"),
    [
        ("demo", "demo", True),
        ("demo", "other", False),
        ("demo", "", False),
        ("default", "", True),
        ("default", "default", True),
        ("default", "demo", False),
    ],
)
def test_an_event_must_be_in_the_namespace_of_its_object(
    namespace: str, involved_namespace: str, is_valid: bool
) -> None:
    found = find_problems(
        build_event(namespace, involvedObject={"kind": "App", "name": "x", "namespace": involved_namespace})
    )
    message = f'involvedObject.namespace: Invalid value: "{involved_namespace}": does not match event.namespace'
    assert [str(problem) for problem in found] == ([] if is_valid else [message])


def test_an_event_without_an_object_is_rejected() -> None:
    new = build_event()
    del new["involvedObject"]
    assert problem_reasons(new) == [("involvedObject.namespace", "FieldValueInvalid")]


def test_an_event_with_an_event_time_must_be_complete() -> None:
    assert find_problems(build_complete_event()) == []
    found = problem_reasons(build_event(eventTime="2026-01-02T03:04:05.000006Z"))
    required = {field for field, reason in found if reason == "FieldValueRequired"}
    assert required == {"reportingComponent", "reportingInstance", "action", "reason"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("reportingComponent", "not qualified!"),
        ("reportingInstance", "i" * 129),
        ("action", "a" * 129),
        ("reason", "r" * 129),
        ("message", "m" * 1025),
    ],
)
def test_fields_of_a_complete_event_have_length_limits(field: str, value: str) -> None:
    assert problem_reasons(build_complete_event(**{field: value})) == [(field, "FieldValueInvalid")]


def test_a_complete_event_about_a_cluster_scoped_object_must_be_in_default() -> None:
    involved = {"kind": "App", "name": "x"}
    assert problem_reasons(build_complete_event(involvedObject=involved)) == [
        ("involvedObject.namespace", "FieldValueInvalid")
    ]
    assert (
        find_problems(
            {**build_complete_event(involvedObject=involved), "metadata": {"name": "e", "namespace": "default"}}
        )
        == []
    )


def test_the_source_selector_matches_the_component_in_both_styles() -> None:
    assert KIND.read_selectable_field is not None
    assert (
        KIND.read_selectable_field(build_event(source={"component": "tester"}, reportingComponent="rc"), "source")
        == "tester"
    )
    assert KIND.read_selectable_field(build_event(source={}, reportingComponent="rc"), "source") == "rc"
    assert KIND.read_selectable_field(build_event(), "involvedObject.name") == "x"


def test_the_table_has_the_columns_of_kubernetes() -> None:
    assert KIND.explicit_columns
    assert [column.name for column in KIND.columns if not column.wide] == [
        *("Last Seen", "Type", "Reason", "Object", "Message"),
    ]
    assert computed_cells(KIND, build_example("Event")) == {
        "Last Seen": "2026-01-02T03:05:05Z",
        "Object": "configmap/x",
        "Source": "tester, h1",
        "Message": "it began",
        "First Seen": "2026-01-02T03:04:05Z",
        "Count": 3,
    }


def test_the_table_shows_events_of_the_newer_style() -> None:
    series = {"count": 7, "lastObservedTime": "2026-01-02T04:00:00.000000Z"}
    row = computed_cells(KIND, build_complete_event(series=series))
    assert row["Last Seen"] == "2026-01-02T04:00:00.000000Z"
    assert row["First Seen"] == "2026-01-02T03:04:05.000006Z"
    assert row["Count"] == 7
    assert row["Source"] == "example.com/c, i-1"
    assert computed_cells(KIND, build_complete_event())["Count"] == 1


def test_empty_texts_that_kubernetes_omits_are_dropped() -> None:
    event = apply_defaults(build_example("Event", reason="", message="", type="", action=""))
    assert not {"reason", "message", "type", "action"} & event.keys()
    assert event["reportingComponent"] == ""


@pytest.mark.parametrize("policy", ["Foreground", "Orphan"])
def test_an_event_is_deleted_at_once_whatever_the_policy(policy: str) -> None:
    event = build_example("Event")
    assert mark_deleted(event, BY_NAME["Event"], DeleteOptions(propagation=policy), "2026-01-02T03:04:05Z") is None
