"""Event of the core group, for `kubectl get events` and `kubectl describe`.

Legacy Events count repetitions between firstTimestamp and lastTimestamp. Events with an eventTime must also set the
reporting controller, action and reason. Clients of both expect the fields in `EMPTY_FIELDS` even without a value.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from fairlead.core.clock import micro_timestamp, normalize_times, timestamp
from fairlead.core.objects import Object, deep_copy, get_path, metadata
from fairlead.registry import limits
from fairlead.registry import schema as words
from fairlead.registry.kind import Change, Column, Kind, Problem, Sensitivity
from fairlead.registry.names import qualified_name_errors
from fairlead.registry.schema import Schema, atomic, integer, nullable, obj, string, with_description

_MAX_LENGTHS = {"reportingInstance": 128, "action": 128, "reason": 128, "message": 1024}
_REQUIRED_FIELDS = ("reportingInstance", "action", "reason")

REFERENCE = atomic(
    obj(
        apiVersion=string("API version of the object."),
        kind=string("Kind of the object."),
        namespace=string("Namespace of the object; empty for cluster-scoped objects."),
        name=string("Name of the object."),
        uid=string("UID of the object."),
        resourceVersion=string("Resource version of the referenced object."),
        fieldPath=string("Referenced part of the object, such as `spec.containers{web}`."),
    )
)


def _nullable_timestamp(description: str) -> Schema:
    """Schema of a timestamp that is null if not set."""
    return nullable(words.timestamp(description))


FIELDS = {
    "involvedObject": with_description(
        REFERENCE, "The object that the Event is about. Must be in the Event's namespace."
    ),
    "related": with_description(REFERENCE, "Optional secondary object."),
    "reason": string("Machine-readable reason for the Event."),
    "message": string("Human-readable description of the Event.", max_length=limits.MESSAGE),
    "type": string("Type of the Event: `Normal` or `Warning`."),
    "action": string("Action that was taken or failed, machine-readable."),
    "count": integer("Number of occurrences.", bits=32),
    "firstTimestamp": _nullable_timestamp("Time of the first occurrence."),
    "lastTimestamp": _nullable_timestamp("Time of the last occurrence."),
    "eventTime": nullable(
        words.micro_timestamp("Time of the first observation, with microseconds. Makes the reporting fields required.")
    ),
    "series": obj(
        "Repetitions of an Event with an eventTime. Absent for a singleton Event.",
        count=integer("Number of occurrences.", bits=32),
        lastObservedTime=words.micro_timestamp("Time of the last occurrence, with microseconds."),
    ),
    "source": obj(
        "The component that reported a legacy Event.",
        component=string("Name of the component."),
        host=string("Node name of the component."),
    ),
    "reportingComponent": string("Name of the controller that reported the Event, such as `example.com/runner`."),
    "reportingInstance": string("ID of the controller instance."),
}


EMPTY_FIELDS: Object = {
    "involvedObject": {},
    "source": {},
    "reportingComponent": "",
    "reportingInstance": "",
    "eventTime": None,
    "firstTimestamp": None,
    "lastTimestamp": None,
}

_OMITTED_WHEN_EMPTY = ("reason", "message", "type", "action")


def set_defaults(change: Change) -> None:
    set_event_defaults(change.obj, EMPTY_FIELDS, _OMITTED_WHEN_EMPTY, ("firstTimestamp", "lastTimestamp"))


def set_event_defaults(
    event: Object, empty_fields: Object, omitted_when_empty: Sequence[str], legacy_times: Sequence[str]
) -> None:
    """For an Event of either API group: most of these fields have another name in each."""
    for field, value in empty_fields.items():
        event.setdefault(field, deep_copy(value))
    for field in omitted_when_empty:
        if event.get(field) == "":
            del event[field]
    normalize_times(event, legacy_times, timestamp)
    normalize_times(event, ("eventTime",), micro_timestamp)
    if series := event.get("series"):
        normalize_times(series, ("lastObservedTime",), micro_timestamp)


def check(change: Change) -> Iterable[Problem]:
    return event_problems(change.obj, "reportingComponent")


def event_problems(event: Object, controller_field: str) -> Iterable[Problem]:
    """Validation errors of an Event. `controller` is the name of the field reportingComponent in the API group."""
    namespace = metadata(event).get("namespace")
    involved = get_path(event, "involvedObject.namespace") or ""
    if not event.get("eventTime"):
        # Events of cluster-scoped objects are in the namespace `default`.
        if (involved or "default") != namespace:
            yield Problem.invalid("involvedObject.namespace", involved, "does not match event.namespace")
        return
    if not involved and namespace not in ("default", "kube-system"):
        yield Problem.invalid("involvedObject.namespace", involved, "does not match event.namespace")
    yield from _completeness_problems(event, controller_field)


def _completeness_problems(event: Object, controller_field: str) -> Iterable[Problem]:
    """Reports missing or too long fields of an Event with an eventTime."""
    component = event.get("reportingComponent") or ""
    if not component:
        yield Problem.required(controller_field)
    yield from (Problem.invalid(controller_field, component, fault) for fault in qualified_name_errors(component))
    for field, limit in _MAX_LENGTHS.items():
        value = event.get(field) or ""
        if not value and field in _REQUIRED_FIELDS:
            yield Problem.required(field)
        if len(value.encode()) > limit:
            yield Problem.invalid(field, "", f"can have at most {limit} characters")


def selector_value(event: Object, path: str) -> Any:
    """Field selector value. `source` matches the reporting component of legacy and new Events."""
    if path == "source":
        return get_path(event, "source.component") or event.get("reportingComponent")
    return get_path(event, path)


def _first_seen(event: Object) -> Any:
    return event.get("firstTimestamp") or event.get("eventTime")


def _last_seen(event: Object) -> Any:
    return get_path(event, "series.lastObservedTime") or event.get("lastTimestamp") or _first_seen(event)


def _count(event: Object) -> int:
    return get_path(event, "series.count") or event.get("count") or 1


def _target(event: Object) -> str:
    kind = get_path(event, "involvedObject.kind") or ""
    name = get_path(event, "involvedObject.name") or ""
    return f"{kind.lower()}/{name}" if name else kind.lower()


def _source(event: Object) -> str:
    component = get_path(event, "source.component") or event.get("reportingComponent")
    host = get_path(event, "source.host") or event.get("reportingInstance")
    return ", ".join(part for part in (component, host) if part)


def _message(event: Object) -> str:
    return (event.get("message") or "").strip()


EVENT = Kind(
    name="Event",
    plural="events",
    namespaced=True,
    group="",
    fields=FIELDS,
    description="A report of an event about an object. Events are deleted after their retention time.",
    short_names=("ev",),
    # As in Kubernetes: the generated name is not the first column, and the age is that of the last occurrence.
    explicit_columns=True,
    columns=(
        Column("Last Seen", _last_seen, type="date", description="Time of the last occurrence."),
        Column("Type", "type", description="Normal or Warning."),
        Column("Reason", "reason", description="Machine-readable reason."),
        Column("Object", _target, description="The involved object."),
        Column("Subobject", "involvedObject.fieldPath", description="Part of the involved object.", wide=True),
        Column("Source", _source, description="The component that reported the Event.", wide=True),
        Column("Message", _message, description="Human-readable description."),
        Column("First Seen", _first_seen, type="date", description="Time of the first occurrence.", wide=True),
        Column("Count", _count, description="Number of occurrences.", wide=True),
        Column("Name", "metadata.name", description="Name of the Event.", wide=True),
    ),
    selectable=(
        *(f"involvedObject.{field}" for field in REFERENCE["properties"]),
        *("reason", "reportingComponent", "source", "type"),
    ),
    read_selectable_field=selector_value,
    empty_fields=EMPTY_FIELDS,
    tracks_generation=False,
    builtin=True,
    allows_create_on_update=True,
    requires_finalizer_domains=False,
    ignores_propagation_policy=True,
    allows_unconditional_update=True,
    default=set_defaults,
    check=check,
    sensitivity=Sensitivity.NORMAL,
)
