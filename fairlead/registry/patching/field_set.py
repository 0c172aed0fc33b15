"""Sets of field paths, for field ownership and server-side apply.

A set has the format of FieldsV1 in `managedFields`, so it needs no conversion: nested dictionaries whose keys are the
elements of a path ("steps").

    f:name       a field of an object, or a key of a map
    k:{"a":1}    an entry of a map list, by its key fields
    v:"x"        an entry of a set list, by its value
    i:3          an entry by its index; never created here, but other servers may have recorded it
    .            the path up to here is in the set itself, in addition to the paths below it

A path ends in an empty dictionary; at the top level, an empty dictionary is the empty set. Sets are immutable values:
no function changes one, and results share parts with their arguments. `field_walk.py` computes them from objects;
`managed_fields.py` and `apply.py` combine them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from fairlead.core.json import encode_sorted

FieldSet = dict[str, Any]
SELF = "."


def union(one: FieldSet, other: FieldSet) -> FieldSet:
    """The paths that are in either set."""
    if not one or not other:
        return one or other
    return _union_below(one, other)


def _union_below(one: FieldSet, other: FieldSet) -> FieldSet:
    if not one:
        return other if not other or SELF in other else {SELF: {}, **other}
    if not other:
        return one if SELF in one else {SELF: {}, **one}
    both = dict(one)
    for step, below in other.items():
        mine = both.get(step)
        both[step] = below if mine is None else _union_below(mine, below)
    return both


def union_all(sets: Iterable[FieldSet]) -> FieldSet:
    """The paths that are in any of many sets. Faster than repeated `union`, which would copy large sets again and
    again."""
    found = [each for each in sets if each]
    return found[0] if len(found) == 1 else _union_all_sets(found)


def _union_all_sets(sets: list[FieldSet]) -> FieldSet:
    steps: dict[str, list[FieldSet]] = {}
    for each in sets:
        for step, below in each.items():
            steps.setdefault(step, []).append(below)
    return {step: below[0] if len(below) == 1 else _union_all_below(below) for step, below in steps.items()}


def _union_all_below(sets: list[FieldSet]) -> FieldSet:
    inside = [each for each in sets if each]
    if not inside:
        return {}
    below = inside[0] if len(inside) == 1 else _union_all_sets(inside)
    return below if len(inside) == len(sets) or SELF in below else {SELF: {}, **below}


def difference(one: FieldSet, other: FieldSet) -> FieldSet:
    """The paths of `one` that are not in `other`; `one` itself if that is all. Paths below a path are independent of
    it."""
    if not other:
        return one
    remaining = {}
    touched = False
    for step, mine in one.items():
        other_children = other.get(step)
        left = mine if other_children is None else _difference_below(mine, other_children)
        if left is not None:
            remaining[step] = left
        touched = touched or left is not mine
    return remaining if touched else one


def _difference_below(mine: FieldSet, other_children: FieldSet) -> FieldSet | None:
    if not mine:
        return None if not other_children or SELF in other_children else mine
    if other_children:
        return normalize_part(difference(mine, other_children))
    return {step: below for step, below in mine.items() if step != SELF} if SELF in mine else mine


def intersection(one: FieldSet, other: FieldSet) -> FieldSet:
    """The paths that are in both sets."""
    both = {}
    for step, mine in one.items():
        other_children = other.get(step)
        shared = None if other_children is None else _intersection_below(mine, other_children)
        if shared is not None:
            both[step] = shared
    return both


def _intersection_below(mine: FieldSet, other_children: FieldSet) -> FieldSet | None:
    if not mine:
        return mine if not other_children or SELF in other_children else None
    if not other_children:
        return other_children if SELF in mine else None
    return normalize_part(intersection(mine, other_children))


def normalize_part(below: FieldSet) -> FieldSet | None:
    """Part of a set in canonical form: None if it has no path, empty if it has no path below this one."""
    if len(below) > 1:
        return below
    if not below:
        return None
    return {} if SELF in below else below


def iter_paths(fields: FieldSet) -> Iterator[tuple[str, ...]]:
    """Every path of the set, as a tuple of steps."""
    for step, below in fields.items():
        if step == SELF:
            continue
        if not below or SELF in below:
            yield (step,)
        for rest in iter_paths(below):
            yield (step, *rest)


def parse_field_set(value: Any) -> FieldSet:
    """A set sent by a client, in canonical form. Raises ValueError if it is invalid.

    Unknown types of steps are dropped, as in Kubernetes: a later version may have written them.
    """
    if not isinstance(value, dict):
        raise ValueError("a set of fields must be an object")
    result = {}
    for step, below in value.items():
        known = None if step == SELF else _parse_step(step)
        if known is not None:
            inside = parse_field_set(below)
            result[known] = {SELF: {}, **inside} if inside and SELF in below else inside
    return result


def _parse_step(step: str) -> str | None:
    sort, rest = step[:2], step[2:]
    if sort[1:] != ":":
        raise ValueError(f"{step!r} is not a path element")
    if sort in ("v:", "k:"):
        value = orjson.loads(rest)
        if sort == "k:" and not isinstance(value, dict):
            raise ValueError(f"{step!r} must contain an object with the keys")
        return sort + canonical_json(value)
    return f"i:{int(rest)}" if sort == "i:" else step if sort == "f:" else None


def canonical_json(value: Any) -> str:
    """Canonical JSON for the steps `k:` and `v:`: equal values have equal texts."""
    return encode_sorted(value).decode()


def format_field_path(path: tuple[str, ...]) -> str:
    """A path as shown in messages: `.spec.displayName`, `.metadata.ownerReferences[uid="..."]`."""
    return "".join(map(_format_step, path))


def _format_step(step: str) -> str:
    sort, rest = step[:2], step[2:]
    if sort == "f:":
        return f".{rest}"
    if sort != "k:":
        return f"[={rest}]" if sort == "v:" else f"[{rest}]"
    keys = orjson.loads(rest).items()
    return f"[{','.join(f'{name}={canonical_json(value)}' for name, value in keys)}]"


def is_equal_json(one: Any, other: Any) -> bool:
    """Equality of JSON values. In Python, `True == 1` at any depth."""
    if isinstance(one, dict):
        if not isinstance(other, dict) or len(one) != len(other):
            return False
        return all(name in other and is_equal_json(each, other[name]) for name, each in one.items())
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(is_equal_json, one, other))
    return bool(one == other) and isinstance(one, bool) is isinstance(other, bool)
