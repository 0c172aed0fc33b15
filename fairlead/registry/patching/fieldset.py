"""Sets of field paths, and which of them a change touches: what field ownership and server-side apply reckon with.

A set has the form that it has inside `managedFields`, Kubernetes' FieldsV1, so nothing is translated between the wire
and the reckoning: nested dictionaries, whose keys are the steps of a path.

    f:name       a field of a structure, or a key of a map
    k:{"a":1}    an entry of a list, by the fields that tell its entries apart
    v:"x"        an entry of a list without duplicates, by its value
    i:3          an entry by its place; never made here, but others may have recorded it
    .            the path that led here is in the set itself, beside the ones that go on

A path ends in an empty dictionary; at the very top, an empty dictionary is the empty set. Sets are values: nothing here
changes one, and results share parts with their arguments. `registry/managed.py` keeps its record with these.

The walks over objects follow structured-merge-diff, the library that defines these sets, also where it is odd: an
emptied map stays with its owner, and duplicates in a list are owned as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from fairlead.core.objects import Object
from fairlead.registry.schema import Schema

FieldSet = dict[str, Any]
SELF = "."


def union(one: FieldSet, other: FieldSet) -> FieldSet:
    """The paths that are in either."""
    if not one or not other:
        return one or other
    return _joined(one, other)


def _joined(one: FieldSet, other: FieldSet) -> FieldSet:
    if not one:
        return other if not other or SELF in other else {SELF: {}, **other}
    if not other:
        return one if SELF in one else {SELF: {}, **one}
    both = dict(one)
    for step, below in other.items():
        mine = both.get(step)
        both[step] = below if mine is None else _joined(mine, below)
    return both


def difference(one: FieldSet, other: FieldSet) -> FieldSet:
    """The paths of `one` that are not in `other`. What lies below a path is another path. `one` itself if none is."""
    kept = {}
    touched = False
    for step, mine in one.items():
        theirs = other.get(step)
        left = mine if theirs is None else _left(mine, theirs)
        if left is not None:
            kept[step] = left
        touched = touched or left is not mine
    return kept if touched else one


def _left(mine: FieldSet, theirs: FieldSet) -> FieldSet | None:
    if not mine:
        return None if not theirs or SELF in theirs else mine
    if theirs:
        return _tidy(difference(mine, theirs))
    return {step: below for step, below in mine.items() if step != SELF} if SELF in mine else mine


def intersection(one: FieldSet, other: FieldSet) -> FieldSet:
    """The paths that are in both."""
    both = {}
    for step, mine in one.items():
        theirs = other.get(step)
        shared = None if theirs is None else _shared(mine, theirs)
        if shared is not None:
            both[step] = shared
    return both


def _shared(mine: FieldSet, theirs: FieldSet) -> FieldSet | None:
    if not mine:
        return mine if not theirs or SELF in theirs else None
    if not theirs:
        return theirs if SELF in mine else None
    return _tidy(intersection(mine, theirs))


def _tidy(below: FieldSet) -> FieldSet | None:
    """A part of a set in the one form it may have: nothing at all is None, a path with nothing below it is empty."""
    if len(below) > 1:
        return below
    if not below:
        return None
    return {} if SELF in below else below


def leaves(fields: FieldSet) -> FieldSet:
    """The paths that no other path of the set goes on from."""
    return {step: leaves(below) for step, below in fields.items() if step != SELF}


def with_parents(fields: FieldSet, shape: Shape) -> FieldSet:
    """The set with every declared field that leads to one of its paths. Apply leaves those out; removal needs them."""
    full = {}
    for step, below in fields.items():
        if below:
            named = step.startswith("f:") and step[2:] in shape.fields
            inner = shape.fields.get(step[2:]) if named else shape.entries
            below = with_parents(below, inner or FREE)
            if named:
                below = {SELF: {}, **below}
        full[step] = below
    return full


def paths(fields: FieldSet) -> Iterator[tuple[str, ...]]:
    """Every path of the set, as its steps."""
    for step, below in fields.items():
        if step == SELF:
            continue
        if not below or SELF in below:
            yield (step,)
        for rest in paths(below):
            yield (step, *rest)


def parsed(value: Any) -> FieldSet:
    """A set that came from outside, in the one form that equal sets share. ValueError if it is none.

    Steps of a sort that nobody knows are dropped, as Kubernetes does: a later version may have written them.
    """
    if not isinstance(value, dict):
        raise ValueError("a set of fields is an object")
    result = {}
    for step, below in value.items():
        known = None if step == SELF else _parsed_step(step)
        if known is not None:
            inside = parsed(below)
            result[known] = {SELF: {}, **inside} if inside and SELF in below else inside
    return result


def _parsed_step(step: str) -> str | None:
    sort, rest = step[:2], step[2:]
    if sort[1:] != ":":
        raise ValueError(f"{step!r} is no step of a path")
    if sort in ("v:", "k:"):
        value = orjson.loads(rest)
        if sort == "k:" and not isinstance(value, dict):
            raise ValueError(f"{step!r} names no keys")
        return sort + _json(value)
    return f"i:{int(rest)}" if sort == "i:" else step if sort == "f:" else None


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """A schema reduced to what ownership needs to know: how one part of an object is owned. Made once per kind."""

    fields: Mapping[str, Shape] = field(default_factory=dict)
    entries: Shape | None = None
    """What undeclared fields, or the entries of a list, look like. None stands for FREE."""
    keys: tuple[str, ...] | None = None
    """None unless this is a list with entries of their own: what tells them apart, or nothing for a set of values."""
    defaults: Object = field(default_factory=dict)
    """Values of `keys` that entries may leave out."""


FREE = Shape()
"""Nothing is declared: objects are owned field by field, all else as a whole."""
LEAF = Shape()
"""Owned as a whole."""
UNOWNED = Shape()
"""Set by the server or given by the URL: never part of a set."""

_METADATA = Shape(
    {
        **dict.fromkeys(("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp"), UNOWNED),
        **dict.fromkeys(("selfLink", "clusterName", "managedFields"), UNOWNED),
        "labels": Shape(entries=LEAF),
        "annotations": Shape(entries=LEAF),
        "finalizers": Shape(entries=LEAF, keys=()),
        "ownerReferences": Shape(entries=LEAF, keys=("uid",)),
    }
)


def shape_of(schema: Schema, without: Iterable[str] = ()) -> Shape:
    """The shape of a whole object, from its structural schema.

    `without` names fields by dotted path that a write leaves alone whatever it sent (`status`, where a controller owns
    it): with everything below them they are owned by nobody.
    """
    properties = {name: _shape(each) for name, each in schema.get("properties", {}).items()}
    shape = Shape({**properties, "apiVersion": UNOWNED, "kind": UNOWNED, "metadata": _METADATA})
    for path in without:
        shape = _disowned(shape, path.split("."))
    return shape


def _disowned(shape: Shape, path: list[str]) -> Shape:
    inner = _disowned(shape.fields.get(path[0], FREE), path[1:]) if len(path) > 1 else UNOWNED
    return replace(shape, fields={**shape.fields, path[0]: inner})


def _shape(schema: Schema) -> Shape:
    wanted = schema.get("type")
    if wanted == "array":
        return _list_shape(schema)
    if wanted not in (None, "object") or schema.get("x-kubernetes-map-type") == "atomic":
        return LEAF
    additional = schema.get("additionalProperties")
    properties = {name: _shape(each) for name, each in schema.get("properties", {}).items()}
    return Shape(properties, _shape(additional) if isinstance(additional, dict) else None)


def _list_shape(schema: Schema) -> Shape:
    sort = schema.get("x-kubernetes-list-type")
    if sort == "set":
        return Shape(entries=LEAF, keys=())
    if sort != "map":
        return LEAF
    items = schema["items"]
    keys = tuple(sorted(schema["x-kubernetes-list-map-keys"]))
    declared = items.get("properties", {})
    defaults = {key: declared[key]["default"] for key in keys if "default" in declared.get(key, {})}
    return Shape(entries=_shape(items), keys=keys, defaults=defaults)


def all_fields(obj: Object, shape: Shape) -> FieldSet:
    """Everything in an object, with the structures on the way: what its creator owns."""
    return _beside_metadata(_inside(obj, shape))


def _beside_metadata(fields: FieldSet) -> FieldSet:
    """Takes `metadata` as such back out of a set just made: every object has it, so it is nobody's."""
    meta = fields.get("f:metadata")
    if meta is not None:
        meta.pop(SELF, None)
        if not meta:
            del fields["f:metadata"]
    return fields


def _inside(value: Object, shape: Shape) -> FieldSet:
    found: FieldSet = {}
    fields, entries = shape.fields, shape.entries or FREE
    for name, each in value.items():
        inner = fields.get(name, entries)
        if inner is LEAF:
            found["f:" + name] = {}
        elif inner is not UNOWNED:
            found["f:" + name] = _whole(each, inner)
    return found


def _whole(value: Any, shape: Shape) -> FieldSet:
    """A field that is there on one side only: itself and all that is in it."""
    below: FieldSet = {}
    if value and shape is not LEAF:
        if shape.keys is None and isinstance(value, dict):
            below = _inside(value, shape)
        elif shape.keys is not None and isinstance(value, list):
            below = {step: _entry(values, shape) for step, values in _indexed(value, shape).items()}
    return {SELF: {}, **below} if below else below


def _entry(values: list[Any], shape: Shape) -> FieldSet:
    return _whole(values[0], shape.entries or FREE) if len(values) == 1 else {}


def _indexed(values: list[Any], shape: Shape) -> dict[str, list[Any]]:
    """The entries of a list by their step. Duplicates stay together; an entry without any key has no step."""
    found: dict[str, list[Any]] = {}
    for value in values:
        if not shape.keys:
            found.setdefault("v:" + _json(value), []).append(value)
        elif isinstance(value, dict):
            named = {**shape.defaults, **value}
            keys = {key: named[key] for key in shape.keys if key in named}
            if keys:
                found.setdefault("k:" + _json(keys), []).append(value)
    return found


def _json(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def applied_fields(obj: Object, shape: Shape) -> FieldSet:
    """What somebody who applies an object claims: its values, but not the declared structures that lead to them."""
    return _beside_metadata(_claimed_inside(obj, shape))


def _claimed_inside(value: Object, shape: Shape) -> FieldSet:
    found: FieldSet = {}
    for name, each in value.items():
        inner = shape.fields.get(name)
        below = _claimed(each, inner or shape.entries or FREE, declared=inner is not None)
        if inner is not UNOWNED and below is not None:
            found["f:" + name] = below
    return found


def _claimed(value: Any, shape: Shape, *, declared: bool) -> FieldSet | None:
    if shape.keys is None:
        if shape is LEAF or not value or not isinstance(value, dict):
            return {}
        below = _claimed_inside(value, shape)
    elif isinstance(value, list):
        inner, indexed = shape.entries or FREE, _indexed(value, shape)
        entries = {step: _claimed(each[0], inner, declared=False) for step, each in indexed.items()}
        below = {step: {} if len(indexed[step]) > 1 else each for step, each in entries.items()}
    else:
        return {}
    return _tidy(below if declared else {SELF: {}, **below})


def changed(old: Object, new: Object, shape: Shape) -> tuple[FieldSet, FieldSet]:
    """From one state of an object to the next: the fields that were added or got another value, and those that went."""
    taken, removed = _compared_maps(old, new, shape)
    return _beside_metadata(taken), _beside_metadata(removed)


def _compared_maps(old: Object, new: Object, shape: Shape) -> tuple[FieldSet, FieldSet]:
    taken: FieldSet = {}
    gone = old.keys() - new.keys()
    removed = _inside({name: old[name] for name in gone}, shape) if gone else {}
    fields, entries = shape.fields, shape.entries or FREE
    for name, after in new.items():
        inner = fields.get(name, entries)
        if inner is UNOWNED:
            continue
        if name not in old:
            taken["f:" + name] = _whole(after, inner)
        elif inner is not LEAF:
            _note("f:" + name, _compared(old[name], after, inner), taken, removed)
        elif not same(old[name], after):
            taken["f:" + name] = {}
    return taken, removed


def _note(step: str, outcome: tuple[FieldSet | None, FieldSet], taken: FieldSet, removed: FieldSet) -> None:
    """Adds what became of a field that is there before and after."""
    more, less = outcome
    if more is not None:
        taken[step] = more
    if less:
        removed[step] = less


def _compared(old: Any, new: Any, shape: Shape) -> tuple[FieldSet | None, FieldSet]:
    """What was taken (None: nothing; empty: the field itself, as a whole) and what was removed below the field."""
    if (old or new) and shape is not LEAF:
        if shape.keys is not None:
            if isinstance(old, list | None) and isinstance(new, list | None):
                taken, removed = _compared_lists(_indexed(old or [], shape), _indexed(new or [], shape), shape)
                return taken or None, removed
        elif isinstance(old, dict) and isinstance(new, dict):
            taken, removed = _compared_maps(old, new, shape)
            return taken or None, removed
        elif isinstance(new, dict) and new:
            return (_inside(new, shape) if old is None else _whole(new, shape)), {}
        elif isinstance(old, dict) and old:
            return (None if new is None else {}), _inside(old, shape)
    return None if same(old, new) else {}, {}


def _compared_lists(old: dict[str, list[Any]], new: dict[str, list[Any]], shape: Shape) -> tuple[FieldSet, FieldSet]:
    taken: FieldSet = {}
    removed = {step: _entry(before, shape) for step, before in old.items() if step not in new}
    for step, after in new.items():
        before = old.get(step)
        if before is None:
            taken[step] = _entry(after, shape)
        elif len(before) == len(after) == 1:
            _note(step, _compared(before[0], after[0], shape.entries or FREE), taken, removed)
        elif len(before) == 1 or len(after) == 1:
            taken[step], removed[step] = _entry(after, shape), _entry(before, shape)
        elif not same(before, after):
            taken[step] = {}
    return taken, removed


def same(one: Any, other: Any) -> bool:
    """Equality of JSON values. Python alone takes `true` for `1`, also deep inside."""
    if isinstance(one, str):
        return bool(one == other)
    if one != other:
        return False
    if isinstance(one, dict):
        return all(map(same, one.values(), map(other.__getitem__, one)))
    if isinstance(one, list):
        return all(map(same, one, other))
    return isinstance(one, bool) is isinstance(other, bool)
