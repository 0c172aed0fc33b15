"""Addresses in objects: no field that holds one holds a user or a password in it, and icons run nothing.

Whoever may read an object reads its addresses, and so do tables, logs and the audit log: a password in one is a
password in all of them, while passwords have fields of their own. Browsers load icons, so only pictures may be there.

The fields are found by their names in the schemas, so that a new kind is covered without being told. What was stored
before may stay as it is.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fairlead.core.errors import Problem
from fairlead.core.objects import Object
from fairlead.core.user import CONTROLLER
from fairlead.core.validators import check_icon, check_no_credentials
from fairlead.registry.kind import Change, Kind
from fairlead.registry.schema import Schema

_ADDRESS = re.compile(r".*(url|uri|repo|repository|issuer|endpoint|server)", re.IGNORECASE)
_ICON = re.compile(r"(.*[a-z_-])?(icon|logo|avatar|picture)(url)?", re.IGNORECASE)

Check = Callable[[str], str | None]
Found = Iterator[tuple[str, str]]
"""The place of a text, and the text."""


@dataclass(frozen=True, slots=True)
class Link:
    """A field that holds an address: the steps to it, and what it must not be."""

    steps: tuple[str, ...]
    check: Check

    def problems(self, old: Object | None, new: Object) -> Iterator[Problem]:
        before: set[str] | None = None
        if not _may_have_texts(new, self.steps):
            return
        for place, text in _texts(new, self.steps, ""):
            why = self.check(text)
            if why is None:
                continue
            if before is None:
                before = {each for _, each in _texts(old, self.steps, "")}
            if text not in before:
                # Without the value: it may well be the password that does not belong there.
                yield Problem(place, "FieldValueInvalid", f"Invalid value: {why}")


def links_of(kind: Kind) -> Sequence[Link]:
    """Every field of the kind that holds an address."""
    return [link for name, schema in kind.fields.items() for link in _links((name,), schema)]


def _links(steps: tuple[str, ...], schema: Schema) -> Iterator[Link]:
    schema = schema.get("items", schema)
    if schema.get("type") == "string":
        if _ICON.fullmatch(steps[-1]):
            yield Link(steps, check_icon)
        elif _ADDRESS.fullmatch(steps[-1]):
            yield Link(steps, check_no_credentials)
    for name, inner in schema.get("properties", {}).items():
        yield from _links((*steps, name), inner)


def link_problems(links: Sequence[Link], change: Change) -> Iterator[Problem]:
    """What is wrong with the addresses that a change brings. The server's own writes bring what others have written."""
    if change.user != CONTROLLER:
        for link in links:
            yield from link.problems(change.old, change.obj)


def _may_have_texts(value: Any, steps: Sequence[str]) -> bool:
    """Whether there can be a text at the end of the steps. Most objects lack most fields, which is found out here."""
    for step in steps:
        if type(value) is not dict:
            return isinstance(value, list)
        value = value.get(step)
    return value is not None


def _texts(value: Any, steps: Sequence[str], at: str) -> Found:
    if isinstance(value, list):
        for index, each in enumerate(value):
            yield from _texts(each, steps, f"{at}[{index}]")
    elif not steps:
        if isinstance(value, str):
            yield at, value
    elif isinstance(value, dict) and steps[0] in value:
        yield from _texts(value[steps[0]], steps[1:], f"{at}.{steps[0]}" if at else steps[0])
