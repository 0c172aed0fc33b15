"""Parses labelSelector and fieldSelector into a `Selector` that matches entries.

Grammar and error messages are Kubernetes'. A selector is parsed once per request and evaluated once per object, so the
number of its terms, of their values, and its length are limited.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from fairlead.core.errors import MAX_QUOTED_CHARS, BadRequest, quote_value
from fairlead.registry import limits
from fairlead.registry.names import label_value_errors, qualified_name_errors
from fairlead.storage.view.view import Entry, IndexQuery

# Does not match the blanks between tokens: with a leading `\s*` a run of blanks would take quadratic time.
_TOKEN = re.compile(r"==|!=|[=!(),<>]|[^\s=!(),<>]+")
_PUNCTUATION = frozenset({"=", "==", "!=", "!", "(", ")", ",", "<", ">"})
_OPERATORS = "in, notin, =, ==, !=, gt, lt"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement on one label or field."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, found: Mapping[str, str]) -> bool:
        return _TESTS[self.operator](found.get(self.key), self.values)


_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")


def _integer_test(test: Callable[[int, int], bool]) -> Callable[[str | None, frozenset[str]], bool]:
    def accepts(value: str | None, values: frozenset[str]) -> bool:
        if value is None or not _INTEGER.fullmatch(value):
            return False
        return test(int(value), int(next(iter(values))))

    return accepts


_TESTS: dict[str, Callable[[str | None, frozenset[str]], bool]] = {
    "in": lambda value, values: value is not None and value in values,
    "notin": lambda value, values: value is None or value not in values,
    "exists": lambda value, values: value is not None,
    "missing": lambda value, values: value is None,
    ">": _integer_test(lambda left, right: left > right),
    "<": _integer_test(lambda left, right: left < right),
}


CHEAP_TERMS = 4
"""Evaluating this many terms takes no longer than the rest of the work on an object."""


@dataclass(frozen=True, slots=True)
class Selector:
    """All requirements of a list or watch. An empty one matches everything."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.labels or self.fields)

    def batch_size(self, rows: int) -> int:
        """How many objects to test before yielding to the event loop. `rows` is the number for a selector with few
        terms."""
        return max(1, rows // (1 + (len(self.labels) + len(self.fields)) // CHEAP_TERMS))

    def matches(self, entry: Entry) -> bool:
        return self.matches_values(entry.labels, entry.fields if self.fields else _NO_FIELDS)

    def matches_values(self, labels: Mapping[str, str], fields: Mapping[str, str]) -> bool:
        # Plain loops: this runs once per object of a list, and `all(...)` would take three times as long.
        for each in self.labels:
            if not each.matches(labels):
                return False
        for each in self.fields:  # noqa: SIM110
            if not each.matches(fields):
                return False
        return True


EVERYTHING = Selector()
_NO_FIELDS: Mapping[str, str] = {}
_KEY_FIELDS = frozenset({"metadata.name", "metadata.namespace"})


def index_conditions(selector: Selector) -> list[IndexQuery]:
    """The requirements that an index can answer. The entries it finds must still be tested."""
    found = [*(("labels", each) for each in selector.labels), *(("selectable", each) for each in selector.fields)]
    return [
        IndexQuery(sort, each.key, each.values if each.operator == "in" else None)
        for sort, each in found
        if each.operator in ("in", "exists", "<", ">") and each.key not in _KEY_FIELDS
    ]


def parse_labels(text: str) -> tuple[Requirement, ...]:
    """Parses `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1`."""
    _check_length("labelSelector", text)
    if not text.strip():
        return ()
    return _limit_terms("labelSelector", _LabelParser(_TOKEN.findall(text)).requirements())


def _check_length(name: str, text: str) -> None:
    if len(text) > limits.SELECTOR_LENGTH:
        raise BadRequest(f"{name} is too long: {len(text)} characters; {limits.SELECTOR_LENGTH} is the limit")


def _limit_terms(name: str, requirements: Iterable[Requirement]) -> tuple[Requirement, ...]:
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
            if self._peek() not in ("", "!") and self._peek() in _PUNCTUATION:
                raise BadRequest(f"found '{self._peek()}', expected: !, identifier, or 'end of string'")
            yield self._requirement()
            end = self._next()
            if end == "":
                return
            if end != ",":
                raise BadRequest(f"found '{end}', expected: ',' or 'end of string'")
            if self._peek() != "!" and (self._peek() == "" or self._peek() in _PUNCTUATION):
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
            return Requirement(key, operator, self._check_values(key, self._list()))
        if operator in ("=", "=="):
            return Requirement(key, "in", self._check_values(key, [self._value()]))
        if operator == "!=":
            return Requirement(key, "notin", self._check_values(key, [self._value()]))
        if operator in ("<", ">"):
            return Requirement(key, operator, self._check_integer(self._value()))
        raise BadRequest(f"unable to parse requirement: found '{operator}', expected: {_OPERATORS}")

    def _key(self) -> str:
        key = self._next()
        if key == "" or key in _PUNCTUATION:
            raise BadRequest(f"unable to parse requirement: found '{key}', expected: identifier")
        for fault in qualified_name_errors(key):
            raise BadRequest(f"unable to parse requirement: <nil>: Invalid value: {quote_value(key)}: {fault}")
        return key

    def _value(self) -> str:
        return self._next() if self._peek() not in ("", ",") and self._peek() not in _PUNCTUATION else ""

    def _list(self) -> list[str]:
        if self._next() != "(":
            found = self._tokens[self._at - 1] if self._at <= len(self._tokens) else ""
            raise BadRequest(f"unable to parse requirement: found '{found}', expected: '('")
        values: list[str] = []
        while True:
            values.append(self._value())
            if len(values) > limits.SELECTOR_VALUES:
                reason = f"too many values in one term; {limits.SELECTOR_VALUES} is the limit"
                raise BadRequest(f"unable to parse requirement: {reason}")
            end = self._next()
            if end == ")":
                return values
            if end != ",":
                raise BadRequest(f"unable to parse requirement: found '{end}', expected: ',' or ')'")

    def _check_values(self, key: str, values: Iterable[str]) -> frozenset[str]:
        checked = list(values)
        for index, value in enumerate(checked):
            for fault in label_value_errors(value):
                raise BadRequest(
                    f"unable to parse requirement: values[{index}][{key}]: Invalid value: {quote_value(value)}: {fault}"
                )
        return frozenset(checked)

    def _check_integer(self, value: str) -> frozenset[str]:
        if not _INTEGER.fullmatch(value):
            raise BadRequest(
                f"unable to parse requirement: values[0]: Invalid value: {quote_value(value)}: "
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
    return _limit_terms("fieldSelector", _field_requirements(text, frozenset(allowed)))


def _field_requirements(text: str, supported: frozenset[str]) -> Iterator[Requirement]:
    for part in _split_unescaped(text):
        match = re.match(r"((?:\\.|[^\\=!])*)(==|!=|=)(.*)", part, re.DOTALL)
        if match is None:
            raise BadRequest(_syntax_error(text, part))
        key, operator, value = match.groups()
        if key not in supported:
            raise BadRequest(f"field label not supported: {key:.{MAX_QUOTED_CHARS}}")
        yield Requirement(key, "notin" if operator == "!=" else "in", frozenset({_unescape(value, text)}))


def _syntax_error(text: str, part: str) -> str:
    return f"invalid selector: '{text:.{MAX_QUOTED_CHARS}}'; can't understand '{part:.{MAX_QUOTED_CHARS}}'"


def selected_name(text: str) -> str:
    """The only name that a fieldSelector can match, or an empty string. Syntax errors are reported elsewhere."""
    for term in _split_unescaped(text):
        key, _, value = term.partition("=")
        if key == "metadata.name" and "\\" not in value:
            return value.removeprefix("=")
    return ""


def _split_unescaped(text: str) -> list[str]:
    return re.findall(r"(?:\\.|[^\\,]|\\$)+", text, re.DOTALL)


def _unescape(value: str, selector: str) -> str:
    if not re.fullmatch(r"(?:\\[\\,=]|[^\\,=])*", value, re.DOTALL):
        raise BadRequest(_syntax_error(selector, value))
    return re.sub(r"\\(.)", r"\1", value, flags=re.DOTALL)
