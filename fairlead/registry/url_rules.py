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
from fairlead.core.user import CONTROLLER_USER
from fairlead.core.validators import check_icon, check_no_credentials
from fairlead.registry.kind import Change, Kind
from fairlead.registry.schema import Schema

_URL_FIELD = re.compile(r".*(url|uri|repo|repository|issuer|endpoint|server)", re.IGNORECASE)
_ICON_FIELD = re.compile(r"(.*[a-z_-])?(icon|logo|avatar|picture)(url)?", re.IGNORECASE)

UrlCheck = Callable[[str], str | None]
PathsAndStrings = Iterator[tuple[str, str]]
"""The path of a string, and the string."""


@dataclass(frozen=True, slots=True)
class UrlField:
    """A field that holds a URL: the path to it, and the check for it."""

    steps: tuple[str, ...]
    check: UrlCheck

    def problems(self, old: Object | None, new: Object) -> Iterator[Problem]:
        stored: set[str] | None = None
        if not _may_have_strings(new, self.steps):
            return
        for path, text in _iter_strings(new, self.steps, ""):
            reason = self.check(text)
            if reason is None:
                continue
            if stored is None:
                stored = {each for _, each in _iter_strings(old, self.steps, "")}
            if text not in stored:
                # The message does not quote the value, which may contain a password.
                yield Problem(path, "FieldValueInvalid", f"Invalid value: {reason}")


def find_url_fields(kind: Kind) -> Sequence[UrlField]:
    """Every field of the kind that holds a URL."""
    return [link for name, schema in kind.fields.items() for link in _iter_url_fields((name,), schema)]


def _iter_url_fields(steps: tuple[str, ...], schema: Schema) -> Iterator[UrlField]:
    schema = schema.get("items", schema)
    if schema.get("type") == "string":
        if _ICON_FIELD.fullmatch(steps[-1]):
            yield UrlField(steps, check_icon)
        elif _URL_FIELD.fullmatch(steps[-1]):
            yield UrlField(steps, check_no_credentials)
    for name, inner in schema.get("properties", {}).items():
        yield from _iter_url_fields((*steps, name), inner)


def url_problems(url_fields: Sequence[UrlField], change: Change) -> Iterator[Problem]:
    """Problems with the URLs of a change. The server's own writes are exempt: they copy what users have written."""
    if change.user != CONTROLLER_USER:
        for link in url_fields:
            yield from link.problems(change.old, change.obj)


def _may_have_strings(value: Any, steps: Sequence[str]) -> bool:
    """Whether there can be a string at the path. Most objects lack most fields, so this cheap test comes first."""
    for step in steps:
        if type(value) is not dict:
            return isinstance(value, list)
        value = value.get(step)
    return value is not None


def _iter_strings(value: Any, steps: Sequence[str], path: str) -> PathsAndStrings:
    if isinstance(value, list):
        for index, each in enumerate(value):
            yield from _iter_strings(each, steps, f"{path}[{index}]")
    elif not steps:
        if isinstance(value, str):
            yield path, value
    elif isinstance(value, dict) and steps[0] in value:
        yield from _iter_strings(value[steps[0]], steps[1:], f"{path}.{steps[0]}" if path else steps[0])
