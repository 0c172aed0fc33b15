"""Template parameters: checks their definitions, parses supplied values, and validates the values.

Pure. Templates validate their definitions with it; admission and the instance controller validate the values of
instances. Values are YAML text whose keys are variables; a dot nests, so `image.tag: a` equals `image: {tag: a}`.

Regular expressions come from template authors and values from users, so both are limited in size, and the regex engine
takes linear time. It has no look-around and no back-references. Classes such as `\\w` are ASCII only, as in Go.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import jsonschema_rs

from fairlead.core import yaml
from fairlead.core.body_errors import Malformed
from fairlead.core.errors import Problem
from fairlead.core.objects import Object, format_scalar

PARAMETERS_PATH = "spec.parameters"
PARAMETER_SECRETS, RENDERED_SECRETS = "parameterSecrets", "renderedSecrets"
"""Fields of instances that hold the values of password parameters, and the rendered values made of them."""
MAX_VALUE_BYTES = 64 * 1024
MAX_TEXT_LENGTH = 1024 * 1024
MAX_EVENTS = 6_000
"""Keys, values, and starts and ends of lists and mappings in the parameters of an instance: a write parses them several
times on the event loop. A template has at most 2,000 parameters."""
MAX_SMALL_LENGTH = 2_000
MAX_REMEMBERED = 16
"""Characters of a text that is parsed in a millisecond, and how many larger ones are remembered."""
MAX_PATTERN_LENGTH = 1_000
MAX_COMPILED_BYTES = 256 * 1024
"""Maximum bytes of a value, characters of the whole text and of a regular expression, and bytes of a compiled one."""

TEXT_TYPES = ("", "string", "multiline", "password")
_TRUE, _FALSE = ("1", "t", "true"), ("0", "f", "false")
_REDACTED = "<hidden>"

_variable = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", re.ASCII)
_MAX_VARIABLE_LENGTH = 253
_number = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
# Line breaks and terminal control characters: a single-line value must not add lines to the rendered text.
_unprintable = re.compile("[\x00-\x08\x0a-\x1f\x7f\x85\u2028\u2029]")


def definition_problems(path: str, definitions: Iterable[Object]) -> Iterator[Problem]:
    """Problems with the definitions themselves."""
    seen: set[str] = set()
    nested: dict[str, str] = {}  # parent path -> a variable below it
    for index, definition in enumerate(definitions):
        item, variable = f"{path}[{index}]", definition.get("variable") or ""
        if not _variable.fullmatch(variable) or len(variable) > _MAX_VARIABLE_LENGTH:
            reason = "must be words of letters, digits, `-` and `_`, separated by dots, such as image.tag"
            yield Problem.invalid(f"{item}.variable", variable, reason)
        elif variable in seen:
            yield Problem.duplicate(f"{item}.variable", variable)
        else:
            parents = [variable[: dot.start()] for dot in re.finditer(r"\.", variable)]
            other = nested.get(variable) or next((each for each in parents if each in seen), "")
            if other:
                reason = f"conflicts with {other}, because one is nested in the other; rename one of them"
                yield Problem.invalid(f"{item}.variable", variable, reason)
            seen.add(variable)
            nested.update(dict.fromkeys(parents, variable))
        yield from _range_problems(item, definition)
        for field in ("validation", "invalidation"):
            yield from _pattern_problems(f"{item}.{field}", definition.get(field) or "")


def _range_problems(path: str, definition: Object) -> Iterator[Problem]:
    low = definition.get("min")
    high = definition.get("max")
    if low is not None and high is not None and low > high:
        yield Problem.invalid(f"{path}.min", low, f"must not be more than max, which is {high}")


def _pattern_problems(path: str, pattern: str) -> Iterator[Problem]:
    if len(pattern) > MAX_PATTERN_LENGTH:
        yield Problem.too_long(path, MAX_PATTERN_LENGTH)
    elif pattern and _compile_pattern(pattern) is None:
        reason = "must be a regular expression, not too large, without look-around and back-references"
        yield Problem.invalid(path, pattern, reason)


_CLASSES = {
    "d": r"0-9",
    "w": r"0-9A-Za-z_",
    "s": r"\t\n\f\r ",
    "D": "\\x00-/:-\U0010ffff",
    "W": "\\x00-/:-@\\[-\\^`{-\U0010ffff",
    "S": "\\x00-\\x08\\x0b\\x0e-\\x1f!-\U0010ffff",
}
"""Their members, as written between brackets."""


def _expand_classes(pattern: str) -> str:
    """The pattern with `\\w`, `\\D` and similar classes expanded.

    The engine would expand them itself, but in quadratic time: half a second for a pattern of a thousand characters.
    """
    pieces: list[str] = []
    is_in_brackets = is_escaped = False
    for each in pattern:
        if is_escaped:
            pieces.append(_expand_class(each, is_in_brackets))
            is_escaped = False
        elif each == "\\":
            is_escaped = True
        else:
            is_in_brackets = each != "]" if is_in_brackets else each == "["
            pieces.append(each)
    return "".join(pieces) + "\\" * is_escaped


def _expand_class(escaped: str, is_in_brackets: bool) -> str:
    members = _CLASSES.get(escaped)
    if members is None:
        return f"\\{escaped}"
    return members if is_in_brackets else f"[{members}]"


@lru_cache(maxsize=512)
def _compile_pattern(pattern: str) -> jsonschema_rs.Draft202012Validator | None:
    """A validator that searches for the pattern in a string, or None if the pattern is not supported."""
    options = jsonschema_rs.RegexOptions(size_limit=MAX_COMPILED_BYTES, dfa_size_limit=MAX_COMPILED_BYTES)
    try:
        return jsonschema_rs.Draft202012Validator({"pattern": _expand_classes(pattern)}, pattern_options=options)
    except jsonschema_rs.ValidationError:
        return None


def parse_values(text: str) -> tuple[Mapping[str, Any], Sequence[Problem]]:
    """The supplied values by variable, and problems with the text itself. Those of large texts are remembered: one
    write needs them up to nine times. Callers do not change them."""
    return _parse_large(text) if is_large(text) else _parse(text)


def is_large(text: str) -> bool:
    """Whether it may take milliseconds to parse the text. Then do that in a thread first."""
    return len(text) > MAX_SMALL_LENGTH


def _parse(text: str) -> tuple[Mapping[str, Any], Sequence[Problem]]:
    if len(text) > MAX_TEXT_LENGTH:
        return {}, (Problem.too_long(PARAMETERS_PATH, MAX_TEXT_LENGTH),)
    try:
        value, duplicates = yaml.decode(text.encode(), max_events=MAX_EVENTS)
    except Malformed as error:
        return {}, (
            Problem(PARAMETERS_PATH, "FieldValueInvalid", f"Invalid value: {error}; write `name: value` lines"),
        )
    if value is None:
        return {}, ()
    if not isinstance(value, dict):
        return {}, (
            Problem(PARAMETERS_PATH, "FieldValueInvalid", "Invalid value: must be YAML with one `name: value` a line"),
        )
    found: dict[str, Any] = {}
    problems = [_duplicate_problem(path) for path in duplicates]
    for variable, each in _flatten(value):
        if variable in found:
            problems.append(_duplicate_problem(variable))
        found[variable] = each
    return MappingProxyType(found), problems


_parse_large = lru_cache(maxsize=MAX_REMEMBERED)(_parse)


def _duplicate_problem(variable: str) -> Problem:
    return Problem(
        f"{PARAMETERS_PATH}[{variable}]", "FieldValueDuplicate", "Duplicate value: it is set twice; keep one"
    )


def _flatten(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, each in value.items():
        if isinstance(each, dict) and each:
            yield from _flatten(each, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", each


def check_values(
    definitions: Iterable[Object], supplied: Mapping[str, Any], displayed: Mapping[str, Any] | None = None
) -> tuple[Mapping[str, str], Sequence[Problem]]:
    """The values as strings for rendering, with defaults, one for each definition; and problems with them.

    Supplied values without a definition are left out. `displayed` are the values to quote in messages instead of
    `supplied`: a hidden value stays hidden even if the parameter is no longer of type password.
    """
    displayed = supplied if displayed is None else displayed
    values: dict[str, str] = {}
    problems: list[Problem] = []
    for definition in definitions:
        variable = definition.get("variable") or ""
        value, fault = _check_value(definition, supplied.get(variable))
        values[variable] = value
        if fault:
            problems.append(_value_problem(definition, displayed.get(variable), fault))
    return values, problems


def find_undefined(definitions: Iterable[Object], supplied: Mapping[str, Any]) -> list[str]:
    """The supplied variables that have no definition, most likely misspelt."""
    known = {definition.get("variable") for definition in definitions}
    return sorted(variable for variable in supplied if variable not in known)


def _value_problem(definition: Object, value: Any, reason: str) -> Problem:
    path = f"{PARAMETERS_PATH}[{definition.get('variable') or ''}]"
    if value is None or value == "":
        return Problem.required(path, reason)
    return Problem.invalid(path, _REDACTED if definition.get("type") == "password" else value, reason)


def _check_value(definition: Object, supplied: Any) -> tuple[str, str]:
    """The value as a string, and what is wrong with it."""
    sort = definition.get("type") or ""
    default = definition.get("defaultValue") or ""
    if isinstance(supplied, (dict, list)):
        return "", "must be a single value, not a list or map"
    if sort in TEXT_TYPES and isinstance(supplied, (bool, float)):
        return "", "must be text; put it in quotes, so that YAML does not parse it as another type"
    value = format_scalar(supplied) or default
    if definition.get("required") and not value:
        return "", f"{definition.get('label') or 'the parameter'} must be set"
    if sort == "boolean":
        return _parse_boolean(value)
    if sort == "number":
        return _parse_integer(definition, value)
    if sort in TEXT_TYPES:
        return value, _text_error(definition, value)
    return "", f"is defined with the unknown type {sort}; fix its definition"


def _parse_boolean(value: str) -> tuple[str, str]:
    if value.lower() in _TRUE:
        return "true", ""
    if not value or value.lower() in _FALSE:
        return "false", ""
    return "", "must be true or false"


def _parse_integer(definition: Object, value: str) -> tuple[str, str]:
    if not value:
        return "", ""
    if not _number.fullmatch(value):
        return "", "must be a whole number"
    number = int(value)
    low = definition.get("min")
    high = definition.get("max")
    if low is not None and number < low:
        return "", f"must be at least {low}"
    if high is not None and number > high:
        return "", f"must be at most {high}"
    return str(number), ""


def _text_error(definition: Object, value: str) -> str:
    options = definition.get("options") or ()
    validation = definition.get("validation") or ""
    invalidation = definition.get("invalidation") or ""
    if len(value.encode()) > MAX_VALUE_BYTES:
        return f"may not be more than {MAX_VALUE_BYTES} bytes"
    if definition.get("type") != "multiline" and _unprintable.search(value):
        return "must be one line without control characters"
    if value in options:
        return ""
    if options and value and not validation and not invalidation:
        return f"must be one of {', '.join(options)}"
    if validation and not _is_found(validation, value):
        return f"must match the regular expression {validation}"
    if invalidation and _is_found(invalidation, value):
        return f"must not match the regular expression {invalidation}"
    return ""


def _is_found(pattern: str, value: str) -> bool:
    """Whether the pattern occurs in the value. An invalid pattern, from before patterns were checked, never does."""
    matcher = _compile_pattern(pattern) if len(pattern) <= MAX_PATTERN_LENGTH else None
    return matcher is not None and matcher.is_valid(value)
