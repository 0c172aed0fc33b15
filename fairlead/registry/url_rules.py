"""Rules for URLs in objects: none may contain a user or password, and icons must be images.

URLs show up in responses, tables, logs and the audit log, so a password in one would leak; passwords have fields of
their own. Browsers load icons, so they must not be able to run code.

The fields are found by name in the schemas, so new kinds are covered automatically. Stored values are not checked
again.
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
"""The path of a string, and the string."""


@dataclass(frozen=True, slots=True)
class Link:
    """A field that holds a URL: the path to it, and the check for it."""

    steps: tuple[str, ...]
    check: Check

    def problems(self, old: Object | None, new: Object) -> Iterator[Problem]:
        stored: set[str] | None = None
        if not _may_have_texts(new, self.steps):
            return
        for path, text in _texts(new, self.steps, ""):
            reason = self.check(text)
            if reason is None:
                continue
            if stored is None:
                stored = {each for _, each in _texts(old, self.steps, "")}
            if text not in stored:
                # The message does not quote the value, which may contain a password.
                yield Problem(path, "FieldValueInvalid", f"Invalid value: {reason}")


def links_of(kind: Kind) -> Sequence[Link]:
    """Every field of the kind that holds a URL."""
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
    """Problems with the URLs of a change. The server's own writes are exempt: they copy what users have written."""
    if change.user != CONTROLLER:
        for link in links:
            yield from link.problems(change.old, change.obj)


def _may_have_texts(value: Any, steps: Sequence[str]) -> bool:
    """Whether there can be a string at the path. Most objects lack most fields, so this cheap test comes first."""
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
