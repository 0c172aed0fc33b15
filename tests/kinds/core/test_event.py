from typing import Any

import pytest

from fairlead.core.objects import Object
from tests.harness.kind_examples import BY_NAME, cells, complaints, example, prepared, problems

KIND = BY_NAME["Event"]
ABOUT = {"kind": "ConfigMap", "name": "x", "namespace": "demo"}


def event(namespace: str = "demo", **fields: Any) -> Object:
    metadata = {"name": "e", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Event", "metadata": metadata, "involvedObject": ABOUT, **fields}


def complete(**fields: Any) -> Object:
    given = {
        "eventTime": "2026-01-02T03:04:05.000006Z",
        "action": "Doing",
        "reason": "Started",
        "reportingComponent": "example.com/c",
        "reportingInstance": "i-1",
    }
    return event(**{**given, **fields})


def test_fields_that_clients_expect_are_there_when_empty() -> None:
    new = prepared(event())
    assert {field: value for field, value in new.items() if field not in event()} == {
        "eventTime": None,
        "firstTimestamp": None,
        "lastTimestamp": None,
        "reportingComponent": "",
        "reportingInstance": "",
        "source": {},
    }


def test_dates_come_back_in_utc_with_fixed_digits() -> None:
    new = prepared(
        event(
            firstTimestamp="2026-01-02T05:04:05.9+02:00",
            eventTime="2026-01-02T05:04:05.000006+02:00",
            series={"count": 2, "lastObservedTime": "2026-01-02T03:04:05Z"},
        )
    )
    assert new["firstTimestamp"] == "2026-01-02T03:04:05Z"
    assert new["eventTime"] == "2026-01-02T03:04:05.000006Z"
    assert new["series"]["lastObservedTime"] == "2026-01-02T03:04:05.000000Z"


@pytest.mark.parametrize(
    ("namespace", "about", "fine"),
    [
        ("demo", "demo", True),
        ("demo", "other", False),
        ("demo", "", False),
        ("default", "", True),
        ("default", "default", True),
        ("default", "demo", False),
    ],
)
def test_an_event_lives_beside_what_it_is_about(namespace: str, about: str, fine: bool) -> None:
    found = problems(event(namespace, involvedObject={"kind": "App", "name": "x", "namespace": about}))
    wrong = f'involvedObject.namespace: Invalid value: "{about}": does not match event.namespace'
    assert [str(problem) for problem in found] == ([] if fine else [wrong])


def test_an_event_about_nothing_is_refused() -> None:
    new = event()
    del new["involvedObject"]
    assert complaints(new) == [("involvedObject.namespace", "FieldValueInvalid")]


def test_with_an_event_time_an_event_must_be_complete() -> None:
    assert problems(complete()) == []
    found = complaints(event(eventTime="2026-01-02T03:04:05.000006Z"))
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
def test_a_complete_event_is_brief(field: str, value: str) -> None:
    assert complaints(complete(**{field: value})) == [(field, "FieldValueInvalid")]


def test_a_complete_event_about_an_object_outside_namespaces_lives_in_default() -> None:
    about = {"kind": "App", "name": "x"}
    assert complaints(complete(involvedObject=about)) == [("involvedObject.namespace", "FieldValueInvalid")]
    assert problems({**complete(involvedObject=about), "metadata": {"name": "e", "namespace": "default"}}) == []


def test_source_selects_by_whoever_saw_it_in_either_style() -> None:
    assert KIND.read_selectable_field is not None
    assert (
        KIND.read_selectable_field(event(source={"component": "tester"}, reportingComponent="rc"), "source") == "tester"
    )
    assert KIND.read_selectable_field(event(source={}, reportingComponent="rc"), "source") == "rc"
    assert KIND.read_selectable_field(event(), "involvedObject.name") == "x"


def test_the_table_is_the_one_that_people_know() -> None:
    assert KIND.explicit_columns
    assert [column.name for column in KIND.columns if not column.wide] == [
        *("Last Seen", "Type", "Reason", "Object", "Message"),
    ]
    assert cells(KIND, example("Event")) == {
        "Last Seen": "2026-01-02T03:05:05Z",
        "Object": "configmap/x",
        "Source": "tester, h1",
        "Message": "it began",
        "First Seen": "2026-01-02T03:04:05Z",
        "Count": 3,
    }


def test_the_table_shows_events_of_the_newer_style() -> None:
    series = {"count": 7, "lastObservedTime": "2026-01-02T04:00:00.000000Z"}
    shown = cells(KIND, complete(series=series))
    assert shown["Last Seen"] == "2026-01-02T04:00:00.000000Z"
    assert shown["First Seen"] == "2026-01-02T03:04:05.000006Z"
    assert shown["Count"] == 7
    assert shown["Source"] == "example.com/c, i-1"
    assert cells(KIND, complete())["Count"] == 1
