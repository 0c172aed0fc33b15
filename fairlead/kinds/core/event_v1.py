"""Event of `events.k8s.io/v1`: another API version of the core group's Events, with newer field names.

Both groups serve the same stored Events. Validation is stricter here: a new Event sets the reporting fields and none of
the deprecated ones, and updates can change only its series. As in kube-apiserver, errors name the core group's fields.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from fairlead.core.objects import Object, get_path
from fairlead.kinds.core import event as core
from fairlead.registry.kind import Change, Column, Conversion, Kind, Problem, Sensitivity

GROUP = "events.k8s.io"
CORE_FIELD_NAMES = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedCount": "count",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
}
"""Field names of this group and the corresponding names in the core group. All other names are the same."""
_V1_FIELD_NAMES = {core_name: name for name, core_name in CORE_FIELD_NAMES.items()}
_OMITTED_WHEN_EMPTY = ("reportingController", "reportingInstance", "action", "reason", "type", "note")
_TYPES = ("Normal", "Warning")
_DEPRECATED_FIELDS = ("firstTimestamp", "lastTimestamp", "count")
_IMMUTABLE_FIELDS = (
    *("involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp", "count", "type"),
    *("eventTime", "action", "related", "reportingComponent", "reportingInstance"),
)

FIELDS = {_V1_FIELD_NAMES.get(name, name): schema for name, schema in core.FIELDS.items()}


def from_core(event: Object) -> Object:
    """Converts a core Event to this group."""
    converted = {_V1_FIELD_NAMES.get(name, name): value for name, value in event.items()}
    for name in _OMITTED_WHEN_EMPTY:
        if not converted.get(name):
            converted.pop(name, None)
    return converted


EMPTY_FIELDS = from_core(core.EMPTY_FIELDS)


def to_core(event: Object) -> Object:
    """Converts an Event of this group to the core group, which is the storage version."""
    converted = {CORE_FIELD_NAMES.get(name, name): value for name, value in event.items()}
    return {"reportingComponent": "", "reportingInstance": "", **converted}


def set_defaults(change: Change) -> None:
    times = ("deprecatedFirstTimestamp", "deprecatedLastTimestamp")
    core.set_event_defaults(change.obj, EMPTY_FIELDS, _OMITTED_WHEN_EMPTY, times)


def check(change: Change) -> Iterable[Problem]:
    new = to_core(change.obj)
    yield from core.event_problems(new, "reportingController")
    if change.old is None:
        yield from _series_problems(new)
        yield from _create_problems(new)
        return
    old = to_core(change.old)
    if new.get("series") != old.get("series"):
        yield from _series_problems(new)
    for name in _IMMUTABLE_FIELDS:
        if (new.get(name) or None) != (old.get(name) or None):
            field = "reportingController" if name == "reportingComponent" else name
            yield Problem.invalid(field, new.get(name), "field is immutable")


def _series_problems(event: Object) -> Iterable[Problem]:
    series = event.get("series")
    if series is None:
        return
    if (series.get("count") or 0) < 2:
        yield Problem.invalid("series.count", "", "should be at least 2")
    if not series.get("lastObservedTime"):
        yield Problem.required("series.lastObservedTime")


def _create_problems(event: Object) -> Iterable[Problem]:
    if not event.get("eventTime"):
        yield Problem.required("eventTime")
    kind = event.get("type") or ""
    if kind not in _TYPES:
        yield Problem.invalid("type", "", f"has invalid value: {kind}")
    for name in _DEPRECATED_FIELDS:
        if event.get(name):
            yield Problem.invalid(name, "", "needs to be unset")
    source = event.get("source") or {}
    if source.get("component") or source.get("host"):
        yield Problem.invalid("source", "", "needs to be unset")


def _column(column: Column) -> Column:
    """The core group's column, for objects of this group."""

    def value(path: Any, event: Object) -> Any:
        stored = to_core(event)
        return path(stored) if callable(path) else get_path(stored, path)

    return replace(column, path=partial(value, column.path))


_SELECTABLE = {
    **{f"regarding.{field}": f"involvedObject.{field}" for field in core.REFERENCE["properties"]},
    **{"reason": "reason", "reportingController": "reportingComponent", "type": "type"},
}

EVENT_V1 = Kind(
    name="Event",
    plural="events",
    namespaced=True,
    group=GROUP,
    fields=FIELDS,
    description="A report of an event about an object: the Events of the core group with newer field names.",
    short_names=("ev",),
    explicit_columns=True,
    columns=tuple(_column(column) for column in core.EVENT.columns),
    selectable=tuple(_SELECTABLE),
    empty_fields=EMPTY_FIELDS,
    tracks_generation=False,
    builtin=True,
    allows_create_on_update=True,
    ignores_propagation_policy=True,
    allows_unconditional_update=True,
    default=set_defaults,
    check=check,
    conversion=Conversion(core.EVENT, from_core, to_core, _SELECTABLE),
    sensitivity=Sensitivity.NORMAL,
)
