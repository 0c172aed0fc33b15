"""Sets of field paths: what field ownership and server-side apply reckon with.

A set has the form that it has inside `managedFields`, Kubernetes' FieldsV1, so nothing is translated between the wire
and the reckoning: nested dictionaries, whose keys are the steps of a path.

    f:name       a field of a structure, or a key of a map
    k:{"a":1}    an entry of a list, by the fields that tell its entries apart
    v:"x"        an entry of a list without duplicates, by its value
    i:3          an entry by its place; never made here, but others may have recorded it
    .            the path that led here is in the set itself, beside the ones that go on

A path ends in an empty dictionary; at the very top, an empty dictionary is the empty set. Sets are values: nothing here
changes one, and results share parts with their arguments. `field_walk.py` makes them from objects, `registry/patching/managed_fields.py` and
`apply.py` reckon with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import orjson

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


def union_of_all(sets: Iterable[FieldSet]) -> FieldSet:
    """The paths that are in any of many sets. One after the other would copy the larger ones again and again."""
    found = [each for each in sets if each]
    return found[0] if len(found) == 1 else _gathered(found)


def _gathered(sets: list[FieldSet]) -> FieldSet:
    steps: dict[str, list[FieldSet]] = {}
    for each in sets:
        for step, below in each.items():
            steps.setdefault(step, []).append(below)
    return {step: below[0] if len(below) == 1 else _gathered_below(below) for step, below in steps.items()}


def _gathered_below(sets: list[FieldSet]) -> FieldSet:
    inside = [each for each in sets if each]
    if not inside:
        return {}
    below = inside[0] if len(inside) == 1 else _gathered(inside)
    return below if len(inside) == len(sets) or SELF in below else {SELF: {}, **below}


def difference(one: FieldSet, other: FieldSet) -> FieldSet:
    """The paths of `one` that are not in `other`. What lies below a path is another path. `one` itself if none is."""
    if not other:
        return one
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
        return tidy(difference(mine, theirs))
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
    return tidy(intersection(mine, theirs))


def tidy(below: FieldSet) -> FieldSet | None:
    """A part of a set in the one form it may have: nothing at all is None, a path with nothing below it is empty."""
    if len(below) > 1:
        return below
    if not below:
        return None
    return {} if SELF in below else below


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
        return sort + key_text(value)
    return f"i:{int(rest)}" if sort == "i:" else step if sort == "f:" else None


def key_text(value: Any) -> str:
    """A value as the steps `k:` and `v:` spell it: equal values have equal texts."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def shown_path(path: tuple[str, ...]) -> str:
    """A path as messages spell it: `.spec.displayName`, `.metadata.ownerReferences[uid="..."]`."""
    return "".join(map(_shown_step, path))


def _shown_step(step: str) -> str:
    sort, rest = step[:2], step[2:]
    if sort == "f:":
        return f".{rest}"
    if sort != "k:":
        return f"[={rest}]" if sort == "v:" else f"[{rest}]"
    keys = orjson.loads(rest).items()
    return f"[{','.join(f'{name}={key_text(value)}' for name, value in keys)}]"


def same(one: Any, other: Any) -> bool:
    """Equality of JSON values. Python alone takes `true` for `1`, also deep inside."""
    if isinstance(one, dict):
        if not isinstance(other, dict) or len(one) != len(other):
            return False
        return all(name in other and same(each, other[name]) for name, each in one.items())
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(same, one, other))
    return bool(one == other) and isinstance(one, bool) is isinstance(other, bool)
