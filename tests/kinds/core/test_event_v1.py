"""Events of events.k8s.io: other names for the same fields, and stricter rules for those who write them."""

from typing import Any

import pytest

from fairlead.core.objects import Object
from fairlead.core.user import User
from fairlead.kinds.core.event import EVENT
from fairlead.kinds.core.event_v1 import EVENT_V1, from_core, to_core
from fairlead.registry.kind import Change
from fairlead.registry.validate import Validator
from tests.harness.kind_examples import example, newer_event

ABOUT = {"kind": "ConfigMap", "name": "x", "namespace": "demo"}
SERIES = {"count": 2, "lastObservedTime": "2026-01-02T03:04:05.000000Z"}


def event(**fields: Any) -> Object:
    return {name: value for name, value in {**newer_event(), **fields}.items() if value is not None}


def complaints(new: Object, old: Object | None = None) -> list[str]:
    change = Change("create" if old is None else "update", EVENT_V1, User("ada"), old, new)
    EVENT_V1.default(change)
    return [str(problem) for problem in EVENT_V1.check(change)]


def test_both_forms_have_the_same_fields_under_their_own_names() -> None:
    assert set(from_core(dict(EVENT.fields))) == EVENT_V1.fields.keys()
    assert set(to_core(dict(EVENT_V1.fields))) == EVENT.fields.keys()


def test_an_event_survives_the_way_there_and_back() -> None:
    core = example("Event", reportingComponent="c", reportingInstance="i", series=SERIES)
    shown = from_core(core)
    assert {"regarding", "note", "deprecatedSource", "deprecatedCount", "reportingController"} <= shown.keys()
    assert to_core(shown) == core
    assert Validator(EVENT_V1.schema()).validate(shown).problems == []


def test_an_empty_controller_is_left_out_here_and_is_there_in_the_core_group() -> None:
    assert "reportingController" not in from_core({"reportingComponent": "", "reportingInstance": ""})
    assert to_core({})["reportingComponent"] == to_core({})["reportingInstance"] == ""


def test_a_complete_event_is_fine() -> None:
    assert complaints(event()) == []
    assert complaints(event(series=SERIES)) == []


def test_a_new_event_must_be_complete() -> None:
    assert complaints(event(eventTime=None, type=None)) == [
        "eventTime: Required value",
        'type: Invalid value: "": has invalid value: ',
    ]
    missing = event(reportingController=None, reportingInstance=None, action=None, reason=None, type="Odd")
    assert [each.partition(":")[0] for each in complaints(missing)] == [
        *("reportingController", "reportingController", "reportingController"),
        *("reportingInstance", "action", "reason", "type"),
    ]


def test_the_older_fields_are_not_for_new_events() -> None:
    older = {
        "deprecatedCount": 1,
        "deprecatedFirstTimestamp": "2026-01-02T03:04:05Z",
        "deprecatedLastTimestamp": "2026-01-02T03:04:05Z",
        "deprecatedSource": {"component": "c"},
    }
    fields = ("firstTimestamp", "lastTimestamp", "count", "source")
    assert complaints(event(**older)) == [f'{field}: Invalid value: "": needs to be unset' for field in fields]


@pytest.mark.parametrize("series", [{}, {"count": 1}])
def test_a_series_is_of_at_least_two(series: Object) -> None:
    assert complaints(event(series=series)) == [
        'series.count: Invalid value: "": should be at least 2',
        "series.lastObservedTime: Required value",
    ]


def test_only_the_series_changes_later() -> None:
    assert complaints(event(series=SERIES), event()) == []
    changed = event(note="other", reportingController="d", regarding={**ABOUT, "name": "y"})
    assert [each.partition(":")[0] for each in complaints(changed, event())] == [
        *("involvedObject", "message", "reportingController"),
    ]


def test_an_older_event_can_get_a_label_although_it_is_not_complete() -> None:
    old = from_core(example("Event", reportingComponent="", reportingInstance="", eventTime=None))
    labelled = {**old, "metadata": {**old["metadata"], "labels": {"a": "b"}}}
    assert complaints(labelled, old) == []


def test_tables_are_those_of_the_core_group() -> None:
    core = example("Event", reportingComponent="", reportingInstance="")
    for ours, theirs in zip(EVENT_V1.columns, EVENT.columns, strict=True):
        assert callable(ours.path)
        expected = theirs.path(core) if callable(theirs.path) else None
        assert (ours.name, ours.wide) == (theirs.name, theirs.wide)
        assert expected is None or ours.path(from_core(core)) == expected


def test_every_selectable_field_leads_to_one_of_the_core_group() -> None:
    assert EVENT_V1.conversion is not None
    assert set(EVENT_V1.selectable) == EVENT_V1.conversion.field_names.keys()
    assert set(EVENT_V1.conversion.field_names.values()) == set(EVENT.selectable) - {"source"}
