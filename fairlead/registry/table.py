"""Renders objects as rows of a Table (meta.k8s.io/v1), which `kubectl get` requests."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from fairlead.core.objects import Object, get_path, metadata
from fairlead.registry.kind import Column, Kind

_NAME = Column("Name", "metadata.name", description="Name, unique within the namespace.")
_AGE = Column("Age", "metadata.creationTimestamp", type="date", description="Time since the object was created.")
_MINUTE, _HOUR, _DAY, _YEAR = 60, 3_600, 86_400, 365 * 86_400
_AGE_UNITS = (
    (2 * _MINUTE, 1, "s", 0, ""),
    (10 * _MINUTE, _MINUTE, "m", 1, "s"),
    (3 * _HOUR, _MINUTE, "m", 0, ""),
    (8 * _HOUR, _HOUR, "h", _MINUTE, "m"),
    (2 * _DAY, _HOUR, "h", 0, ""),
    (8 * _DAY, _DAY, "d", _HOUR, "h"),
    (2 * _YEAR, _DAY, "d", 0, ""),
    (8 * _YEAR, _YEAR, "y", _DAY, "d"),
)
"""For ages below the first number: the unit, and the smaller unit shown with it."""


def table_columns(kind: Kind) -> tuple[Column, ...]:
    """Name, the kind's own columns, Age, and then the columns for `-o wide`."""
    if kind.explicit_columns:
        return kind.columns
    narrow = tuple(column for column in kind.columns if not column.wide)
    wide = tuple(column for column in kind.columns if column.wide)
    return (_NAME, *narrow, _AGE, *wide)


def render_table(kind: Kind, objects: Iterable[Object], list_metadata: Object, include: str, now: datetime) -> Object:
    """A Table of the objects. `include` is None, Metadata or Object: what each row contains besides its cells."""
    columns = table_columns(kind)
    return {**empty_table(kind, list_metadata), "rows": [render_row(columns, obj, include, now) for obj in objects]}


def empty_table(kind: Kind, list_metadata: Object) -> Object:
    """A Table without rows."""
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": list_metadata,
        "columnDefinitions": [_column_definition(column, kind) for column in table_columns(kind)],
    }


def partial_object_metadata(obj: Object) -> Object:
    """The metadata of an object as PartialObjectMetadata."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata(obj)}


def partial_metadata_without_owners(obj: Object) -> Object:
    """The same without what a garbage collector acts on: the one of another API server would look for owners there."""
    partial = partial_object_metadata(obj)
    shown = {name: value for name, value in metadata(obj).items() if name not in ("ownerReferences", "finalizers")}
    return {**partial, "metadata": shown}


def _column_definition(column: Column, kind: Kind) -> Object:
    return {
        "name": column.name,
        "type": "string" if kind.builtin and column.type == "date" else column.type,
        "format": "name" if column.name == "Name" else "",
        "description": column.description or f"{column.name} of the object.",
        "priority": 1 if column.wide else 0,
    }


def render_row(columns: Sequence[Column], obj: Object, include: str, now: datetime) -> Object:
    """The row of one object."""
    included = obj if include == "Object" else None if include == "None" else partial_object_metadata(obj)
    return {"cells": [_render_cell(column, obj, now) for column in columns], "object": included}


def _render_cell(column: Column, obj: Object, now: datetime) -> Any:
    value = column.path(obj) if callable(column.path) else get_path(obj, column.path)
    if column.type == "date":
        return format_age(value, now)
    if value is None:
        return "" if column.type == "string" else None
    if isinstance(value, list) or (isinstance(value, bool) and column.type != "boolean"):
        return _format_value(value)
    return value


def _format_value(value: bool | list[Any]) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(str(each) for each in value)


def format_age(timestamp: Any, now: datetime) -> str:
    """The time since a timestamp in kubectl's format: 45s, 3m12s, 5h, 2d."""
    if not isinstance(timestamp, str) or not timestamp:
        return "<unknown>"
    then = datetime.fromisoformat(timestamp.replace("Z", "+00:00"))
    return _format_duration(max(0, int((now.astimezone(UTC) - then).total_seconds())))


def _format_duration(seconds: int) -> str:
    """A duration in one or two units, like kubectl."""
    for limit, size, unit, smaller, small_unit in _AGE_UNITS:
        if seconds < limit:
            count, rest = divmod(seconds, size)
            detail = rest // smaller if smaller else 0
            return f"{count}{unit}{detail}{small_unit}" if detail else f"{count}{unit}"
    return f"{seconds // _YEAR}y"
