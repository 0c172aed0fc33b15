"""Parses labelSelector and fieldSelector into a `Selector` that matches entries.

Grammar and error messages are Kubernetes'. A selector is parsed once per request and evaluated once per object, so the
number of its terms, of their values, and its length are limited.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from fairlead.core.errors import MAX_SHOWN, BadRequest, shown
from fairlead.registry import limits
from fairlead.registry.names import qualified_faults, value_faults
from fairlead.storage.view.view import Entry, Wanted

# Does not match the blanks between tokens: with a leading `\s*` a run of blanks would take quadratic time.
_TOKEN = re.compile(r"==|!=|[=!(),<>]|[^\s=!(),<>]+")
_MARKS = frozenset({"=", "==", "!=", "!", "(", ")", ",", "<", ">"})
_OPERATORS = "in, notin, =, ==, !=, gt, lt"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement on one label or field."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def accepts(self, found: Mapping[str, str]) -> bool:
        return _TESTS[self.operator](found.get(self.key), self.values)


_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")


def _compares(test: Callable[[int, int], bool]) -> Callable[[str | None, frozenset[str]], bool]:
    def accepts(value: str | None, values: frozenset[str]) -> bool:
        if value is None or not _WHOLE_NUMBER.fullmatch(value):
            return False
        return test(int(value), int(next(iter(values))))

    return accepts


_TESTS: dict[str, Callable[[str | None, frozenset[str]], bool]] = {
    "in": lambda value, values: value is not None and value in values,
    "notin": lambda value, values: value is None or value not in values,
    "exists": lambda value, values: value is not None,
    "missing": lambda value, values: value is None,
    ">": _compares(lambda left, right: left > right),
    "<": _compares(lambda left, right: left < right),
}


FEW_TERMS = 4
"""Evaluating this many terms takes no longer than the rest of the work on an object."""


@dataclass(frozen=True, slots=True)
class Selection:
    """All requirements of a list or watch. An empty one matches everything."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.labels or self.fields)

    def rows_at_once(self, rows: int) -> int:
        """How many objects to test before yielding to the event loop. `rows` is the number for a selector with few
        terms."""
        return max(1, rows // (1 + (len(self.labels) + len(self.fields)) // FEW_TERMS))

    def takes(self, entry: Entry) -> bool:
        return self.accepts(entry.labels, entry.fields if self.fields else _NOT_ASKED)

    def accepts(self, labels: Mapping[str, str], fields: Mapping[str, str]) -> bool:
        # Plain loops: this runs once per object of a list, and `all(...)` would take three times as long.
        for each in self.labels:
            if not each.accepts(labels):
                return False
        for each in self.fields:  # noqa: SIM110
            if not each.accepts(fields):
                return False
        return True


EVERYTHING = Selection()
_NOT_ASKED: Mapping[str, str] = {}
_IN_THE_KEY = frozenset({"metadata.name", "metadata.namespace"})


def narrowing(selection: Selection) -> list[Wanted]:
    """The requirements that an index can answer. The entries it finds must still be tested."""
    found = [*(("labels", each) for each in selection.labels), *(("selectable", each) for each in selection.fields)]
    return [
        Wanted(sort, each.key, each.values if each.operator == "in" else None)
        for sort, each in found
        if each.operator in ("in", "exists", "<", ">") and each.key not in _IN_THE_KEY
    ]


def parse_labels(text: str) -> tuple[Requirement, ...]:
    """Parses `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1`."""
    _check_length("labelSelector", text)
    if not text.strip():
        return ()
    return _few("labelSelector", _LabelParser(_TOKEN.findall(text)).requirements())


def _check_length(name: str, text: str) -> None:
    if len(text) > limits.SELECTOR_LENGTH:
        raise BadRequest(f"{name} is too long: {len(text)} characters; {limits.SELECTOR_LENGTH} is the limit")


def _few(name: str, requirements: Iterable[Requirement]) -> tuple[Requirement, ...]:
    """The requirements without duplicates. Rejects too many of them."""
    found = dict[Requirement, None]()
    for each in requirements:
        found[each] = None
        if len(found) > limits.SELECTOR_TERMS:
            limit = f"{limits.SELECTOR_TERMS} is the limit"
            raise BadRequest(f"{name} has too many terms: {limit}; use `key in (a,b)`, or select less")
    return tuple(found)


class _LabelParser:
    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._at = 0

    def requirements(self) -> Iterator[Requirement]:
        while True:
            if self._peek() not in ("", "!") and self._peek() in _MARKS:
                raise BadRequest(f"found '{self._peek()}', expected: !, identifier, or 'end of string'")
            yield self._requirement()
            end = self._next()
            if end == "":
                return
            if end != ",":
                raise BadRequest(f"found '{end}', expected: ',' or 'end of string'")
            if self._peek() != "!" and (self._peek() == "" or self._peek() in _MARKS):
                raise BadRequest(f"found '{self._peek()}', expected: identifier after ','")

    def _requirement(self) -> Requirement:
        if self._peek() == "!":
            self._next()
            return Requirement(self._key(), "missing")
        key = self._key()
        if self._peek() in ("", ","):
            return Requirement(key, "exists")
        operator = self._next()
        if operator in ("in", "notin"):
            return Requirement(key, operator, self._checked(key, self._list()))
        if operator in ("=", "=="):
            return Requirement(key, "in", self._checked(key, [self._single()]))
        if operator == "!=":
            return Requirement(key, "notin", self._checked(key, [self._single()]))
        if operator in ("<", ">"):
            return Requirement(key, operator, self._number(self._single()))
        raise BadRequest(f"unable to parse requirement: found '{operator}', expected: {_OPERATORS}")

    def _key(self) -> str:
        key = self._next()
        if key == "" or key in _MARKS:
            raise BadRequest(f"unable to parse requirement: found '{key}', expected: identifier")
        for fault in qualified_faults(key):
            raise BadRequest(f"unable to parse requirement: <nil>: Invalid value: {shown(key)}: {fault}")
        return key

    def _single(self) -> str:
        return self._next() if self._peek() not in ("", ",") and self._peek() not in _MARKS else ""

    def _list(self) -> list[str]:
        if self._next() != "(":
            found = self._tokens[self._at - 1] if self._at <= len(self._tokens) else ""
            raise BadRequest(f"unable to parse requirement: found '{found}', expected: '('")
        values: list[str] = []
        while True:
            values.append(self._single())
            if len(values) > limits.SELECTOR_VALUES:
                reason = f"too many values in one term; {limits.SELECTOR_VALUES} is the limit"
                raise BadRequest(f"unable to parse requirement: {reason}")
            end = self._next()
            if end == ")":
                return values
            if end != ",":
                raise BadRequest(f"unable to parse requirement: found '{end}', expected: ',' or ')'")

    def _checked(self, key: str, values: Iterable[str]) -> frozenset[str]:
        checked = list(values)
        for index, value in enumerate(checked):
            for fault in value_faults(value):
                raise BadRequest(
                    f"unable to parse requirement: values[{index}][{key}]: Invalid value: {shown(value)}: {fault}"
                )
        return frozenset(checked)

    def _number(self, value: str) -> frozenset[str]:
        if not _WHOLE_NUMBER.fullmatch(value):
            raise BadRequest(
                f"unable to parse requirement: values[0]: Invalid value: {shown(value)}: "
                "for 'Gt', 'Lt' operators, the value must be an integer"
            )
        return frozenset({value})

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        self._at += 1
        return token


def parse_fields(text: str, allowed: Iterable[str]) -> tuple[Requirement, ...]:
    """Parses `metadata.name=a,status.phase!=Ready`. `allowed` are the fields that the kind supports."""
    _check_length("fieldSelector", text)
    return _few("fieldSelector", _field_requirements(text, frozenset(allowed)))


def _field_requirements(text: str, supported: frozenset[str]) -> Iterator[Requirement]:
    for part in _split_unescaped(text):
        match = re.match(r"((?:\\.|[^\\=!])*)(==|!=|=)(.*)", part, re.DOTALL)
        if match is None:
            raise BadRequest(_unclear(text, part))
        key, operator, value = match.groups()
        if key not in supported:
            raise BadRequest(f"field label not supported: {key:.{MAX_SHOWN}}")
        yield Requirement(key, "notin" if operator == "!=" else "in", frozenset({_unescaped(value, text)}))


def _unclear(text: str, part: str) -> str:
    return f"invalid selector: '{text:.{MAX_SHOWN}}'; can't understand '{part:.{MAX_SHOWN}}'"


def selected_name(text: str) -> str:
    """The only name that a fieldSelector can match, or an empty string. Syntax errors are reported elsewhere."""
    for term in _split_unescaped(text):
        key, _, value = term.partition("=")
        if key == "metadata.name" and "\\" not in value:
            return value.removeprefix("=")
    return ""


def _split_unescaped(text: str) -> list[str]:
    return re.findall(r"(?:\\.|[^\\,]|\\$)+", text, re.DOTALL)


def _unescaped(value: str, selector: str) -> str:
    if not re.fullmatch(r"(?:\\[\\,=]|[^\\,=])*", value, re.DOTALL):
        raise BadRequest(_unclear(selector, value))
    return re.sub(r"\\(.)", r"\1", value, flags=re.DOTALL)
