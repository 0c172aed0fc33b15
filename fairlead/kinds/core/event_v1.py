"""Event of `events.k8s.io/v1`: another API version of the core group's Events, with newer field names.

Both groups serve the same stored Events. Validation is stricter here: a new Event sets the reporting fields and none of
the deprecated ones, and updates can change only its series. As in kube-apiserver, errors name the core group's fields.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from fairlead.core.clock import micro_timestamp, rewrite, timestamp
from fairlead.core.objects import Object, copied, dig
from fairlead.kinds.core import event as core
from fairlead.registry.kind import Change, Column, Form, Kind, Problem

GROUP = "events.k8s.io"
NAMES = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedCount": "count",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
}
"""Field names of this group and the corresponding names in the core group. All other names are the same."""
_CORE_NAMES = {core_name: name for name, core_name in NAMES.items()}
_OMITTED_WHEN_EMPTY = ("reportingController", "reportingInstance")
_TYPES = ("Normal", "Warning")
_UNSET = ("firstTimestamp", "lastTimestamp", "count")
_LASTING = (
    *("involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp", "count", "type"),
    *("eventTime", "action", "related", "reportingComponent", "reportingInstance"),
)

FIELDS = {_CORE_NAMES.get(name, name): schema for name, schema in core.FIELDS.items()}


def show(event: Object) -> Object:
    """Converts a core Event to this group."""
    converted = {_CORE_NAMES.get(name, name): value for name, value in event.items()}
    for name in _OMITTED_WHEN_EMPTY:
        if not converted.get(name):
            converted.pop(name, None)
    return converted


EMPTY = show(core.EMPTY)


def store(event: Object) -> Object:
    """Converts an Event of this group to the core group, which is the storage version."""
    converted = {NAMES.get(name, name): value for name, value in event.items()}
    return {"reportingComponent": "", "reportingInstance": "", **converted}


def prepare(change: Change) -> None:
    new = change.obj
    for field, value in EMPTY.items():
        new.setdefault(field, copied(value))
    for field in _OMITTED_WHEN_EMPTY:
        if new.get(field) == "":
            del new[field]
    rewrite(new, ("deprecatedFirstTimestamp", "deprecatedLastTimestamp"), timestamp)
    rewrite(new, ("eventTime",), micro_timestamp)
    if series := new.get("series"):
        rewrite(series, ("lastObservedTime",), micro_timestamp)


def check(change: Change) -> Iterable[Problem]:
    new = store(change.obj)
    yield from core.problems(new, "reportingController")
    if change.old is None:
        yield from _series_problems(new)
        yield from _new_problems(new)
        return
    old = store(change.old)
    if new.get("series") != old.get("series"):
        yield from _series_problems(new)
    for name in _LASTING:
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


def _new_problems(event: Object) -> Iterable[Problem]:
    if not event.get("eventTime"):
        yield Problem.required("eventTime")
    kind = event.get("type") or ""
    if kind not in _TYPES:
        yield Problem.invalid("type", "", f"has invalid value: {kind}")
    for name in _UNSET:
        if event.get(name):
            yield Problem.invalid(name, "", "needs to be unset")
    source = event.get("source") or {}
    if source.get("component") or source.get("host"):
        yield Problem.invalid("source", "", "needs to be unset")


def _column(column: Column) -> Column:
    """The core group's column, for objects of this group."""

    def value(path: Any, event: Object) -> Any:
        stored = store(event)
        return path(stored) if callable(path) else dig(stored, path)

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
    whole_table=True,
    columns=tuple(_column(column) for column in core.EVENT.columns),
    selectable=tuple(_SELECTABLE),
    empty=EMPTY,
    tracks_generation=False,
    builtin=True,
    writes_without_version=True,
    prepare=prepare,
    check=check,
    form=Form(core.EVENT, show, store, _SELECTABLE),
)
