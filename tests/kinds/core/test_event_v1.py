"""kinds/core/event_v1.py: events of events.k8s.io: field names, conversion and stricter validation."""

import pytest

from fairlead.core.errors import Conflict
from fairlead.core.objects import Object
from fairlead.core.user import User
from fairlead.kinds.core.event import EVENT
from fairlead.kinds.core.event_v1 import EVENT_V1, from_core, to_core
from fairlead.registry.kind import Change
from fairlead.registry.validate import Validator
from fairlead.registry.write_options import DeleteOptions
from fairlead.registry.write_rules import check_preconditions
from tests.harness.kind_examples import INVOLVED_OBJECT, SERIES, build_event, build_example


def find_messages(new: Object, old: Object | None = None) -> list[str]:
    change = Change("create" if old is None else "update", EVENT_V1, User("ada"), old, new)
    EVENT_V1.default(change)
    return [str(problem) for problem in EVENT_V1.check(change)]


def test_both_groups_have_the_same_fields_under_their_own_names() -> None:
    assert set(from_core(dict(EVENT.fields))) == EVENT_V1.fields.keys()
    assert set(to_core(dict(EVENT_V1.fields))) == EVENT.fields.keys()


def test_converting_an_event_and_back_changes_nothing() -> None:
    core = build_example("Event", reportingComponent="c", reportingInstance="i", series=SERIES)
    converted = from_core(core)
    assert {"regarding", "note", "deprecatedSource", "deprecatedCount", "reportingController"} <= converted.keys()
    assert to_core(converted) == core
    assert Validator(EVENT_V1.schema()).validate(converted).problems == []


def test_an_empty_controller_is_omitted_here_and_present_in_the_core_group() -> None:
    assert "reportingController" not in from_core({"reportingComponent": "", "reportingInstance": ""})
    assert to_core({})["reportingComponent"] == to_core({})["reportingInstance"] == ""


def test_a_complete_event_is_valid() -> None:
    assert find_messages(build_event()) == []
    assert find_messages(build_event(series=SERIES)) == []


def test_a_new_event_must_be_complete() -> None:
    assert find_messages(build_event(eventTime=None, type=None)) == [
        "eventTime: Required value",
        'type: Invalid value: "": has invalid value: ',
    ]
    missing = build_event(reportingController=None, reportingInstance=None, action=None, reason=None, type="Unknown")
    assert [each.partition(":")[0] for each in find_messages(missing)] == [
        *("reportingController", "reportingController", "reportingController"),
        *("reportingInstance", "action", "reason", "type"),
    ]


def test_a_new_event_must_not_have_deprecated_fields() -> None:
    older = {
        "deprecatedCount": 1,
        "deprecatedFirstTimestamp": "2026-01-02T03:04:05Z",
        "deprecatedLastTimestamp": "2026-01-02T03:04:05Z",
        "deprecatedSource": {"component": "c"},
    }
    fields = ("firstTimestamp", "lastTimestamp", "count", "source")
    assert find_messages(build_event(**older)) == [f'{field}: Invalid value: "": needs to be unset' for field in fields]


@pytest.mark.parametrize("series", [{}, {"count": 1}])
def test_a_series_counts_at_least_two(series: Object) -> None:
    assert find_messages(build_event(series=series)) == [
        'series.count: Invalid value: "": should be at least 2',
        "series.lastObservedTime: Required value",
    ]


def test_only_the_series_can_be_updated() -> None:
    assert find_messages(build_event(series=SERIES), build_event()) == []
    changed = build_event(note="other", reportingController="d", regarding={**INVOLVED_OBJECT, "name": "y"})
    assert [each.partition(":")[0] for each in find_messages(changed, build_event())] == [
        *("involvedObject", "message", "reportingController"),
    ]


def test_an_incomplete_core_event_can_still_be_labeled() -> None:
    old = from_core(build_example("Event", reportingComponent="", reportingInstance="", eventTime=None))
    labeled = {**old, "metadata": {**old["metadata"], "labels": {"a": "b"}}}
    assert find_messages(labeled, old) == []


def test_the_table_is_that_of_the_core_group() -> None:
    core = build_example("Event", reportingComponent="", reportingInstance="")
    for column, core_column in zip(EVENT_V1.columns, EVENT.columns, strict=True):
        assert callable(column.path)
        expected = core_column.path(core) if callable(core_column.path) else None
        assert (column.name, column.wide) == (core_column.name, core_column.wide)
        assert expected is None or column.path(from_core(core)) == expected


def test_every_selectable_field_maps_to_one_of_the_core_group() -> None:
    assert EVENT_V1.conversion is not None
    assert set(EVENT_V1.selectable) == EVENT_V1.conversion.field_names.keys()
    assert set(EVENT_V1.conversion.field_names.values()) == set(EVENT.selectable) - {"source"}


def test_a_precondition_that_does_not_hold_is_reported_for_the_core_group() -> None:
    stored = {"metadata": {"name": "x", "uid": "1", "resourceVersion": "7"}}
    for options in (DeleteOptions(uid="2"), DeleteOptions(resource_version="8")):
        with pytest.raises(Conflict) as caught:
            check_preconditions(stored, EVENT_V1, options)
        assert (caught.value.details.kind, caught.value.details.group) == ("Event", "")
