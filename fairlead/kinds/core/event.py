"""Event of the core group: something that happened to an object, for `kubectl get events` and `kubectl describe`.

Events come in two styles. The older one counts repetitions between firstTimestamp and lastTimestamp; the newer one has
an eventTime and must then be complete. Clients of both expect a few fields to be there even when they are empty.
"""

from collections.abc import Iterable
from typing import Any

from fairlead.core.clock import micro_timestamp, rewrite, timestamp
from fairlead.core.objects import Object, copied, dig, metadata
from fairlead.registry import limits
from fairlead.registry import schema as words
from fairlead.registry.kind import Change, Column, Kind, Problem
from fairlead.registry.names import qualified_faults
from fairlead.registry.schema import Schema, atomic, described, integer, obj, string

_LENGTHS = {"reportingInstance": 128, "action": 128, "reason": 128, "message": 1024}
_REQUIRED = ("reportingInstance", "action", "reason")

REFERENCE = atomic(
    obj(
        apiVersion=string("API version of the object."),
        kind=string("Kind of the object."),
        namespace=string("Namespace of the object; empty for objects outside namespaces."),
        name=string("Name of the object."),
        uid=string("Uid of the object."),
        resourceVersion=string("Version of the object that this is about."),
        fieldPath=string("Part of the object that this is about, such as `spec.containers{web}`."),
    )
)


def _time(description: str) -> Schema:
    """A date that is shown as null while there is none."""
    return {**words.timestamp(description), "nullable": True}


FIELDS = {
    "involvedObject": described(REFERENCE, "The object that something happened to. Its namespace is the Event's."),
    "related": described(REFERENCE, "A second object that had a part in it."),
    "reason": string("Why it happened, as one word for programs."),
    "message": string("What happened, for people.", longest=limits.MESSAGE),
    "type": string("`Normal` for information, `Warning` for what may need a look."),
    "action": string("What was done, or failed, as one word."),
    "count": integer("How often it has happened.", bits=32),
    "firstTimestamp": _time("When it happened first."),
    "lastTimestamp": _time("When it last happened."),
    "eventTime": _time("When it happened, to the microsecond. With it, an Event must be complete."),
    "series": obj(
        "Repetitions of an Event with an eventTime. Absent for something that happened once.",
        count=integer("How often it has happened.", bits=32),
        lastObservedTime=words.timestamp("When it last happened, to the microsecond."),
    ),
    "source": obj(
        "Who saw it, in the older style.",
        component=string("Name of the program."),
        host=string("Machine that it runs on."),
    ),
    "reportingComponent": string("Who saw it: the name of a controller, such as `example.com/runner`."),
    "reportingInstance": string("Which instance of that controller."),
}


EMPTY: Object = {
    "involvedObject": {},
    "source": {},
    "reportingComponent": "",
    "reportingInstance": "",
    "eventTime": None,
    "firstTimestamp": None,
    "lastTimestamp": None,
}


def prepare(change: Change) -> None:
    new = change.obj
    for field, value in EMPTY.items():
        new.setdefault(field, copied(value))
    rewrite(new, ("firstTimestamp", "lastTimestamp"), timestamp)
    rewrite(new, ("eventTime",), micro_timestamp)
    if series := new.get("series"):
        rewrite(series, ("lastObservedTime",), micro_timestamp)


def check(change: Change) -> Iterable[Problem]:
    return problems(change.obj, "reportingComponent")


def problems(event: Object, controller: str) -> Iterable[Problem]:
    """What is wrong with an Event. `controller` is what the reporting component is called in the group at hand."""
    namespace = metadata(event).get("namespace")
    about = dig(event, "involvedObject.namespace") or ""
    if not event.get("eventTime"):
        # Objects outside namespaces have their Events in the namespace `default`.
        if (about or "default") != namespace:
            yield Problem.invalid("involvedObject.namespace", about, "does not match event.namespace")
        return
    if not about and namespace not in ("default", "kube-system"):
        yield Problem.invalid("involvedObject.namespace", about, "does not match event.namespace")
    yield from _completeness_problems(event, controller)


def _completeness_problems(event: Object, controller: str) -> Iterable[Problem]:
    """With eventTime, an Event says who did what and why, in few words."""
    component = event.get("reportingComponent") or ""
    if not component:
        yield Problem.required(controller)
    yield from (Problem.invalid(controller, component, fault) for fault in qualified_faults(component))
    for field, limit in _LENGTHS.items():
        value = event.get(field) or ""
        if not value and field in _REQUIRED:
            yield Problem.required(field)
        if len(value.encode()) > limit:
            yield Problem.invalid(field, "", f"can have at most {limit} characters")


def selectable(event: Object, path: str) -> Any:
    """`source` selects by the name of whoever saw it, in either style."""
    if path == "source":
        return dig(event, "source.component") or event.get("reportingComponent")
    return dig(event, path)


def _first_seen(event: Object) -> Any:
    return event.get("firstTimestamp") or event.get("eventTime")


def _last_seen(event: Object) -> Any:
    return dig(event, "series.lastObservedTime") or event.get("lastTimestamp") or _first_seen(event)


def _count(event: Object) -> int:
    return dig(event, "series.count") or event.get("count") or 1


def _target(event: Object) -> str:
    kind, name = dig(event, "involvedObject.kind") or "", dig(event, "involvedObject.name") or ""
    return f"{kind.lower()}/{name}" if name else kind.lower()


def _source(event: Object) -> str:
    component = dig(event, "source.component") or event.get("reportingComponent")
    host = dig(event, "source.host") or event.get("reportingInstance")
    return ", ".join(part for part in (component, host) if part)


def _message(event: Object) -> str:
    return (event.get("message") or "").strip()


EVENT = Kind(
    name="Event",
    plural="events",
    namespaced=True,
    group="",
    fields=FIELDS,
    description="Something that happened to an object. Events go by themselves after a while.",
    short_names=("ev",),
    # A name that nobody chose does not come first, and the age that counts is that of what happened.
    whole_table=True,
    columns=(
        Column("Last Seen", _last_seen, type="date", description="When it last happened."),
        Column("Type", "type", description="Normal or Warning."),
        Column("Reason", "reason", description="Why, in one word."),
        Column("Object", _target, description="What it happened to."),
        Column("Subobject", "involvedObject.fieldPath", description="Which part of it.", wide=True),
        Column("Source", _source, description="Who saw it.", wide=True),
        Column("Message", _message, description="What happened."),
        Column("First Seen", _first_seen, type="date", description="When it happened first.", wide=True),
        Column("Count", _count, description="How often it has happened.", wide=True),
        Column("Name", "metadata.name", description="Name of the Event itself.", wide=True),
    ),
    selectable=(
        *(f"involvedObject.{field}" for field in REFERENCE["properties"]),
        *("reason", "reportingComponent", "source", "type"),
    ),
    selectable_value=selectable,
    empty=EMPTY,
    tracks_generation=False,
    builtin=True,
    writes_without_version=True,
    prepare=prepare,
    check=check,
)
